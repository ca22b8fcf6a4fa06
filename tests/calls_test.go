package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestArgumentTypes is C-54: whatever a driver makes of its arguments, untyped ones above all, the
// functions are found; what PostgreSQL itself does not convert (numeric to bigint, text to interval)
// works with the cast that the call shows.
func TestArgumentTypes(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	for i, c := range []struct{ types, call, args string }{
		{"text, bigint, interval, bigint", "hit($1, 's', $2, $3, $4)", "'l%d', 3, '1 hour', 1"},
		{"varchar, bigint, text, bigint", "hit($1, 's', $2, $3::interval, $4)", "'l%d', 3, '1 hour', 1"},
		{"varchar, int, text, smallint", "hit($1, 's', $2, $3::interval, $4)", "'l%d', 3, '1 hour', 1"},
		{"name, numeric, time, numeric", "hit($1, 's', $2::bigint, $3, $4::bigint)", "'l%d', 3, '01:00', 1"},
		{"char(9), bigint, interval, bigint", "hit(rtrim($1), 's', $2, $3, $4)", "'l%d', 3, '1 hour', 1"},
		{"unknown, unknown, unknown, unknown", "hit($1, 's', $2, $3, $4)", "'l%d', '3', '1 hour', '1'"},
		{"unknown, unknown, unknown, unknown", "hit(limit_name => $1, subject => 's', max_hits => $2, per => $3, cost => $4)", "'l%d', '3', '1 hour', '1'"},
		{"unknown, unknown, unknown, unknown", "hit(cost => $4, per => $3, max_hits => $2, subject => 's', limit_name => $1)", "'l%d', '3', '1 hour', '1'"},
	} {
		args := fmt.Sprintf(c.args, i)
		for j, form := range []string{
			"select (h).allowed, (h).remaining from (select pglimit.%s as h offset 0) x", "select allowed, remaining from pglimit.%s", "select h.allowed, h.remaining from pglimit.%s as h",
		} {
			name := fmt.Sprintf("p%d_%d", i, j)
			mustExec(t, app, fmt.Sprintf("prepare %s (%s) as ", name, c.types)+fmt.Sprintf(form, c.call))
			var allowed bool
			var remaining int
			if err := app.QueryRow(t.Context(), fmt.Sprintf("execute %s(%s)", name, args), pgx.QueryExecModeSimpleProtocol).Scan(&allowed, &remaining); err != nil || !allowed || remaining != 2-j {
				t.Errorf("%s (%s): %v, %d remain, %v; want %d", c.call, c.types, allowed, remaining, err, 2-j)
			}
		}
	}
	if _, err := app.Exec(t.Context(), "select pglimit.hit('l', 's', 3.5, '1 hour')"); sqlState(err) != "42883" {
		t.Errorf("a fraction of a hit: %v", err)
	}
	for _, call := range []string{
		"claim_permit('e', 'h', 3, lease => '1 hour')", "claim_permit('e'::varchar, 'h'::name, 3::smallint, lease => '1 hour'::text::interval)",
		"claim_permit(holder => 'h', endpoint => 'e', weight => 1::int, lease => '01:00'::time, holder_cap => 3)",
	} {
		if !mustScan[bool](t, app, "select granted from pglimit."+call) {
			t.Errorf("%s: refused", call)
		}
	}
}

// TestChangesAreHeapOnly is C-50: no index covers what every hit and every renewal writes. With one,
// no change would be heap-only. Without, nearly all are, and fewer (7 of 8) only while transactions
// of other tests, in other databases, keep the server from clearing dead rows away.
func TestChangesAreHeapOnly(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	id := *wantGrant(t, app, "'e', 'h', 1, 2, 3, '1 hour'").ID
	// of ten subjects in shadow, which all but the first hit is beyond, and one with an override
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('shadow', 1, '1 hour', mode => 'shadow'); select pglimit.set_limit_override('l', 's2', 2000000)")
	for i := range 1500 { // a statement each: what one transaction has made dead it cannot clear away itself
		subject := i % 20
		mustExec(t, app, fmt.Sprintf("select pglimit.hit('%s', 's%d', 1000000, '1 hour', %d)", []string{"l", "shadow"}[subject%2], subject, 1+subject%2*999999))
	}
	for range 1000 {
		mustExec(t, app, fmt.Sprintf("select pglimit.renew_permit(%d)", id))
	}
	mustExec(t, app, "select pg_stat_force_next_flush()")
	for _, table := range []string{"counters", "permits"} {
		sql := fmt.Sprintf("select %%s from pg_stat_user_tables where schemaname = 'pglimit' and relname = '%s'", table)
		var updates, hot int64
		for deadline := time.Now().Add(10 * time.Second); updates < 1000 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			updates, hot = mustScan[int64](t, db.System(), fmt.Sprintf(sql, "n_tup_upd")), mustScan[int64](t, db.System(), fmt.Sprintf(sql, "n_tup_hot_upd"))
		}
		if updates < 1000 || hot*2 < updates {
			t.Errorf("%s: %d of %d updates are heap-only", table, hot, updates)
		}
	}
}

// TestRetryAfter is C-41: while refused the wait is more than nothing, at most the window, and only
// ever shorter; who waits for it, rounded up to whole seconds as headers need it, is let in.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	wantHit(t, app, "hit('l', 's', 1, '1 hour')", "allowed", 0)
	wait := time.Hour
	for range 20 {
		// as if time had passed
		mustExec(t, db.System(), "update pglimit.counters set window_start = window_start - interval '1 minute', reset_at = reset_at - interval '1 minute'")
		r := wantHit(t, app, "hit('l', 's', 1, '1 hour')", "limit", 0)
		if *r.RetryAfter >= wait || *r.RetryAfter <= 0 {
			t.Errorf("retry after %v, then %v", wait, *r.RetryAfter)
		}
		wait = *r.RetryAfter
	}
	seconds := (wait + time.Second - 1).Truncate(time.Second)
	mustExec(t, db.System(), fmt.Sprintf("update pglimit.counters set window_start = window_start - interval '%d ms', reset_at = reset_at - interval '%[1]d ms'", seconds.Milliseconds()))
	wantHit(t, app, "hit('l', 's', 1, '1 hour')", "allowed", 0)
}

// TestOldStrings: a session that reads backslashes in strings as escapes gets the same answers.
func TestOldStrings(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	mustExec(t, app, "set standard_conforming_strings = off")
	for _, lease := range []string{"1 hour", "40 days"} {
		id := *wantGrant(t, app, fmt.Sprintf("'e', 'h', 1, lease => '%s'", lease)).ID
		wantReason(t, app, fmt.Sprintf("renew_permit(%d, '%s')", id, lease), "renewed")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
		wantHit(t, app, fmt.Sprintf("hit('%s', 's', 3, '%s')", lease, lease), "allowed", 2)
		wantHit(t, app, fmt.Sprintf("hit('%s', 's', 3, '%s')", lease, lease), "allowed", 1)
		wantHit(t, app, fmt.Sprintf("peek('%s', 's', 3, '%s')", lease, lease), "allowed", 1)
	}
}
