package lostreply_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
	"github.com/pglimit/pglimit/tests/dbtest"
	"github.com/pglimit/pglimit/tests/lostreply"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	workers = 8
	claims  = 504 // of all workers together; half of the permits are released
)

// C-25: claims whose replies are lost after the server has committed leave no permit that nobody knows of.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := newClient(t, db.URL("pglimit_operator"))
	direct := newClient(t, db.URL("pglimit_app"))

	var mu sync.Mutex
	known := map[int64]bool{}
	retries, cuts := 0, 0
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			// Never three in a row, and a worker's claims follow one another: each has an answer in the end.
			pass := slices.Repeat([]lostreply.Cut{lostreply.Pass}, 7)
			proxy := &lostreply.Proxy{Plan: slices.Concat(
				[]lostreply.Cut{lostreply.Withhold}, pass,
				[]lostreply.Cut{lostreply.Truncate, lostreply.Withhold}, pass,
			)}
			dsn, err := proxy.Start(db.URL("pglimit_app"))
			if err != nil {
				t.Error(err)
				return
			}
			defer proxy.Stop()
			client := newClient(t, dsn, pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) {
				mu.Lock()
				defer mu.Unlock()
				retries += o.Retries
			}))
			for n := range claims / workers {
				permit, err := client.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{
					Endpoint: "e", Holder: fmt.Sprint(n % 3), Lease: pgclient.D(time.Hour), Weight: pgclient.N(1 + n%5/4),
					HolderCap: pgclient.N(2 * claims), EndpointCap: pgclient.N(2 * claims), InstallationCap: pgclient.N(2 * claims),
				})
				if err != nil || !permit.Granted {
					t.Errorf("worker %d, claim %d: %+v, %v", worker, n, permit, err)
					continue
				}
				if n%2 == 0 {
					if released, err := direct.ReleasePermit(t.Context(), permit.ID, permit.Holder); err != nil || !released.Released {
						t.Errorf("release of %d: %+v, %v", permit.ID, released, err)
					}
					continue
				}
				mu.Lock()
				if known[permit.ID] {
					t.Errorf("permit %d was given to two", permit.ID)
				}
				known[permit.ID] = true
				mu.Unlock()
			}
			mu.Lock()
			cuts += proxy.Cuts()
			mu.Unlock()
		})
	}
	wg.Wait()

	t.Logf("%d claims, %d replies lost, %d retries", claims, cuts, retries)
	if retries < 50 || retries != cuts {
		t.Errorf("%d replies were lost and %d claims made again, want the same and at least 50", cuts, retries)
	}
	live := livePermits(t, operator)
	if want := slices.Sorted(maps.Keys(known)); !slices.Equal(live, want) {
		t.Errorf("%d permits are live, %d are known", len(live), len(want))
	}
}

// When every reply is lost the error says so, and the one permit that there is lapses by itself.
func TestEveryReplyLost(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	proxy := &lostreply.Proxy{Plan: []lostreply.Cut{lostreply.Withhold}}
	dsn, err := proxy.Start(db.URL("pglimit_app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	permit, err := newClient(t, dsn).ClaimPermit(t.Context(), pgclient.ClaimPermitParams{
		Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(9), Lease: pgclient.D(time.Hour),
	})
	if permit != nil || !errors.Is(err, pgclient.ErrUnavailable) || !strings.Contains(err.Error(), "a permit that nobody knows of") {
		t.Errorf("got %+v, %v", permit, err)
	}
	if live := livePermits(t, newClient(t, db.URL("pglimit_operator"))); len(live) != 1 || proxy.Cuts() != 3 {
		t.Errorf("%d permits after %d cuts, want the one of all attempts", len(live), proxy.Cuts())
	}
}

// C-25: claims that wait, whose replies are lost at every step, leave no permit that nobody knows of, and all of them have
// their turn.
func TestWaitersLoseReplies(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := newClient(t, db.URL("pglimit_operator"))
	var mu sync.Mutex
	var polls, retries, cuts int
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			// Each worker begins at another place of the plan, so that every step meets a loss. Of tickets drawn some
			// replies are lost too: those wait for nobody and are passed over when they lapse.
			plan := slices.Concat(
				[]lostreply.Cut{lostreply.Withhold}, slices.Repeat([]lostreply.Cut{lostreply.Pass}, 10),
				[]lostreply.Cut{lostreply.Truncate, lostreply.Withhold}, slices.Repeat([]lostreply.Cut{lostreply.Pass}, 13))
			proxy := &lostreply.Proxy{Plan: slices.Concat(plan[worker*3:], plan[:worker*3])}
			dsn, err := proxy.Start(db.URL("pglimit_app"))
			if err != nil {
				t.Error(err)
				return
			}
			defer proxy.Stop()
			client := newClient(t, dsn, pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) {
				mu.Lock()
				defer mu.Unlock()
				polls, retries = polls+o.Polls, retries+o.Retries
			}))
			direct := newClient(t, db.URL("pglimit_app"))
			for n := range 6 {
				permit, err := client.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{
					Endpoint: "e", Holder: fmt.Sprint(worker % 3), EndpointCap: pgclient.N(2), Lease: pgclient.D(time.Hour),
					Wait: pgclient.D(time.Minute),
				})
				if err != nil || !permit.Granted {
					t.Errorf("worker %d, claim %d: %+v, %v", worker, n, permit, err)
					return
				}
				if live := livePermits(t, operator); len(live) > 2 {
					t.Errorf("permits %v are live, the cap is 2", live)
				}
				if released, err := direct.ReleasePermit(t.Context(), permit.ID, permit.Holder); err != nil || !released.Released {
					t.Errorf("release of %d: %+v, %v", permit.ID, released, err)
				}
			}
			mu.Lock()
			cuts += proxy.Cuts()
			mu.Unlock()
		})
	}
	wg.Wait()
	t.Logf("%d polls, %d replies lost, %d calls made again", polls, cuts, retries)
	if retries != cuts || retries < workers {
		t.Errorf("%d replies were lost and %d calls made again, want the same and at least %d", cuts, retries, workers)
	}
	if live := livePermits(t, operator); len(live) > 0 {
		t.Errorf("nobody knows of permits %v", live)
	}
}

func newClient(t *testing.T, dsn string, opts ...pgclient.Option) *pgclient.Client {
	t.Helper()
	client, err := pgclient.Open(t.Context(), dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// livePermits are the ids of all permits that are live, ascending.
func livePermits(t *testing.T, operator *pgclient.Client) (ids []int64) {
	t.Helper()
	rows, err := operator.ListPermits(t.Context(), pgclient.ListPermitsParams{MaxRows: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.State == "live" { // not a ticket
			ids = append(ids, row.ID)
		}
	}
	return ids
}
