package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// waiting runs a call on a connection until it waits for a lock, and returns what to wait for its end with.
func waiting(t *testing.T, db *dbtest.DB, conn *pgx.Conn, call string) (end func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), call)
		done <- err
	}()
	waitForLock(t, db, conn.PgConn().PID())
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestAdmitBesideBlockOfEveryLimit is C-27: a block of every limit keeps all from making lanes while it waits for a counter, and an
// admit that has counters makes lanes. They once waited for each other, and everybody who made anything for them.
func TestAdmitBesideBlockOfEveryLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, holder, operator := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, limit := range []string{"a", "b"} {
		wantHit(t, app, "hit('"+limit+"', 's', 9, '1 hour')", "allowed", 8)
	}
	mustExec(t, holder, "begin; select pglimit.hit('a', 's', 9, '1 hour')")
	blocked := waiting(t, db, operator, "select pglimit.block('*', 's', '1 us')")
	admitted := waiting(t, db, app, `select * from pglimit.admit('[{"limit": "b", "subject": "s", "max_hits": 9, "per": "1 hour"},
		{"endpoint": "e", "holder": "h", "holder_cap": 5, "weight": 2, "lease": "1 hour"}]')`)
	mustExec(t, holder, "commit")
	blocked()
	admitted()
	wantHit(t, app, "hit('b', 's', 9, '1 hour')", "allowed", 6)
}

// TestFirstHoldBesideBlockOfEveryLimit is C-27 too, the same for a hold that begins an epoch.
func TestFirstHoldBesideBlockOfEveryLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, holder, operator := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, limit := range []string{"a", "b"} {
		wantHit(t, app, "hit('"+limit+"', 's', 9, '1 hour')", "allowed", 8)
	}
	mustExec(t, holder, "begin; select pglimit.hit('a', 's', 9, '1 hour')")
	blocked := waiting(t, db, operator, "select pglimit.block('*', 's', '1 us')")
	held := waiting(t, db, app, "select pglimit.hold('b', 's', 2, '1 hour', 9, '1 hour')")
	mustExec(t, holder, "commit")
	blocked()
	held()
}

// TestSignInFailedBesidePurge is C-27: a counter that has ended may be purged while the call waits for another one. To make it
// anew then would take its creation lock out of order, which another failure may hold that waits for the first counter.
func TestSignInFailedBesidePurge(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 3)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_purge_after('1 us')")
	failed := "select pglimit.sign_in_failed('ann', '192.0.2.1')"
	mustExec(t, conns[0], failed)
	// the source's window ends, those of the pair and the account stay open
	mustExec(t, db.Super(), "update pglimit.counters set window_start = now() - interval '1 hour', reset_at = now() - interval '1 s' where split_part(key, e'\\x1f', 2) = 'sign_in_source'")
	holder := connect(t, db.SuperURL())
	mustExec(t, holder, "begin; select from pglimit.counters where split_part(key, e'\\x1f', 2) = 'sign_in_pair' for update")
	first := waiting(t, db, conns[1], failed)
	mustExec(t, operator, "select pglimit.purge()")
	second := waiting(t, db, conns[2], failed)
	mustExec(t, holder, "rollback")
	first()
	second()
	if got := mustScan[string](t, db.System(), "select string_agg(used::text, ' ' order by key) from pglimit.counters"); got != "3 3 2" {
		t.Errorf("counted: %s", got)
	}
}

// TestLimitBecomesDurable: what was used stays used, also for those who bring the limit themselves. They were once counted
// in both tables, twice as many in each window, and half of them not logged.
func TestLimitBecomesDurable(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"", ", 3, '1 hour'"} {
		db := dbtest.New(t)
		app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
		wantHit(t, app, "hit('l', 'full', 3, '1 hour', cost => 3)", "allowed", 0)
		wantHit(t, app, "hit('l', 'over', 3, '1 hour', cost => 3)", "allowed", 0)
		mustExec(t, db.Super(), "update pglimit.counters set reset_at = clock_timestamp() where key like '%over'")
		wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 2)
		mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour', durable => true)")
		wantHit(t, app, "hit('l', 'full'"+given+")", "limit", 0)
		for left := int64(2); left >= 0; left-- {
			wantHit(t, app, "hit('l', 'over'"+given+")", "allowed", left) // once its window is over
		}
		wantHit(t, app, "hit('l', 's')", "allowed", 1)
		wantHit(t, app, "hit('l', 's'"+given+")", "allowed", 0)
		wantHit(t, app, "hit('l', 's', 3, '1 hour')", "limit", 0)
		wantHit(t, app, "hit('l', 's')", "limit", 0)
		if got := mustScan[string](t, operator, "select string_agg(subject || used || durable, ' ' order by subject, durable) from pglimit.list_counters('l')"); got != "full3false over3true s3true" {
			t.Errorf("with %q counted: %s", given, got)
		}
		// a refusal by a table of its own draws nothing
		mustExec(t, app, "begin; select pglimit.hit('l', 'over', 3, '1 hour')")
		if mustScan[bool](t, app, "select pg_current_xact_id_if_assigned() is not null") {
			t.Error("a refusal drew a transaction number")
		}
		mustExec(t, app, "rollback")
	}
}

// TestCounterPages: pages of any size show each counter once, also those of a subject that is counted in both tables.
func TestCounterPages(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, subject := range []string{"a", "b", "c"} {
		mustHit(t, app, "hit('l', '"+subject+"', 9, '1 hour')")
	}
	mustExec(t, operator, "select pglimit.set_limit('l', 9, '1 hour', durable => true)")
	for _, subject := range []string{"b", "c", "d"} {
		mustHit(t, app, "hit('l', '"+subject+"')")
	}
	for size := 1; size <= 7; size++ {
		var seen []string
		for after := ""; ; {
			page := mustStrings(t, operator, fmt.Sprintf("select subject || durable || ' ' || cursor from pglimit.list_counters(max_rows => %d, after => nullif('%s', ''), include_closed => true)", size, after))
			for _, row := range page {
				name, cursor, _ := strings.Cut(row, " ")
				seen, after = append(seen, name), cursor
			}
			if len(page) < size {
				break
			}
		}
		if got := strings.Join(seen, " "); got != "afalse bfalse btrue cfalse ctrue dtrue" {
			t.Errorf("pages of %d: %s", size, got)
		}
	}
}

// TestBroughtLimitBecomesDurable: a window or bucket that begins anew does so in the table that is logged, also for those
// who bring another algorithm with the call and are never refused.
func TestBroughtLimitBecomesDurable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	calls := []string{
		"hit('s', 'ended', 9, '1 hour', algorithm => 'sliding_window')",
		"hit('s', 'next', 9, '1 hour', algorithm => 'sliding_window')",
		"hit('b', 'full', 9, '1 hour', algorithm => 'token_bucket')",
	}
	for _, call := range calls {
		wantHit(t, app, call, "allowed", 8)
	}
	mustExec(t, db.Super(), "update pglimit.counters set window_start = window_start - '90 minutes'::interval")
	mustExec(t, db.Super(), "update pglimit.counters set special_reset_at = clock_timestamp() where key not like '%next'")
	for _, name := range []string{"s", "b"} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 9, '1 hour', durable => true)", name))
	}
	for _, call := range calls {
		mustHit(t, app, call)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.durable_counters"); n != 3 {
		t.Errorf("%d of 3 are logged", n)
	}
}

// TestBroughtDays: a day of a call is 24 hours, as that of a limit, also where the session's clock is put back within it;
// and months have no length, whatever is taken from them.
func TestBroughtDays(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	back := time.Now().UTC().AddDate(0, 0, 2)
	if back.Month() == time.February && back.Day() == 29 {
		back = back.AddDate(0, 0, 1)
	}
	day := time.Date(2025, back.Month(), back.Day(), 0, 0, 0, 0, time.UTC).YearDay() // J knows no leap years
	mustExec(t, app, fmt.Sprintf("set timezone = 'AAA0BBB,J%d/0,J%d/0'", (day+180)%365+1, day))
	if hours := mustScan[float64](t, app, "select (extract(epoch from now() + '5 days'::interval - now()) / 3600)::float8"); hours != 121 {
		t.Fatalf("the clock is not put back: 5 days of %v hours", hours)
	}
	for _, algorithm := range []string{"sliding_window", "token_bucket"} {
		for range 3 {
			mustHit(t, app, fmt.Sprintf("hit('%s', 's', 9, '5 days', algorithm => '%[1]s')", algorithm))
		}
		mustHit(t, app, fmt.Sprintf("hit('%s', 'months', 9, '1 day', algorithm => '%[1]s')", algorithm))
		call := fmt.Sprintf("select pglimit.hit('%s', 'months', 9, '1 mon -29 days', algorithm => '%[1]s')", algorithm)
		if _, err := app.Exec(t.Context(), call); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", call, err)
		}
	}
	if mustScan[bool](t, db.System(), "select special_reset_at > clock_timestamp() + '120 hours'::interval from pglimit.counters where algorithm = 'sliding_window' and key like e'%\\x1fs'") {
		t.Error("a sliding window of 5 days lasts 121 hours")
	}
	if hours := mustScan[float64](t, db.System(), "select (extract(epoch from special_reset_at - window_start) / 3600)::float8 from pglimit.counters where algorithm = 'token_bucket' and key like e'%\\x1fs'"); hours != 120 {
		t.Errorf("a bucket fills in %v hours", hours)
	}
}

// TestExtremes: what is as large or as odd as arguments can be is decided, or refused by a name.
func TestExtremes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const most = "9223372036854775807"
	// as much as a bucket cannot hold, counted in windows before
	mustExec(t, app, "select pglimit.charge('l', 's', "+most+", max_hits => 1, per => '36525 days')")
	if got := mustScan[string](t, app, "select reason from pglimit.hit('l', 's', 1, '36525 days', algorithm => 'token_bucket')"); got != "limit" {
		t.Errorf("goes on as a bucket: %s", got)
	}
	// more than a bigint is missing in a bucket
	for range 3 {
		mustExec(t, app, "select pglimit.charge('b', 's', "+most+", max_hits => "+most+", per => '1 day', algorithm => 'token_bucket')")
	}
	if got := mustScan[string](t, operator, "select used::text from pglimit.list_counters('b')"); got != most {
		t.Errorf("listed: %s", got)
	}
	// rounded up by less than a quotient shows
	mustExec(t, app, "select pglimit.charge('r', 's', 3074457345618258603, max_hits => "+most+", per => '36525 days', algorithm => 'token_bucket')")
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters where used < 0"); n > 0 {
		t.Error("less than nothing is used")
	}
	for call, want := range map[string]string{
		"pglimit.hit_many('{l}', '{s}', null, '{-9223372036854775808}', array['1 min'::interval])":          "max_hits of -9223372036854775808 is negative",
		"pglimit.admit('[{\"limit\": \"l\", \"subject\": \"s\", \"max_hits\": 1, \"per\": 60}]')":           "want 1 has a per that is no string",
		"pglimit.admit('[{\"limit\": \"l\", \"subject\": {\"a\": 1}, \"max_hits\": 1, \"per\": \"1 s\"}]')": "want 1 has a subject that is no string",
		"pglimit.admit('[{\"endpoint\": \"e\", \"holder\": \"h\", \"holder_cap\": 1, \"lease\": 5}]')":      "want 1 has a lease that is no string",
		"pglimit.hit('bucket', 's', burst => 5)":                                                            "burst without algorithm",
		"pglimit.hit('bucket', 's', 5, '1 min', algorithm => 'sliding_window', burst => 5)":                 "burst with algorithm sliding_window",
		"pglimit.check_sign_in(repeat('a', 1025), '192.0.2.1')":                                             "account of 1025 bytes is too long",
	} {
		if _, err := app.Exec(t.Context(), "select "+call); sqlState(err) != "PGL01" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", call, err)
		}
	}
	for call, want := range map[string]string{
		"pglimit.set_limit('c', 1, '1 hour', time_zone => 'UTC')":                                   "time_zone with algorithm fixed_window",
		"pglimit.simulate('l', '{s}', '{now}', max_hits => 1, per => '1 hour', time_zone => 'UTC')": "time_zone with algorithm fixed_window",
		"pglimit.list_blocks(after => e'a\\x1fb\\x1fc\\x1fd')":                                      "is no cursor",
		"pglimit.list_blocks(after => e'a\\x1fb\\x1f1.2.3.4/999\\x1fd')":                            "is no cursor",
		"pglimit.set_limit('c', 1, null, 'calendar')":                                               "per of null is no unit of the calendar",
		"pglimit.simulate('l', '{s}', '{294276-12-31 23:59Z}', max_hits => 1, per => '1 day')":      "an instant or a cost is null or out of range",
		"pglimit.simulate('l', '{s}', '{4713-01-01 00:00Z BC}', max_hits => 1, per => '1 day')":     "an instant or a cost is null or out of range",
		"pglimit.simulate('l', '{s}', '{infinity}', max_hits => 1, per => '1 day')":                 "an instant or a cost is null or out of range",
	} {
		if _, err := operator.Exec(t.Context(), "select "+call); sqlState(err) != "PGL01" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		call := fmt.Sprintf("select count(*) from pglimit.simulate('l', '{s,s}', '{0001-01-01 00:00Z,9999-12-31 23:59Z}', '{%[1]s,%[1]s}', 1, '36525 days', '%[2]s')", most, algorithm)
		if n := mustScan[int](t, operator, call); n != 2 {
			t.Errorf("%s: %d answers", algorithm, n)
		}
	}
}
