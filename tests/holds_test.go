package tests

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// answer is the one row of a call as text, as psql would show it.
func answer(t *testing.T, db rowQuerier, columns, call string) string {
	t.Helper()
	return mustScan[string](t, db, "select concat_ws(' ', "+columns+") from pglimit."+call)
}

func wantAnswer(t *testing.T, db rowQuerier, columns, call, want string) {
	t.Helper()
	if got := answer(t, db, columns, call); got != want {
		t.Errorf("%s: %s, want %s", call, got, want)
	}
}

var eachAlgorithm = []string{"fixed_window", "sliding_window", "token_bucket", "calendar"}

// perOf is a length that each algorithm takes, and that no test lasts.
func perOf(algorithm string) string {
	if algorithm == "calendar" {
		return "1 year"
	}
	return "300 days"
}

// TestHitUpTo: as many as there are, and not fewer than at_least.
func TestHitUpTo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const columns = "allowed, reason, remaining, charged, retry_after is not null"
	for _, algorithm := range eachAlgorithm {
		mustExec(t, operator, "select pglimit.set_limit('"+algorithm+"', 10, '"+perOf(algorithm)+"', '"+algorithm+"')")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 4)", "t allowed 6 4 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 7)", "f limit 6 0 t")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 11)", "f never 6 0 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 6)", "t allowed 0 6 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20)", "f limit 0 0 t")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 'new', 9223372036854775807)", "t allowed 0 10 f")
	}
	for _, bad := range []string{"0", "null", "3, 0", "3, 4", "3, null", "-1, -1"} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit_up_to('fixed_window', 's', "+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

const (
	chargeColumns = "charged, reason, remaining, debt"
	settleColumns = "settled, reason, remaining, debt"
)

// TestCharge: what was used is counted whether or not it was left; debt is told apart, and bounded where that is wished.
func TestCharge(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			l := fmt.Sprintf("%s %v", algorithm, durable)
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 10, '%s', '%s', durable => %v)", l, perOf(algorithm), algorithm, durable))
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 0)", "t charged 10 0")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 14, max_debt => 3)", "f never 10 0")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 13, max_debt => 3)", "t charged 0 3")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 1, max_debt => 3)", "f debt 0 3")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 1, max_debt => 0)", "f debt 0 3")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 20)", "t charged 0 23")
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 0)", "t charged 0 23")
			wantHit(t, app, "hit('"+l+"', 's')", "limit", 0)
			wantHit(t, app, "peek('"+l+"', 's')", "limit", 0)
			if got := mustScan[int64](t, app, "select pglimit.refund('"+l+"', 's', 22)"); got != 0 {
				t.Errorf("%s: %d remain in debt", l, got)
			}
			wantAnswer(t, app, chargeColumns, "charge('"+l+"', 's', 0)", "t charged 0 1")
			if got := mustScan[int64](t, app, "select pglimit.refund('"+l+"', 's', 4)"); got != 3 {
				t.Errorf("%s: %d remain, want 3", l, got)
			}
			wantHit(t, app, "hit('"+l+"', 's')", "allowed", 2)
		}
	}
}

// TestRefund is C-11 for what is given back: never more than was used, and nothing where nothing is counted.
func TestRefund(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, algorithm := range eachAlgorithm {
		l := algorithm
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 10, '%s', '%[1]s')", l, perOf(algorithm)))
		refund := func(cost, want int64) {
			t.Helper()
			if got := mustScan[int64](t, app, fmt.Sprintf("select pglimit.refund('%s', 's', %d)", l, cost)); got != want {
				t.Errorf("%s: after a refund of %d %d remain, want %d", l, cost, got, want)
			}
		}
		refund(5, 10)
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters where key like '%"+l+"%'"); n != 0 {
			t.Errorf("%s: a refund of nothing made a counter", l)
		}
		wantHit(t, app, "hit('"+l+"', 's', cost => 6)", "allowed", 4)
		refund(0, 4)
		refund(1, 5)
		refund(math.MaxInt64, 10)
		refund(1, 10)
		wantHit(t, app, "hit('"+l+"', 's', cost => 10)", "allowed", 0)
		mustExec(t, app, "select pglimit.forget('"+l+"', 's')")
		refund(10, 10)
		wantHit(t, app, "hit('"+l+"', 's', cost => 10)", "allowed", 0)
		if _, err := app.Exec(t.Context(), "select pglimit.refund('"+l+"', 's', -1)"); sqlState(err) != "PGL01" {
			t.Errorf("a refund below nothing: %v", err)
		}
	}
}

// TestHugeCharges is C-11: sums that no number holds stay at the greatest, in every algorithm.
func TestHugeCharges(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for _, algorithm := range eachAlgorithm {
		for _, quota := range []int64{0, 1, math.MaxInt64} {
			args := fmt.Sprintf("max_hits => %d, per => '%s', algorithm => '%s'", quota, map[bool]string{true: "1 year", false: "36525 days"}[algorithm == "calendar"], algorithm)
			key := fmt.Sprintf("'l', '%s %d'", algorithm, quota)
			for range 3 {
				if got := answer(t, app, "charged, reason", fmt.Sprintf("charge(%s, %d, %s)", key, int64(math.MaxInt64), args)); got != "t charged" {
					t.Errorf("%s of %d: %s", algorithm, quota, got)
				}
			}
			if got := answer(t, app, "allowed, reason, remaining", fmt.Sprintf("peek(%s, %s)", key, args)); got != "f limit 0" && got != "f never 0" {
				t.Errorf("%s of %d after: %s", algorithm, quota, got)
			}
			mustExec(t, app, fmt.Sprintf("select pglimit.refund(%s, %d, %s)", key, int64(math.MaxInt64), args))
		}
	}
	if _, err := db.Conn("pglimit_operator").Exec(t.Context(), "select from pglimit.list_counters()"); err != nil {
		t.Errorf("listed: %v", err)
	}
	// counted by windows so far: what the bucket would need to leak it ends when no timestamp does
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('changed', 1, '1 day')")
	mustExec(t, app, fmt.Sprintf("select pglimit.charge('changed', 's', %d)", int64(math.MaxInt64)))
	mustExec(t, operator, "select pglimit.set_limit('changed', 1, '36525 days', 'token_bucket')")
	if got := answer(t, app, "allowed, reason, remaining", "peek('changed', 's')"); got != "f limit 0" {
		t.Errorf("changed to a bucket: %s", got)
	}
	mustExec(t, app, "select pglimit.refund('changed', 's', 1)")
	for _, bad := range []string{"-1", "null", "1, max_debt => -1"} {
		if _, err := app.Exec(t.Context(), "select pglimit.charge('l', 's', "+bad+", max_hits => 1, per => '1 s')"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// holdOf makes a hold that must succeed, and returns its number.
func holdOf(t *testing.T, db rowQuerier, args string) string {
	t.Helper()
	return answer(t, db, "hold_id", "hold("+args+")")
}

// TestHold: charged when taken, corrected once, and a refusal leaves nothing.
func TestHold(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			l := fmt.Sprintf("%s %v", algorithm, durable)
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 10, '%s', '%s', durable => %v)", l, perOf(algorithm), algorithm, durable))
			h := holdOf(t, app, "'"+l+"', 's', 8, '1 hour'")
			const columns = "held, reason, hold_id is null, remaining, retry_after is null, expires_at is null"
			rows := func() int {
				return mustScan[int](t, db.System(), "select count(*) from (select from pglimit.holds union all select from pglimit.durable_holds) h")
			}
			before := rows()
			wantAnswer(t, app, columns, "hold('"+l+"', 's', 3, '1 hour')", "f limit t 2 f t")
			wantAnswer(t, app, columns, "hold('"+l+"', 's', 11, '1 hour')", "f never t 2 t t")
			if n := rows(); n != before {
				t.Errorf("%s: refused holds were kept", l)
			}
			wantAnswer(t, app, columns, "hold('"+l+"', 's', 2, '1 hour')", "t held f 0 t f")
			wantAnswer(t, app, settleColumns, "settle("+h+", 3)", "t settled 5 0")
			for _, actual := range []string{"0", "3", "8", "100"} {
				wantAnswer(t, app, settleColumns, "settle("+h+", "+actual+")", "t again 5 0")
			}
			wantHit(t, app, "hit('"+l+"', 's', cost => 5)", "allowed", 0)

			// more than was held goes into debt
			mustExec(t, app, "select pglimit.forget('"+l+"', 's')")
			h = holdOf(t, app, "'"+l+"', 's', 8, '1 hour'")
			wantAnswer(t, app, settleColumns, "settle("+h+", 15)", "t settled 0 5")

			// what the window was is over: nothing is given back of what others were charged since
			for _, actual := range []string{"0", "8", "9"} {
				mustExec(t, app, "select pglimit.forget('"+l+"', 's')")
				h = holdOf(t, app, "'"+l+"', 's', 8, '1 hour'")
				mustExec(t, app, "select pglimit.forget('"+l+"', 's')")
				wantHit(t, app, "hit('"+l+"', 's', cost => 9)", "allowed", 1)
				want := map[string]string{"0": "1", "8": "1", "9": "0"}[actual]
				wantAnswer(t, app, settleColumns, "settle("+h+", "+actual+")", "t settled "+want+" 0")
			}
		}
	}
	wantAnswer(t, app, settleColumns, "settle(1, 1)", "f unknown")
	wantAnswer(t, app, settleColumns, "settle(-1, 1)", "f unknown")
	for _, bad := range []string{"null, 1", "1, null", "1, -1"} {
		if _, err := app.Exec(t.Context(), "select pglimit.settle("+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("settle(%s): %v", bad, err)
		}
	}
	for _, bad := range []string{"0, '1 s'", "null, '1 s'", "-1, '1 s'", "1, null", "1, '0 s'", "1, '1 month'"} {
		if _, err := app.Exec(t.Context(), "select pglimit.hold('l', 's', "+bad+", 1, '1 s')"); sqlState(err) != "PGL01" {
			t.Errorf("hold(%s): %v", bad, err)
		}
	}
	if _, err := app.Exec(t.Context(), "select pglimit.hold('none', 's', 1, '1 s')"); sqlState(err) != "PGL02" {
		t.Errorf("hold of an unknown limit: %v", err)
	}
}

// TestHoldOfAChangedLimit: a hold can be settled whatever became of its limit.
func TestHoldOfAChangedLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	set := func(args string) { t.Helper(); mustExec(t, operator, "select pglimit.set_limit('l', "+args+")") }
	for _, given := range []string{"", ", max_hits => 10", ", max_hits => 10, per => '300 days'", ", per => '200 days'", ", algorithm => 'token_bucket'"} {
		for _, to := range []string{"20, '300 days'", "10, '1 year', 'calendar'", "10, '1 day', 'sliding_window'", "10, '1 hour', 'token_bucket', 3", "10, '1 day', durable => true", "10, '1 day', mode => 'off'", "0, '1 day'", ""} {
			set("10, '300 days', on_lapse => 'return'")
			mustExec(t, app, "select pglimit.forget('l', 's')")
			h1, h2 := holdOf(t, app, "'l', 's', 4, '1 hour'"+given), holdOf(t, app, "'l', 's', 4, '1 hour'"+given)
			if to == "" {
				mustExec(t, operator, "select pglimit.drop_limit('l')")
			} else {
				set(to)
			}
			if got := answer(t, app, "settled, reason", "settle("+h1+", 1)"); got != "t settled" {
				t.Errorf("held by %q, then %q: %s", given, to, got)
			}
			mustExec(t, db.System(), "update pglimit.holds set expires_at = clock_timestamp() where hold_id = "+h2)
			if got := mustScan[int](t, operator, "select holds_returned from pglimit.purge()"); got != 1 {
				t.Errorf("held by %q, then %q: %d returned", given, to, got)
			}
			if got := answer(t, app, "settled, reason", "settle("+h2+", 1)"); got != "f lapsed" {
				t.Errorf("held by %q, then %q: %s", given, to, got)
			}
		}
	}
}

// TestHoldModes: where nothing is counted there is nothing to settle.
func TestHoldModes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('off', 5, '1 hour', mode => 'off'), pglimit.set_limit('shadow', 5, '1 hour', mode => 'shadow')")
	const columns = "held, reason, hold_id, expires_at is null"
	wantAnswer(t, app, columns, "hold('off', 's', 9, '1 hour')", "t off 0 t")
	h := holdOf(t, app, "'shadow', 's', 5, '1 hour'")
	wantAnswer(t, app, columns, "hold('shadow', 's', 1, '1 hour')", "t shadow 0 t")
	wantAnswer(t, app, settleColumns, "settle(0, 7)", "t settled")
	wantAnswer(t, app, settleColumns, "settle("+h+", 3)", "t settled 2 0")
	wantAnswer(t, app, "allowed, reason, remaining, charged", "hit_up_to('shadow', 's', 5)", "t shadow 0 2")
	wantAnswer(t, app, "allowed, reason, remaining, charged", "hit_up_to('shadow', 's', 5)", "t shadow 0 0")
	wantAnswer(t, app, "allowed, reason, charged", "hit_up_to('off', 's', 5)", "t off 0")
	wantAnswer(t, app, chargeColumns, "charge('off', 's', 50)", "t off 5 0")
	wantAnswer(t, app, chargeColumns, "charge('shadow', 's', 50, max_debt => 1)", "t shadow 0 0")
	wantAnswer(t, app, chargeColumns, "charge('shadow', 's', 50)", "t charged 0 50")
	if n := mustScan[int](t, operator, "select shadow_refused from pglimit.list_limits('shadow')"); n != 4 {
		t.Errorf("shadow counted %d, want 4", n)
	}
}

// lapseHolds ends the time of every hold.
const lapseHolds = "update pglimit.holds set expires_at = clock_timestamp(); update pglimit.durable_holds set expires_at = clock_timestamp()"

// TestLapsedHold: it stays charged or is returned once, as its limit says, and settling it is too late either way.
func TestLapsedHold(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, system := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system")
	const purge = "select concat_ws(' ', holds_purged, holds_returned, more) from pglimit.purge()"
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			mustExec(t, operator, "select pglimit.set_purge_after('1 day')")
			l := fmt.Sprintf("%s %v", algorithm, durable)
			for _, on := range []string{"keep", "return"} {
				mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s %s', 10, '%s', '%s', durable => %v, on_lapse => '%[2]s')", l, on, perOf(algorithm), algorithm, durable))
			}
			kept, returned := holdOf(t, app, "'"+l+" keep', 's', 4, '1 hour'"), holdOf(t, app, "'"+l+" return', 's', 4, '1 hour'")
			settled := holdOf(t, app, "'"+l+" return', 's', 3, '1 hour'")
			mustExec(t, app, "select pglimit.settle("+settled+", 2)")
			if got := mustScan[string](t, operator, purge); got != "0 0 f" {
				t.Errorf("%s: purge while all are live: %s", l, got)
			}
			mustExec(t, system, lapseHolds)
			wantAnswer(t, app, settleColumns, "settle("+kept+", 1)", "f lapsed 6 0")
			wantAnswer(t, app, settleColumns, "settle("+returned+", 1)", "f lapsed 4 0")
			for i, want := range []string{"0 1 f", "0 0 f"} {
				if got := mustScan[string](t, operator, purge); got != want {
					t.Errorf("%s: purge %d: %s, want %s", l, i, got, want)
				}
			}
			wantAnswer(t, app, settleColumns, "settle("+kept+", 1)", "f lapsed 6 0")
			wantAnswer(t, app, settleColumns, "settle("+returned+", 1)", "f lapsed 8 0")
			wantAnswer(t, app, settleColumns, "settle("+settled+", 1)", "t again 8 0")
			mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
			if got := mustScan[string](t, operator, purge); got != "3 0 f" {
				t.Errorf("%s: the last purge: %s", l, got)
			}
			wantAnswer(t, app, settleColumns, "settle("+returned+", 1)", "f unknown")
			wantHit(t, app, "hit('"+l+" return', 's', cost => 8)", "allowed", 0)
		}
	}
	if _, err := operator.Exec(t.Context(), "select pglimit.set_limit('l', 1, '1 s', on_lapse => 'burn')"); sqlState(err) != "PGL01" {
		t.Errorf("an unknown on_lapse: %v", err)
	}
}

// TestPurgePassesCountersInUse: purge waits for no hit; it returns the hold the next time.
func TestPurgePassesCountersInUse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, busy, operator := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour', on_lapse => 'return'), pglimit.set_limit('d', 10, '1 hour', on_lapse => 'return', durable => true)")
	returned := func() int { return mustScan[int](t, operator, "select holds_returned from pglimit.purge()") }
	for _, l := range []string{"l", "d"} {
		holdOf(t, app, "'"+l+"', 's', 4, '1 hour'")
		holdOf(t, app, "'"+l+"', 'idle', 4, '1 hour'")
		settling := holdOf(t, app, "'"+l+"', 'idle', 4, '1 hour'")
		mustExec(t, busy, "begin; select pglimit.hit('"+l+"', 's'); set local pglimit.in_transaction = allow; select pglimit.settle("+settling+", 4)")
		mustExec(t, db.System(), "update pglimit.holds set expires_at = clock_timestamp() where hold_id <> "+settling)
		mustExec(t, db.System(), "update pglimit.durable_holds set expires_at = clock_timestamp() where hold_id <> "+settling)
		if n := returned(); n != 1 {
			t.Errorf("%s: %d returned, want the one that is not in use", l, n)
		}
		mustExec(t, busy, "commit")
		if n := returned(); n != 1 {
			t.Errorf("%s: %d returned later", l, n)
		}
		wantHit(t, app, "peek('"+l+"', 's')", "allowed", 9)
		wantHit(t, app, "peek('"+l+"', 'idle')", "allowed", 6)
	}
}

// TestSettleRace: of several settlements at once, and a purge, one counts; the sum at the end is that of what was answered.
func TestSettleRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 4)
	operator := db.Pool("pglimit_operator")
	const quota = 1_000_000
	var used, returned, settled, lapsed atomic.Int64
	var holds [2]atomic.Int64
	mustExec(t, operator, fmt.Sprintf(`select pglimit.set_limit('l', %d, '300 days', on_lapse => 'return');
		select pglimit.set_limit('bucket', %[1]d, '36525 days', 'token_bucket', on_lapse => 'return')`, quota))
	stop := time.Now().Add(hammering)
	var wg sync.WaitGroup
	wg.Go(func() {
		for time.Now().Before(stop) {
			var n int64
			if err := operator.QueryRow(t.Context(), "select holds_returned from pglimit.purge()").Scan(&n); err != nil {
				t.Error("purge: ", err)
				return
			}
			returned.Add(n)
		}
	})
	var ids [2]atomic.Int64 // the last hold of each limit, which all try to settle
	together(t, conns, func(i int, conn *pgx.Conn) {
		for time.Now().Before(stop) {
			k := rand.IntN(2)
			limit := []string{"l", "bucket"}[k]
			if rand.IntN(3) == 0 {
				var id int64
				if err := conn.QueryRow(t.Context(), "select hold_id from pglimit.hold($1, 's', 7, $2)", limit,
					[]time.Duration{time.Millisecond, 10 * time.Millisecond, time.Hour}[rand.IntN(3)]).Scan(&id); err != nil {
					t.Error("hold: ", err)
					return
				}
				holds[k].Add(1)
				ids[k].Store(id)
				continue
			}
			id := ids[k].Load()
			if id == 0 {
				continue
			}
			actual := rand.Int64N(12)
			var reason string
			if err := conn.QueryRow(t.Context(), "select reason from pglimit.settle($1, $2)", id, actual).Scan(&reason); err != nil {
				t.Error("settle: ", err)
				return
			}
			switch reason {
			case "settled":
				settled.Add(1)
				used.Add(actual - 7)
			case "lapsed":
				lapsed.Add(1)
			case "again":
			default:
				t.Error("settle: ", reason)
			}
		}
	})
	wg.Wait()
	for range 3 {
		returned.Add(mustScan[int64](t, operator, "select holds_returned from pglimit.purge()"))
	}
	var left int64
	for _, limit := range []string{"l", "bucket"} {
		n, err := strconv.ParseInt(answer(t, operator, "remaining", "peek('"+limit+"', 's')"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	want := 2*quota - 7*(holds[0].Load()+holds[1].Load()-returned.Load()) - used.Load()
	if left != want {
		t.Errorf("%d remain, want %d", left, want)
	}
	for what, n := range map[string]int64{"settled": settled.Load(), "lapsed": lapsed.Load(), "returned": returned.Load()} {
		if n == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
	t.Logf("%d held, %d settled, %d too late, %d returned", holds[0].Load()+holds[1].Load(), settled.Load(), lapsed.Load(), returned.Load())
}

// TestHoldsAfterCrash: holds of durable limits survive, with their charge; others are gone with it, and no number comes again.
func TestHoldsAfterCrash(t *testing.T) {
	t.Parallel()
	server := privateServer(t, "synchronous_commit", "off")
	db := dbtest.NewOn(t, server.DSN("postgres"))
	mustExec(t, db.Conn("pglimit_operator"), `select pglimit.set_limit('bill', 10, '1 day', durable => true), pglimit.set_limit('l', 10, '1 day')`)
	app := db.Conn("pglimit_app")
	kept, settled, gone := holdOf(t, app, "'bill', 's', 4, '1 day'"), holdOf(t, app, "'bill', 's', 4, '1 day'"), holdOf(t, app, "'l', 's', 4, '1 day'")
	wantAnswer(t, app, settleColumns, "settle("+settled+", 4)", "t settled 2 0")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	app = connect(t, db.URL("pglimit_app"))
	wantAnswer(t, app, settleColumns, "settle("+kept+", 1)", "t settled 5 0")
	wantAnswer(t, app, settleColumns, "settle("+settled+", 1)", "t again 5 0")
	wantHit(t, app, "hit('l', 's')", "allowed", 9)
	wantAnswer(t, app, settleColumns, "settle("+gone+", 1)", "f unknown")
	for _, l := range []string{"bill", "l"} {
		if h := holdOf(t, app, "'"+l+"', 's', 1, '1 day'"); len(h) != 18 || h <= kept || h <= gone {
			t.Errorf("after %s and %s a hold is %s", kept, gone, h)
		}
	}
}

// TestListHolds: both tables in the order of their numbers, each hold in one state, page by page.
func TestListHolds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	mustExec(t, operator, `
		select pglimit.set_limit('tokens', 100, '1 hour', on_lapse => 'return');
		select pglimit.set_limit('bill', 100, '1 hour', durable => true);
		select pglimit.set_limit('off', 100, '1 hour', mode => 'off')`)
	hold := func(args string) int64 {
		t.Helper()
		return mustScan[int64](t, app, "select hold_id from pglimit.hold("+args+")")
	}
	lapse := func(ids ...int64) {
		t.Helper()
		for _, table := range []string{"holds", "durable_holds"} {
			if _, err := db.System().Exec(t.Context(), "update pglimit."+table+" set expires_at = clock_timestamp() where hold_id = any($1)", ids); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(args string) string {
		t.Helper()
		return mustScan[string](t, monitor, "select coalesce(string_agg(concat_ws(' ', tenant || limit_name, subject, charged, actual, state, case when durable then 'durable' end), ', ' order by hold_id), '') from pglimit.list_holds("+args+")")
	}
	if got := list(""); got != "" {
		t.Errorf("of nothing: %s", got)
	}
	hold("'off', 'a', 9, '1 hour'") // counted nowhere, so held nowhere
	returned := hold("'tokens', 'a', 1, '1 hour'")
	kept := hold("'bill', 'a', 2, '1 hour'")
	hold("'tokens', 'b', 3, '1 hour', tenant => 't'")
	settled := hold("'bill', 'b', 4, '1 hour'")
	hold("'tokens', 'a', 5, '1 hour'")
	if _, err := app.Exec(t.Context(), "select pglimit.settle($1, 0)", settled); err != nil {
		t.Fatal(err)
	}
	lapse(returned, kept, settled)
	wantList := func(args, want string) {
		t.Helper()
		if got := list(args); got != want {
			t.Errorf("list_holds(%s):\n%s\nwant\n%s", args, got, want)
		}
	}
	wantList("state_filter => 'lapsed'", "tokens a 1 lapsed, bill a 2 lapsed durable")
	mustExec(t, operator, "select pglimit.purge()")
	all := "tokens a 1 returned, bill a 2 lapsed durable, ttokens b 3 open, bill b 4 0 settled durable, tokens a 5 open"
	wantList("", all)
	wantList("'tokens'", "tokens a 1 returned, ttokens b 3 open, tokens a 5 open")
	wantList("'tokens', 'a', tenant_filter => ''", "tokens a 1 returned, tokens a 5 open")
	wantList("tenant_filter => 't'", "ttokens b 3 open")
	for state, want := range map[string]string{
		"open": "ttokens b 3 open, tokens a 5 open", "lapsed": "bill a 2 lapsed durable", "settled": "bill b 4 0 settled durable",
		"returned": "tokens a 1 returned",
	} {
		wantList("state_filter => '"+state+"'", want)
	}
	// whoever settles what came back changes nothing, and it stays so
	wantAnswer(t, app, settleColumns, fmt.Sprintf("settle(%d, 1)", returned), "f lapsed 95 0")
	wantList("'tokens', state_filter => 'returned'", "tokens a 1 returned")

	var pages []string
	for after := int64(0); ; {
		page := list(fmt.Sprintf("after => %d, max_rows => 2", after))
		if page == "" {
			break
		}
		pages = append(pages, page)
		after = mustScan[int64](t, monitor, fmt.Sprintf("select max(hold_id) from pglimit.list_holds(after => %d, max_rows => 2)", after))
	}
	if got := strings.Join(pages, ", "); got != all || len(pages) != 3 {
		t.Errorf("%d pages: %s", len(pages), got)
	}
	for _, args := range []string{"max_rows => 0", "max_rows => 10001", "max_rows => null", "state_filter => 'gone'", "state_filter => ''"} {
		_, err := monitor.Exec(t.Context(), "select pglimit.list_holds("+args+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" || server.Detail == "" {
			t.Errorf("list_holds(%s): %v", args, err)
		}
	}
}
