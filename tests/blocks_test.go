package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

const blocksAreOver = "update pglimit.blocks set blocked_until = clock_timestamp(), forget_at = clock_timestamp()"

// wantBlocked is what a hit or a look says while its subject is blocked.
func wantBlocked(t *testing.T, conn *pgx.Conn, call string) hitRow {
	t.Helper()
	r := wantHit(t, conn, call, "blocked", 0)
	if r.Allowed || (r.RetryAfter == nil) != (r.ResetAt == nil) {
		t.Errorf("%s: %+v", call, r)
	}
	return r
}

// TestBlock is C-07: attempts during a block do not extend it. The block decides from the next call on, before and after a subject's first hit, with a
// limit given or looked up, whatever the limit's algorithm and mode; others are not touched, and the
// counter goes back to hit's straight way when it is over.
func TestBlock(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"Given": "", "Plain": "'l', 3, '1 hour'", "Sliding": "'l', 3, '1 hour', algorithm => 'sliding_window'",
		"Bucket": "'l', 3, '1 hour', algorithm => 'token_bucket'", "Calendar": "'l', 3, '1 month', algorithm => 'calendar'",
		"Durable": "'l', 3, '1 hour', durable => true", "Shadow": "'l', 3, '1 hour', mode => 'shadow'", "Off": "'l', 3, '1 hour', mode => 'off'",
	} {
		for _, limitName := range []string{"l", "*"} {
			t.Run(name+limitName, func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
				args := ", 3, '1 hour'"
				if limit != "" {
					args = ""
					mustExec(t, operator, "select pglimit.set_limit("+limit+")")
				}
				call := func(f, subject, more string) string { return f + "('l', '" + subject + "'" + args + more + ")" }
				block := func(subject, more string) {
					t.Helper()
					mustExec(t, operator, fmt.Sprintf("select pglimit.block('%s', '%s'%s)", limitName, subject, more))
				}
				allowed := map[string]string{"Off": "off"}[name]
				if allowed == "" {
					allowed = "allowed"
				}
				left := func(n int64) int64 {
					if name == "Off" {
						return 3
					}
					return n
				}

				wantHit(t, app, call("hit", "old", ""), allowed, left(2))
				wantHit(t, app, call("hit", "other", ""), allowed, left(2))
				for _, subject := range []string{"old", "new"} {
					block(subject, ", '1 hour', 'it scrapes'")
					for range 2 {
						mustExec(t, app, "begin")
						for _, more := range []string{"", ", cost => 9", ", cost => 0"} {
							if r := wantBlocked(t, app, call("hit", subject, more)); r.RetryAfter == nil || r.Quota != 3 {
								t.Errorf("%+v", r)
							}
							wantBlocked(t, app, call("peek", subject, more))
						}
						if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
							t.Error("a refusal draws a transaction id")
						}
						mustExec(t, app, "commit")
					}
				}
				wantHit(t, app, call("hit", "other", ""), allowed, left(1))
				mustExec(t, app, "select pglimit.forget('l', 'old')")
				wantBlocked(t, app, call("hit", "old", ""))
				block("old", "")
				if r := wantBlocked(t, app, call("hit", "old", "")); r.RetryAfter != nil {
					t.Errorf("for ever, and %+v", r)
				}

				// over by itself, or lifted: the next hit counts, and takes the stamp off
				mustExec(t, db.System(), blocksAreOver)
				for i := range int64(2) {
					wantHit(t, app, call("hit", "old", ""), allowed, left(2-i))
					wantHit(t, app, call("hit", "new", ""), allowed, left(2-i))
				}
				block("old", "")
				wantBlocked(t, app, call("hit", "old", ""))
				if !mustScan[bool](t, operator, fmt.Sprintf("select pglimit.unblock('%s', 'old')", limitName)) ||
					mustScan[bool](t, operator, fmt.Sprintf("select pglimit.unblock('%s', 'old')", limitName)) {
					t.Error("a block is lifted once")
				}
				wantHit(t, app, call("hit", "old", ""), allowed, left(0))
				if name == "Plain" || name == "Given" {
					wantStamped(t, db, 0, 3)
				}
			})
		}
	}
}

// TestBlockIsExact: no other tenant, limit or subject; * is every limit, those that look alike and
// those that come later too, of its tenant.
func TestBlockIsExact(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	hit := func(limit, subject, tenant string) string {
		return fmt.Sprintf("hit('%s', e'%s', 1000, '1 hour', tenant => '%s')", limit, subject, tenant)
	}
	limits := []string{"a", "a b", "a!", "b", "ab", "~"}
	for _, tenant := range []string{"", "t", "t u"} {
		for _, limit := range limits {
			for _, subject := range []string{"s", "S", `s\x1fs`, "r"} {
				wantHit(t, app, hit(limit, subject, tenant), "allowed", 999)
			}
		}
	}
	mustExec(t, operator, `select pglimit.block('*', 's', tenant => 't'); select pglimit.block('a', 'r')`)
	for _, tenant := range []string{"", "t", "t u"} {
		for _, limit := range append(limits, "later") {
			for _, subject := range []string{"s", "S", `s\x1fs`, "r"} {
				if call := hit(limit, subject, tenant); tenant == "t" && subject == "s" || tenant == "" && limit == "a" && subject == "r" {
					wantBlocked(t, app, call)
				} else if !mustScan[bool](t, app, "select allowed from pglimit."+call) {
					t.Errorf("%s is refused", call)
				}
			}
		}
	}
	wantStamped(t, db, len(limits)+1, 4*(len(limits)*3+3)-len(limits)-1-1) // later's own subject s has no counter

	// the longest of several holds
	mustExec(t, operator, "select pglimit.block('a', 's', '1 hour', tenant => 't')")
	if r := wantBlocked(t, app, hit("a", "s", "t")); r.RetryAfter != nil {
		t.Errorf("%+v", r)
	}
	mustExec(t, operator, "select pglimit.unblock('*', 's', tenant => 't')")
	if r := wantBlocked(t, app, hit("a", "s", "t")); r.RetryAfter == nil {
		t.Errorf("%+v", r)
	}
	wantHit(t, app, hit("b", "s", "t"), "allowed", 998)
}

// TestBlockBehindStuckTransaction: while a block of every limit waits for a transaction that does not end, new subjects
// are let by in between; it gives up with an error that says what to do, and is granted once that ends.
func TestBlockBehindStuckTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	stuck, app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	start := func(call string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := operator.Exec(context.Background(), call)
			done <- err
		}()
		waits := fmt.Sprintf("select exists (select from pg_stat_activity where pid = %d and wait_event in ('relation', 'PgSleep'))", operator.PgConn().PID())
		for !mustScan[bool](t, db.Super(), waits) {
			if len(done) > 0 {
				t.Fatalf("%s does not wait: %v", call, <-done)
			}
		}
		return done
	}
	for _, call := range []string{"block('*', 's')", "block_range('l', '203.0.113.0/24')"} {
		name, _, _ := strings.Cut(call, "(")
		mustExec(t, stuck, "begin")
		mustHit(t, stuck, "hit('l', '"+name+"', 9, '1 hour')")
		done, let := start("select pglimit."+call), 0
		for len(done) == 0 {
			mustHit(t, app, fmt.Sprintf("hit('l', '%s %d', 9, '1 hour')", name, let))
			let++
		}
		if let < 3 {
			t.Errorf("%s: %d new subjects were let by meanwhile", call, let)
		}
		var pgErr *pgconn.PgError
		if err := <-done; !errors.As(err, &pgErr) || pgErr.Code != "55P03" || !strings.Contains(pgErr.Hint, "pg_locks") {
			t.Errorf("%s: %v", call, err)
		}
		done = start("select pglimit." + call)
		mustExec(t, stuck, "commit")
		if err := <-done; err != nil {
			t.Errorf("%s, once nobody is in the way: %v", call, err)
		}
	}
	wantBlocked(t, app, "hit('l', 's', 9, '1 hour')")
	wantBlocked(t, app, "hit('l', '203.0.113.7', 9, '1 hour')")
}

// TestPause: the longest pause holds, also against a ban for ever; it is no matter of the history.
func TestPause(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	pause := func(more string) *string {
		t.Helper()
		return mustScan[*string](t, app, "select extract(year from pglimit.pause('up', 'api.example.com', "+more+"))::text")
	}
	call := "hit('up', 'api.example.com', 5, '1 hour')"
	wantHit(t, app, call, "allowed", 4)
	if got := pause("until => '2090-01-01', why => 'Retry-After'"); *got != "2090" {
		t.Error(*got)
	}
	wantBlocked(t, app, call)
	for _, shorter := range []string{"until => '2089-01-01'", "'1 s'", "until => '2001-01-01'", "until => '-infinity'"} {
		if got := pause(shorter); *got != "2090" {
			t.Errorf("%s: %s", shorter, *got)
		}
	}
	if got := pause("until => '2091-01-01'"); *got != "2091" {
		t.Error(*got)
	}
	if got := mustScan[string](t, operator, "select state || ' ' || why || ' ' || extract(year from blocked_until) || ' ' || updated_by from pglimit.list_blocks('up')"); got !=
		"blocked Retry-After 2091 pglimit_test_app" {
		t.Error(got)
	}
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_changes()"); n != 0 {
		t.Errorf("%d changes", n)
	}
	mustExec(t, operator, "select pglimit.block('up', 'api.example.com')")
	if got := pause("until => '2091-01-01'"); got != nil {
		t.Error(*got)
	}
	mustExec(t, db.System(), blocksAreOver)
	if got := mustScan[string](t, operator, "select state from pglimit.list_blocks('up')"); got != "over" {
		t.Error(got)
	}
	wantHit(t, app, call, "allowed", 3)
	// over before it begins: nothing is written
	pause("until => '2001-01-01'")
	wantHit(t, app, call, "allowed", 2)

	// purge removes what is over, and nothing else
	mustExec(t, operator, "select pglimit.set_purge_after('0 s'); select pglimit.block('up', 'x'); select pglimit.block('up', 'y', '1 day'); select pglimit.purge()")
	if got := mustScan[string](t, operator, "select string_agg(subject, ' ') from pglimit.list_blocks()"); got != "x y" {
		t.Errorf("left: %s", got)
	}
}

// TestBlockArguments: misuse is PGL01 with what to do; history says who blocked whom, and why.
func TestBlockArguments(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	for _, call := range []string{
		"block(null, 's')", "block('l', null)", "block('l', ' ')", "block('l', '')", "block('l', 's', '0 s')", "block('l', 's', '-1 s')", "block('l', 's', '1 month')",
		"block('l', 's', why => ' ')", "block('é', 's')", "block('l', repeat('x', 1100))", "block('l', 's', tenant => e'a\\x1fb')", "unblock('l', '')", "unblock(null, 's')",
		"pause('l', 's')", "pause('l', 's', '1 s', now())", "pause('l', 's', until => 'infinity')", "pause('l', 's', until => '2990-01-01')", "pause('l', '', duration => '1 s')", "pause('l', 's', duration => '-1 s')",
		"list_blocks(max_rows => 0)",
	} {
		_, err := operator.Exec(t.Context(), "select pglimit."+call)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" || server.Detail == "" {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, mode := range []string{"isolation level repeatable read", "read only"} {
		for _, call := range []string{"block('l', 's')", "pause('l', 's', duration => '1 s')"} {
			mustExec(t, operator, "begin "+mode)
			if _, err := operator.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "PGL03" {
				t.Errorf("%s: %s: %v", mode, call, err)
			}
			mustExec(t, operator, "rollback")
		}
	}
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_blocks()"); n != 0 {
		t.Errorf("%d blocks", n)
	}
	mustExec(t, operator, "select pglimit.block('l', 's', '1 hour', 'ticket 7'); select pglimit.unblock('l', 's')")
	if got := mustScan[string](t, operator, "select string_agg(concat_ws(' ', action, name, coalesce(after, before) ->> 'subject', why), ', ' order by version) from pglimit.list_changes('l')"); got !=
		"block l s ticket 7, unblock l s" {
		t.Error(got)
	}
	mustExec(t, operator, "select pglimit.block('l', 's' || g) from generate_series(1, 7) g")
	var seen []string
	after := "null"
	for range 4 {
		page := mustScan[string](t, operator, "select coalesce(string_agg(subject || ' ' || cursor, ',' order by cursor), '') from pglimit.list_blocks(max_rows => 2, after => "+after+")")
		for row := range strings.SplitSeq(page, ",") {
			subject, cursor, _ := strings.Cut(row, " ")
			seen, after = append(seen, subject), "'"+cursor+"'"
		}
	}
	if got := strings.Join(seen, " "); got != "s1 s2 s3 s4 s5 s6 s7" {
		t.Error(got)
	}
}

// TestBlockRace: who makes the subject's first counter while it is being blocked either is there before
// and stamped, or waits and is refused; at one limit and at every limit.
func TestBlockRace(t *testing.T) {
	t.Parallel()
	for _, limitName := range []string{"l", "*"} {
		for _, blockFirst := range []bool{true, false} {
			t.Run(fmt.Sprint(limitName, blockFirst), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
				first, second := operator, app
				calls := []string{"select pglimit.block('" + limitName + "', 's')", "select pglimit.hit('l', 's', 5, '1 hour')"}
				if !blockFirst {
					first, second = app, operator
					calls[0], calls[1] = calls[1], calls[0]
				}
				mustExec(t, first, "begin; "+calls[0])
				done := make(chan error, 1)
				pid := second.PgConn().PID()
				go func() {
					_, err := second.Exec(context.Background(), calls[1])
					done <- err
				}()
				waits := false
				for range 500 {
					if err := db.Super().QueryRow(t.Context(), "select cardinality(pg_blocking_pids($1::int)) > 0 from pg_sleep(0.001)", pid).Scan(&waits); err != nil {
						t.Fatal(err)
					} else if waits {
						break
					}
				}
				mustExec(t, first, "commit")
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if !waits {
					t.Error("the second did not wait")
				}
				wantBlocked(t, app, "hit('l', 's', 5, '1 hour')")
				wantStamped(t, db, map[bool]int{false: 1}[blockFirst], 0)
			})
		}
	}
}

// TestStrike: each strike blocks for longer, up to the maximum; one during a block changes nothing, so
// who goes on trying is not locked out for ever; strikes are forgotten when they have decayed.
func TestStrike(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	strike := func(args string, strikes int64, length string) {
		t.Helper()
		if got := mustScan[string](t, app, "select strikes || ' ' || date_trunc('second', retry_after + interval '0.5 s') from pglimit.strike('l', "+args+")"); got != fmt.Sprint(strikes, " ", length) {
			t.Errorf("strike(%s): %s, want %d %s", args, got, strikes, length)
		}
	}
	args := "'s', '10 s', 3, '5 min', '1 hour'"
	call := "hit('l', 's', 5, '1 hour')"
	wantHit(t, app, call, "allowed", 4)
	for i, length := range []string{"00:00:10", "00:00:30", "00:01:30", "00:04:30", "00:05:00", "00:05:00"} {
		for range 3 { // two of them during the block
			strike(args, int64(i+1), length)
			wantBlocked(t, app, call)
		}
		mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp()")
		wantHit(t, app, "peek('l', 's', 5, '1 hour')", "allowed", 4)
	}
	// purge keeps what has not decayed, and the strikes count on
	mustExec(t, operator, "select pglimit.set_purge_after('0 s'), pglimit.purge()")
	strike(args, 7, "00:05:00")
	// a pause neither counts nor forgets
	mustExec(t, app, "select pglimit.pause('l', 's', duration => '10 min')")
	strike(args, 7, "00:10:00")
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp() - interval '59 min'")
	strike(args, 8, "00:05:00")
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp() - interval '61 min', forget_at = clock_timestamp()")
	strike("'s', '10 s', 3, '5 min', '2 hours'", 1, "00:00:10") // whether purge was there or not
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp(), strikes = 9000000000000")
	strike(args, 9000000000001, "00:05:00")
	mustExec(t, operator, "select pglimit.unblock('l', 's')")
	strike(args, 1, "00:00:10")
	mustExec(t, db.System(), "update pglimit.blocks set blocked_until = clock_timestamp(), strikes = 9")
	strike("'s', '10 s', 1, '5 min', '1 hour'", 10, "00:00:10")
	strike("'t'", 1, "00:01:00")
	mustExec(t, operator, "select pglimit.block('l', 'u')")
	if got := mustScan[*string](t, app, "select retry_after::text from pglimit.strike('l', 'u')"); got != nil {
		t.Errorf("a strike shortens a ban for ever to %s", *got)
	}
	for _, args := range []string{"null", "' '", "'x', '0 s'", "'x', '1 month'", "'x', factor => 0.5", "'x', factor => 'NaN'", "'x', factor => null", "'x', maximum => '-1 s'", "'x', decay => null", "'x', why => ''"} {
		_, err := app.Exec(t.Context(), "select pglimit.strike('l', "+args+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" {
			t.Errorf("strike(%s): %v", args, err)
		}
	}
}
