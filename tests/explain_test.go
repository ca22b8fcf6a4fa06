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
block: none of this subject
counter: nothing was counted
holds: none open`)
	wantHit(t, app, "hit('none', 's', 3, '1 hour')", "allowed", 2)
	wantExplained(t, monitor, "'none', 's'", `rule: no row .*
override: none of this subject
block: none of this subject
counter: 1 used since `+at+`, nothing after `+at+`
holds: none open`)

	mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour'), pglimit.set_limit('l', 2, '1 hour', tenant => 't')")
	wantExplained(t, monitor, "'l', 's'", `rule: 3 hits per 01:00:00, fixed_window, mode enforce: the row of all tenants, version 1
override: none of this subject
block: none of this subject
counter: nothing was counted
holds: none open
arithmetic: 0 of 3
answer: allowed: 3 left of 3`)
	wantHit(t, app, "hit('l', 's', cost => 2, tenant => 't')", "allowed", 0)
	wantExplained(t, monitor, "'l', 's', 't'", `rule: 2 hits .*: the row of tenant 't', version 2
override: none of this subject
block: none of this subject
counter: 2 used since `+at+`, nothing after `+at+`
holds: none open
arithmetic: 2 of 2 in the window that ends in 00:59:\d\d\S*
answer: refused \(limit\): 0 left of 2, room again in 00:59:\d\d\S*`)
	mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 9, valid_until => '2999-01-31 00:00Z', tenant => 't')")
	wantExplained(t, monitor, "'l', 's', 't'", `.*
override: max_hits 9 until 2999-01-31 00:00:00Z, version 3
block: .*
counter: 2 used .*
holds: none open
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
holds: none open
arithmetic: 0 of 0 .*
answer: allowed for mode shadow alone: 0 left of 0`)
	wantExplained(t, monitor, "'off', 's'", `.*arithmetic: none: mode off .*answer: allowed for mode off: 0 left of 0`)

	mustExec(t, operator, "select pglimit.set_limit('d', 5, '1 month', 'calendar', durable => true)")
	wantHit(t, app, "hit('d', 's')", "allowed", 4)
	wantExplained(t, monitor, "'d', 's'", `rule: 5 hits per 1 mon, calendar, durable, mode enforce.*
counter: 1 used since .*
holds: none open
arithmetic: 1 of 5 in the window that ends in .*
answer: allowed: 4 left of 5`)

	mustExec(t, operator, "select pglimit.set_limit('b', 5, '1 hour', 'token_bucket', burst => 8)")
	wantHit(t, app, "hit('b', 's', cost => 4)", "allowed", 4)
	wantExplained(t, monitor, "'b', 's'", `rule: 5 hits per 01:00:00, token_bucket, burst 8, .*
counter: a bucket, full at `+at+`, by token_bucket
holds: none open
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
holds: none open
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

// explained is what explain_limit(args) says of one step.
func explained(t *testing.T, conn *pgx.Conn, args, step string) string {
	t.Helper()
	return mustScan[string](t, conn, "select coalesce(max(says), '-') from pglimit.explain_limit("+args+") where step = '"+step+"'")
}

func wantStep(t *testing.T, conn *pgx.Conn, args, step, pattern string) {
	t.Helper()
	if got := explained(t, conn, args, step); !regexp.MustCompile(`\A` + pattern + `\z`).MatchString(got) {
		t.Errorf("explain_limit(%s), %s: %q, want %q", args, step, got, pattern)
	}
}

// TestExplainBlock: it names the block that decides, the longest of those there are, and the answer is hit's.
func TestExplainBlock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	const until = `until 2\d{3}-\d\d-\d\d \d\d:\d\d:\d\dZ`
	mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour'), pglimit.set_limit('off', 3, '1 hour', mode => 'off')")
	wantHit(t, app, "hit('l', 's', cost => 2)", "allowed", 1)
	mustExec(t, operator, "select pglimit.block('l', 's', '1 hour', 'ticket 7')")
	wantExplained(t, monitor, "'l', 's'", `rule: 3 hits .*
override: none of this subject
block: blocked at this limit, `+until+`: ticket 7
counter: 2 used .*
holds: none open
arithmetic: not asked while it is blocked: 2 of 3 in the window that ends in .*
answer: refused \(blocked\), for another 00:59:\S+`)
	if got := mustScan[string](t, monitor, "select concat_ws(' ', facts ->> 'reason', facts ->> 'remaining') from pglimit.explain_limit('l', 's') where step = 'answer'"); got != "blocked 0" {
		t.Errorf("facts of the answer: %s", got)
	}
	if got := mustScan[string](t, monitor, "select concat_ws(' ', facts ->> 'used', facts ->> 'remaining', facts ->> 'debt') from pglimit.explain_limit('l', 's') where step = 'arithmetic'"); got != "2 1 0" {
		t.Errorf("facts of the sum: %s", got)
	}
	wantStep(t, monitor, "'l', 'other'", "block", "none of this subject")
	wantStep(t, monitor, "'l', 's', 'tenant'", "block", "none of this subject")

	// at every limit, of all modes, and of those that have no row
	mustExec(t, operator, "select pglimit.block('*', 's')")
	for _, limit := range []string{"l", "off", "none"} {
		wantStep(t, monitor, "'"+limit+"', 's'", "block", "blocked at every limit, for ever")
		wantStep(t, monitor, "'"+limit+"', 's'", "answer", `refused \(blocked\) for ever`)
	}
	wantStep(t, monitor, "'off', 's'", "arithmetic", "none: the subject is blocked")
	mustExec(t, operator, "select pglimit.unblock('*', 's')")
	wantStep(t, monitor, "'l', 's'", "block", "blocked at this limit, "+until+": ticket 7")
	wantStep(t, monitor, "'none', 's'", "answer", "-")

	// one that is over says what a further strike goes by
	mustExec(t, app, "select pglimit.strike('off', 's', why => 'guesses')")
	wantStep(t, monitor, "'off', 's'", "block", "blocked at this limit, "+until+", after 1 strike: guesses")
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp() where limit_name = 'off'")
	mustExec(t, app, "select pglimit.strike('off', 's')")
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp() where limit_name = 'off'")
	wantStep(t, monitor, "'off', 's'", "block", `none now; the last one, at this limit, ended 2\S+ \S+Z, after 2 strikes: guesses`)
	wantStep(t, monitor, "'off', 's'", "answer", "allowed for mode off: 3 left of 3")
	mustExec(t, db.System(), "update pglimit.blocks set forget_at = clock_timestamp() where limit_name = 'off'")
	wantStep(t, monitor, "'off', 's'", "block", "none of this subject")
	// a longer one decides, whichever it is
	mustExec(t, operator, "select pglimit.block('l', 's', '2 hours', 'here'), pglimit.block('*', 's', '1 hour', 'everywhere')")
	wantStep(t, monitor, "'l', 's'", "block", "blocked at this limit, "+until+": here")
	mustExec(t, operator, "select pglimit.block('*', 's', '3 hours', 'everywhere')")
	wantStep(t, monitor, "'l', 's'", "block", "blocked at every limit, "+until+": everywhere")
}

// TestExplainDebt: what is missing is in the sum, whatever the algorithm, and past a block.
func TestExplainDebt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	for _, algorithm := range eachAlgorithm {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 10, '%s', '%[1]s')", algorithm, perOf(algorithm)))
		args := "'" + algorithm + "', 's'"
		mustExec(t, app, "select pglimit.charge("+args+", 10)")
		if got := explained(t, monitor, args, "arithmetic"); strings.Contains(got, "debt") {
			t.Errorf("%s, nothing is missing: %s", algorithm, got)
		}
		mustExec(t, app, "select pglimit.charge("+args+", 4)")
		for _, block := range []string{"", "block", "unblock"} {
			if block != "" {
				mustExec(t, operator, "select pglimit."+block+"("+args+")")
			}
			wantStep(t, monitor, args, "arithmetic", ".*: a debt of 4")
			if got := mustScan[string](t, monitor, "select concat_ws(' ', facts ->> 'quota', facts ->> 'used', facts ->> 'remaining', facts ->> 'debt') from pglimit.explain_limit("+args+") where step = 'arithmetic'"); got != "10 14 0 4" {
				t.Errorf("%s %s: facts of the sum: %s", algorithm, block, got)
			}
		}
		mustExec(t, app, "select pglimit.charge("+args+", 9223372036854775807)")
		wantStep(t, monitor, args, "arithmetic", `.*: a debt of \d{6,19}`)
	}
}

// TestExplainHolds: what open holds charged of what is used, when the first lapses, and what is no part of it.
func TestExplainHolds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			limit := fmt.Sprintf("%s %v", algorithm, durable)
			args := "'" + limit + "', 's'"
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 100, '%s', '%s', durable => %v, on_lapse => 'return')", limit, perOf(algorithm), algorithm, durable))
			mustExec(t, app, "select pglimit.hold("+args+", 20, '2 hours'), pglimit.hold("+args+", 7, '1 hour'), pglimit.hold('"+limit+"', 'other', 9, '1 s'), pglimit.hit("+args+", cost => 5)")
			mustExec(t, app, "select pglimit.settle((pglimit.hold("+args+", 3, '1 s')).hold_id, 3)")
			part := "27 of what is used"
			if algorithm == "token_bucket" {
				part = "charged with 27"
			}
			wantStep(t, monitor, args, "holds", "2 open, "+part+", the first lapses in 00:59:\\S+")
			wantStep(t, monitor, args+", 't'", "holds", "none open")

			// one that lapsed comes back with purge; then nothing is to be said of it
			mustExec(t, db.System(), "update pglimit.holds set expires_at = clock_timestamp() where charged = 7; update pglimit.durable_holds set expires_at = clock_timestamp() where charged = 7")
			part = strings.Replace(part, "27", "20", 1)
			wantStep(t, monitor, args, "holds", "1 open, "+part+", the first lapses in 01:59:\\S+; 1 lapsed, of which the next purge gives back 7")
			mustExec(t, operator, "select pglimit.purge()")
			wantStep(t, monitor, args, "holds", "1 open, "+part+", the first lapses in 01:59:\\S+")
			if algorithm != "token_bucket" { // of which a little may have leaked
				wantStep(t, monitor, args, "arithmetic", "28 .*")
			}

			// of a count that was cleared nothing comes back
			part = strings.Replace(part, "20", "0", 1)
			mustExec(t, app, "select pglimit.forget("+args+")")
			wantStep(t, monitor, args, "holds", "1 open, "+part+", the first lapses in .*; 1 of them of a count that is over: to settle that gives nothing back")
			wantHit(t, app, "hit("+args+")", "allowed", 99)
			wantStep(t, monitor, args, "holds", "1 open, "+part+", .*; 1 of them of a count that is over: .*")
			mustExec(t, app, "select pglimit.settle(hold_id, 0) from (select max(hold_id) as hold_id from pglimit.hold("+args+", 8, '1 hour')) h")
			if algorithm != "token_bucket" {
				wantHit(t, app, "peek("+args+")", "allowed", 99)
			}
			// counted in another way, it is another count
			other := map[bool]string{true: "sliding_window", false: "token_bucket"}[algorithm == "token_bucket"]
			mustExec(t, app, "select pglimit.hold("+args+", 6, '1 hour')")
			wantStep(t, monitor, args, "holds", "2 open, .*6.*; 1 of them of a count that is over: .*")
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 100, '%s', '%s', durable => %v)", limit, "300 days", other, durable))
			wantStep(t, monitor, args, "holds", "2 open, .*; 2 of them of a count that is over: .*")
		}
	}
	// the window went on without a hit
	mustExec(t, operator, "select pglimit.set_limit('slides', 100, '1 hour', 'sliding_window')")
	mustExec(t, app, "select pglimit.hold('slides', 's', 7, '5 hours')")
	wantStep(t, monitor, "'slides', 's'", "holds", "1 open, 7 of what is used, .*")
	mustExec(t, db.System(), `with moved as (update pglimit.counters set window_start = window_start - interval '70 min' where key like e'%slides%' returning window_start)
		update pglimit.holds h set window_start = m.window_start from moved m where h.limit_name = 'slides'`)
	wantStep(t, monitor, "'slides', 's'", "holds", "1 open, 0 of what is used, .*; 1 of them of a count that is over: .*")
	// who brings his own limit
	mustExec(t, app, "select pglimit.hold('own', 's', 7, '1 hour', 10, '2 hours'), pglimit.hold('drips', 's', 7, '1 hour', 10, '2 hours', 'token_bucket')")
	wantStep(t, monitor, "'own', 's'", "holds", "1 open, 7 of what is used, .*")
	wantStep(t, monitor, "'drips', 's'", "holds", "1 open, charged with 7, .*")

	// more than it reads: the latest count, and it says so
	mustExec(t, db.System(), `insert into pglimit.holds (hold_id, tenant, limit_name, subject, charged, held_at, expires_at, returns)
		select (select max(hold_id) from pglimit.holds) + i, '', 'many', 's' || i, 1, now(), now() + interval '1 hour', false from generate_series(1, 100000) i`)
	wantStep(t, monitor, "'own', 's'", "holds", "none open; only the latest 100,000 of all holds were read")
	wantStep(t, monitor, "'many', 's100000'", "holds", "1 open, 0 of what is used, .*; 1 of them of .*; only the latest .*")
}
