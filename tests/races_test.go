package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// together runs fn on n connections of the app role, all of which begin at the same moment.
func together(t *testing.T, conns []*pgx.Conn, fn func(i int, conn *pgx.Conn)) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, conn := range conns {
		wg.Go(func() {
			<-start
			fn(i, conn)
		})
	}
	close(start)
	wg.Wait()
}

func appConns(t *testing.T, db *dbtest.DB, n int) []*pgx.Conn {
	t.Helper()
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		conns[i] = db.Conn("pglimit_app")
	}
	return conns
}

// hammering is how long a hammer runs.
const hammering = 2 * time.Second

// TestHitRace is C-02 and C-03: a burst on a fresh key, on one that is nearly used up, and on one
// whose window has ended.
func TestHitRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 8)
	burst := func(subject string) int64 {
		var allowed atomic.Int64
		together(t, conns, func(_ int, conn *pgx.Conn) {
			for range 5 {
				var ok bool
				if err := conn.QueryRow(t.Context(), "select allowed from pglimit.hit('race', $1, 3, '1 hour')", subject).Scan(&ok); err != nil {
					t.Error(err)
				} else if ok {
					allowed.Add(1)
				}
			}
		})
		return allowed.Load()
	}
	for round := range 20 {
		subject := fmt.Sprint("s", round)
		if got := burst(subject); got != 3 {
			t.Errorf("round %d: a fresh key allows %d, want 3", round, got)
		}
		mustExec(t, db.System(), fmt.Sprintf("update pglimit.counters set reset_at = clock_timestamp() where key like '%%%s'", "\x1f"+subject))
		if got := burst(subject); got != 3 {
			t.Errorf("round %d: after the window's end %d, want 3", round, got)
		}
		mustExec(t, db.System(), fmt.Sprintf("update pglimit.counters set used = 2 where key like '%%%s'", "\x1f"+subject))
		if got := burst(subject); got != 1 {
			t.Errorf("round %d: with one left %d, want 1", round, got)
		}
	}
}

// TestHitAcrossWindows: short windows that end while everybody hits. Every window that an answer
// names allows no more than the quota.
func TestHitAcrossWindows(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var mu sync.Mutex
	windows := map[time.Time]int{}
	end := time.Now().Add(hammering)
	together(t, appConns(t, db, 8), func(_ int, conn *pgx.Conn) {
		for time.Now().Before(end) {
			var ok bool
			var reset *time.Time
			if err := conn.QueryRow(t.Context(), "select allowed, reset_at from pglimit.hit('edge', 's', 100, '20 milliseconds')").Scan(&ok, &reset); err != nil {
				t.Error(err)
				return
			}
			if ok {
				mu.Lock()
				windows[*reset]++
				mu.Unlock()
			}
		}
	})
	for reset, n := range windows {
		if n > 100 {
			t.Errorf("the window that ends %v allowed %d, want 100 at most", reset, n)
		}
	}
	if len(windows) < 5 {
		t.Errorf("only %d windows", len(windows))
	}
}

// liveOf counts what is live in each pool, at one instant: the newest row of every lane.
const liveOf = `
	select l.pool, count(*)
	from (
		select distinct on (p.pool, p.lane) p.pool, p.lane, p.expires_at
		from pglimit.permits p
		order by p.pool, p.lane, p.turn desc
	) l
	cross join (select clock_timestamp() as now offset 0) c
	where l.expires_at > c.now
	group by l.pool`

// observe compares what is live with the cap of each pool, on and on until stop.
func observe(t *testing.T, db *dbtest.DB, capOf func(pool string) int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn := db.Conn("pglimit_system")
	mustExec(t, conn, "set role pglimit_system")
	done := make(chan struct{})
	var looks, seen int
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			rows, err := conn.Query(t.Context(), liveOf)
			if err != nil {
				t.Error(err)
				return
			}
			var pool string
			var live int
			if _, err := pgx.ForEachRow(rows, []any{&pool, &live}, func() error {
				seen++
				if live > capOf(pool) {
					t.Errorf("pool %q: %d live, cap %d", pool, live, capOf(pool))
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			looks++
		}
	}()
	return func() {
		cancel()
		<-done
		if looks < 10 || seen == 0 {
			t.Errorf("looked %d times and saw %d pools: nothing is shown", looks, seen)
		}
	}
}

// TestClaimRace hammers three pools with everything at once: claims, renewals, releases, leases that
// lapse, and a purge that takes what it can.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	for name, heaviest := range map[string]int{"OneSlotEach": 1, "OneOrTwoSlots": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claimRace(t, heaviest)
		})
	}
}

func claimRace(t *testing.T, heaviest int) {
	db := dbtest.New(t)
	operator := db.Pool("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	stop := observe(t, db, func(pool string) int {
		switch {
		case pool == "\x1f\x1f":
			return 5
		case pool[len(pool)-1] == '\x1f':
			return 4
		}
		return 2
	})
	end := time.Now().Add(hammering)
	var granted, renewed, released, purged atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for time.Now().Before(end) {
			var permits int64
			if err := operator.QueryRow(t.Context(), "select permits_purged from pglimit.purge()").Scan(&permits); err != nil {
				t.Error("purge: ", err)
				return
			}
			purged.Add(permits)
		}
	})
	// Claims of several slots go one at a time: on a machine that is busy with other things, eight in
	// a row may take the second after which the last gives up.
	together(t, appConns(t, db, 8/heaviest), func(i int, conn *pgx.Conn) {
		for n := 0; time.Now().Before(end); n++ {
			var id *int64
			err := conn.QueryRow(t.Context(), `select permit_id from pglimit.claim_permit($1, $2, 2, 4, 5, '30 milliseconds',
				weight => $3)`, fmt.Sprint("e", n%2), fmt.Sprint("h", (i+n)%3), 1+n%heaviest).Scan(&id)
			if err != nil {
				t.Error("claim: ", err)
				return
			}
			if id == nil {
				continue
			}
			granted.Add(1)
			var ok bool
			if rand.IntN(2) == 0 {
				if err := conn.QueryRow(t.Context(), "select renewed from pglimit.renew_permit($1)", *id).Scan(&ok); err != nil {
					t.Error("renew: ", err)
				} else if ok {
					renewed.Add(1)
				}
			}
			if rand.IntN(4) > 0 {
				if err := conn.QueryRow(t.Context(), "select released from pglimit.release_permit($1)", *id).Scan(&ok); err != nil {
					t.Error("release: ", err)
				} else if ok {
					released.Add(1)
				}
			}
		}
	})
	wg.Wait()
	stop()
	for what, n := range map[string]int64{"granted": granted.Load(), "renewed": renewed.Load(), "released": released.Load()} {
		if n == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
	t.Logf("granted %d, renewed %d, released %d, purged %d", granted.Load(), renewed.Load(), released.Load(), purged.Load())
}

// TestNoFalseRefusal: with room for everybody, nobody is refused, however they race for the lanes.
func TestNoFalseRefusal(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	end := time.Now().Add(hammering)
	together(t, appConns(t, db, 8), func(_ int, conn *pgx.Conn) {
		for time.Now().Before(end) {
			var id *int64
			var reason string
			if err := conn.QueryRow(t.Context(), "select permit_id, reason from pglimit.claim_permit('e', 'h', 9, lease => '1 minute')").Scan(&id, &reason); err != nil {
				t.Error(err)
				return
			}
			if id == nil {
				t.Error("refused: ", reason)
				return
			}
			var ok bool
			if err := conn.QueryRow(t.Context(), "select released from pglimit.release_permit($1)", *id).Scan(&ok); err != nil || !ok {
				t.Error("not released: ", err)
				return
			}
		}
	})
}

// TestClaimBurst is C-21: 64 claims on a cap of 5, on a new endpoint each round.
func TestClaimBurst(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 64)
	for round := range 20 {
		var granted atomic.Int64
		together(t, conns, func(i int, conn *pgx.Conn) {
			var ok bool
			if err := conn.QueryRow(t.Context(), "select granted from pglimit.claim_permit($1, $2, endpoint_cap => 5, lease => '1 minute')",
				fmt.Sprint("new", round), fmt.Sprint("h", i)).Scan(&ok); err != nil {
				t.Error(err)
			} else if ok {
				granted.Add(1)
			}
		})
		if granted.Load() != 5 {
			t.Errorf("round %d: %d granted, want 5", round, granted.Load())
		}
	}
}

// TestPermitNumbersGrow: with a cap of 1 the claims form a line, and each has a higher number than
// the one before: a fencing token.
func TestPermitNumbersGrow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	end := time.Now().Add(hammering / 2)
	var last, n atomic.Int64
	together(t, appConns(t, db, 8), func(_ int, conn *pgx.Conn) {
		for time.Now().Before(end) {
			var id *int64
			if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit('e', 'h', 1, lease => '1 minute')").Scan(&id); err != nil {
				t.Error(err)
				return
			}
			if id == nil {
				continue
			}
			n.Add(1)
			if before := last.Swap(*id); before >= *id {
				t.Errorf("%d follows %d", *id, before)
			}
			mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", *id))
		}
	})
	if n.Load() < 10 {
		t.Errorf("only %d claims", n.Load())
	}
}

// TestCapLoweredUnderLoad: what was claimed under the old cap stays; nothing more comes until there
// is room under the new one.
func TestCapLoweredUnderLoad(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Pool("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_endpoint('e', 25, time_bound => '1 minute', in_installation => false)")
	var before []int64
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lowered atomic.Bool
	conns := appConns(t, db, 8)
	rounds := make([]atomic.Int64, len(conns)) // of each worker
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("waited in vain for ", what)
				return
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		together(t, conns, func(i int, conn *pgx.Conn) {
			for ; ctx.Err() == nil; rounds[i].Add(1) {
				old := !lowered.Load()
				var id *int64
				if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit('e', 'h')").Scan(&id); err != nil {
					t.Error(err)
					return
				}
				switch {
				case id == nil:
				case old && rand.IntN(2) == 0:
					mu.Lock()
					before = append(before, *id)
					mu.Unlock()
				default:
					mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", *id))
				}
			}
		})
	})
	until("permits under the old cap", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(before) >= 8
	})
	mustExec(t, operator, "select pglimit.set_endpoint('e', 3, time_bound => '1 minute', in_installation => false)")
	lowered.Store(true)
	for i := range rounds {
		began := rounds[i].Load()
		until("the claims that began before", func() bool { return rounds[i].Load() > began+1 })
	}
	mu.Lock()
	for _, id := range before {
		mustExec(t, operator, fmt.Sprintf("select pglimit.release_permit(%d)", id))
	}
	mu.Unlock()
	stop := observe(t, db, func(string) int { return 3 })
	time.Sleep(100 * time.Millisecond)
	for range 10 {
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	cancel()
	wg.Wait()
}

// TestPurgeAgainstOpenClaim: a purge passes over what an open transaction holds, in either order.
func TestPurgeAgainstOpenClaim(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, app := db.Conn("pglimit_operator"), db.Conn("pglimit_app")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	id := mustScan[int64](t, app, "select permit_id from pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
	age := "update pglimit.permits set expires_at = clock_timestamp() - interval '1 hour', turn = turn - 7200000000"
	mustExec(t, db.System(), age)

	mustExec(t, app, "begin")
	next := mustScan[int64](t, app, "select permit_id from pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
	if n := mustScan[int](t, operator, "select permits_purged from pglimit.purge()"); n != 0 {
		t.Errorf("purged %d rows of an open claim", n)
	}
	mustExec(t, app, "commit")
	if next <= id || mustScan[bool](t, app, "select granted from pglimit.claim_permit('e', 'h', 1, lease => '1 hour')") {
		t.Error("the claim was lost to the purge")
	}

	mustExec(t, db.System(), age)
	mustExec(t, operator, "begin")
	if n := mustScan[int](t, operator, "select permits_purged from pglimit.purge()"); n != 1 {
		t.Errorf("purged %d rows, want 1", n)
	}
	blocked := db.Conn("pglimit_app")
	done := make(chan error, 1)
	go func() {
		_, err := blocked.Exec(context.WithoutCancel(t.Context()), "select pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	mustExec(t, operator, "commit")
	if err := <-done; err != nil {
		t.Error("claim behind a purge: ", err)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.permits where expires_at > clock_timestamp()"); n != 1 {
		t.Errorf("%d live, want 1", n)
	}
}

// TestPurgeLeavesNoHalfPool: a lane that is released while a purge waits to read it is in the purge's
// way in its new version, which its first snapshot does not see. The pool goes as a whole or stays.
func TestPurgeLeavesNoHalfPool(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, app := db.Conn("pglimit_operator"), db.Conn("pglimit_app")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	const lanes = 20_000
	// a purge that takes a while to lock its way to the last lane, which a release holds meanwhile
	mustExec(t, db.System(), fmt.Sprintf(`
		insert into pglimit.creation_locks select 16384 + (hashtextextended(e'\x1fe\x1fh', 0) & 16383)::integer;
		insert into pglimit.permits (pool, lane, turn, permit_id, expires_at, row_count, claimed_at)
		select e'\x1fe\x1fh', i, 1, case i when %d then 42 else 0 end,
			case i when %[1]d then clock_timestamp() + interval '10 minutes' else '-infinity' end, 1, clock_timestamp()
		from generate_series(1, %[1]d) i`, lanes))
	mustExec(t, app, "begin")
	wantReason(t, app, "release_permit(42)", "released")
	// its lease ends, for those who do not see the release
	done := make(chan error, 1)
	go func() {
		time.Sleep(30 * time.Millisecond)
		_, err := app.Exec(context.WithoutCancel(t.Context()), "commit")
		done <- err
	}()
	mustExec(t, operator, "select pglimit.purge(100000)")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.permits"); n != 0 && n != lanes {
		t.Errorf("%d of %d lanes are left", n, lanes)
	}
}

// TestPurgeAgainstNewLanes: a claim that finds all lanes of an idle pool locked by a purge must not make
// more above them. They would stay alone, and claims would wait for lanes that nobody makes.
func TestPurgeAgainstNewLanes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, app := db.Conn("pglimit_operator"), db.Conn("pglimit_app")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	mustExec(t, app, "select pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
	mustExec(t, db.System(), "update pglimit.permits set expires_at = clock_timestamp() - interval '1 hour', turn = turn - 7200000000")

	mustExec(t, operator, "begin")
	if n := mustScan[int](t, operator, "select permits_purged from pglimit.purge()"); n != 1 {
		t.Errorf("purged %d rows, want 1", n)
	}
	blocked := db.Conn("pglimit_app")
	done := make(chan error, 1)
	go func() {
		_, err := blocked.Exec(context.WithoutCancel(t.Context()), "select pglimit.claim_permit('e', 'h', 2, lease => '1 hour')")
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	mustExec(t, operator, "commit")
	if err := <-done; err != nil {
		t.Error("claim behind a purge: ", err)
	}
	if n := mustScan[int](t, db.System(), "select count(distinct lane) from pglimit.permits where lane <= 2"); n != 2 {
		t.Errorf("%d lanes, want 2", n)
	}
	if !mustScan[bool](t, app, "select granted from pglimit.claim_permit('e', 'h', 2, lease => '1 hour')") {
		t.Error("the second claim under a cap of 2 was refused")
	}
}

// TestRenewAgainstLapse: a renewal that waits while the permit lapses does not bring it back.
func TestRenewAgainstLapse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	id := mustScan[int64](t, app, "select permit_id from pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
	system := db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system; begin; update pglimit.permits set expires_at = clock_timestamp()")
	reason := make(chan string, 1)
	go func() {
		var got string
		if err := app.QueryRow(context.WithoutCancel(t.Context()), "select reason from pglimit.renew_permit($1)", id).Scan(&got); err != nil {
			got = err.Error()
		}
		reason <- got
	}()
	time.Sleep(20 * time.Millisecond)
	mustExec(t, system, "commit")
	if got := <-reason; got != "lapsed" {
		t.Errorf("renewed: %s", got)
	}
}

// TestTwoCreators: the second creator of a pool or counter waits for the first and goes by its result.
func TestTwoCreators(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for _, c := range []struct{ name, sql string }{
		{"Hit", "select allowed from pglimit.hit('l', 's', 1, '1 hour')"},
		{"Claim", "select granted from pglimit.claim_permit('e', 'h', 1, lease => '1 hour')"},
	} {
		for _, end := range []string{"commit", "rollback"} {
			t.Run(c.name+end, func(t *testing.T) {
				mustExec(t, db.System(), "delete from pglimit.counters; delete from pglimit.permits")
				first, second := db.Conn("pglimit_app"), db.Conn("pglimit_app")
				mustExec(t, first, "begin")
				if !mustScan[bool](t, first, c.sql) {
					t.Fatal("the first was refused")
				}
				got := make(chan error, 1)
				var ok bool
				go func() { got <- second.QueryRow(context.WithoutCancel(t.Context()), c.sql).Scan(&ok) }()
				time.Sleep(20 * time.Millisecond)
				mustExec(t, first, end)
				if err := <-got; err != nil || ok != (end == "rollback") {
					t.Errorf("the second: %v, %v", ok, err)
				}
			})
		}
	}
}

// TestHeavyClaimRace: permits that need several lanes of a pool. Two claims that each lock a part
// of what they need must not wait for each other.
func TestHeavyClaimRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	end := time.Now().Add(hammering)
	var granted atomic.Int64
	together(t, appConns(t, db, 8), func(_ int, conn *pgx.Conn) {
		for time.Now().Before(end) {
			var id *int64
			if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit('e', 'h', 4, lease => '1 minute', weight => 4)").Scan(&id); err != nil {
				t.Error(err)
				return
			}
			if id == nil {
				continue
			}
			granted.Add(1)
			mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", *id))
		}
	})
	if granted.Load() < 10 {
		t.Errorf("only %d granted", granted.Load())
	}
}

// TestRenewalAcrossItsLapse steps through a renewal that is decided in time and commits after its old lease has ended,
// while a claim comes under a cap that was lowered below its slot: two would hold what is for one.
func TestRenewalAcrossItsLapse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	renewer, app, system := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.System()
	const lowered = "'e', 'h', endpoint_cap => 1, lease => '1 hour'"
	for _, commit := range []bool{true, false} {
		var id int64
		for lane := 0; lane != 2; {
			mustExec(t, system, "delete from pglimit.permits")
			id = *wantGrant(t, app, "'e', 'h', endpoint_cap => 2, lease => '200 ms'").ID
			lane = mustScan[int](t, system, fmt.Sprintf("select lane from pglimit.permits where permit_id = %d", id))
		}
		mustExec(t, renewer, "begin")
		wantReason(t, renewer, fmt.Sprintf("renew_permit(%d, '1 hour')", id), "renewed")
		for mustScan[bool](t, system, fmt.Sprintf("select expires_at > clock_timestamp() from pglimit.permits where permit_id = %d", id)) {
			time.Sleep(10 * time.Millisecond)
		}
		wantClaim(t, app, lowered, "endpoint", 1, 1)
		if commit {
			mustExec(t, renewer, "commit")
			wantClaim(t, app, lowered, "endpoint", 1, 1)
		} else {
			mustExec(t, renewer, "rollback")
			wantGrant(t, app, lowered)
			wantReason(t, renewer, fmt.Sprintf("renew_permit(%d, '1 hour')", id), "lapsed")
		}
	}
}

// TestClaimsBesideOneThatReleasesLapsed: under a lowered cap a claim that releases what has lapsed has it locked until
// its end. Another does not take that for in use, but waits.
func TestClaimsBesideOneThatReleasesLapsed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := db.Conn("pglimit_app"), db.Conn("pglimit_app")
	for range 3 {
		wantGrant(t, first, "'e', 'h', endpoint_cap => 3, lease => '1 hour'")
	}
	mustExec(t, db.System(), lapse)
	const lowered = "'e', 'h', endpoint_cap => 2, lease => '1 hour'"
	mustExec(t, first, "begin")
	wantGrant(t, first, lowered)
	granted := make(chan bool, 1)
	go func() {
		var got bool
		if err := second.QueryRow(context.WithoutCancel(t.Context()), "select granted from pglimit.claim_permit("+lowered+")").Scan(&got); err != nil {
			t.Error(err)
		}
		granted <- got
	}()
	waitForLock(t, db, second.PgConn().PID())
	mustExec(t, first, "commit")
	if !<-granted {
		t.Error("refused, with one of two slots in use")
	}
	wantClaim(t, first, lowered, "endpoint", 2, 2)
}
