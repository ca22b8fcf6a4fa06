package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

type claimRow struct {
	Granted    bool
	Reason     string
	ID         *int64
	ExpiresAt  *time.Time
	Cap, InUse int64
	RetryAfter *time.Duration
}

// wantClaim fails unless the claim is answered so; every answer must agree with itself.
func wantClaim(t *testing.T, db rowQuerier, args, reason string, cap, inUse int64) (r claimRow) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "select granted, reason, permit_id, expires_at, coalesce(cap, 0), coalesce(in_use, 0), retry_after from pglimit.claim_permit("+args+")").
		Scan(&r.Granted, &r.Reason, &r.ID, &r.ExpiresAt, &r.Cap, &r.InUse, &r.RetryAfter); err != nil {
		t.Fatal(args, ": ", err)
	}
	if r.Reason != reason || r.Cap != cap || r.InUse != inUse {
		t.Errorf("claim_permit(%s): %s, %d of %d; want %s, %d of %d", args, r.Reason, r.InUse, r.Cap, reason, inUse, cap)
	}
	granted, never := r.Reason == "granted", r.Reason == "never"
	if r.Granted != granted || (r.ID != nil) != granted || (r.ExpiresAt != nil) != granted || (r.RetryAfter == nil) != (granted || never) {
		t.Errorf("claim_permit(%s): contradicts itself: %+v", args, r)
	}
	if r.RetryAfter != nil && *r.RetryAfter <= 0 {
		t.Errorf("claim_permit(%s): retry after %v", args, *r.RetryAfter)
	}
	return r
}

// wantGrant fails unless the claim is granted; a grant has neither cap nor in_use.
func wantGrant(t *testing.T, db rowQuerier, args string) claimRow {
	t.Helper()
	return wantClaim(t, db, args, "granted", 0, 0)
}

func wantReason(t *testing.T, db rowQuerier, call, want string) {
	t.Helper()
	if got := mustScan[string](t, db, "select reason from pglimit."+call); got != want {
		t.Errorf("%s: %s, want %s", call, got, want)
	}
}

// lapse ends the leases of all permits without a wait.
const lapse = "update pglimit.permits set expires_at = clock_timestamp() where expires_at > clock_timestamp()"

// TestLapse is C-17, C-18, C-19 and C-22: a lease ends by itself, without holder, purge or operator,
// and who held it can no longer do anything to its successor, whatever name either has.
func TestLapse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	gone := db.Conn("pglimit_app")
	const args = "'e', 'host-1', 3, lease => '1 hour'"
	var old []int64
	for range 3 {
		old = append(old, *wantGrant(t, gone, args).ID)
	}
	if err := gone.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantClaim(t, app, args, "holder", 3, 3)
	mustExec(t, db.System(), lapse)
	// not taken yet, and all the same no longer the old holder's
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", old[0]), "lapsed")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", old[0]), "lapsed")
	for range 3 {
		wantGrant(t, app, args)
	}
	for _, id := range old {
		for _, call := range []string{"release_permit(%d)", "renew_permit(%d)", "release_permit(%d, 'host-1')"} {
			got := mustScan[string](t, app, "select reason from pglimit."+fmt.Sprintf(call, id))
			if got != "lapsed" && got != "unknown" {
				t.Errorf(call+" of a lane's former holder: %s", id, got)
			}
		}
	}
	wantClaim(t, app, args, "holder", 3, 3)
}

// TestReleaseOnce is C-20: one release makes room once, also when ten come at the same moment.
func TestReleaseOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 10)
	for range 5 {
		mustExec(t, db.System(), "delete from pglimit.permits")
		a := *wantGrant(t, conns[0], "'e', 'a', endpoint_cap => 2, lease => '1 hour'").ID
		wantGrant(t, conns[0], "'e', 'b', endpoint_cap => 2, lease => '1 hour'")
		wantReason(t, conns[0], fmt.Sprintf("release_permit(%d, 'b')", a), "not holder")
		var released atomic.Int64
		together(t, conns, func(_ int, conn *pgx.Conn) {
			var ok bool
			if err := conn.QueryRow(t.Context(), "select released from pglimit.release_permit($1)", a).Scan(&ok); err != nil {
				t.Error(err)
			} else if ok {
				released.Add(1)
			}
		})
		if released.Load() != 1 {
			t.Errorf("released %d times", released.Load())
		}
		wantGrant(t, conns[0], "'e', 'c', endpoint_cap => 2, lease => '1 hour'")
		wantClaim(t, conns[0], "'e', 'd', endpoint_cap => 2, lease => '1 hour'", "endpoint", 2, 2)
	}
}

// TestSameHolder is C-23: a name is no identity; each claim is its own permit, and all are shown.
func TestSameHolder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	first := *wantGrant(t, app, "'e', 'host-1', 2, lease => '1 hour'").ID
	second := *wantGrant(t, app, "'e', 'host-1', 2, lease => '1 hour'").ID
	if first >= second {
		t.Errorf("%d follows %d", second, first)
	}
	if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits(holder_filter => 'host-1')"); n != 2 {
		t.Errorf("%d permits are shown", n)
	}
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", first), "released")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", second), "renewed")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", first), "unknown")
}

// TestCaps: each pool refuses in its own name, all or nothing; a lowered cap holds at once,
// a raised one gives room at once (C-15), a cap of 0 is closed (C-12).
func TestCaps(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	wantGrant(t, app, "'e', 'a', 1, 2, 3, '1 hour'")
	wantClaim(t, app, "'e', 'a', 1, 2, 3, '1 hour'", "holder", 1, 1)
	wantGrant(t, app, "'e', 'b', 2, 2, 3, '1 hour'")
	wantClaim(t, app, "'e', 'c', 1, 2, 3, '1 hour'", "endpoint", 2, 2)
	wantGrant(t, app, "'f', 'c', 1, 2, 3, '1 hour'")
	wantClaim(t, app, "'g', 'd', 1, 2, 3, '1 hour'", "installation", 3, 3)
	wantGrant(t, app, "'g', 'd', 1, 2, 4, '1 hour'")
	wantClaim(t, app, "'e', 'c', 1, 1, 9, '1 hour'", "endpoint", 1, 2)
	wantGrant(t, app, "'e', 'c', 1, 3, 9, '1 hour'")
	wantClaim(t, app, "'z', 'c', 0, lease => '1 hour'", "never", 0, 0)
	if n := mustScan[int](t, db.Conn("pglimit_operator"), "select in_use from pglimit.show_installation()"); n != 5 {
		t.Errorf("the installation shows %d in use, want 5", n)
	}
}

// TestWeight: a heavy permit takes and gives all its slots at once.
func TestWeight(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	id := *wantGrant(t, app, "'e', 'h', 5, lease => '1 hour', weight => 3").ID
	wantClaim(t, app, "'e', 'h', 5, lease => '1 hour', weight => 6", "never", 5, 3)
	wantClaim(t, app, "'e', 'h', 5, lease => '1 hour', weight => 3", "holder", 5, 3)
	wantGrant(t, app, "'e', 'h', 5, lease => '1 hour', weight => 2")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d, '2 hours')", id), "renewed")
	r := wantClaim(t, app, "'e', 'h', 5, lease => '1 hour', weight => 3", "holder", 5, 5)
	if r.RetryAfter != nil && *r.RetryAfter <= time.Hour {
		t.Errorf("there is room for 3 only when the renewed permit ends, not after %v", *r.RetryAfter)
	}
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
	wantGrant(t, app, "'e', 'h', 5, lease => '1 hour', weight => 3")
}

// TestHugeCaps: a cap may be as large as a bigint.
func TestHugeCaps(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	for _, huge := range []string{"2147483647", "2147483648", "9223372036854775807"} {
		for range 3 {
			wantGrant(t, app, fmt.Sprintf("'e%s', 'h', %s, lease => '1 hour'", huge, huge))
			wantGrant(t, app, fmt.Sprintf("'e%s', 'h', %s, %s, %s, lease => '1 hour', weight => 2", huge, huge, huge, huge))
		}
	}
}

// TestReleasedIsUnknown: also when another has the slot of its first pool by now.
func TestReleasedIsUnknown(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	id := *wantGrant(t, app, "'e', 'h', 1, 1, lease => '1 hour'").ID
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
	wantGrant(t, app, "'e', 'h', 1, lease => '1 hour'")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "unknown")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "unknown")

	// One that lapsed has lapsed, whoever asks.
	id = *wantGrant(t, app, "'f', 'h', 1, 1, lease => '1 hour'").ID
	mustExec(t, db.System(), fmt.Sprintf("update pglimit.permits set expires_at = clock_timestamp() where permit_id = %d", id))
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "lapsed")
	wantGrant(t, app, "'f', 'h', 1, lease => '1 hour'")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "lapsed")
}

// TestClaimRetryAfter: the end of the lease that makes the room, not of just any.
func TestClaimRetryAfter(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	for _, lease := range []string{"3 hours", "1 hour", "2 hours"} {
		wantGrant(t, app, fmt.Sprintf("'e', 'h', 3, lease => '%s'", lease))
	}
	for weight, hours := range map[int]int{1: 1, 2: 2, 3: 3} {
		r := wantClaim(t, app, fmt.Sprintf("'e', 'h', 3, lease => '1 hour', weight => %d", weight), "holder", 3, 3)
		want := time.Duration(hours) * time.Hour
		if r.RetryAfter != nil && (*r.RetryAfter > want || *r.RetryAfter < want-10*time.Minute) {
			t.Errorf("weight %d: retry after %v, want just below %v", weight, *r.RetryAfter, want)
		}
	}
}

// TestPoolsAreApart is C-37 for permits.
func TestPoolsAreApart(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	for _, key := range [][3]string{
		{"", "a:b", "c"}, {"", "a", "b:c"}, {"a", "b", "c"}, {"", "a", "b"}, {"", "b", "c"}, {"", "a", "b\x1fc"}, {"", "a", "\x1fb"}, {"", "A", "b"},
	} {
		for _, want := range []bool{true, false} {
			var granted bool
			if err := app.QueryRow(t.Context(), "select granted from pglimit.claim_permit($1, $2, 1, lease => '1 hour', tenant => $3)",
				key[1], key[2], key[0]).Scan(&granted); err != nil || granted != want {
				t.Errorf("%q: %v, %v; want %v", key, granted, err, want)
			}
		}
	}
}

// TestPurgeIsBounded is C-28: a batch is kept to, and repeated calls take all.
func TestPurgeIsBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	mustExec(t, db.System(), `insert into pglimit.counters
		select e'\x1fl\x1f' || i, 1, 0, 1, now() - interval '2 h', now() - interval '1 h' from generate_series(1, 20000) i`)
	left := 20000
	for range 200 {
		var n int
		var more bool
		if err := operator.QueryRow(t.Context(), "select counters_purged, more from pglimit.purge(1000)").Scan(&n, &more); err != nil {
			t.Fatal(err)
		}
		if n > 1200 { // it ends with the block that reaches the batch
			t.Errorf("one call removed %d", n)
		}
		if left -= n; !more {
			break
		}
	}
	if left != 0 {
		t.Errorf("%d are left", left)
	}
}

// TestPurgeOfWhatIsOver: blocks, sign-ins and replicas go when they are over, a batch a call until no more are left, and
// what still holds stays.
func TestPurgeOfWhatIsOver(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	for table, rows := range map[string]string{
		"blocks":         "select '', 'l', i::text, case when i > 0 then now() - interval '2 h' end, case when i > 0 then now() - interval '1 h' end, 0, null, now(), 'x'",
		"known_sign_ins": "select '', i::text, now() - case when i > 0 then interval '91 days' else interval '89 days' end",
		"replicas":       "select 's', i::text, now() + case when i > 0 then interval '-1 h' else interval '1 h' end",
	} {
		mustExec(t, db.System(), "insert into pglimit."+table+" "+rows+" from generate_series(0, 25) i")
		calls := 0
		for more := true; more && calls < 10; calls++ {
			more = mustScan[bool](t, operator, "select more from pglimit.purge(10)")
		}
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit."+table); n != 1 || calls != 3 {
			t.Errorf("%s: %d are left after %d calls", table, n, calls)
		}
	}
}

// TestLookAtManyLanesIsLinear: a look at sixteen times as many lanes takes about sixteen times as much of the processor, not
// 256 times. It is what a refusal at a large cap costs, and what a waiter does while others wait for its lock.
func TestLookAtManyLanesIsLinear(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config, err := pgx.ParseConfig(db.SuperURL())
	if err != nil {
		t.Fatal(err)
	}
	var seconds float64
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		// of the clock of the process, not of the wall: the machine may be busy
		var user, system float64
		if _, err := fmt.Sscanf(n.Detail, "! system usage stats:\n!\t%g s user, %g s system", &user, &system); err != nil {
			t.Errorf("%s: %v", n.Detail, err)
		}
		seconds = user + system
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	took := map[int]float64{}
	for _, lanes := range []int{256, 4096} {
		mustExec(t, conn, fmt.Sprintf("select pglimit._take_lanes(3, 'lanes%d', %[1]d, %[1]d)", lanes))
		mustExec(t, conn, "set log_statement_stats = on; set client_min_messages = log")
		for range 5 {
			seconds = 0
			mustExec(t, conn, fmt.Sprintf("select pglimit._find_lanes('lanes%d', %[1]d, 1)", lanes))
			if seconds > 0 && (took[lanes] == 0 || seconds < took[lanes]) {
				took[lanes] = seconds
			}
		}
		mustExec(t, conn, "set client_min_messages = warning; set log_statement_stats = off")
	}
	if took[256] == 0 || took[4096] > 100*took[256] {
		t.Errorf("4,096 lanes took %v s, 256 took %v s", took[4096], took[256])
	}
}
