package tests

import (
	"errors"
	"flag"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// An oracle is a limit that keeps every hit, or what it needs in exact fractions, and is slow.
type oracle interface {
	// left is how many hits there is room for at an instant, in microseconds; allowed hits are recorded.
	left(now int64) int64
	record(now, cost int64)
}

// fixedOracle counts in windows that begin with the first hit.
type fixedOracle struct{ quota, per, end, used int64 }

func (o *fixedOracle) left(now int64) int64 {
	if now >= o.end {
		return o.quota
	}
	return max(o.quota-o.used, 0)
}

func (o *fixedOracle) record(now, cost int64) {
	if now >= o.end {
		o.end, o.used = now+o.per, 0
	}
	o.used += cost
}

// slidingOracle keeps the hits of every window since the first, and the instant of the last.
type slidingOracle struct {
	quota, per, start, last int64
	counts                  map[int64]int64
}

func (o *slidingOracle) void(now int64) bool { return o.counts == nil || now >= o.last+o.per }

func (o *slidingOracle) left(now int64) int64 {
	if o.void(now) {
		return o.quota
	}
	n := (now - o.start) / o.per
	elapsed := (now - o.start) % o.per
	weight := new(big.Rat).Mul(big.NewRat(o.counts[n-1], 1), big.NewRat(o.per-elapsed, o.per))
	left := new(big.Rat).Sub(big.NewRat(o.quota-o.counts[n], 1), weight)
	return max(floor(left), 0)
}

func (o *slidingOracle) record(now, cost int64) {
	if o.void(now) {
		o.start, o.counts = now, map[int64]int64{}
	}
	n := (now - o.start) / o.per
	if n >= 2 && o.counts[n-1] == 0 && o.counts[n] == 0 { // cannot be: then it is void
		panic("a gap")
	}
	o.counts[n] += cost
	o.last = now
}

// bucketOracle is a bucket that leaks quota in per, in exact fractions.
type bucketOracle struct {
	quota, burst, per, at int64
	level                 *big.Rat
}

func (o *bucketOracle) now(now int64) *big.Rat {
	if o.level == nil {
		return new(big.Rat)
	}
	leaked := new(big.Rat).Mul(big.NewRat(now-o.at, o.per), big.NewRat(o.quota, 1))
	level := new(big.Rat).Sub(o.level, leaked)
	if level.Sign() < 0 {
		return new(big.Rat)
	}
	return level
}

func (o *bucketOracle) left(now int64) int64 {
	return max(floor(new(big.Rat).Sub(big.NewRat(o.burst, 1), o.now(now))), 0)
}

func (o *bucketOracle) record(now, cost int64) {
	o.level, o.at = new(big.Rat).Add(o.now(now), big.NewRat(cost, 1)), now
}

// calendarOracle counts in months of a place.
type calendarOracle struct {
	quota, used int64
	month       string
	place       *time.Location
}

func (o *calendarOracle) of(now int64) string {
	return time.UnixMicro(now).In(o.place).Format("2006-01")
}

func (o *calendarOracle) left(now int64) int64 {
	if o.of(now) != o.month {
		return o.quota
	}
	return max(o.quota-o.used, 0)
}

func (o *calendarOracle) record(now, cost int64) {
	if o.of(now) != o.month {
		o.month, o.used = o.of(now), 0
	}
	o.used += cost
}

func floor(r *big.Rat) int64 {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() < 0 {
		q.Sub(q, big.NewInt(1))
	}
	return q.Int64()
}

// straightWays are the straight ways of hit, for a subject $1, a cost $2 and an instant $4.
var straightWays = map[string]string{
	"sliding_window": `pglimit._hit_sliding(e'\x1fl\x1f' || $1, $2, l.max_hits, l.per, l.straight_us, l.on_outage, l.limit_version, l.limit_version, $4)`,
	"token_bucket":   `pglimit._hit_bucket(e'\x1fl\x1f' || $1, $2, l.max_hits, l.straight_burst, l.per, l.straight_us, l.straight_fill, l.on_outage, l.limit_version, l.limit_version, $4)`,
}

// TestAlgorithms is C-05. It compares random hits at random instants with an oracle that is plain, slow and exact: what is allowed,
// what remains, and that retry_after is the very microsecond from which on the same hit is allowed.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == "0" {
		_ = seed.Value.Set("20261130")
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, durable := range []bool{false, true} {
		for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket", "calendar"} {
			t.Run(fmt.Sprintf("%s durable %v", algorithm, durable), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				operator, system := db.Conn("pglimit_operator"), db.Conn("pglimit_system")
				mustExec(t, system, "set role pglimit_system")
				refused, straight, subject := 0, 0, 0
				rapid.Check(t, func(rt *rapid.T) {
					subject++
					quota := rapid.OneOf(rapid.Int64Range(1, 12), rapid.Int64Range(1, 3_000_000_000)).Draw(rt, "quota")
					per := rapid.SampledFrom([]int64{1_000, 7_000_000, 86_400_000_000}).Draw(rt, "per")
					burst := quota
					var o oracle
					args := fmt.Sprintf("'l', %d, '%d us', algorithm => '%s', durable => %v", quota, per, algorithm, durable)
					switch algorithm {
					case "fixed_window":
						o = &fixedOracle{quota: quota, per: per}
					case "sliding_window":
						o = &slidingOracle{quota: quota, per: per}
					case "token_bucket":
						if rapid.Bool().Draw(rt, "with burst") {
							burst = rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 2*quota)).Draw(rt, "burst")
							args += fmt.Sprintf(", burst => %d", burst)
						}
						o = &bucketOracle{quota: quota, burst: burst, per: per}
					default:
						per = 30 * 86_400_000_000
						o = &calendarOracle{quota: quota, place: berlin}
						args = fmt.Sprintf("'l', %d, '1 month', algorithm => 'calendar', time_zone => 'Europe/Berlin', durable => %v", quota, durable)
					}
					if _, err := operator.Exec(t.Context(), "select pglimit.set_limit("+args+")"); err != nil {
						rt.Fatal(err)
					}
					now := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
					var last int64
					ask := func(at, cost int64, look bool) (allowed bool, reason string, remaining int64, retry *time.Duration) {
						// as hit does: by a straight way, else by the other
						special := `select d.allowed, d.reason, d.remaining, d.retry_after from pglimit._hit_special('l', $1, null, null, $2, null, null, '', look_only => $3, at => $4) d`
						sql := special
						if way := straightWays[algorithm]; way != "" && !durable && !look {
							sql = `select d.allowed, d.reason, d.remaining, d.retry_after from pglimit.limits l cross join lateral ` + way + ` d where l.limit_name = 'l' and not $3 and d.allowed is not null`
						}
						scan := func() error {
							return system.QueryRow(t.Context(), sql, fmt.Sprint("s", subject), cost, look, time.UnixMicro(at)).Scan(&allowed, &reason, &remaining, &retry)
						}
						err := scan()
						if errors.Is(err, pgx.ErrNoRows) {
							sql = special
							err = scan()
						} else if sql != special {
							straight++
						}
						if err != nil {
							rt.Fatal(err)
						}
						return allowed, reason, remaining, retry
					}
					for range rapid.IntRange(1, 30).Draw(rt, "hits") {
						switch rapid.IntRange(0, 5).Draw(rt, "step") {
						case 0:
							now += rapid.Int64Range(0, 3*per).Draw(rt, "long")
						case 1:
							now = max(now, last+per) // to the edge
						case 2:
							now += 1
						case 3:
							now += per / quota
						default:
							now += rapid.Int64Range(0, per/quota).Draw(rt, "short")
						}
						cost := rapid.OneOf(rapid.Int64Range(1, min(4, burst+1)), rapid.Int64Range(1, burst+1)).Draw(rt, "cost")
						left := o.left(now)
						allowed, reason, remaining, retry := ask(now, cost, false)
						want := "allowed"
						switch {
						case cost > burst:
							want = "never"
						case cost > left:
							want = "limit"
						default:
							o.record(now, cost)
							last = now
							left = o.left(now)
						}
						if reason != want || allowed != (want == "allowed") || remaining != left {
							rt.Fatalf("at %d cost %d: %s, %d remain; want %s, %d", now, cost, reason, remaining, want, left)
						}
						if want != "limit" {
							if retry != nil {
								rt.Fatalf("at %d: %s with retry after %v", now, reason, *retry)
							}
							continue
						}
						refused++
						if retry == nil || *retry <= 0 {
							rt.Fatalf("at %d: refused with retry after %v", now, retry)
						}
						if a, _, _, _ := ask(now+retry.Microseconds(), cost, true); !a || o.left(now+retry.Microseconds()) < cost {
							rt.Fatalf("at %d: refused again after %v, the oracle has %d left then", now, *retry, o.left(now+retry.Microseconds()))
						}
						if a, _, _, _ := ask(now+retry.Microseconds()-1, cost, true); a || o.left(now+retry.Microseconds()-1) >= cost {
							rt.Fatalf("at %d: allowed before %v, the oracle has %d left then", now, *retry, o.left(now+retry.Microseconds()-1))
						}
					}
				})
				if refused == 0 && !t.Failed() {
					t.Error("nothing was refused: nothing is shown")
				}
				if straightWays[algorithm] != "" && !durable && straight == 0 && !t.Failed() {
					t.Error("the straight way decided nothing")
				}
			})
		}
	}
}

// TestAlgorithmOfTheCall: whoever brings a limit brings its algorithm too; every one refuses and says when to come back.
func TestAlgorithmOfTheCall(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for _, args := range []string{
		"2, '1 hour', algorithm => 'fixed_window'", "2, '1 hour', algorithm => 'sliding_window'", "2, '1 hour', algorithm => 'token_bucket'",
		"1, '1 hour', algorithm => 'token_bucket', burst => 2", "2, '1 month', algorithm => 'calendar'", "2, '1 week', algorithm => 'calendar'",
	} {
		call := fmt.Sprintf("hit('l', '%s', %s)", strings.ReplaceAll(args, "'", ""), args)
		wantHit(t, app, call, "allowed", 1)
		wantHit(t, app, "peek"+call[3:], "allowed", 1)
		wantHit(t, app, call, "allowed", 0)
		r := wantHit(t, app, call, "limit", 0)
		if *r.RetryAfter > 31*24*time.Hour {
			t.Errorf("%s: retry after %v", call, *r.RetryAfter)
		}
		wantHit(t, app, call[:len(call)-1]+", cost => 3)", "never", 0)
	}
	// it beats the row's, also where the rest is the row's
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('row', 2, '1 hour', 'token_bucket', 9)")
	for i, call := range []string{"peek('row', 's', algorithm => 'fixed_window')", "hit('row', 's', algorithm => 'fixed_window')"} {
		if r := wantHit(t, app, call, "allowed", 2-int64(i)); r.Quota != 2 {
			t.Errorf("%s: a quota of %d", call, r.Quota)
		}
	}
	wantHit(t, app, "peek('row', 's')", "allowed", 8)
	for _, bad := range []string{
		"1, '1 hour', algorithm => 'leaky'", "1, '1 hour', burst => 2", "1, '1 hour', algorithm => 'fixed_window', burst => 2",
		"1, '1 hour', algorithm => 'token_bucket', burst => 0", "1, '2 months', algorithm => 'calendar'", "1, '30 days', algorithm => 'calendar'",
		"1, '1 month', algorithm => 'token_bucket'", "1, '1 month'", "1, '1 month', algorithm => 'sliding_window'",
	} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit('bad', 's', "+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
	operator := db.Conn("pglimit_operator")
	for _, bad := range []string{
		"1, '1 hour', time_zone => 'UTC'", "1, '1 month', 'calendar', time_zone => 'Nowhere/Land'", "1, '1 hour', 'calendar', burst => 1", "1, '2 hours', 'calendar'", "1, '1 hour', durable => null",
	} {
		if _, err := operator.Exec(t.Context(), "select pglimit.set_limit('bad', "+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCalendarWindows is C-42: a window of the calendar ends when the place's does, whatever the session's time zone, also
// over a change of the clocks.
func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, system := db.Conn("pglimit_operator"), db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system")
	for i, step := range []struct{ per, zone, at, reset string }{
		{"1 day", "Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-30T00:00:00+02:00"}, // 23 hours
		{"1 day", "Europe/Berlin", "2026-10-25T00:30:00+02:00", "2026-10-26T00:00:00+01:00"}, // 25 hours
		{"24 hours", "America/New_York", "2026-11-30T23:59:59-05:00", "2026-12-01T00:00:00-05:00"},
		{"1 week", "Europe/Berlin", "2026-10-25T23:59:59+01:00", "2026-10-26T00:00:00+01:00"}, // from Monday
		{"1 month", "Europe/Berlin", "2026-10-31T23:30:00Z", "2026-12-01T00:00:00+01:00"},
		{"1 month", "", "2028-02-29T12:00:00Z", "2028-03-01T00:00:00Z"},
		{"1 year", "Asia/Kathmandu", "2026-12-31T18:14:59Z", "2026-12-31T18:15:00Z"},
		{"1 hour", "Asia/Kathmandu", "2026-12-31T18:14:59Z", "2026-12-31T18:15:00Z"},
		// an hour that comes twice is two hours, of which each is one
		{"1 hour", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T03:00:00+02:00"},
		{"1 hour", "Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"},
		{"1 hour", "Europe/Berlin", "2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"},
		// a window that had ended before it began let everything by
		{"1 hour", "Australia/Lord_Howe", "2026-10-04T02:40:00+11:00", "2026-10-04T03:00:00+11:00"},
		// midnight comes twice: the first hour of it is of the day before
		{"1 day", "America/Havana", "2026-11-01T00:30:00-04:00", "2026-11-01T00:00:00-05:00"},
		{"1 day", "America/Havana", "2026-11-01T00:30:00-05:00", "2026-11-02T00:00:00-05:00"},
		{"1 month", "America/Havana", "2026-11-01T00:30:00-04:00", "2026-11-01T00:00:00-05:00"},
		{"1 hour", "Europe/Berlin", "2026-10-25T02:10:00+02:00", "2026-10-25T02:00:00+01:00"}, // that hour comes twice
		{"1 hour", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-25T03:00:00+01:00"},
		{"1 hour", "Europe/Berlin", "2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"},
	} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l%d', 1, '%s', 'calendar', time_zone => nullif('%s', ''))", i, step.per, step.zone))
		want, err := time.Parse(time.RFC3339, step.reset)
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"UTC", "Pacific/Kiritimati", "America/New_York"} {
			mustExec(t, system, "set timezone = '"+session+"'")
			if got := mustScan[time.Time](t, system, fmt.Sprintf("select reset_at from pglimit._hit_special('l%d', '%s', null, null, 1, null, null, '', at => '%s')", i, session, step.at)); !got.Equal(want) {
				t.Errorf("%s in %s from %s: until %v, want %v", step.per, step.zone, step.at, got, want)
			}
		}
	}
}

// TestAlgorithmIsChanged: what was used stays used, and a session that still counts in the old way loses nothing.
func TestAlgorithmIsChanged(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	algorithms := []string{"fixed_window", "sliding_window", "token_bucket"}
	for _, from := range algorithms {
		for _, to := range algorithms {
			subject := from + " to " + to
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l', 10, '1 hour', '%s')", from))
			wantHit(t, app, fmt.Sprintf("hit('l', '%s', cost => 7)", subject), "allowed", 3)
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l', 10, '1 hour', '%s')", to))
			wantHit(t, app, fmt.Sprintf("peek('l', '%s')", subject), "allowed", 3)
			wantHit(t, app, fmt.Sprintf("hit('l', '%s', cost => 2)", subject), "allowed", 1)
			wantHit(t, app, fmt.Sprintf("hit('l', '%s', cost => 2)", subject), "limit", 1)
			wantHit(t, app, fmt.Sprintf("hit('l', '%s', 10, '1 hour')", subject), "allowed", 0) // in fixed windows
			if got := mustScan[bool](t, app, fmt.Sprintf("select pglimit.forget('l', '%s')", subject)); !got {
				t.Errorf("%s: nothing to forget", subject)
			}
			wantHit(t, app, fmt.Sprintf("hit('l', '%s')", subject), "allowed", 9)
		}
	}
}

// TestDurableCommits: a transaction that counts at a durable limit commits to disk whatever the session says, and no less
// safely than it says.
func TestDurableCommits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('bill', 100, '1 day', durable => true), pglimit.set_limit('l', 100, '1 day')")
	id := mustScan[int64](t, app, "select hold_id from pglimit.hold('bill', 'held', 5, '1 hour')")
	for session, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_apply": "remote_apply"} {
		for _, call := range []string{"hit('bill', 'new " + session + "')", "hit('bill', 'new " + session + "')", fmt.Sprintf("settle(%d, 3)", id), "refund('bill', 'held', 1)"} {
			mustExec(t, app, "begin; set local synchronous_commit = "+session)
			mustExec(t, app, "select from pglimit."+call)
			got := mustScan[string](t, app, "select current_setting('synchronous_commit')")
			mustExec(t, app, map[bool]string{true: "rollback", false: "commit"}[call[0] == 's']) // to be settled again
			if got != want {
				t.Errorf("%s with %s: %s", call, session, got)
			}
		}
		mustExec(t, app, "begin; set local synchronous_commit = "+session)
		mustExec(t, app, "select from pglimit.hit('l', 's')")
		if got := mustScan[string](t, app, "select current_setting('synchronous_commit')"); got != session {
			t.Errorf("a limit that is not durable makes %s of %s", got, session)
		}
		mustExec(t, app, "commit")
	}
}

// TestDurable: what was answered of a durable limit survives a crash of the server, what was not durable is gone.
func TestDurable(t *testing.T) {
	t.Parallel()
	server := privateServer(t, "synchronous_commit", "off")
	db := dbtest.NewOn(t, server.DSN("postgres"))
	mustExec(t, db.Conn("pglimit_operator"), `
		select pglimit.set_limit('bill', 10, '1 day', durable => true), pglimit.set_limit('bucket', 10, '1 day', 'token_bucket', durable => true);
		select pglimit.set_limit('gone', 10, '1 day')`)
	app := db.Conn("pglimit_app")
	for _, limit := range []string{"bill", "bucket", "gone"} {
		wantHit(t, app, "hit('"+limit+"', 's', cost => 4)", "allowed", 6)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	app = connect(t, db.URL("pglimit_app"))
	for limit, left := range map[string]int64{"bill": 5, "bucket": 5, "gone": 9} {
		wantHit(t, app, "hit('"+limit+"', 's')", "allowed", left)
	}
	wantHit(t, app, "hit('bill', 's', 10, '1 day')", "allowed", 4) // counted where its row says
}

// TestStraightWaysRace: everybody hits one subject at once, through its first hit and several turns, while others change
// what it is counted by: just as much as there is is allowed.
func TestStraightWaysRace(t *testing.T) {
	t.Parallel()
	for args, set := range map[string]string{
		"'l', 's'": "'l', 300, '30000 days', 'sliding_window'", "'l', 's', tenant => ''": "'l', 300, '30000 days', 'token_bucket'", "'l', 's', cost => 1": "'l', 300, '1 year', 'calendar'",
		"'l', 's', 300, '29 days', algorithm => 'sliding_window'": "'l', 1, '1 s'", "'l', 's', 3, '7 hours', algorithm => 'token_bucket', burst => 300": "'l', 1, '1 s'",
	} {
		t.Run(set+" "+args, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			operator := db.Conn("pglimit_operator")
			set := "select pglimit.set_limit(" + set + ")"
			mustExec(t, operator, set)
			var allowed, refused atomic.Int64
			together(t, append(appConns(t, db, 8), operator), func(_ int, conn *pgx.Conn) {
				for range 60 {
					if conn == operator {
						mustExec(t, conn, set)
						mustExec(t, conn, "select pglimit.set_limit_override('l', 's', 300), pglimit.drop_limit_override('l', 's')")
						continue
					}
					var ok bool
					var remaining int64
					if err := conn.QueryRow(t.Context(), "select allowed, remaining from pglimit.hit("+args+")").Scan(&ok, &remaining); err != nil {
						t.Error(err)
					} else if ok {
						allowed.Add(1)
					} else if refused.Add(1); remaining != 0 {
						t.Errorf("refused with %d left", remaining)
					}
				}
			})
			if allowed.Load() != 300 || refused.Load() != 180 {
				t.Errorf("%d allowed, %d refused, want 300 and 180", allowed.Load(), refused.Load())
			}
		})
	}
}

// TestStraightWaysAfterAWait: who waited for a row decides by what its owner left.
func TestStraightWaysAfterAWait(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket", "calendar"} {
		for end, reason := range map[string]string{"commit": "limit", "rollback": "allowed"} {
			t.Run(algorithm+" "+end, func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, other := db.Conn("pglimit_app"), db.Conn("pglimit_app")
				per := map[bool]string{true: "1 year", false: "30000 days"}[algorithm == "calendar"]
				mustExec(t, db.Conn("pglimit_operator"), fmt.Sprintf("select pglimit.set_limit('l', 3, '%s', '%s')", per, algorithm))
				wantHit(t, app, "hit('l', 's')", "allowed", 2)
				mustExec(t, other, "begin")
				wantHit(t, other, "hit('l', 's', cost => 2)", "allowed", 0)
				done := make(chan string, 1)
				go func() {
					var reason string
					if err := app.QueryRow(t.Context(), "select reason from pglimit.hit('l', 's')").Scan(&reason); err != nil {
						t.Error(err)
					}
					done <- reason
				}()
				waitForLock(t, db, app.PgConn().PID())
				mustExec(t, other, end)
				if got := <-done; got != reason {
					t.Errorf("%s, want %s", got, reason)
				}
			})
		}
	}
}

// TestStraightWayOfTheCall: a limit that the call brings is decided straight on what it has counted itself, and on nothing else.
func TestStraightWayOfTheCall(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, system := db.Conn("pglimit_app"), db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system")
	straight := func(args string) string {
		return mustScan[string](t, system, `select coalesce(h.reason || ' ' || h.remaining || coalesce(' ' || h.limit_version, ''), 'not') from pglimit._hit_given(e'\x1fl\x1fs', `+args+`) h`)
	}
	for _, step := range []struct{ does, straight, want string }{
		{"hit('l', 's', 5, '1 hour')", "1, 5, '1 hour', 'sliding_window', null", "not"},
		{"hit('l', 's', 5, '1 hour', algorithm => 'sliding_window')", "1, 5, '1 hour', 'sliding_window', null", "allowed 2"},
		{"", "1, 6, '1 hour', 'sliding_window', null", "not"},
		{"", "1, 5, '2 hours', 'sliding_window', null", "not"},
		{"", "1, 5, '1 hour', 'token_bucket', null", "not"},
		{"", "1, 5, '1 hour', 'token_bucket', 5", "not"},
		{"", "3, 5, '1 hour', 'sliding_window', null", "limit 2"},
		{"", "2, 5, '1 hour', 'sliding_window', null", "allowed 0"},
		{"hit('l', 's', 5, '1 hour', algorithm => 'token_bucket', burst => 9)", "1, 5, '1 hour', 'token_bucket', 9", "allowed 2"},
		{"", "1, 5, '1 hour', 'token_bucket', null", "not"},
		{"", "1, 5, '1 month', 'token_bucket', 9", "not"},
		{"", "1, 5, '-1 hour', 'token_bucket', 9", "not"},
		{"", "1, -5, '1 hour', 'token_bucket', 9", "not"},
		{"", "1, 9223372036854775807, '1 hour', 'token_bucket', 9", "not"},
		{"", "9223372036854775807, 5, '1 hour', 'token_bucket', 9", "not"},
		{"charge('l', 's', 20, max_hits => 5, per => '1 hour', algorithm => 'token_bucket', burst => 9)", "1, 5, '1 hour', 'token_bucket', 9", "not"}, // a debt
	} {
		if step.does != "" {
			mustExec(t, app, "select pglimit."+step.does)
		}
		if got := straight(step.straight); got != step.want {
			t.Errorf("after %s, %s: %s, want %s", step.does, step.straight, got, step.want)
		}
	}
}
