package pgclient_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/pgclient"
	"github.com/pglimit/pglimit/tests/dbtest"
)

// C-22: a worker that is too busy to renew, and holds all of its program's connections, keeps its permit.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	var renewals renewalCount
	client := must(pgclient.New(pool, pgclient.WithObserver(renewals.observe)))(t)
	permit := must(client.ClaimPermit(t.Context(), leased("e", 2*time.Second)))(t)
	defer permit.Release(t.Context())
	held := must(pool.Acquire(t.Context()))(t)
	defer held.Release()
	permit.KeepAlive(t.Context())
	permit.KeepAlive(t.Context())
	for db.now(t).Before(permit.ExpiresAt.Add(3 * time.Second)) {
		time.Sleep(100 * time.Millisecond)
	}
	want(t, "lost", isLost(permit), false)
	want(t, "another's claim", must(db.app.ClaimPermit(t.Context(), leased("e", time.Second)))(t).Granted, false)
	rows := must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: "e"}))(t)
	if len(rows) != 1 || rows[0].ID != permit.ID {
		t.Errorf("got %+v, want permit %d", rows, permit.ID)
	}
	// 5 s at a third of 2 s; with two goroutines it would be twice that.
	if n := renewals.ok.Load(); n < 4 || n > 10 {
		t.Errorf("got %d renewals, want about 7", n)
	}
}

func TestKeepAliveTriesAgain(t *testing.T) {
	t.Parallel()
	db := setup(t)
	var down atomic.Bool
	var renewals renewalCount
	client := must(pgclient.New(connectionsFunc(func(ctx context.Context) (*pgxpool.Conn, error) {
		if down.Load() {
			return nil, errors.New("down")
		}
		return db.Pool("pglimit_app").Acquire(ctx)
	}), pgclient.WithObserver(renewals.observe)))(t)
	permit := must(client.ClaimPermit(t.Context(), leased("e", 3*time.Second)))(t)
	defer permit.Release(t.Context())
	down.Store(true)
	permit.KeepAlive(t.Context())
	waitFor(t, "three failures", func() bool { return renewals.failed.Load() >= 3 })
	down.Store(false)
	waitFor(t, "a renewal", func() bool { return renewals.ok.Load() >= 1 })
	want(t, "lost", isLost(permit), false)
}

// C-22: whoever holds a permit is told when it is lost.
func TestLost(t *testing.T) {
	t.Parallel()
	db := setup(t)

	t.Run("LeaseRanOut", func(t *testing.T) {
		t.Parallel()
		permit := must(db.app.ClaimPermit(t.Context(), leased("ran out", 200*time.Millisecond)))(t)
		wantLost(t, permit)
		permit.KeepAlive(t.Context()) // too late
		want(t, "lost", isLost(permit), true)
	})

	t.Run("RenewedByHand", func(t *testing.T) {
		t.Parallel()
		permit := must(db.app.ClaimPermit(t.Context(), leased("by hand", time.Second)))(t)
		want(t, "lost", isLost(permit), false)
		renewed := must(permit.Renew(t.Context(), pgclient.D(time.Hour)))(t)
		for db.now(t).Before(permit.ExpiresAt.Add(100 * time.Millisecond)) {
			time.Sleep(50 * time.Millisecond)
		}
		want(t, "lost", isLost(permit), !renewed.Renewed)
	})

	t.Run("ReleasedByAnother", func(t *testing.T) {
		t.Parallel()
		permit := must(db.app.ClaimPermit(t.Context(), leased("another", time.Second)))(t)
		permit.KeepAlive(t.Context())
		must(db.operator.ReleasePermit(t.Context(), permit.ID, ""))(t)
		wantLost(t, permit)
	})

	t.Run("SeenByARenewal", func(t *testing.T) {
		t.Parallel()
		permit := must(db.app.ClaimPermit(t.Context(), leased("seen", time.Hour)))(t)
		must(db.operator.ReleasePermit(t.Context(), permit.ID, ""))(t)
		want(t, "lost", isLost(permit), false)
		want(t, "renewed", must(permit.Renew(t.Context(), nil))(t).Renewed, false)
		want(t, "lost", isLost(permit), true)
	})

	t.Run("LongestReached", func(t *testing.T) {
		t.Parallel()
		must(db.operator.SetEndpoint(t.Context(), pgclient.SetEndpointParams{
			Endpoint: "longest", HolderCap: pgclient.N(1), Longest: pgclient.D(2 * time.Second),
		}))(t)
		var renewals renewalCount
		client := must(pgclient.New(db.Pool("pglimit_app"), pgclient.WithObserver(renewals.observe)))(t)
		permit := must(client.ClaimPermit(t.Context(), leased("longest", time.Second)))(t)
		permit.KeepAlive(t.Context())
		wantLost(t, permit)
		// With 1 s each at a third of it, then at a third of what is left, and one that ends where the last one did.
		if n := renewals.ok.Load(); n > 7 {
			t.Errorf("got %d renewals", n)
		}
		waitFor(t, "the next holder", func() bool {
			return must(db.app.ClaimPermit(t.Context(), leased("longest", time.Second)))(t).Granted
		})
	})

	t.Run("RefusedAndNil", func(t *testing.T) {
		t.Parallel()
		refused := leased("refused", time.Hour)
		refused.HolderCap = pgclient.N(0)
		for _, permit := range []*pgclient.Permit{nil, must(db.app.ClaimPermit(t.Context(), refused))(t)} {
			permit.KeepAlive(t.Context())
			want(t, "lost", isLost(permit), true)
		}
	})

	t.Run("ServerKilled", func(t *testing.T) {
		t.Parallel()
		server := must(localpg.Start(t.Context(), localpg.Options{Settings: dbtest.Settings()}))(t)
		t.Cleanup(func() { _ = server.Stop(context.Background()) })
		own := dbtest.NewOn(t, server.DSN("postgres"))
		client := must(pgclient.Open(t.Context(), own.URL("pglimit_app")))(t)
		t.Cleanup(client.Close)
		permit := must(client.ClaimPermit(t.Context(), leased("e", 2*time.Second)))(t)
		permit.KeepAlive(t.Context())
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		wantLost(t, permit)
		if err := server.Restart(t.Context()); err != nil { // for the cleanup of its database
			t.Fatal(err)
		}
	})
}

// The permit takes itself for lost no later than the server does, whatever is known of the last renewal. Both clocks are
// this machine's here.
func TestEndOfLease(t *testing.T) {
	t.Parallel()
	db := setup(t)
	check := func(what string, permit *pgclient.Permit, expires time.Time, length time.Duration) {
		t.Helper()
		if end := permit.EndOfLease(); end.After(expires) || end.Before(expires.Add(-length/2)) {
			t.Errorf("%s: got an end at %v, want shortly before %v", what, end, expires)
		}
	}
	network := &cutter{}
	client := must(pgclient.New(db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DialFunc = network.dial })))(t)
	must(db.operator.SetEndpoint(t.Context(), pgclient.SetEndpointParams{
		Endpoint: "bound", HolderCap: pgclient.N(1), TimeBound: pgclient.D(time.Hour), Longest: pgclient.D(2 * time.Hour),
	}))(t)
	permit := must(client.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{Endpoint: "bound", Holder: "u1"}))(t)
	check("the row's lease", permit, permit.ExpiresAt, time.Hour)
	renewed := must(permit.Renew(t.Context(), pgclient.D(time.Minute)))(t)
	check("shortened", permit, renewed.ExpiresAt, time.Minute)
	renewed = must(permit.Renew(t.Context(), pgclient.D(9*time.Hour)))(t)
	check("longest", permit, renewed.ExpiresAt, time.Minute)

	network.cuts = 1 // the server has done it, but who asked does not know
	_, err := permit.Renew(t.Context(), pgclient.D(time.Minute))
	wantKind(t, err, pgclient.ErrUnavailable)
	rows := must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: "bound"}))(t)
	check("shortened, perhaps", permit, rows[0].ExpiresAt, time.Minute)

	network.cuts = 1
	permit = must(client.ClaimPermit(t.Context(), leased("again", time.Minute)))(t)
	check("claimed again", permit, permit.ExpiresAt, time.Minute)
}

// Not parallel, so that the goroutines of other tests are not counted.
func TestKeepAliveLeavesNoGoroutine(t *testing.T) {
	db := setup(t)
	must(db.app.Version(t.Context()))(t)      // opens the pools
	must(db.operator.Version(t.Context()))(t) //   … that are there to the end
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var renewals renewalCount
	client := must(pgclient.New(db.Pool("pglimit_app"), pgclient.WithObserver(renewals.observe)))(t)
	permit := must(client.ClaimPermit(t.Context(), leased("e", 3*time.Second)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	permit.KeepAlive(ctx)
	cancel()
	want(t, "lost", isLost(permit), false) // only no longer kept alive
	permit.KeepAlive(t.Context())
	waitFor(t, "a renewal", func() bool { return renewals.ok.Load() >= 1 })
	other := must(client.ClaimPermit(t.Context(), leased("e2", 3*time.Second)))(t)
	other.KeepAlive(t.Context())
	want(t, "released", must(permit.Release(t.Context()))(t).Released, true)
	want(t, "lost", isLost(permit), true)
	permit.KeepAlive(t.Context())
	want(t, "released", must(other.Release(t.Context()))(t).Released, true)

	left := must(client.ClaimPermit(t.Context(), leased("e", 3*time.Second)))(t)
	before := renewals.ok.Load()
	left.KeepAlive(t.Context())
	waitFor(t, "a renewal", func() bool { return renewals.ok.Load() > before })
	client.Close()
	left.KeepAlive(t.Context())
	want(t, "released", must(left.Release(t.Context()))(t).Released, true) // the caller's pool is still there
}

// leased is a claim of the only place of a holder.
func leased(endpoint string, lease time.Duration) pgclient.ClaimPermitParams {
	return pgclient.ClaimPermitParams{Endpoint: endpoint, Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(lease)}
}

func isLost(permit *pgclient.Permit) bool {
	select {
	case <-permit.Lost():
		return true
	default:
		return false
	}
}

// wantLost waits for the loss, which must not come long after the end of the lease.
func wantLost(t *testing.T, permit *pgclient.Permit) {
	t.Helper()
	const slack = 5 * time.Second // for a busy machine
	for !isLost(permit) {
		if time.Now().After(permit.EndOfLease().Add(slack)) {
			t.Fatalf("not lost long after %v", permit.EndOfLease())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 600 {
		if done() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("waited for %s in vain", what)
}

// renewalCount counts renewals.
type renewalCount struct{ failed, ok atomic.Int64 }

func (r *renewalCount) observe(_ context.Context, o pgclient.Observation) {
	switch {
	case o.Operation != "renew_permit":
	case o.Err != nil:
		r.failed.Add(1)
	default:
		r.ok.Add(1)
	}
}
