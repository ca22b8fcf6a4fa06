package tests

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/tests/dbtest"
)

// lose leaves of the unlogged tables what a crash does, for tests that lose them many times. TestCrash
// and TestStandby lose them in earnest.
const lose = `truncate pglimit.permits, pglimit.counters, pglimit.sentinel, pglimit.creation_locks, pglimit.purge_progress;
	alter sequence pglimit.permit_number restart`

// epochOf is the factor of the epoch in a permit_id.
const epochOf = 1 << 39

// at is a URL of one server turned into that of another with the same data.
func at(t *testing.T, dsn string, server *localpg.Server) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "127.0.0.1:" + strconv.Itoa(server.Port)
	return u.String()
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

type installation struct {
	InUse, Losses, LiveKnown, Reserved int64
	LostAt                             *time.Time
}

func showInstallation(t *testing.T, db rowQuerier) (i installation) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "select in_use, losses, live_known, reserved, lost_at from pglimit.show_installation()").
		Scan(&i.InUse, &i.Losses, &i.LiveKnown, &i.Reserved, &i.LostAt); err != nil {
		t.Fatal(err)
	}
	return i
}

func wantReserve(t *testing.T, db rowQuerier, inUse, reserved, losses int64) {
	t.Helper()
	if i := showInstallation(t, db); i.InUse != inUse || i.Reserved != reserved || i.Losses != losses {
		t.Errorf("%d in use, %d of them reserved, %d losses; want %d, %d, %d", i.InUse, i.Reserved, i.Losses, inUse, reserved, losses)
	}
}

// wantReassert fails unless the answer is this reason and agrees with it.
func wantReassert(t *testing.T, db rowQuerier, args, want string) {
	t.Helper()
	var renewed, expires bool
	var reason string
	if err := db.QueryRow(t.Context(), "select renewed, reason, expires_at > clock_timestamp() is true from pglimit.reassert_permit("+args+")").
		Scan(&renewed, &reason, &expires); err != nil {
		t.Errorf("reassert_permit(%s): %v", args, err)
		return
	}
	held := want == "reasserted" || want == "renewed"
	if reason != want || renewed != held || expires != held {
		t.Errorf("reassert_permit(%s): %v, %s, lease runs: %v; want %s", args, renewed, reason, expires, want)
	}
}

// The permits of the tests that lose them: one slot and two in the installation's pool, and one of a
// pool apart.
const (
	anns = "'export', 'ann', installation_cap => 8, lease => '1 hour'"
	bobs = "'export', 'bob', installation_cap => 8, lease => '1 hour', weight => 2"
	cats = "'lock', 'cat', holder_cap => 1, lease => '1 hour'"
)

type lost struct{ ann, bob, cat, max int64 }

// loadBeforeLoss claims the permits to be lost, has purge count them, and starts a load that goes on
// until its connections break. end returns the greatest permit_id that anybody was given.
func loadBeforeLoss(t *testing.T, db *dbtest.DB, dsn func(role string) string) (before lost, end func() int64) {
	t.Helper()
	app, operator := connect(t, dsn("pglimit_app")), connect(t, dsn("pglimit_operator"))
	mustExec(t, operator, "select pglimit.set_installation_cap(8), pglimit.set_grace('20 minutes')")
	before.ann = *wantGrant(t, app, anns).ID
	before.bob = *wantGrant(t, app, bobs).ID
	before.cat = *wantGrant(t, app, cats).ID
	mustExec(t, operator, "select pglimit.purge()")
	if i := showInstallation(t, operator); i.LiveKnown != 3 || i.Losses != 0 || i.LostAt != nil || i.Reserved != 0 {
		t.Errorf("before the loss: %+v", i)
	}

	var last atomic.Int64
	last.Store(before.cat)
	var wg sync.WaitGroup
	for i := range 4 {
		conn := connect(t, dsn("pglimit_app"))
		wg.Go(func() {
			ctx := context.Background()
			for {
				var id *int64
				if err := conn.QueryRow(ctx, "select permit_id from pglimit.claim_permit('load', $1, 3, 3, lease => '1 hour')", fmt.Sprint("h", i%2)).
					Scan(&id); err != nil {
					return
				}
				if id == nil {
					continue
				}
				for old := last.Load(); *id > old && !last.CompareAndSwap(old, *id); old = last.Load() {
				}
				if _, err := conn.Exec(ctx, "select pglimit.renew_permit($1), pglimit.release_permit($1), pglimit.hit('l', 's', 1000000, '1 hour')", *id); err != nil {
					return
				}
			}
		})
	}
	for last.Load() < before.cat+50 { // of load
		time.Sleep(time.Millisecond)
	}
	return before, func() int64 { wg.Wait(); return last.Load() }
}

// afterLoss is what holds after a crash as after a promotion, told from before's permits on.
func afterLoss(t *testing.T, before lost, dsn func(role string) string) {
	t.Helper()
	app, operator := connect(t, dsn("pglimit_app")), connect(t, dsn("pglimit_operator"))
	reassert := func(id int64, args string) string { return fmt.Sprintf("%d, %s", id, args) }

	// To be seen before anybody has claimed, and nobody is shown who is not there.
	wantReserve(t, operator, 0, 0, 1)
	for _, id := range []int64{before.ann, before.bob, before.cat, before.max} {
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "unknown")
		wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "unknown")
	}

	// Claims work at once, numbers go on growing, and the room of before is kept exactly.
	first := *wantGrant(t, app, "'load', 'h0', 3, 3, lease => '1 hour'").ID
	if first <= before.max || first/epochOf <= before.max/epochOf {
		t.Errorf("%d follows %d", first, before.max)
	}
	wantReserve(t, operator, 3, 3, 1)
	if i := showInstallation(t, operator); i.LostAt == nil || i.LiveKnown != 3 {
		t.Errorf("after the loss: %+v", i)
	}
	const new = "'export', 'new', installation_cap => 8, lease => '1 hour'"
	fifth := *wantGrant(t, app, new+", weight => 5").ID
	if r := wantClaim(t, app, new, "installation", 8, 8); *r.RetryAfter > 20*time.Minute {
		t.Errorf("retry after %v, the room is kept for 20 minutes", *r.RetryAfter)
	}
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits(include_lapsed => true)"); n != 2 {
		t.Errorf("%d permits are listed, want 2", n)
	}
	for _, call := range []string{"release_permit(0)", "renew_permit(0)"} {
		wantReason(t, app, call, "unknown")
	}
	wantReason(t, operator, "force_release(0, 'x')", "unknown")
	wantReassert(t, app, reassert(0, anns), "unknown")

	// Those who were live have their room, whole and once, and their numbers.
	wantReassert(t, app, reassert(before.bob, bobs), "reasserted")
	wantReserve(t, operator, 8, 1, 1)
	wantReassert(t, app, reassert(before.bob, bobs), "renewed")
	wantReassert(t, app, reassert(before.bob, anns), "not holder")
	wantReassert(t, app, reassert(before.ann, anns), "reasserted")
	wantReassert(t, app, reassert(before.cat, cats), "reasserted")
	wantReserve(t, operator, 8, 0, 1)
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits() where reasserted_at = claimed_at"); n != 3 {
		t.Errorf("%d permits are listed as reasserted, want 3", n)
	}
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", before.bob), "renewed")

	// No room any more for one who was not there, by his own account either.
	wantReassert(t, app, reassert(before.max, anns), "installation")
	wantReassert(t, app, reassert(before.max, cats), "holder")
	wantReassert(t, app, reassert(before.max, "'lock', 'dan', endpoint_cap => 1, lease => '1 hour'"), "reasserted")
	wantReassert(t, app, reassert(before.max-1, "'lock', 'eve', endpoint_cap => 1, lease => '1 hour'"), "endpoint")
	wantReassert(t, app, reassert(before.max-1, "'lock', 'eve', endpoint_cap => 1, lease => '1 hour', weight => 2"), "never")

	// What ended since has ended, and what was never given out is unknown.
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", before.cat), "released")
	wantReassert(t, app, reassert(before.cat, cats), "unknown")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", fifth), "released")
	wantReassert(t, app, reassert(fifth, new), "unknown")
	wantReassert(t, app, reassert(first+100*epochOf, new), "unknown")

	// The next permit of a lane was not reasserted.
	wantGrant(t, app, cats)
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits('lock', 'cat') where reasserted_at is null"); n != 1 {
		t.Error("a claim is listed as reasserted")
	}
}

// TestCrash is C-49: kill -9 under load, three times. The unlogged tables and the sequence are empty
// then; numbers grow all the same, and what was live before can be held again.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	db := dbtest.NewOn(t, server.DSN("postgres"))
	crash := func() {
		t.Helper()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before, end := loadBeforeLoss(t, db, db.URL)
	crash()
	before.max = end()
	afterLoss(t, before, db.URL)

	// Again, before purge has counted anew: the room is that of the first time, and this call is the
	// one that finds the loss.
	crash()
	app, operator := connect(t, db.URL("pglimit_app")), connect(t, db.URL("pglimit_operator"))
	wantReserve(t, operator, 0, 0, 2)
	wantReassert(t, app, fmt.Sprintf("%d, %s", before.ann, anns), "reasserted")
	wantReserve(t, operator, 3, 2, 2)
	wantReassert(t, app, fmt.Sprintf("%d, %s", before.bob, bobs), "reasserted")
	wantReserve(t, operator, 3, 0, 2)
	mustExec(t, operator, "select pglimit.set_grace('0 s')")
	wantReassert(t, app, fmt.Sprintf("%d, %s", before.cat, cats), "late")

	// Without grace nothing is kept; purge, too, finds the loss.
	mustExec(t, operator, "select pglimit.purge()")
	crash()
	app, operator = connect(t, db.URL("pglimit_app")), connect(t, db.URL("pglimit_operator"))
	wantReassert(t, app, fmt.Sprintf("%d, %s", before.ann, anns), "late")
	mustExec(t, operator, "select pglimit.purge()")
	wantReserve(t, operator, 0, 0, 3)
	if i := showInstallation(t, operator); i.LiveKnown != 3 || i.LostAt == nil {
		t.Errorf("after the third crash: %+v", i)
	}
	wantGrant(t, app, anns+", weight => 8")

	// A clean restart loses nothing.
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReserve(t, connect(t, db.URL("pglimit_operator")), 8, 0, 3)
}

// TestStandby is C-49 on a standby that streams: it says what it is, and once promoted it is as after
// a crash. Unlogged tables cannot be published.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := privateServer(t, "wal_level", "logical")
	db := dbtest.NewOn(t, primary.DSN("postgres"))
	standby, err := primary.Standby(t.Context(), localpg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	there := func(role string) string { return at(t, db.URL(role), standby) }

	before, end := loadBeforeLoss(t, db, db.URL)
	super := connect(t, db.SuperURL())
	for _, table := range []string{"counters", "permits", "sentinel"} {
		if _, err := super.Exec(t.Context(), "create publication p for table pglimit."+table); err == nil || !strings.Contains(err.Error(), "cannot be replicated") &&
			!strings.Contains(err.Error(), "cannot add relation") {
			t.Errorf("a publication of %s: %v", table, err)
		}
	}
	mustExec(t, super, "create publication p for all tables")
	published := mustScan[string](t, super, "select string_agg(tablename, ' ') from pg_publication_tables where schemaname = 'pglimit' and tablename not like 'durable%'")
	if !strings.Contains(published, "endpoints") || strings.Contains(published, "permits") || strings.Contains(published, "counters") {
		t.Errorf("a publication of all tables has %s", published)
	}
	lsn := mustScan[string](t, super, "select pg_current_wal_insert_lsn()::text")
	replica := connect(t, at(t, db.SuperURL(), standby))
	for !mustScan[bool](t, replica, "select pg_last_wal_replay_lsn() >= '"+lsn+"'") {
		time.Sleep(5 * time.Millisecond)
	}
	for role, calls := range map[string][]string{
		"pglimit_app":      {"claim_permit(" + anns + ")", "renew_permit(1)", "release_permit(1)", "hit('l', 's', 1, '1 s')", "peek('l', 's', 1, '1 s')", "reassert_permit(1, " + anns + ")"},
		"pglimit_operator": {"show_installation()", "list_permits()", "list_counters()", "raise_epoch()", "set_grace('1 s')", "show_sign_in('ann', '203.0.113.7')", "forget_sign_in('ann')"},
	} {
		conn := connect(t, there(role))
		for _, call := range calls {
			_, err := conn.Exec(t.Context(), "select pglimit."+call)
			if sqlState(err) != "PGL03" || !strings.Contains(err.Error(), "standby") {
				t.Errorf("%s on a standby: %v", call, err)
			}
		}
	}

	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = primary.Restart(context.Background()) }) // for the database to be dropped
	before.max = end()
	if !mustScan[bool](t, replica, "select pg_promote()") {
		t.Fatal("the standby was not promoted")
	}
	afterLoss(t, before, there)
}

// TestReserveLapses: room that nobody comes back for is free when the grace time is over, by itself.
func TestReserveLapses(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	id := *wantGrant(t, app, bobs).ID
	mustExec(t, operator, "select pglimit.purge(), pglimit.set_grace('80 ms')")
	mustExec(t, db.System(), lose)
	for {
		var reason string
		var retry *time.Duration
		if err := app.QueryRow(t.Context(), "select reason, retry_after from pglimit.claim_permit('export', 'new', installation_cap => 2, lease => '1 hour')").
			Scan(&reason, &retry); err != nil {
			t.Fatal(err)
		}
		if reason == "granted" {
			break
		}
		if reason != "installation" || *retry <= 0 || *retry > 80*time.Millisecond {
			t.Fatalf("%s, retry after %v", reason, *retry)
		}
		time.Sleep(*retry)
	}
	wantReserve(t, operator, 1, 0, 1)
	wantReassert(t, app, fmt.Sprintf("%d, %s", id, bobs), "late")
}

// TestReserveIsBounded: no more room is kept than the installation's cap; a lowered cap holds for those
// who come back, and room that is kept for others is not in their way.
func TestReserveIsBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const args = "'e', 'h', installation_cap => %d, lease => '1 hour'"
	mustExec(t, operator, "select pglimit.set_installation_cap(6), pglimit.set_grace('20 minutes')")
	var ids []int64
	for range 9 {
		ids = append(ids, *wantGrant(t, app, fmt.Sprintf(args, 9)).ID)
	}
	mustExec(t, operator, "select pglimit.purge()")
	if i := showInstallation(t, operator); i.LiveKnown != 9 {
		t.Errorf("%d known to be live, want 9", i.LiveKnown)
	}
	mustExec(t, db.System(), lose)
	wantClaim(t, app, fmt.Sprintf(args, 6), "installation", 6, 6)
	wantReserve(t, operator, 6, 6, 1)
	for i, want := range []string{"reasserted", "reasserted", "reasserted", "installation"} {
		wantReassert(t, app, fmt.Sprintf("%d, "+args, ids[i], 3), want)
	}
	wantReserve(t, operator, 6, 3, 1)
	// Of four slots three are kept room and the other is free.
	wantReassert(t, app, fmt.Sprintf("%d, "+args+", weight => 4", ids[4], 7), "reasserted")
	wantReserve(t, operator, 7, 0, 1)
	wantReassert(t, app, fmt.Sprintf("%d, "+args, ids[5], 7), "installation")
	wantReassert(t, app, fmt.Sprintf("%d, "+args, ids[5], 8), "reasserted")
	wantReassert(t, app, fmt.Sprintf("%d, "+args, ids[6], 0), "never")
	wantReserve(t, operator, 8, 0, 1)
}

// TestReassertsAtOnce: two that come at the same moment to a cap with room for one.
func TestReassertsAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	conns := appConns(t, db, 2)
	const args = "'e', 'h', installation_cap => %d, lease => '1 hour'"
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	ids := []int64{*wantGrant(t, conns[0], fmt.Sprintf(args, 9)).ID, *wantGrant(t, conns[0], fmt.Sprintf(args, 9)).ID}
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, db.System(), lose)
	wantGrant(t, conns[0], cats) // begins the epoch, under locks of its own
	mustExec(t, conns[0], "begin")
	wantReassert(t, conns[0], fmt.Sprintf("%d, "+args, ids[0], 1), "reasserted")
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantReassert(t, conns[1], fmt.Sprintf("%d, "+args, ids[1], 1), "installation")
	}()
	waitForLock(t, db, conns[1].PgConn().PID())
	mustExec(t, conns[0], "commit")
	<-done
	wantReserve(t, operator, 2, 1, 1)
	wantReassert(t, conns[1], fmt.Sprintf("%d, "+args, ids[1], 2), "reasserted")
}

// TestReassertOutsideTheInstallation: the first call after a loss is of a permit that has no place in the
// installation's pool, where room is kept all the same.
func TestReassertOutsideTheInstallation(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	id := *wantGrant(t, app, cats).ID
	wantGrant(t, app, bobs)
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, db.System(), lose)
	wantReassert(t, app, fmt.Sprintf("%d, %s", id, cats), "reasserted")
	wantReserve(t, operator, 2, 2, 1)
	if next := *wantGrant(t, app, anns).ID; next/epochOf <= id/epochOf {
		t.Errorf("%d follows %d", next, id)
	}
}

// TestSentinelGoneAlone: whoever deletes that row makes a loss where there was none, but what is live stays
// so, and nothing is kept beside it.
func TestSentinelGoneAlone(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	id := *wantGrant(t, app, bobs).ID
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, db.System(), "delete from pglimit.sentinel")
	wantGrant(t, app, bobs)
	wantReserve(t, operator, 4, 0, 1)
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "renewed")
}

// TestRaiseEpochWaitsInOrder: it waits for the lock of the installation's pool before it takes the row that a
// claim wants after it.
func TestRaiseEpochWaitsInOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, other := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_operator")
	wantGrant(t, app, bobs)
	mustExec(t, app, "begin")
	wantGrant(t, app, bobs)
	done := make(chan error)
	go func() {
		_, err := operator.Exec(context.Background(), "select pglimit.raise_epoch()")
		done <- err
	}()
	waitForLock(t, db, operator.PgConn().PID())
	mustExec(t, other, "select pglimit.set_grace('1 minute')")
	mustExec(t, app, "commit")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFirstEpochIsNoLoss: neither the first claim, nor a purge before it, nor raise_epoch is one.
func TestFirstEpochIsNoLoss(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"pglimit.purge()", "pglimit.raise_epoch()"} {
		db := dbtest.New(t)
		app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
		wantReserve(t, operator, 0, 0, 0)
		wantReassert(t, app, "7, "+anns, "late")
		wantReassert(t, app, fmt.Sprintf("%d, %s", 9_000_000*int64(epochOf), anns), "unknown")
		mustExec(t, operator, "select from "+first)
		id := *wantGrant(t, app, anns).ID
		mustExec(t, operator, "select pglimit.purge(), pglimit.raise_epoch()")
		wantReserve(t, operator, 1, 0, 0)
		// live over the change of epochs
		wantReassert(t, app, fmt.Sprintf("%d, %s", id, anns), "renewed")
		mustExec(t, db.System(), lapse)
		wantReassert(t, app, fmt.Sprintf("%d, %s", id, anns), "lapsed")
		wantReassert(t, app, fmt.Sprintf("%d, %s", id-1, anns), "late")
	}
}

// TestRaiseEpochAfterLoss: whoever finds the tables empty, the loss counts, and room is kept.
func TestRaiseEpochAfterLoss(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	id := *wantGrant(t, app, bobs).ID
	mustExec(t, operator, "select pglimit.purge(), pglimit.set_grace('20 minutes')")
	mustExec(t, db.System(), lose)
	if epoch := mustScan[int64](t, operator, "select pglimit.raise_epoch()"); epoch <= id/epochOf {
		t.Errorf("epoch %d follows %d", epoch, id/epochOf)
	}
	wantReserve(t, operator, 2, 2, 1)
	wantReassert(t, app, fmt.Sprintf("%d, %s", id, bobs), "reasserted")
	wantReserve(t, operator, 2, 0, 1)
}

// TestFirstAfterLoss steps through calls that come first after a loss, one of which has not ended yet:
// whichever it is, and whether it commits or not, none of the others takes room that is kept.
func TestFirstAfterLoss(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	conns := appConns(t, db, 6)
	mustExec(t, operator, "select pglimit.set_installation_cap(3), pglimit.set_grace('20 minutes')")
	const (
		pooled = "'e', 'h', installation_cap => 3, lease => '1 hour'"
		alone  = "'f', 'h', holder_cap => 9, lease => '1 hour'"
	)
	losses := int64(0)
	for _, end := range []string{"commit", "rollback"} {
		for _, first := range []string{"pooled", "heavy", "alone", "reassert", "purge", "raise_epoch"} {
			mustExec(t, db.System(), lose)
			mustExec(t, operator, "select pglimit.set_grace('0 s')")
			id := *wantGrant(t, conns[0], pooled+", weight => 2").ID
			mustExec(t, operator, "select pglimit.purge(), pglimit.set_grace('20 minutes')")
			if losses = showInstallation(t, operator).Losses; showInstallation(t, operator).LiveKnown != 2 {
				t.Fatal("nothing is known to be live")
			}
			mustExec(t, db.System(), lose)
			mustExec(t, db.System(), "select pglimit._lock_creation(3, e'\\x1f\\x1f')") // so that its row can be looked for

			call := map[string]string{
				"pooled":      "claim_permit(" + pooled + ")",
				"heavy":       "claim_permit(" + pooled + ", weight => 2)",
				"alone":       "claim_permit(" + alone + ")",
				"reassert":    fmt.Sprintf("reassert_permit(%d, %s, weight => 2)", id, pooled),
				"purge":       "purge()",
				"raise_epoch": "raise_epoch()",
			}[first]
			holder := conns[0]
			if first == "purge" || first == "raise_epoch" {
				holder = operator
			}
			mustExec(t, holder, "begin")
			mustExec(t, holder, "select from pglimit."+call)
			// Nobody can make lanes between the look at the pool and the new epoch.
			if mustScan[int](t, db.System(), "select count(*) from (select from pglimit.creation_locks where lock_number = "+
				"3 * 16384 + (hashtextextended(e'\\x1f\\x1f', 0) & 16383) for update skip locked) l") != 0 {
				t.Errorf("first %s holds no lock on the pool's lanes", first)
			}

			reasons := make([]string, len(conns))
			var wg sync.WaitGroup
			for i, conn := range conns[1:] {
				sql := "select reason from pglimit.claim_permit(" + pooled + ")"
				switch i {
				case 3:
					sql = "select reason from pglimit.claim_permit(" + alone + ")"
				case 4:
					sql = fmt.Sprintf("select reason from pglimit.reassert_permit(%d, %s, weight => 2)", id, pooled)
				}
				wg.Go(func() {
					if err := conn.QueryRow(t.Context(), sql).Scan(&reasons[i]); err != nil {
						t.Errorf("first %s, %s: %v", first, sql, err)
					}
				})
				waitForLock(t, db, conn.PgConn().PID())
			}
			mustExec(t, holder, end)
			wg.Wait()

			granted := 0
			for _, reason := range reasons[:3] {
				if reason == "granted" {
					granted++
				} else if reason != "installation" {
					t.Errorf("first %s, %s: a claim is answered %s", first, end, reason)
				}
			}
			// one slot is not kept, and the first may have it
			want := 1
			if first == "pooled" && end == "commit" {
				want = 0
			}
			reasserted := "reasserted"
			if first == "reassert" && end == "commit" {
				reasserted = "renewed"
			}
			if granted != want || reasons[3] != "granted" || reasons[4] != reasserted {
				t.Errorf("first %s, %s: %d claims granted, want %d; alone %s; %s", first, end, granted, want, reasons[3], reasons[4])
			}
			wantReserve(t, operator, 3, 0, losses+1)
		}
	}
}

// TestManyAfterLoss has everybody come at once after a loss: no error, no more live than the cap, one
// epoch, and each permit is held again once.
func TestManyAfterLoss(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	conns := appConns(t, db, 8)
	const args = "'e', $1, 2, 6, 6, '1 hour'"
	mustExec(t, operator, "select pglimit.set_installation_cap(6), pglimit.set_grace('20 minutes')")
	for round := range 25 {
		ids := make([]int64, 4)
		mustExec(t, db.System(), "update pglimit.permits set expires_at = '-infinity'")
		for i := range ids {
			if err := conns[i].QueryRow(t.Context(), "select permit_id from pglimit.claim_permit("+args+")", fmt.Sprint("h", i)).Scan(&ids[i]); err != nil {
				t.Fatal(err)
			}
		}
		mustExec(t, operator, "select pglimit.purge()")
		losses := showInstallation(t, operator).Losses
		mustExec(t, db.System(), lose)
		var reasserted, granted atomic.Int64
		together(t, append(conns[:8:8], operator), func(i int, conn *pgx.Conn) {
			var reason string
			var err error
			switch {
			case i == 8 && round%2 == 0:
				_, err = conn.Exec(t.Context(), "select pglimit.purge()")
			case i == 8:
				_, err = conn.Exec(t.Context(), "select pglimit.raise_epoch()")
			case i < 6: // two of them twice
				err = conn.QueryRow(t.Context(), "select reason from pglimit.reassert_permit($2, "+args+")", fmt.Sprint("h", i%4), ids[i%4]).Scan(&reason)
			default:
				err = conn.QueryRow(t.Context(), "select reason from pglimit.claim_permit("+args+")", fmt.Sprint("new", i)).Scan(&reason)
			}
			if err != nil {
				t.Errorf("round %d, %d: %v", round, i, err)
			}
			switch reason {
			case "reasserted":
				reasserted.Add(1)
			case "granted":
				granted.Add(1)
			}
		})
		if reasserted.Load() != 4 || granted.Load() != 2 {
			t.Errorf("round %d: %d held again, want 4, and %d granted, want 2", round, reasserted.Load(), granted.Load())
		}
		wantReserve(t, operator, 6, 0, losses+1)
		if t.Failed() {
			return
		}
	}
}

// TestReassertRefusalWritesNothing: late, unknown, lapsed and full are answered by a look.
func TestReassertRefusalWritesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	old := *wantGrant(t, app, anns).ID
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	mustExec(t, db.System(), lose)
	id := *wantGrant(t, app, "'e', 'h', 1, 1, lease => '1 hour'").ID
	conn := db.Conn("pglimit_app")
	for args, want := range map[string]string{
		fmt.Sprint(old, ", 'e', 'h', 1, lease => '1 hour'"):                      "holder",
		fmt.Sprint(old, ", 'e', 'g', endpoint_cap => 1, lease => '1 hour'"):      "endpoint",
		fmt.Sprint(old, ", 'e', 'g', 1, lease => '1 hour', weight => 2"):         "never",
		fmt.Sprint(id+1, ", 'e', 'h', 1, lease => '1 hour'"):                     "unknown",
		fmt.Sprint(int64(epochOf)*9_000_000, ", 'e', 'h', 1, lease => '1 hour'"): "unknown",
		fmt.Sprint(-1, ", 'e', 'h', 1, lease => '1 hour'"):                       "unknown",
	} {
		mustExec(t, conn, "begin")
		wantReassert(t, conn, args, want)
		if mustScan[bool](t, conn, "select pg_current_xact_id_if_assigned() is not null") {
			t.Errorf("reassert_permit(%s), %s, has written", args, want)
		}
		mustExec(t, conn, "rollback")
	}
	for _, args := range []string{
		"null, " + anns, "1, '', 'h', 1, lease => '1 s'", "1, 'e', ' ', 1, lease => '1 s'", "1, 'e', 'h', -1, lease => '1 s'", "1, 'e', 'h', 1",
		"1, 'e', 'h', 1, lease => '0 s'", "1, 'e', 'h', 1, lease => '1 month'", "1, 'e', 'h', 1, lease => '1 s', weight => 0", "1, 'e', 'h', 1, lease => '1 s', weight => null",
	} {
		if _, err := conn.Exec(t.Context(), "select pglimit.reassert_permit("+args+")"); sqlState(err) != "PGL01" {
			t.Errorf("reassert_permit(%s): %v", args, err)
		}
	}
	if _, err := conn.Exec(t.Context(), "select pglimit.reassert_permit(1, 'unheard', 'h')"); sqlState(err) != "PGL02" {
		t.Errorf("an unknown endpoint: %v", err)
	}
}

// TestReassertOverridden: the holder's override beats what the call gives, as in a claim.
func TestReassertOverridden(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_grace('20 minutes'), pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 minute')")
	mustExec(t, operator, "select pglimit.set_endpoint_override('e', 'h', holder_cap => 2)")
	ids := []int64{*wantGrant(t, app, "'e', 'h'").ID, *wantGrant(t, app, "'e', 'h'").ID}
	mustExec(t, db.System(), lose)
	for i, want := range []string{"reasserted", "reasserted"} {
		wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', holder_cap => 1", ids[i]), want)
	}
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', holder_cap => 9", ids[0]-1), "holder")
}

// TestReassertInAMode: modes shadow and off refuse nothing, so no reassertion either; what has no place in the pools gets
// none, and keeps nobody out.
func TestReassertInAMode(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	const row = "time_bound => '1 minute', in_installation => false, "
	mustExec(t, operator, "select pglimit.set_endpoint('shadow', endpoint_cap => 1, "+row+"mode => 'shadow'), pglimit.set_endpoint('off', endpoint_cap => 0, "+row+"mode => 'off')")
	grant := func(args, reason string) (id int64) {
		if got := mustScan[string](t, app, "select reason from pglimit.claim_permit("+args+")"); got != reason {
			t.Errorf("%s: %s", args, got)
		}
		return mustScan[int64](t, operator, "select max(permit_id) from pglimit.list_permits()")
	}
	within, beyond, heavy, off := grant("'shadow', 'a'", "granted"), grant("'shadow', 'b'", "shadow"), grant("'shadow', 'c', weight => 2", "shadow"), grant("'off', 'd'", "off")
	mustExec(t, db.System(), lose)
	args := map[int64]string{within: "'shadow', 'a'", beyond: "'shadow', 'b'", heavy: "'shadow', 'c', weight => 2", off: "'off', 'd'"}
	for _, id := range []int64{within, beyond, heavy, off} {
		wantReassert(t, app, fmt.Sprintf("%d, %s", id, args[id]), "reasserted")
		wantReassert(t, app, fmt.Sprintf("%d, %s", id, args[id]), "renewed")
	}
	if got := mustScan[string](t, operator, "select string_agg(state || (reasserted_at is not null), ' ' order by permit_id) from pglimit.list_permits()"); got != "livetrue beyondtrue beyondtrue beyondtrue" {
		t.Error(got)
	}
	mustExec(t, operator, "select pglimit.set_endpoint('shadow', endpoint_cap => 2, "+row+"mode => 'enforce')")
	wantGrant(t, app, "'shadow', 'e'")
	for _, id := range []int64{within, beyond, heavy, off} {
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
		wantReassert(t, app, fmt.Sprintf("%d, %s", id, args[id]), "unknown")
	}
}

// TestAllKindsAfterLoss: tickets and permits beyond the caps come at once with others after a loss, whose locks
// they take in the same order.
func TestAllKindsAfterLoss(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	conns := appConns(t, db, 8)
	mustExec(t, operator, `select pglimit.set_grace('20 minutes'), pglimit.set_endpoint('shadow', holder_cap => 1, time_bound => '1 minute', mode => 'shadow'),
		pglimit.set_endpoint('off', holder_cap => 1, time_bound => '1 minute', mode => 'off'), pglimit.set_endpoint('e', holder_cap => 9, time_bound => '1 minute')`)
	wantGrant(t, conns[0], bobs)
	mustExec(t, operator, "select pglimit.purge()")
	for round := range 25 {
		mustExec(t, db.System(), lose)
		together(t, conns, func(i int, conn *pgx.Conn) {
			call := []string{
				"claim_permit('shadow', 'h', weight => 2)", "claim_permit('off', 'h')", "enqueue_permit('shadow', 'h')", "claim_permit('e', 'h', weight => 2)",
			}[i%4]
			if _, err := conn.Exec(t.Context(), "select from pglimit."+call); err != nil {
				t.Errorf("round %d, %s: %v", round, call, err)
			}
		})
		if i := showInstallation(t, operator); i.Losses != int64(round+1) || i.Reserved != 2 {
			t.Errorf("round %d: %+v", round, i)
		}
	}
}

// TestReassertByTheEndpointsRow: caps, lease and the longest time come from the row where the call
// leaves them out, the tenant's row first.
func TestReassertByTheEndpointsRow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, `select pglimit.set_grace('20 minutes'),
		pglimit.set_endpoint('e', holder_cap => 9, time_bound => '1 minute'),
		pglimit.set_endpoint('e', holder_cap => 1, time_bound => '2 minutes', longest => '1 minute', tenant => 't7')`)
	var ids []int64
	for _, tenant := range []string{"t7", "t8", "t7"} {
		mustExec(t, db.System(), lapse)
		ids = append(ids, *wantGrant(t, app, "'e', 'h', tenant => '"+tenant+"'").ID)
	}
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, db.System(), lose)
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', tenant => 't7', note => '{\"a\": 1}'", ids[0]), "reasserted")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', tenant => 't8'", ids[1]), "reasserted")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', tenant => 't7'", ids[2]), "holder")
	got := mustScan[string](t, operator, `select string_agg(format('%s %s %s %s', tenant, holder, expires_at - claimed_at, note), ', ' order by permit_id)
		from pglimit.list_permits()`)
	if want := `t7 h 00:01:00 {"a": 1}, t8 h 00:01:30 `; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// no renewal goes past the longest
	mustExec(t, app, fmt.Sprintf("select pglimit.renew_permit(%d, '1 hour')", ids[0]))
	if !mustScan[bool](t, operator, "select expires_at <= claimed_at + interval '1 minute' from pglimit.list_permits(tenant_filter => 't7')") {
		t.Error("a reasserted permit was renewed past the longest of its endpoint")
	}
}

// TestReassertBeyondTheCaps: an endpoint in mode shadow or off refuses no reassertion for want of room, as it refuses no
// claim; what is not a matter of room is answered as elsewhere.
func TestReassertBeyondTheCaps(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	set := func(mode string) {
		t.Helper()
		mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour', mode => '"+mode+"')")
	}
	listed := func(want string) {
		t.Helper()
		if got := mustScan[string](t, operator, "select string_agg(state || case when reasserted_at = claimed_at then '' else ', new' end, ' ' order by permit_id) from pglimit.list_permits('e')"); got != want {
			t.Errorf("listed: %s, want %s", got, want)
		}
	}
	set("shadow")
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	var ids []int64
	for range 4 {
		ids = append(ids, *wantGrant(t, app, "'x', 'h', 9, lease => '1 hour'").ID)
	}
	mustExec(t, db.System(), lose)
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", ids[0]), "reasserted")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", ids[1]), "reasserted")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', weight => 2", ids[2]), "reasserted")
	listed("live beyond beyond")
	if n := mustScan[int64](t, operator, "select shadow_refused from pglimit.list_endpoints('e')"); n != 2 {
		t.Errorf("%d would have been refused, want 2", n)
	}
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", ids[1]), "renewed")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'g'", ids[1]), "not holder")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", ids[1]), "renewed")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", ids[1]), "released")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", ids[1]), "unknown")

	// In mode off no pool is looked at; and here the reassertion is what finds the loss.
	set("off")
	mustExec(t, db.System(), lose)
	for _, id := range ids {
		wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", id), "reasserted")
	}
	listed("beyond beyond beyond beyond")
	wantReserve(t, operator, 0, 0, 2)
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", *wantGrant(t, app, "'x', 'h', 9, lease => '1 hour'").ID+1), "unknown")
	mustExec(t, operator, "select pglimit.set_grace('0 s')")
	wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h'", ids[0]-1), "late")
}

// TestReserveLapsesWhileTaken: room that lapses between a reassertion and its commit is not free to a claim under a
// lowered cap, which finds it locked.
func TestReserveLapsesWhileTaken(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	conns := appConns(t, db, 2)
	const args = "'e', 'h', installation_cap => %d, lease => '1 hour'"
	mustExec(t, operator, "select pglimit.set_grace('20 minutes')")
	id := *wantGrant(t, conns[0], fmt.Sprintf(args, 4)+", weight => 4").ID
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, db.System(), lose)
	wantGrant(t, conns[0], cats) // begins the epoch
	wantReserve(t, operator, 4, 4, 1)
	mustExec(t, db.System(), "update pglimit.permits set expires_at = clock_timestamp() + interval '80 ms' where permit_id = 0 and pool = e'\x1f\x1f'")
	mustExec(t, conns[0], "begin")
	wantReassert(t, conns[0], fmt.Sprintf("%d, "+args+", weight => 2", id, 2), "reasserted")
	for mustScan[bool](t, db.System(), "select exists (select from pglimit.permits where permit_id = 0 and pool = e'\x1f\x1f' and expires_at > clock_timestamp())") {
		time.Sleep(5 * time.Millisecond)
	}
	mustExec(t, db.Super(), "select 1") // is connected before anybody waits, which ends after a second
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantClaim(t, conns[1], fmt.Sprintf(args, 2), "installation", 2, 2)
	}()
	waitForLock(t, db, conns[1].PgConn().PID())
	mustExec(t, conns[0], "commit")
	<-done
	wantReserve(t, operator, 2, 0, 1)
}
