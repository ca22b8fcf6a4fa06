package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// waiting is a claim that waits for the one place at an endpoint.
func waiting(endpoint, holder string) pgclient.ClaimPermitParams {
	return pgclient.ClaimPermitParams{
		Endpoint: endpoint, Holder: holder, EndpointCap: pgclient.N(1), Lease: pgclient.D(time.Hour), Wait: pgclient.D(time.Minute),
	}
}

// hold takes the one place at an endpoint.
func (b *testBundle) hold(t *testing.T, endpoint string) *pgclient.Permit {
	t.Helper()
	p := waiting(endpoint, "x")
	p.Wait = nil
	held := must(b.app.ClaimPermit(t.Context(), p))(t)
	want(t, "granted", held.Granted, true)
	return held
}

// tickets are those that wait at an endpoint, in the order they were drawn.
func (b *testBundle) tickets(t *testing.T, endpoint string) (ids []int64) {
	t.Helper()
	for _, row := range must(b.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: endpoint, MaxRows: 1000}))(t) {
		if row.State == "waiting" {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// until returns the tickets at an endpoint as soon as they are as wanted.
func (b *testBundle) until(t *testing.T, endpoint string, wanted func(ids []int64) bool) []int64 {
	t.Helper()
	for range 10_000 {
		if ids := b.tickets(t, endpoint); wanted(ids) {
			return ids
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s: tickets %v", endpoint, b.tickets(t, endpoint))
	return nil
}

// wantEmpty checks that nothing is left at an endpoint but these permits.
func (b *testBundle) wantEmpty(t *testing.T, endpoint string, but ...int64) {
	t.Helper()
	var left []int64
	for _, row := range must(b.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: endpoint}))(t) {
		left = append(left, row.ID)
	}
	if !slices.Equal(left, but) {
		t.Errorf("%s: permits and tickets %v are left, want %v", endpoint, left, but)
	}
}

// claimed is what became of a claim.
type claimed struct {
	*pgclient.Permit
	err error
}

func claim(ctx context.Context, client *pgclient.Client, p pgclient.ClaimPermitParams) <-chan claimed {
	done := make(chan claimed, 1)
	go func() {
		permit, err := client.ClaimPermit(ctx, p)
		done <- claimed{permit, err}
	}()
	return done
}

// Those who wait are served one after another, each holder's in the order they came, and holders take turns.
func TestWaitInTurn(t *testing.T) {
	t.Parallel()
	db := setup(t)
	held := db.hold(t, "e")
	names := strings.Fields("a1 a2 a3 b1 b2 c1")
	served := make(chan string, len(names))
	var inUse atomic.Int64
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			permit, err := db.app.ClaimPermit(t.Context(), waiting("e", name[:1]))
			if err != nil || !permit.Granted || permit.Reason != pgclient.ReasonGranted || permit.Endpoint != "e" || permit.Holder != name[:1] {
				t.Errorf("%s: %+v, %v", name, permit, err)
				served <- name
				return
			}
			if n := inUse.Add(1); n > 1 {
				t.Errorf("%s: %d at work, the cap is 1", name, n)
			}
			served <- name
			if !must(permit.Renew(t.Context(), nil))(t).Renewed {
				t.Errorf("%s: not renewed", name)
			}
			inUse.Add(-1)
			if !must(permit.Release(t.Context()))(t).Released {
				t.Errorf("%s: not released", name)
			}
		})
		db.until(t, "e", func(ids []int64) bool { return len(ids) == i+1 })
	}
	must(held.Release(t.Context()))(t)
	wg.Wait()
	close(served)
	var order []string
	for name := range served {
		order = append(order, name)
	}
	want(t, "order", strings.Join(order, " "), "a1 b1 c1 a2 b2 a3")
}

// Many wait for few places again and again: the cap is kept, and everybody has his turn.
func TestWaitKeepsTheCap(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const waiters, rounds, places = 24, 3, 3
	var inUse, most, granted atomic.Int64
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			p := waiting("e", fmt.Sprint(i%5))
			p.EndpointCap, p.HolderCap = pgclient.N(places), pgclient.N(2)
			for range rounds {
				permit, err := db.app.ClaimPermit(t.Context(), p)
				if err != nil || !permit.Granted {
					t.Errorf("%+v, %v", permit, err)
					return
				}
				granted.Add(1)
				n := inUse.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				time.Sleep(time.Millisecond)
				inUse.Add(-1)
				if released, err := permit.Release(t.Context()); err != nil || !released.Released {
					t.Errorf("%+v, %v", released, err)
				}
			}
		})
	}
	wg.Wait()
	want(t, "granted", granted.Load(), waiters*rounds)
	if most.Load() > places {
		t.Errorf("%d at work, the cap is %d", most.Load(), places)
	}
	db.wantEmpty(t, "e")
}

// Who gives up waiting leaves neither a ticket nor a permit.
func TestWaitOfACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	db := setup(t)

	t.Run("BetweenPolls", func(t *testing.T) {
		t.Parallel()
		held := db.hold(t, "between")
		cause := errors.New("the browser was closed")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := claim(ctx, db.app, waiting("between", "u1"))
		db.until(t, "between", func(ids []int64) bool { return len(ids) == 1 })
		cancel(cause)
		got := <-done
		e := wantKind(t, got.err, context.Canceled, cause)
		want(t, "operation", e.Operation, "claim_permit")
		db.wantEmpty(t, "between", held.ID)
	})

	t.Run("DuringTheGrant", func(t *testing.T) {
		t.Parallel()
		db := setup(t) // the table is locked
		held := db.hold(t, "e")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := claim(ctx, db.app, waiting("e", "u1"))
		db.until(t, "e", func(ids []int64) bool { return len(ids) == 1 })
		tx := must(db.Super().Begin(t.Context()))(t)
		defer tx.Rollback(context.Background())
		must(tx.Exec(t.Context(), "lock table pglimit.permits in access exclusive mode"))(t)
		for blocked := 0; blocked == 0; time.Sleep(time.Millisecond) {
			if err := db.Super().QueryRow(t.Context(), `select count(*) from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock'`).Scan(&blocked); err != nil {
				t.Fatal(err)
			}
		}
		must(tx.Exec(t.Context(), "update pglimit.permits set expires_at = '-infinity' where permit_id = $1", held.ID))(t)
		cancel()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-done
		e := wantKind(t, got.err, context.Canceled)
		if got.Permit != nil || !strings.Contains(e.Message, "given back") {
			t.Errorf("got %+v, %q", got.Permit, e.Message)
		}
		db.wantEmpty(t, "e")
	})

	// The reply to a poll is lost, and the caller goes at the same moment.
	for name, granted := range map[string]bool{"WithALostGrant": true, "WithALostPoll": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := db.hold(t, name)
			left := []int64{held.ID}
			ctx, cancel := context.WithCancel(t.Context())
			network := &cutter{pass: 2, cuts: 1, cut: cancel}
			if granted {
				left = nil
				network.turn = func() { must(held.Release(t.Context()))(t) }
			}
			client := must(pgclient.New(db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DialFunc = network.dial })))(t)
			_, err := client.ClaimPermit(ctx, waiting(name, "u1"))
			e := wantKind(t, err, context.Canceled)
			want(t, "given back", strings.Contains(e.Message, "given back"), granted)
			db.wantEmpty(t, name, left...)
		})
	}

	t.Run("BeforeItBegins", func(t *testing.T) {
		t.Parallel()
		held := db.hold(t, "before")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := db.app.ClaimPermit(ctx, waiting("before", "u1"))
		wantKind(t, err, context.Canceled)
		db.wantEmpty(t, "before", held.ID)
	})
}

// What ends without a permit is a refusal, with the reason of the last answer.
func TestWaitRefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	must(db.operator.SetEndpoint(t.Context(), pgclient.SetEndpointParams{
		Endpoint: "narrow", EndpointCap: pgclient.N(1), TimeBound: pgclient.D(time.Hour), OutsideInstallation: true,
		QueueCap: pgclient.N(2), HolderQueueCap: pgclient.N(1),
	}))(t)
	fair := db.hold(t, "narrow")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := waiting("narrow", "one")
	first := claim(ctx, db.app, waits)
	db.until(t, "narrow", func(ids []int64) bool { return len(ids) == 1 })
	waits.Holder = "two"
	second := claim(ctx, db.app, waits)
	db.until(t, "narrow", func(ids []int64) bool { return len(ids) == 2 })

	for _, tt := range []struct {
		name     string
		endpoint string
		holder   string
		wait     time.Duration
		weight   int64
		reason   pgclient.Reason
		cap, use int64
		polls    bool
	}{
		{"Deadline", "e", "u1", 400 * time.Millisecond, 1, pgclient.ReasonEndpoint, 1, 1, true},
		{"NoTime", "e", "u1", time.Microsecond, 1, pgclient.ReasonEndpoint, 1, 1, false},
		{"Zero", "e", "u1", 0, 1, pgclient.ReasonEndpoint, 1, 1, false},
		{"Never", "e", "u1", time.Hour, 2, pgclient.ReasonNever, 1, 1, false},
		{"QueueFull", "narrow", "three", time.Hour, 1, pgclient.ReasonQueueFull, 2, 2, false},
		{"HolderQueueFull", "narrow", "one", time.Hour, 1, pgclient.ReasonQueueFull, 1, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen []pgclient.Observation
			client := must(pgclient.New(db.Pool("pglimit_app"), pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) {
				seen = append(seen, o)
			})))(t)
			if tt.endpoint == "e" {
				held := db.hold(t, "e")
				defer held.Release(t.Context())
				defer db.wantEmpty(t, "e", held.ID)
			}
			p := waiting(tt.endpoint, tt.holder)
			p.Wait, p.Weight = &tt.wait, &tt.weight
			permit := must(client.ClaimPermit(t.Context(), p))(t)
			want(t, "granted", permit.Granted, false)
			want(t, "reason", permit.Reason, tt.reason)
			want(t, "cap", permit.Cap, tt.cap)
			want(t, "in use", permit.InUse, tt.use)
			last := seen[len(seen)-1]
			want(t, "operation", last.Operation, "claim_permit")
			want(t, "outcome", last.Outcome, pgclient.OutcomeRefused)
			want(t, "polled", last.Polls > 0, tt.polls)
			if tt.polls && last.Duration < tt.wait {
				t.Errorf("observed %v, waited %v", last.Duration, tt.wait)
			}
			for _, o := range seen[:len(seen)-1] {
				want(t, "operation before", o.Operation, "release_permit")
			}
		})
	}
	cancel()
	for _, done := range []<-chan claimed{first, second} {
		wantKind(t, (<-done).err, context.Canceled)
	}
	db.wantEmpty(t, "narrow", fair.ID)
}

// A wait without an end is as long as a ticket can be.
func TestWaitForEver(t *testing.T) {
	t.Parallel()
	db := setup(t)
	held := db.hold(t, "e")
	p := waiting("e", "u1")
	p.Wait = pgclient.D(1<<63 - 1)
	done := claim(t.Context(), db.app, p)
	db.until(t, "e", func(ids []int64) bool { return len(ids) == 1 })
	must(held.Release(t.Context()))(t)
	if got := <-done; got.err != nil || !got.Granted {
		t.Errorf("got %+v, %v", got.Permit, got.err)
	}
}

// A ticket that was lost is drawn anew, but not without end.
func TestWaitWithALostTicket(t *testing.T) {
	t.Parallel()
	db := setup(t)
	held := db.hold(t, "e")
	done := claim(t.Context(), db.app, waiting("e", "u1"))
	ids := db.until(t, "e", func(ids []int64) bool { return len(ids) == 1 })
	for _, lose := range []string{
		"update pglimit.permits set expires_at = clock_timestamp() where permit_id = %d", // the process slept
		"update pglimit.permits set expires_at = '-infinity' where permit_id = %d",       // somebody released it
		"delete from pglimit.permits where permit_id = %d",                               // the database crashed
	} {
		db.exec(t, fmt.Sprintf(lose, ids[0]))
		lost := ids[0]
		ids = db.until(t, "e", func(ids []int64) bool { return len(ids) == 1 && ids[0] > lost })
	}
	must(held.Release(t.Context()))(t)
	if got := <-done; got.err != nil || !got.Granted {
		t.Errorf("got %+v, %v", got.Permit, got.err)
	}

	db.hold(t, "again")
	done = claim(t.Context(), db.app, waiting("again", "u1"))
	lost := 0
	for {
		for _, id := range db.tickets(t, "again") {
			if must(db.operator.ReleasePermit(t.Context(), id, ""))(t).Released {
				lost++
			}
		}
		select {
		case got := <-done:
			if got.err != nil || got.Granted || got.Reason != pgclient.ReasonEndpoint {
				t.Errorf("got %+v, %v", got.Permit, got.err)
			}
			want(t, "tickets", lost, 10)
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// C-25: whichever reply is lost, or whatever becomes of the process at any step, there is at most what lapses by itself,
// and those behind have their turn.
func TestWaitLostReplies(t *testing.T) {
	t.Parallel()
	db := setup(t)
	connect := func(t *testing.T, network *cutter) *pgclient.Client {
		t.Helper()
		return must(pgclient.New(db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DialFunc = network.dial })))(t)
	}
	for _, tt := range []struct {
		name    string
		pass    int  // replies before the one that is lost
		granted bool // there is room when it is lost
		dies    bool // nothing comes through ever after
		lapses  int  // tickets and permits that nobody knows of
	}{
		{name: "Claim", pass: 0},
		{name: "Enqueue", pass: 1, lapses: 1},
		{name: "Poll", pass: 2},
		{name: "Grant", pass: 2, granted: true},
		{name: "DeadInClaim", pass: 0, dies: true},
		{name: "DeadInEnqueue", pass: 1, dies: true, lapses: 1},
		{name: "DeadInPoll", pass: 2, dies: true, lapses: 1},
		{name: "DeadInGrant", pass: 2, granted: true, dies: true, lapses: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			held := db.hold(t, tt.name)
			free := func() { must(held.Release(t.Context()))(t) }
			network := &cutter{pass: tt.pass, cuts: 1, dies: tt.dies}
			hit := make(chan bool)
			network.cut = func() { close(hit) }
			if tt.granted {
				network.turn = func() { free() } // the reply before has just come
			}
			p := waiting(tt.name, "u1")
			done := claim(t.Context(), connect(t, network), p)
			<-hit
			if tt.dies {
				wantKind(t, (<-done).err, pgclient.ErrUnavailable)
			}
			if tt.lapses > 0 {
				// its time comes
				db.exec(t, fmt.Sprintf(`update pglimit.permits set expires_at = clock_timestamp() where permit_id = (
					select min(permit_id) from pglimit.permits where for_pool = e'\x1f%s\x1fu1' and expires_at > clock_timestamp())`, tt.name))
			}
			next := waiting(tt.name, "u2")
			if tt.dies {
				if !tt.granted {
					free()
				}
				if got := must(db.app.ClaimPermit(t.Context(), next))(t); got.Granted {
					db.wantEmpty(t, tt.name, got.ID)
				} else {
					t.Errorf("the next one: %+v", got)
				}
				return
			}
			if !tt.granted {
				free()
			}
			got := <-done
			if got.err != nil || !got.Granted {
				t.Fatalf("got %+v, %v", got.Permit, got.err)
			}
			db.wantEmpty(t, tt.name, got.ID)
		})
	}
}

// An outage is bridged while the ticket lives; one that lasts is an error.
func TestWaitDuringAnOutage(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := db.Pool("pglimit_app")
	down := errors.New("down")
	for _, tt := range []struct {
		name    string
		outages int64
		granted bool
	}{{"Short", 2, true}, {"Long", 3, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			client := must(pgclient.New(connectionsFunc(func(ctx context.Context) (*pgxpool.Conn, error) {
				if left.Add(-1) >= 0 {
					return nil, down
				}
				return pool.Acquire(ctx)
			})))(t)
			held := db.hold(t, tt.name)
			done := claim(t.Context(), client, waiting(tt.name, "u1"))
			db.until(t, tt.name, func(ids []int64) bool { return len(ids) == 1 })
			left.Store(tt.outages)
			must(held.Release(t.Context()))(t)
			got := <-done
			if tt.granted {
				if got.err != nil || !got.Granted {
					t.Errorf("got %+v, %v", got.Permit, got.err)
				}
				return
			}
			e := wantKind(t, got.err, pgclient.ErrUnavailable, down)
			want(t, "operation", e.Operation, "poll_ticket")
		})
	}
}

// B9, no polling storm: a hundred who wait poll no more often than the server asks them to, which is the less often the
// longer they wait and the more are before them.
func TestWaitersPollSeldom(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const waiters = 100
	var mu sync.Mutex
	seen := map[string]pgclient.Observation{}
	client := must(pgclient.New(db.Pool("pglimit_app"), pgclient.WithObserver(func(ctx context.Context, o pgclient.Observation) {
		if o.Operation == "claim_permit" {
			mu.Lock()
			defer mu.Unlock()
			seen[ctx.Value(contextKey{}).(string)] = o
		}
	})))(t)
	db.hold(t, "e")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []<-chan claimed
	for i := range waiters {
		all = append(all, claim(context.WithValue(ctx, contextKey{}, fmt.Sprint(i)), client, waiting("e", "u1")))
		db.until(t, "e", func(ids []int64) bool { return len(ids) == i+1 })
	}
	cancel()
	for _, done := range all {
		wantKind(t, (<-done).err, context.Canceled)
	}

	var polls, bound int
	for i := range waiters {
		o := seen[fmt.Sprint(i)]
		most := mostPolls(i, o.Duration)
		if o.Polls > most {
			t.Errorf("waiter %d polled %d times in %v, want at most %d", i, o.Polls, o.Duration, most)
		}
		polls, bound = polls+o.Polls, bound+most
	}
	t.Logf("%d polls, at most %d; in the first %v", polls, bound, seen["0"].Duration)
	second, minute := 0, 0
	for i := range waiters {
		second, minute = second+mostPolls(i, time.Second), minute+mostPolls(i, time.Minute)
	}
	if second > 1500 || minute > 300*60 {
		t.Errorf("a hundred waiters may poll %d times in their first second and %d in a minute, want 1,500 and 18,000", second, minute)
	}
}

// mostPolls is how often a ticket with so many ahead may be polled in a time, by _poll_after at its shortest.
func mostPolls(ahead int, in time.Duration) (polls int) {
	for waited := time.Duration(0); ; polls++ {
		after := min(max(waited/20, 10*time.Millisecond), 100*time.Millisecond)
		after = min(time.Duration(float64(after)*(1+float64(ahead)/8)*0.8), time.Second)
		if waited += after; waited > in {
			return polls
		}
	}
}

// For programs that wait in pieces.
func TestTickets(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	held := db.hold(t, "e")
	p := waiting("e", "u1")
	first := must(db.app.EnqueuePermit(ctx, p))(t)
	want(t, "enqueued", first.Enqueued, true)
	want(t, "reason", first.Reason, pgclient.ReasonWaiting)
	second := must(db.app.EnqueuePermit(ctx, p))(t)
	want(t, "ahead", second.Ahead, 1)
	if first.PollAfter <= 0 || !second.DeadlineAt.After(first.DeadlineAt) || second.ID <= first.ID {
		t.Errorf("got %+v, %+v", first, second)
	}
	poll := must(db.app.PollTicket(ctx, second.ID))(t)
	want(t, "granted", poll.Permit.Granted, false)
	want(t, "reason", poll.Permit.Reason, pgclient.ReasonEndpoint)
	want(t, "ahead", poll.Ahead, 1)
	if poll.PollAfter <= 0 {
		t.Errorf("poll after %v", poll.PollAfter)
	}
	must(held.Release(ctx))(t)
	want(t, "not its turn", must(db.app.PollTicket(ctx, second.ID))(t).Permit.Reason, pgclient.ReasonQueue)
	granted := must(db.app.PollTicket(ctx, first.ID))(t).Permit
	want(t, "granted", granted.Granted, true)
	want(t, "the same permit", must(db.app.PollTicket(ctx, first.ID))(t).Permit.ID, granted.ID)
	want(t, "renewed", must(granted.Renew(ctx, nil))(t).Renewed, true)
	want(t, "released", must(granted.Release(ctx))(t).Released, true)
	want(t, "given up", must(db.app.ReleasePermit(ctx, second.ID, "u1"))(t).Released, true)
	want(t, "over", must(db.app.PollTicket(ctx, second.ID))(t).Permit.Reason, pgclient.ReasonUnknown)

	p.Weight = pgclient.N(2)
	never := must(db.app.EnqueuePermit(ctx, p))(t)
	want(t, "never", never, pgclient.Ticket{Cap: 1, Reason: pgclient.ReasonNever})
}

// Modes shadow and off grant what enforce would refuse.
func TestEndpointModes(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	set := pgclient.SetEndpointParams{Endpoint: "e", HolderCap: pgclient.N(1), TimeBound: pgclient.D(time.Hour), Mode: pgclient.ModeShadow}
	must(db.operator.SetEndpoint(ctx, set))(t)
	p := pgclient.ClaimPermitParams{Endpoint: "e", Holder: "u1", Wait: pgclient.D(time.Hour)}
	want(t, "first", must(db.app.ClaimPermit(ctx, p))(t).Reason, pgclient.ReasonGranted)
	shadow := must(db.app.ClaimPermit(ctx, p))(t)
	want(t, "granted", shadow.Granted, true)
	want(t, "reason", shadow.Reason, pgclient.ReasonShadow)
	want(t, "shadow reason", shadow.ShadowReason, pgclient.ReasonHolder)
	want(t, "cap", shadow.Cap, 1)
	want(t, "in use", shadow.InUse, 1)
	want(t, "renewed", must(shadow.Renew(ctx, nil))(t).Renewed, true)
	want(t, "released", must(shadow.Release(ctx))(t).Released, true)
	row := must(db.operator.ListEndpoints(ctx, pgclient.ListEndpointsParams{}))(t)[0]
	if row.ShadowRefused == nil || *row.ShadowRefused != 1 || row.Mode != pgclient.ModeShadow {
		t.Errorf("got %+v", row)
	}
	set.Mode = pgclient.ModeOff
	must(db.operator.SetEndpoint(ctx, set))(t)
	want(t, "off", must(db.app.ClaimPermit(ctx, p))(t).Reason, pgclient.ReasonOff)
}

// A holder's own bounds, and who may wait where.
func TestEndpointOverrides(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	override := pgclient.SetEndpointOverrideParams{Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(2)}
	_, err := db.operator.SetEndpointOverride(ctx, override)
	wantKind(t, err, pgclient.ErrUnknownLimit)
	must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{
		Endpoint: "e", HolderCap: pgclient.N(1), TimeBound: pgclient.D(time.Hour), Fair: true, HolderQueueCap: pgclient.N(3), QueueCap: pgclient.N(0),
	}))(t)
	version := must(db.operator.SetEndpointOverride(ctx, override))(t)
	for i, granted := range []bool{true, true, false} {
		permit := must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(1)}))(t)
		want(t, fmt.Sprint("claim ", i), permit.Granted, granted)
		want(t, "limit version", permit.LimitVersion, version)
	}
	from := db.now(t).Add(time.Hour).Truncate(time.Microsecond)
	until := from.Add(time.Hour)
	must(db.operator.SetEndpointOverride(ctx, pgclient.SetEndpointOverrideParams{
		Endpoint: "e", Holder: "u2", Share: pgclient.N(3), ValidFrom: &from, ValidUntil: &until,
	}))(t)
	rows := must(db.operator.ListEndpointOverrides(ctx, pgclient.ListEndpointOverridesParams{MaxRows: 1}))(t)
	if len(rows) != 1 || rows[0].HolderCap == nil || *rows[0].HolderCap != 2 || rows[0].Share != 1 || rows[0].State != "valid" ||
		rows[0].LimitVersion != version || rows[0].ValidFrom == nil || rows[0].ValidUntil != nil || rows[0].UpdatedBy == "" {
		t.Fatalf("got %+v", rows)
	}
	rows = must(db.operator.ListEndpointOverrides(ctx, pgclient.ListEndpointOverridesParams{After: rows[0].Cursor}))(t)
	if len(rows) != 1 || rows[0].Holder != "u2" || rows[0].HolderCap != nil || rows[0].Share != 3 || rows[0].State != "future" ||
		!rows[0].ValidFrom.Equal(from) || !rows[0].ValidUntil.Equal(until) {
		t.Fatalf("got %+v", rows)
	}
	want(t, "of u2", len(must(db.operator.ListEndpointOverrides(ctx, pgclient.ListEndpointOverridesParams{Endpoint: "e", Holder: "u2"}))(t)), 1)
	drop := pgclient.DropEndpointOverrideParams{Endpoint: "e", Holder: "u1"}
	want(t, "dropped", must(db.operator.DropEndpointOverride(ctx, drop))(t), true)
	want(t, "dropped again", must(db.operator.DropEndpointOverride(ctx, drop))(t), false)

	row := must(db.operator.ListEndpoints(ctx, pgclient.ListEndpointsParams{}))(t)[0]
	if !row.Fair || row.QueueCap != 0 || row.HolderQueueCap != 3 || row.Waiting == nil || *row.Waiting != 0 || row.ShadowRefused != nil {
		t.Errorf("got %+v", row)
	}
}
