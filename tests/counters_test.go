package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

type hitRow struct {
	Allowed    bool
	Reason     string
	Quota      int64
	Remaining  int64
	RetryAfter *time.Duration
	ResetAt    *time.Time
	OnOutage   *string
	Version    *int64
}

// mustHit runs a call of hit or peek that must succeed: mustHit(t, conn, "hit('l', 's', 1, '1 s')").
func mustHit(t *testing.T, db rowQuerier, call string) (r hitRow) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "select allowed, reason, quota, remaining, retry_after, reset_at, on_outage, limit_version from pglimit."+call).
		Scan(&r.Allowed, &r.Reason, &r.Quota, &r.Remaining, &r.RetryAfter, &r.ResetAt, &r.OnOutage, &r.Version); err != nil {
		t.Fatal(call, ": ", err)
	}
	return r
}

// wantHit fails unless the call is answered so; every answer must agree with itself.
func wantHit(t *testing.T, db rowQuerier, call, reason string, remaining int64) hitRow {
	t.Helper()
	r := mustHit(t, db, call)
	if r.Reason != reason || r.Remaining != remaining {
		t.Errorf("%s: %s, %d remain; want %s, %d", call, r.Reason, r.Remaining, reason, remaining)
	}
	retry := r.Reason == "limit" || (r.Reason == "shadow" || r.Reason == "blocked") && r.RetryAfter != nil
	if r.Allowed == (r.Reason == "limit" || r.Reason == "never" || r.Reason == "blocked") || (r.RetryAfter != nil) != retry || r.Remaining < 0 {
		t.Errorf("%s: contradicts itself: %+v", call, r)
	}
	if r.RetryAfter != nil && *r.RetryAfter <= 0 {
		t.Errorf("%s: retry after %v", call, *r.RetryAfter)
	}
	return r
}

const endWindows = "update pglimit.counters set reset_at = clock_timestamp()"

// TestHitCounts is C-04 and C-08: exactly max_hits, and refusals count for nothing.
func TestHitCounts(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for _, quota := range []int64{1, 2, 10} {
		call := fmt.Sprintf("hit('l', 'q%d', %d, '1 hour')", quota, quota)
		for i := range quota {
			wantHit(t, app, call, "allowed", quota-1-i)
		}
		for range 10 {
			wantHit(t, app, call, "limit", 0)
		}
		if used := mustScan[int64](t, db.Conn("pglimit_operator"), fmt.Sprintf(
			"select used from pglimit.list_counters(subject_filter => 'q%d')", quota)); used != quota {
			t.Errorf("%d are counted of %d", used, quota)
		}
	}
}

// TestTinyLimits is C-05: no rounding against the caller.
func TestTinyLimits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for range 3 {
		wantHit(t, app, "hit('l', 's', 1, '2 s')", "allowed", 0)
		r := wantHit(t, app, "hit('l', 's', 1, '2 s')", "limit", 0)
		if r.RetryAfter != nil && *r.RetryAfter > 2*time.Second {
			t.Errorf("retry after %v, longer than the window", *r.RetryAfter)
		}
		mustExec(t, db.System(), endWindows)
	}
	for i := range int64(5) {
		wantHit(t, app, "hit('l', 'd', 5, '24 h')", "allowed", 4-i)
	}
}

// TestCost is C-10, C-11 and C-12.
func TestCost(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	wantHit(t, app, "hit('c', 's', 10, '1 min', 11)", "never", 10)
	wantHit(t, app, "hit('c', 's', 10, '1 min', 10)", "allowed", 0)
	wantHit(t, app, "hit('c', 's', 10, '1 min', 10)", "limit", 0)
	wantHit(t, app, "hit('c', 's', 10, '1 min', 11)", "never", 0)

	wantHit(t, app, "hit('c', 'look', 2, '1 min', 0)", "allowed", 2)
	wantHit(t, app, "hit('c', 'look', 2, '1 min', 0)", "allowed", 2)
	wantHit(t, app, "hit('c', 'look', 2, '1 min', 2)", "allowed", 0)
	wantHit(t, app, "hit('c', 'look', 2, '1 min', 0)", "limit", 0)

	wantHit(t, app, "hit('c', 'huge', 2147483647, '1 min', 2147483647)", "allowed", 0)
	wantHit(t, app, "hit('c', 'huge', 2147483647, '1 min', 2147483647)", "limit", 0)
	most := "9223372036854775807"
	wantHit(t, app, fmt.Sprintf("hit('c', 'most', %s, '1 min', %s)", most, most), "allowed", 0)
	wantHit(t, app, fmt.Sprintf("hit('c', 'most', %s, '1 min', %s)", most, most), "limit", 0)
	wantHit(t, app, "hit('c', 'most', 1, '1 min', 1)", "limit", 0)

	wantHit(t, app, "hit('z', 's', 0, '1 min')", "never", 0)
	wantHit(t, app, "hit('z', 's', 0, '1 min', 0)", "never", 0)
}

// TestChangedLimit is C-15: the present limit decides at once.
func TestChangedLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	wantHit(t, app, "hit('l', 's', 5, '1 hour', 5)", "allowed", 0)
	wantHit(t, app, "hit('l', 's', 8, '1 hour')", "allowed", 2)
	wantHit(t, app, "hit('l', 's', 2, '1 hour')", "limit", 0)
	wantHit(t, app, "hit('l', 's', 8, '1 hour')", "allowed", 1)

	mustExec(t, operator, "select pglimit.set_limit('row', 5, '1 hour')")
	wantHit(t, app, "hit('row', 's', cost => 5)", "allowed", 0)
	for _, c := range []struct {
		quota     int
		reason    string
		remaining int64
	}{{8, "allowed", 3}, {2, "limit", 0}, {8, "allowed", 3}} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('row', %d, '1 hour')", c.quota))
		wantHit(t, app, "hit('row', 's', cost => 0)", c.reason, c.remaining)
	}
	mustExec(t, operator, "select pglimit.drop_limit('row')")
	if _, err := app.Exec(t.Context(), "select pglimit.hit('row', 's')"); sqlState(err) != "PGL02" {
		t.Errorf("a dropped limit: %v", err)
	}
}

// TestWindowLength is C-16: the window is what was said, in any time zone, and lapsed is fresh.
func TestWindowLength(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for i, zone := range []string{"UTC", "America/New_York", "Pacific/Chatham"} {
		mustExec(t, app, fmt.Sprintf("set timezone = '%s'", zone))
		for j, c := range []struct {
			per  string
			want time.Duration
		}{{"90 minutes", 90 * time.Minute}, {"1 day", 24 * time.Hour}, {"300 days", 300 * 24 * time.Hour}} {
			mustHit(t, app, fmt.Sprintf("hit('l', 's%d.%d', 3, '%s')", i, j, c.per))
			got := mustScan[float64](t, db.System(), fmt.Sprintf(`select extract(epoch from reset_at - window_start)::float8
				from pglimit.counters where key like '%%s%d.%d'`, i, j))
			if got != c.want.Seconds() {
				t.Errorf("%s: per %s lasts %v s", zone, c.per, got)
			}
		}
	}
	if _, err := app.Exec(t.Context(), "select pglimit.hit('l', 's', 3, 60)"); sqlState(err) != "42883" {
		t.Errorf("a bare number for a window: %v", err)
	}
	mustExec(t, db.System(), endWindows)
	for _, subject := range []string{"s0.0", "unknown"} {
		if r := wantHit(t, app, fmt.Sprintf("peek('l', '%s', 3, '1 hour')", subject), "allowed", 3); r.ResetAt != nil {
			t.Errorf("%s: a window that nobody began ends %v", subject, r.ResetAt)
		}
	}
}

// TestKeysAreApart is C-35 and C-37: keys are bytes as given, and no two meet.
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	long := strings.Repeat("x", 255)
	for _, key := range [][3]string{
		{"", "l", "bob@x.org"},
		{"", "l", "BOB@X.ORG"},
		{"", "l", " bob@x.org"},
		{"", "l", "jos\u00e9"},
		{"", "l", "jose\u0301"},
		{"", "a:b", "c"},
		{"", "a", "b:c"},
		{"", "l", long + strings.Repeat("a", 45)},
		{"", "l", long + strings.Repeat("b", 45)},
		{"t", "l", "bob@x.org"},
		{"", "l", "t\x1fl\x1fbob@x.org"},
		{"", "l", "a\x1fb"},
		{"", "l", "a"},
		{"", "l", "%"},
		{"", "l", "null"},
		{"", "tl", "bob@x.org"},
		{"", "l", "b\\x1f"},
	} {
		var allowed bool
		for i := range 2 {
			if err := app.QueryRow(t.Context(), "select allowed from pglimit.hit($1, $2, 1, '1 hour', tenant => $3)", key[1], key[2], key[0]).
				Scan(&allowed); err != nil || allowed != (i == 0) {
				t.Errorf("%q, hit %d: %v, %v", key, i+1, allowed, err)
			}
		}
	}
}

// TestOneKeyDoesNotBlockOthers is C-30: only who wants the same key waits, and not for long.
func TestOneKeyDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, other, same := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_app")
	mustHit(t, first, "hit('l', 'a', 9, '1 hour')")
	for _, subject := range []string{"a", "new"} {
		mustExec(t, first, "begin")
		mustHit(t, first, fmt.Sprintf("hit('l', '%s', 9, '1 hour')", subject))
		waiting := make(chan error, 1)
		go func() {
			_, err := same.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("select pglimit.hit('l', '%s', 9, '1 hour')", subject))
			waiting <- err
		}()
		mustHit(t, other, fmt.Sprintf("hit('l', 'b%s', 9, '1 hour')", subject))
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.list_counters(), pglimit.list_permits()")
		if err := <-waiting; sqlState(err) != "55P03" {
			t.Errorf("%s: who waits gets %v", subject, err)
		}
		mustExec(t, first, "rollback")
	}
}

// TestInTransaction is C-29: what a rollback takes along is said, and can be refused or allowed.
func TestInTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config, err := pgx.ParseConfig(db.URL("pglimit_app"))
	if err != nil {
		t.Fatal(err)
	}
	var notices []*pgconn.Notice
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n) }
	app, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close(context.Background())
	for _, call := range []string{
		"hit('l', 's', 9, '1 hour')", "forget('l', 's')", "claim_permit('e', 'h', 9, lease => '1 min')", "renew_permit(1)", "release_permit(1)",
	} {
		for _, c := range []struct{ setting, state string }{{"", ""}, {"warn", ""}, {"allow", ""}, {"error", "PGL03"}, {"eror", "PGL01"}} {
			notices = nil
			mustExec(t, app, fmt.Sprintf("begin; set local pglimit.in_transaction = '%s'; select pg_current_xact_id()", c.setting))
			_, err := app.Exec(t.Context(), "select pglimit."+call)
			if sqlState(err) != c.state {
				t.Errorf("%s with %q: %v", call, c.setting, err)
			}
			if warned := len(notices) > 0; warned != (c.setting == "" || c.setting == "warn") || warned && (notices[0].Severity != "WARNING" || notices[0].Hint == "") {
				t.Errorf("%s with %q: notices %v", call, c.setting, notices)
			}
			mustExec(t, app, "rollback")
		}
		notices = nil
		mustExec(t, app, "select pglimit."+call)
		if len(notices) > 0 {
			t.Errorf("%s alone: %v", call, notices[0].Message)
		}
	}
}

// TestBadInputOnOpenWindow: what is wrong is named whatever the subject has done before, so that no
// counter already there hides it.
func TestBadInputOnOpenWindow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('row', 9, '1 hour')")
	for _, limit := range []string{"l", "full", "row"} {
		mustHit(t, app, fmt.Sprintf("hit('%s', 's', 1, '1 hour')", limit))
	}
	mustHit(t, app, "hit('b', e'c\\x1fs', 1, '1 hour', tenant => 'a')")
	for _, args := range []string{
		"'l', 's', 9, '0'", "'l', 's', 9, '-1 s'", "'l', 's', 9, '1 month'", "'l', 's', 9, '1 month -30 days'", "'l', 's', 9, '36526 days'",
		"'l', 's', 9, '31 days 1 month'", "'l', 's', -1, '1 s'", "'l', 's', '-9223372036854775808', '1 s'", "'l', 's', 9, '1 s', -1", "'l', 's', 9, '1 s', null",
		"'l', 's', 9, '1 s', algorithm => 'nonsense'", "'l', 's', 9, '1 s', burst => 3",
		"'full', 's', 1, '0'", "'full', 's', 1, '1 month'", "'full', 's', -1, '1 s'", "'full', 's', 1, '1 s', -1",
		"'row', 's', per => '1 month'", "'row', 's', per => '0'", "'row', 's', -1",
		"e'b\\x1fc', 's', 1, '1 hour', tenant => 'a'", "'c', 's', 1, '1 hour', tenant => e'a\\x1fb'",
	} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit("+args+")"); sqlState(err) != "PGL01" {
			t.Errorf("hit(%s): %v, want PGL01", args, err)
		}
	}
	if n := mustScan[int64](t, db.System(), "select sum(used)::bigint from pglimit.counters"); n != 4 {
		t.Errorf("%d hits are counted, want 4", n)
	}
}

// TestPartOfLimitGiven: what the call gives beats the row, and the row of the tenant beats everyone's.
func TestPartOfLimitGiven(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 5, '1 hour')")
	mustExec(t, operator, "select pglimit.set_limit('l', 7, '2 hours', tenant => 't')")
	stored := map[string]int64{"": 5, "t": 7, "other": 5}
	for i, c := range []struct {
		tenant, args string
		quota        int64
		per          time.Duration
	}{
		{"", "", 5, time.Hour},
		{"", ", 8", 8, time.Hour},
		{"", ", per => '1 day'", 5, 24 * time.Hour},
		{"", ", 8, '40 days'", 8, 40 * 24 * time.Hour},
		{"t", "", 7, 2 * time.Hour},
		{"t", ", 8", 8, 2 * time.Hour},
		{"t", ", per => '1 min'", 7, time.Minute},
		{"other", "", 5, time.Hour},
		{"other", ", 8", 8, time.Hour},
		{"other", ", per => '1 min'", 5, time.Minute},
	} {
		subject := fmt.Sprintf("s%d", i)
		check := func(call string) {
			t.Helper()
			r := wantHit(t, app, call, "allowed", c.quota-1)
			given := strings.Contains(c.args, ", 8, ")
			if r.Quota != c.quota || (r.Version == nil) != given || (r.OnOutage == nil) != given {
				t.Errorf("%s: %+v", call, r)
			}
			if per := mustScan[float64](t, db.System(), fmt.Sprintf(`select extract(epoch from reset_at - window_start)::float8
				from pglimit.counters where key = e'%s\x1fl\x1f%s'`, c.tenant, subject)); per != c.per.Seconds() {
				t.Errorf("%s: the window lasts %v s", call, per)
			}
			mustExec(t, db.System(), endWindows)
		}
		check(fmt.Sprintf("hit('l', '%s'%s, tenant => '%s')", subject, c.args, c.tenant))
		mustExec(t, app, fmt.Sprintf("set pglimit.tenant = '%s'", c.tenant))
		check(fmt.Sprintf("hit('l', '%s'%s)", subject, c.args))
		// a cost of 0 looks, and is answered as peek is
		for _, call := range []string{"hit('l', '%s', cost => 0)", "peek('l', '%s')"} {
			wantHit(t, app, fmt.Sprintf(call, subject), "allowed", stored[c.tenant])
		}
		mustExec(t, app, "reset pglimit.tenant")
	}
}

// TestRefusalWritesNothing: neither a row nor a transaction id, in hit, peek and claim_permit.
func TestRefusalWritesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustHit(t, app, "hit('l', 'full', 1, '1 hour')")
	mustExec(t, app, "select pglimit.claim_permit('e', 'h', 1, lease => '1 hour')")
	rows := "select (select count(*) from pglimit.counters) + (select count(*) from pglimit.permits)"
	before := mustScan[int](t, db.System(), rows)
	for _, call := range []string{
		"hit('l', 'full', 1, '1 hour')", "hit('l', 'full', 1, '1 hour', 0)", "hit('l', 'new', 1, '1 hour', 2)", "hit('l', 'new', 0, '1 hour')",
		"peek('l', 'new', 1, '1 hour')", "claim_permit('e', 'h', 1, lease => '1 hour')", "claim_permit('e', 'h', 1, lease => '1 hour', weight => 2)",
		"claim_permit('new', 'h', 0, lease => '1 hour')", "claim_permit('e', 'other', 5, 5, 0, lease => '1 hour')", "release_permit(99)", "renew_permit(99)",
	} {
		mustExec(t, app, "begin")
		mustExec(t, app, "select pglimit."+call)
		if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
			t.Errorf("%s draws a transaction id", call)
		}
		mustExec(t, app, "commit")
	}
	if after := mustScan[int](t, db.System(), rows); after != before {
		t.Errorf("%d rows, %d before", after, before)
	}
}

// TestBadInput: whatever is wrong is named, with a hint, and leaves nothing behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	long := "repeat('x', 1100)"
	var calls []string
	for _, f := range []string{"hit", "peek"} {
		for _, args := range []string{
			"null, 's', 1, '1 s'", "'', 's', 1, '1 s'", "'  ', 's', 1, '1 s'", "'l', null, 1, '1 s'", "'l', '', 1, '1 s'", "'l', ' ', 1, '1 s'", `'l', e'\t\n', 1, '1 s'`,
			"'é', 's', 1, '1 s'", "e'a\\nb', 's', 1, '1 s'", "e'a\\x1fb', 's', 1, '1 s'", "'l', " + long + ", 1, '1 s'", long + ", 's', 1, '1 s'",
			"'l', 's', -1, '1 s'", "'l', 's', 1, '1 s', -5", "'l', 's', 1, '1 s', null", "'l', 's', 1, '1 s', -9223372036854775808",
			"'l', 's', 1, '0'", "'l', 's', 1, '-1 s'", "'l', 's', 1, '1 month'", "'l', 's', 1, '1 month -30 days'", "'l', 's', 1, '36526 days'",
			"'l', 's', 1, make_interval(secs => 1e12)", "'l', 's', 1, '1 s', algorithm => 'nonsense'", "'l', 's', 1, '1 s', algorithm => ''",
			"'l', 's', 1, '1 s', burst => 3", "'l', 's', 1, '1 s', tenant => e'a\\nb'", "'l', 's', 1, '1 s', tenant => " + long,
		} {
			calls = append(calls, f+"("+args+")")
		}
	}
	for _, args := range []string{
		"null, 'h', 1", "'', 'h', 1", "'e', null, 1", "'e', '', 1", "'e', ' ', 1", `'e', e'\t', 1`, "'é', 'h', 1", long + ", 'h', 1", "'e', " + long + ", 1",
		"'e', 'h', -1", "'e', 'h', 1, -1", "'e', 'h', 1, 1, -1", "'e', 'h', 1, weight => 0", "'e', 'h', 1, weight => -1", "'e', 'h', 1, weight => 1001",
		"'e', 'h', 1, weight => null", "'e', 'h', 1, request_id => ''", "'e', 'h', 1, request_id => 'a b'",
		"'e', 'h', 1, request_id => repeat('x', 201)", "'e', 'h', 1, request_id => e'\\x1f'", "'e', 'h', 1, note => to_jsonb(repeat('x', 5000))", "'e', 'h', 1, tenant => e'\\x1f'",
	} {
		calls = append(calls, "claim_permit("+args+", lease => '1 min')")
	}
	for _, lease := range []string{"null", "'0'", "'-1 s'", "'1 month'", "'1 year'", "'36526 days'", "make_interval(secs => 1e12)"} {
		calls = append(calls, "claim_permit('e', 'h', 1, lease => "+lease+")")
		if lease != "null" {
			calls = append(calls, "renew_permit(1, "+lease+")")
		}
	}
	calls = append(calls, "hit('unknown', 's', 1)", "peek('unknown', 's', 1)", "renew_permit(null)", "release_permit(null)", "forget('', 's')", "forget('l', null)")
	state := func(conn *pgx.Conn, call string, want string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), "select pglimit."+call)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != want || server.Hint == "" || server.Detail == "" {
			t.Errorf("%s: %v, want %s with detail and hint", call, err, want)
		}
	}
	for _, call := range calls {
		state(app, call, "PGL01")
	}
	// The interval type itself ends before this one does.
	if _, err := app.Exec(t.Context(), "select pglimit.hit('l', 's', 1, make_interval(secs => 1e15))"); err == nil {
		t.Error("1e15 s is a window")
	}
	for _, call := range []string{
		"purge(0)", "purge(null)", "purge(100001)", "list_counters(max_rows => 0)", "list_permits(max_rows => 10001)", "set_limit('l', null, '1 s')",
		"set_limit('l', 1, null)", "set_limit('l', -1, '1 s')", "set_limit('l', 1, '1 month')", "set_limit('l', 1, '1 s', on_outage => 'panic')",
		"set_limit('l', 1, '1 s', mode => null)", "set_limit(' ', 1, '1 s')", "set_endpoint('e', -1)", "set_endpoint('e', 1, longest => '0')", "set_endpoint('e', 1, longest => '1 month')", "set_endpoint('e', 1, time_bound => '0')",
		"set_endpoint('e', in_installation => false)", "set_endpoint('')", "set_installation_cap(-1)", "set_installation_cap(null)", "set_purge_after('-1 s')", "set_grace('-1 s')", "set_grace('1 day 1 us')", "set_grace('1 month')", "set_grace(null)",
		"set_purge_after(null)", "drop_limit('')", "drop_endpoint(null)",
	} {
		state(operator, call, "PGL01")
	}
	for _, call := range []string{
		"hit('unknown', 's')", "peek('unknown', 's')", "claim_permit('unknown', 'h')", "claim_permit('unknown', 'h', lease => '1 s')",
	} {
		state(app, call, "PGL02")
	}
	for _, mode := range []string{"isolation level repeatable read", "isolation level serializable", "read only"} {
		for _, call := range []string{
			"hit('l', 's', 1, '1 s')", "forget('l', 's')", "claim_permit('e', 'h', 1, lease => '1 s')", "renew_permit(1)", "release_permit(1)", "reassert_permit(1, 'e', 'h', 1, lease => '1 s')",
		} {
			mustExec(t, app, "begin "+mode)
			state(app, call, "PGL03")
			mustExec(t, app, "rollback")
		}
		mustExec(t, app, "begin "+mode)
		mustHit(t, app, "peek('l', 's', 1, '1 s')")
		mustExec(t, app, "rollback")
	}
	if n := mustScan[int](t, db.System(), `select (select count(*) from pglimit.counters) + (select count(*) from pglimit.permits)
		+ (select count(*) from pglimit.limits) + (select count(*) from pglimit.endpoints)`); n != 0 {
		t.Errorf("bad input left %d rows", n)
	}
}
