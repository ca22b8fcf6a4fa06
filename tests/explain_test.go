package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// wantExplained compares what explain_limit(args) says, a line a step, with a pattern.
func wantExplained(t *testing.T, conn *pgx.Conn, args, pattern string) {
	t.Helper()
	got := strings.Join(mustStrings(t, conn, "select step || ': ' || says from pglimit.explain_limit("+args+")"), "\n")
	if !regexp.MustCompile(`(?s)\A` + pattern + `\z`).MatchString(got) {
		t.Errorf("explain_limit(%s) says\n%s\nwant\n%s", args, got, pattern)
	}
}

// TestExplain: it names the row, the override and the counter that decide, and its sum is that of the answer.
func TestExplain(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	const at = `2\d{3}-\d\d-\d\d \d\d:\d\d:\d\dZ`
	wantExplained(t, monitor, "'none', 's'", `rule: no row of this limit: .*
override: none of this subject
counter: nothing was counted`)
	wantHit(t, app, "hit('none', 's', 3, '1 hour')", "allowed", 2)
	wantExplained(t, monitor, "'none', 's'", `rule: no row .*
override: none of this subject
counter: 1 used since `+at+`, nothing after `+at)

	mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour'), pglimit.set_limit('l', 2, '1 hour', tenant => 't')")
	wantExplained(t, monitor, "'l', 's'", `rule: 3 hits per 01:00:00, fixed_window, mode enforce: the row of all tenants, version 1
override: none of this subject
counter: nothing was counted
arithmetic: 0 of 3
answer: allowed: 3 left of 3`)
	wantHit(t, app, "hit('l', 's', cost => 2, tenant => 't')", "allowed", 0)
	wantExplained(t, monitor, "'l', 's', 't'", `rule: 2 hits .*: the row of tenant 't', version 2
override: none of this subject
counter: 2 used since `+at+`, nothing after `+at+`
arithmetic: 2 of 2 in the window that ends in 00:59:\d\d\S*
answer: refused \(limit\): 0 left of 2, room again in 00:59:\d\d\S*`)
	mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 9, valid_until => '2999-01-31 00:00Z', tenant => 't')")
	wantExplained(t, monitor, "'l', 's', 't'", `.*
override: max_hits 9 until 2999-01-31 00:00:00Z, version 3
counter: 2 used .*
arithmetic: 2 of 9 .*
answer: allowed: 7 left of 9`)
	mustExec(t, db.System(), overrideIsOver)
	wantExplained(t, monitor, "'l', 's', 't'", `.*override: max_hits 9 no more, since .*answer: refused.*`)
	mustExec(t, db.System(), overrideIsFuture)
	wantExplained(t, monitor, "'l', 's', 't'", `.*override: max_hits 9 not before .*answer: refused.*`)
	mustExec(t, db.System(), "update pglimit.limit_overrides set valid_from = null")
	wantExplained(t, monitor, "'l', 's', 't'", `.*override: max_hits 9 for ever.*answer: allowed.*`)

	mustExec(t, operator, "select pglimit.set_limit('shadow', 0, '1 hour', mode => 'shadow'), pglimit.set_limit('off', 0, '1 hour', mode => 'off')")
	wantHit(t, app, "hit('shadow', 's')", "shadow", 0)
	wantExplained(t, monitor, "'shadow', 's'", `.*counter: 0 used .*, 1 more let by in mode shadow
arithmetic: 0 of 0 .*
answer: allowed for mode shadow alone: 0 left of 0`)
	wantExplained(t, monitor, "'off', 's'", `.*arithmetic: none: mode off .*answer: allowed for mode off: 0 left of 0`)

	for _, limit := range []string{"l", "off"} {
		mustExec(t, operator, "select pglimit.block('*', 'blocked', '1 hour')")
		wantExplained(t, monitor, "'"+limit+"', 'blocked'", `.*arithmetic: none: the subject is blocked, see list_blocks
answer: refused \(blocked\): 0 left of \d, room again in 00:59:\d\d\S*`)
	}

	mustExec(t, operator, "select pglimit.set_limit('d', 5, '1 month', 'calendar', durable => true)")
	wantHit(t, app, "hit('d', 's')", "allowed", 4)
	wantExplained(t, monitor, "'d', 's'", `rule: 5 hits per 1 mon, calendar, durable, mode enforce.*
counter: 1 used since .*
arithmetic: 1 of 5 in the window that ends in .*
answer: allowed: 4 left of 5`)

	mustExec(t, operator, "select pglimit.set_limit('b', 5, '1 hour', 'token_bucket', burst => 8)")
	wantHit(t, app, "hit('b', 's', cost => 4)", "allowed", 4)
	wantExplained(t, monitor, "'b', 's'", `rule: 5 hits per 01:00:00, token_bucket, burst 8, .*
counter: a bucket since .*, by token_bucket
arithmetic: full again in 00:47:\S+, and filled by 5 per 01:00:00: it lacks ceil\((4.0000|3.99\d+)\) of 8
answer: allowed: 4 left of 8`)
	mustExec(t, operator, "select pglimit.set_limit('b', 5, '1 hour', 'sliding_window')")
	wantExplained(t, monitor, "'b', 's'", `.*arithmetic: counted by token_bucket until now, goes on by sliding_window with as much used: 4 of 5
answer: allowed: 1 left of 5`)

	mustExec(t, operator, "select pglimit.set_limit('s', 6, '1 hour', 'sliding_window')")
	wantHit(t, app, "hit('s', 's', cost => 5)", "allowed", 1)
	// the window began 84 minutes ago, and the last hit is 12 minutes old
	mustExec(t, db.System(), "update pglimit.counters set window_start = clock_timestamp() - interval '84 min', special_reset_at = clock_timestamp() + interval '48 min' where key like e'%\\x1fs\\x1fs'")
	wantHit(t, app, "hit('s', 's', cost => 2)", "allowed", 1)
	wantExplained(t, monitor, "'s', 's'", `.*counter: 2 used, 5 in the window before, since .*
arithmetic: 2 in this window \+ ceil\(5 × 0\.(6000|59\d+)\) of the one before, .* = 5 of 6
answer: allowed: 1 left of 6`)

	for _, args := range []string{"'', 's'", "'l', ''", "null, 's'", "'l', null", "'l', 's', e'a\\tb'"} {
		if _, err := monitor.Exec(t.Context(), fmt.Sprintf("select from pglimit.explain_limit(%s)", args)); sqlState(err) != "PGL01" {
			t.Errorf("explain_limit(%s): %v", args, err)
		}
	}
	if got := mustScan[string](t, monitor, "select facts ->> 'remaining' from pglimit.explain_limit('b', 's') where step = 'answer'"); got != "1" {
		t.Errorf("facts say that %s remain", got)
	}
}
