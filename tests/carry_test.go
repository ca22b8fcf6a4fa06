package tests

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// setCarry sets limit l.
func setCarry(t *testing.T, operator rowQuerier, maxHits int, algorithm, carry, more string) {
	t.Helper()
	mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l', %d, '%s', '%s', carry => '%s'%s)", maxHits, perOf(algorithm), algorithm, carry, more))
}

// TestCarry is C-15: a changed limit decides at once, and carry says what becomes of what was used: as often as it is
// changed, whether a subject came meanwhile or not, and by every way of asking.
func TestCarry(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable %v", algorithm, durable), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
				set := func(maxHits int, carry string) {
					t.Helper()
					setCarry(t, operator, maxHits, algorithm, carry, fmt.Sprintf(", durable => %v", durable))
				}
				set(10, "keep")
				for _, subject := range []string{"seen", "idle", "many", "admit", "part", "debt", "back"} {
					wantHit(t, app, "hit('l', '"+subject+"', cost => 7)", "allowed", 3)
				}
				set(20, "proportional")
				for range 2 { // a look changes nothing
					wantHit(t, app, "peek('l', 'seen')", "allowed", 6)
				}
				wantHit(t, app, "hit('l', 'seen')", "allowed", 5)
				wantHit(t, app, "hit('l', 'seen')", "allowed", 4) // and is scaled once
				wantHit(t, app, "hit('l', 'new')", "allowed", 19)
				wantHit(t, app, "hit('l', 'seen', cost => 5)", "limit", 4)
				if got := mustScan[int64](t, app, "select remaining from pglimit.hit_many(array['l'], array['many'])"); got != 5 {
					t.Errorf("hit_many: %d remain", got)
				}
				if got := mustScan[int64](t, app, `select remaining from pglimit.admit('[{"limit": "l", "subject": "admit", "cost": 6}]')`); got != 0 {
					t.Errorf("admit: %d remain", got)
				}
				wantAnswer(t, app, "charged, remaining", "hit_up_to('l', 'part', 9, 1)", "6 0")
				wantAnswer(t, app, "remaining, debt", "charge('l', 'debt', 8)", "0 2")
				if got := mustScan[int64](t, app, "select pglimit.refund('l', 'back', 4)"); got != 10 {
					t.Errorf("refund: %d remain", got)
				}
				set(7, "proportional") // 16, and 14, are 5.6 and 4.9 of 7
				wantHit(t, app, "peek('l', 'seen')", "allowed", 1)
				wantHit(t, app, "hit('l', 'idle')", "allowed", 1)
				set(70, "proportional")
				set(35, "proportional")
				set(40, "keep")
				wantHit(t, app, "peek('l', 'seen')", "allowed", 10)
				wantHit(t, app, "hit('l', 'idle')", "allowed", 9)
				set(40, "reset")
				set(80, "proportional")
				for _, subject := range []string{"seen", "idle", "new"} {
					wantHit(t, app, "peek('l', '"+subject+"')", "allowed", 80)
					wantHit(t, app, "hit('l', '"+subject+"')", "allowed", 79)
					wantHit(t, app, "hit('l', '"+subject+"')", "allowed", 78)
				}
				// to nothing and back: 2 are used
				set(0, "proportional")
				wantHit(t, app, "hit('l', 'seen')", "never", 0)
				set(10, "proportional")
				wantHit(t, app, "hit('l', 'seen')", "allowed", 7)
				// what is not carried stays as it is
				given := fmt.Sprintf("('l', 'many', 100, '%s', algorithm => '%s')", perOf(algorithm), algorithm)
				wantHit(t, app, "hit"+given, "allowed", mustHit(t, app, "peek"+given).Remaining-1)
			})
		}
	}
}

// TestCarryToAnotherAlgorithm: the change may be of the algorithm too.
func TestCarryToAnotherAlgorithm(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, from := range eachAlgorithm {
		for _, to := range eachAlgorithm {
			subject := from + " " + to
			setCarry(t, operator, 7, from, "keep", "")
			wantHit(t, app, "hit('l', '"+subject+"', cost => 3)", "allowed", 4)
			wantHit(t, app, "hit('l', '"+subject+" reset', cost => 3)", "allowed", 4)
			setCarry(t, operator, 14, to, "proportional", "")
			wantHit(t, app, "peek('l', '"+subject+"')", "allowed", 8)
			wantHit(t, app, "hit('l', '"+subject+"', cost => 8)", "allowed", 0)
			setCarry(t, operator, 7, from, "reset", "")
			wantHit(t, app, "hit('l', '"+subject+" reset')", "allowed", 6)
		}
	}
}

// carryOracle is a counter that knows each change of its limit from the beginning. Of a bucket the level is a whole
// number of microseconds times hits, of the rate it was counted at.
type carryOracle struct {
	algorithm                 string
	quota, per, burst, since  int64 // the limit, and when it was set
	begun, at, end            int64 // the counter; end is when it is nothing
	used, previous, windowPer int64
	rate                      int64
	level                     *big.Int
	carries                   []carryChange
}

type carryChange struct {
	at int64
	modelCarry
}

func (o *carryOracle) capacity() int64 {
	switch {
	case o.quota == 0:
		return 0
	case o.algorithm == "token_bucket" && o.burst > 0:
		return o.burst
	}
	return o.quota
}

func ceilDiv(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func mul(a *big.Int, b int64) *big.Int { return new(big.Int).Mul(a, big.NewInt(b)) }

// view is the counter as a call sees it at an instant: by the rule of now.
func (o *carryOracle) view(now int64) carryOracle {
	v := *o
	v.carries = nil
	if now < o.end {
		for _, c := range o.carries {
			if c.at > o.begun && c.reset {
				v.end = 0
			}
		}
	}
	if now >= v.end {
		v.begun, v.used, v.previous, v.level, v.end = now, 0, 0, new(big.Int), 0
		v.rate, v.windowPer, v.at = max(o.quota, 1), o.per, now
		return v
	}
	var scales []carryChange
	for _, c := range o.carries {
		if c.at > o.begun {
			scales = append(scales, c)
			v.begun = now
		}
	}
	if o.algorithm == "token_bucket" {
		rate := max(o.quota, 1)
		if rate == o.rate && o.per == o.windowPer && scales == nil {
			v.level = positive(new(big.Int).Sub(o.level, mul(big.NewInt(now-o.at), rate)))
		} else {
			// the old rate up to the change, the new one since
			since := max(min(o.since, now), o.at)
			v.level = positive(new(big.Int).Sub(o.level, mul(big.NewInt(since-o.at), o.rate)))
			v.level = ceilDiv(mul(v.level, o.per), big.NewInt(o.windowPer))
			for _, c := range scales {
				v.level = mul(ceilDiv(mul(v.level, c.to), mul(big.NewInt(c.from), o.per)), o.per)
			}
			v.level = positive(v.level.Sub(v.level, mul(big.NewInt(now-since), rate)))
		}
		v.rate, v.windowPer, v.at = rate, o.per, now
		return v
	}
	for _, c := range scales {
		v.used = (v.used*c.to + c.from - 1) / c.from
		v.previous = (v.previous*c.to + c.from - 1) / c.from
	}
	if o.algorithm == "sliding_window" && now-o.at >= o.per { // never twice, for then it has ended
		v.previous, v.used, v.at = v.used, 0, v.at+o.per
	}
	return v
}

func positive(n *big.Int) *big.Int {
	if n.Sign() < 0 {
		return new(big.Int)
	}
	return n
}

// total is what a view counts.
func (o *carryOracle) total(now int64) int64 {
	switch o.algorithm {
	case "token_bucket":
		return ceilDiv(o.level, big.NewInt(o.per)).Int64()
	case "sliding_window":
		weighed := mul(big.NewInt(o.previous), o.per-(now-o.at))
		return o.used + ceilDiv(weighed, big.NewInt(o.per)).Int64()
	}
	return o.used
}

func (o *carryOracle) left(now int64) int64 {
	v := o.view(now)
	return max(o.capacity()-v.total(now), 0)
}

func (o *carryOracle) record(now, cost int64) {
	*o = o.view(now)
	o.used += cost
	switch o.algorithm {
	case "token_bucket":
		o.level.Add(o.level, mul(big.NewInt(cost), o.per))
		o.end = now + ceilDiv(o.level, big.NewInt(o.rate)).Int64()
	case "sliding_window":
		o.end = now + o.per
	default:
		if o.end == 0 {
			o.end = now + o.per
		}
	}
}

// TestCarryAtInstants compares random hits and changes of a limit at random instants with an oracle: what is allowed, what
// remains, and that retry_after is the very microsecond from which on the same hit is allowed. With carry keep it is
// what a bucket lacks, in hits, that is kept, whatever becomes of its rate, capacity and length.
func TestCarryAtInstants(t *testing.T) {
	t.Parallel()
	sameSequences()
	for _, algorithm := range eachAlgorithm[:3] {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			operator, system := db.Conn("pglimit_operator"), db.Conn("pglimit_system")
			mustExec(t, system, "set role pglimit_system")
			subject, outcomes := 0, map[string]int{}
			rapid.Check(t, func(rt *rapid.T) {
				subject++
				limit := fmt.Sprint("l", subject)
				now := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
				quotas := rapid.SampledFrom([]int64{3, 7, 10, 1, 20, 0, 12})
				pers := rapid.SampledFrom([]int64{7_000_000, 1_000_003, 86_400_000_000})
				o := &carryOracle{algorithm: algorithm, per: pers.Draw(rt, "per"), level: new(big.Int)}
				change := func(carry string) {
					old := o.capacity()
					o.quota, o.burst, o.since = quotas.Draw(rt, "quota"), 0, now
					burst := "null"
					switch algorithm {
					case "token_bucket":
						o.per = pers.Draw(rt, "per")
						if rapid.Bool().Draw(rt, "with burst") {
							o.burst = rapid.Int64Range(1, 20).Draw(rt, "burst")
							burst = fmt.Sprint(o.burst)
						}
					case "fixed_window":
						o.per = pers.Draw(rt, "per")
					}
					if _, err := operator.Exec(t.Context(), fmt.Sprintf("select pglimit.set_limit('%s', %d, '%d us', '%s', burst => %s, carry => '%s')", limit, o.quota, o.per, algorithm, burst, carry)); err != nil {
						rt.Fatal(err)
					}
					// when it was, as no operator can say
					for _, sql := range []string{
						"update pglimit.limits set updated_at = $1, carries_until = case when carries_until is not null then 'infinity'::timestamptz end where limit_name = $2",
						"update pglimit.limit_carries set changed_at = least(changed_at, $1) where limit_name = $2",
					} {
						if _, err := system.Exec(t.Context(), sql, time.UnixMicro(now), limit); err != nil {
							rt.Fatal(err)
						}
					}
					switch {
					case carry == "reset":
						o.carries = append(o.carries, carryChange{now, modelCarry{reset: true}})
					case carry == "proportional" && old > 0 && o.capacity() > 0 && old != o.capacity():
						o.carries = append(o.carries, carryChange{now, modelCarry{from: old, to: o.capacity()}})
					}
				}
				change("keep")
				ask := func(at, cost int64, look bool) (reason string, remaining int64, retry *time.Duration) {
					err := system.QueryRow(t.Context(), `select reason, remaining, retry_after from pglimit._hit_special($1, 's', null, null, $2, null, null, '', look_only => $3, at => $4)`,
						limit, cost, look, time.UnixMicro(at)).Scan(&reason, &remaining, &retry)
					if err != nil {
						rt.Fatal(err)
					}
					return reason, remaining, retry
				}
				for range rapid.IntRange(1, 30).Draw(rt, "steps") {
					now += 1 + rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, o.per/3), rapid.Just(o.per/7)).Draw(rt, "wait")
					if rapid.IntRange(0, 3).Draw(rt, "change") == 0 {
						carry := rapid.SampledFrom([]string{"keep", "proportional", "proportional", "keep", "reset"}).Draw(rt, "carry")
						change(carry)
						now += rapid.Int64Range(1, 3).Draw(rt, "then")
						outcomes[carry]++
						continue
					}
					cost := rapid.Int64Range(1, 4).Draw(rt, "cost")
					left := o.left(now)
					reason, remaining, retry := ask(now, cost, false)
					want := "allowed"
					switch {
					case cost > o.capacity():
						want = "never"
					case cost > left:
						want = "limit"
					default:
						o.record(now, cost)
						left = o.left(now)
					}
					if reason != want || remaining != left {
						rt.Fatalf("at %d cost %d: %s, %d remain; want %s, %d: %+v", now, cost, reason, remaining, want, left, o)
					}
					if outcomes[want]++; want != "limit" {
						continue
					}
					if retry == nil || *retry <= 0 {
						rt.Fatalf("at %d: refused with retry after %v", now, retry)
					}
					then := now + retry.Microseconds()
					if r, _, _ := ask(then, cost, true); r != "allowed" || o.left(then) < cost {
						rt.Fatalf("at %d: %s after %v, the oracle has %d left then: %+v", now, r, *retry, o.left(then), o)
					}
					if r, _, _ := ask(then-1, cost, true); r == "allowed" || o.left(then-1) >= cost {
						rt.Fatalf("at %d: %s before %v, the oracle has %d left then: %+v", now, r, *retry, o.left(then-1), o)
					}
				}
			})
			for _, want := range []string{"allowed", "limit", "never", "keep", "proportional", "reset"} {
				if outcomes[want] == 0 && !t.Failed() {
					t.Errorf("never %s: %v", want, outcomes)
				}
			}
			t.Log(outcomes)
		})
	}
}

// TestCarryAndHolds: a hold of before a change gives nothing back from a counter that was scaled or begun anew; with carry
// keep it does. What is missing is charged in any case.
func TestCarryAndHolds(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			hold := func(subject string) int64 {
				t.Helper()
				return mustScan[int64](t, app, "select hold_id from pglimit.hold('l', '"+subject+"', 5, '1 hour')")
			}
			settle := func(hold int64, actual int, want string) {
				t.Helper()
				wantAnswer(t, app, "reason, remaining, debt", fmt.Sprintf("settle(%d, %d)", hold, actual), want)
			}
			setCarry(t, operator, 10, algorithm, "keep", "")
			kept, less, more, seen, idle := hold("kept"), hold("less"), hold("more"), hold("seen"), hold("idle")
			setCarry(t, operator, 10, algorithm, "keep", ", mode => 'enforce'")
			settle(kept, 2, "settled 8 0")
			setCarry(t, operator, 20, algorithm, "proportional", "")
			wantHit(t, app, "hit('l', 'seen')", "allowed", 9)
			settle(less, 2, "settled 10 0")
			settle(more, 7, "settled 8 0")
			settle(seen, 2, "settled 9 0")
			wantHit(t, app, "peek('l', 'less')", "allowed", 10)
			setCarry(t, operator, 20, algorithm, "reset", "")
			wantHit(t, app, "hit('l', 'seen')", "allowed", 19)
			settle(idle, 1, "settled 20 0")
			after := hold("less")
			settle(after, 1, "settled 19 0")
		})
	}
}

// TestCarryAndOverrides: whoever had an override at the change keeps the count, whatever becomes of the override before
// the counter is looked at again; who had none is carried before it begins.
func TestCarryAndOverrides(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s durable %v", algorithm, durable), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
				more := fmt.Sprintf(", durable => %v", durable)
				setCarry(t, operator, 10, algorithm, "keep", more)
				override := func(subject, more string) {
					t.Helper()
					mustExec(t, operator, "select pglimit.set_limit_override('l', '"+subject+"', "+more+")")
				}
				subjects := []string{"has", "ends", "dropped", "later", "changed", "off"}
				for _, subject := range subjects {
					wantHit(t, app, "hit('l', '"+subject+"', cost => 4)", "allowed", 6)
					if subject != "later" {
						override(subject, "30")
					}
				}
				setCarry(t, operator, 20, algorithm, "proportional", more)
				mustExec(t, db.System(), "update pglimit.limit_overrides set valid_until = clock_timestamp() where subject = 'ends'")
				mustExec(t, operator, "select pglimit.drop_limit_override('l', 'dropped')")
				override("later", "30")
				override("changed", "50")
				for subject, left := range map[string]int64{"has": 26, "ends": 16, "dropped": 16, "later": 22, "changed": 46} {
					wantHit(t, app, "peek('l', '"+subject+"')", "allowed", left)
					wantHit(t, app, "hit('l', '"+subject+"')", "allowed", left-1)
					wantHit(t, app, "hit('l', '"+subject+"')", "allowed", left-2)
				}
				// whatever the mode: what was there at the change counts
				setCarry(t, operator, 40, algorithm, "proportional", more+", mode => 'off'")
				mustExec(t, operator, "select pglimit.drop_limit_override('l', 'off')")
				setCarry(t, operator, 40, algorithm, "keep", more)
				wantHit(t, app, "hit('l', 'off')", "allowed", 35)
				// nothing is nothing
				setCarry(t, operator, 20, algorithm, "reset", more)
				wantHit(t, app, "hit('l', 'has')", "allowed", 29)
				wantHit(t, app, "hit('l', 'changed')", "allowed", 49)
			})
		}
	}
}

// TestCarryAndOwnLimits: a call that brings its limit does not go by the row. It carries nothing, and what it begins after
// the change is not of before.
func TestCarryAndOwnLimits(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			given := func(subject string) string {
				return fmt.Sprintf("hit('l', '%s', 10, '%s', algorithm => '%s')", subject, perOf(algorithm), algorithm)
			}
			setCarry(t, operator, 10, algorithm, "keep", "")
			for _, subject := range []string{"both", "seen"} {
				wantHit(t, app, "hit('l', '"+subject+"', cost => 3)", "allowed", 7)
			}
			setCarry(t, operator, 20, algorithm, "proportional", "")
			wantHit(t, app, given("both"), "allowed", 6)
			wantHit(t, app, "hit('l', 'both')", "allowed", 11)
			wantHit(t, app, "hit('l', 'seen')", "allowed", 13)
			wantHit(t, app, given("seen"), "allowed", 2)
			wantHit(t, app, "hit('l', 'seen')", "allowed", 11)
			wantHit(t, app, given("new"), "allowed", 9)
			wantHit(t, app, "hit('l', 'new')", "allowed", 18)
			setCarry(t, operator, 20, algorithm, "reset", "")
			wantHit(t, app, given("fresh"), "allowed", 9)
			wantHit(t, app, "hit('l', 'fresh')", "allowed", 18)
			wantHit(t, app, "hit('l', 'seen')", "allowed", 19)
		})
	}
}

// TestCarryInShadow: what shadow lets by is counted for the counter that goes on.
func TestCarryInShadow(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			setCarry(t, operator, 4, algorithm, "keep", ", mode => 'shadow'")
			wantHit(t, app, "hit('l', 's', cost => 3)", "allowed", 1)
			wantHit(t, app, "hit('l', 's', cost => 2)", "shadow", 1)
			setCarry(t, operator, 8, algorithm, "proportional", ", mode => 'shadow'")
			wantHit(t, app, "hit('l', 's', cost => 4)", "shadow", 2)
			wantCounted(t, operator, "s", 6, 2)
			wantHit(t, app, "hit('l', 's', cost => 2)", "allowed", 0)
			setCarry(t, operator, 8, algorithm, "reset", ", mode => 'shadow'")
			wantHit(t, app, "hit('l', 's')", "allowed", 7)
			wantHit(t, app, "hit('l', 's', cost => 8)", "shadow", 7)
			wantCounted(t, operator, "s", 1, 1)
		})
	}
}

// TestCarryOfTenants: a change is carried for all tenants that the row rules, and a tenant's first row goes on from what
// ruled it. A limit that is dropped and made again has forgotten nothing.
func TestCarryOfTenants(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	set := func(args string) { t.Helper(); mustExec(t, operator, "select pglimit.set_limit("+args+")") }
	set("'l', 10, '1 hour'")
	set("'l', 10, '1 hour', tenant => 'own'")
	for _, tenant := range []string{"", "t", "u", "v", "own"} {
		wantHit(t, app, "hit('l', 's', cost => 5, tenant => '"+tenant+"')", "allowed", 5)
	}
	set("'l', 20, '1 hour', carry => 'proportional'")
	set("'l', 40, '1 hour', carry => 'proportional', tenant => 't'")
	set("'l', 40, '1 hour', tenant => 'v'")
	for tenant, left := range map[string]int64{"": 9, "t": 19, "u": 9, "v": 29, "own": 4} {
		wantHit(t, app, "hit('l', 's', tenant => '"+tenant+"')", "allowed", left)
	}
	mustExec(t, operator, "select pglimit.drop_limit('l', 't')")
	wantHit(t, app, "hit('l', 's', tenant => 't')", "limit", 0) // 21 used

	set("'m', 10, '1 hour'")
	wantHit(t, app, "hit('m', 's', cost => 6)", "allowed", 4)
	set("'m', 5, '1 hour', carry => 'reset'")
	mustExec(t, operator, "select pglimit.drop_limit('m')")
	wantHit(t, app, "hit('m', 's', 9, '1 hour')", "allowed", 2)
	set("'m', 9, '1 hour'")
	wantHit(t, app, "hit('m', 's')", "allowed", 8)

	// nothing ruled it before: then only nothing can be carried
	wantHit(t, app, "hit('n', 's', 10, '1 hour')", "allowed", 9)
	set("'n', 10, '1 hour', carry => 'proportional'")
	wantHit(t, app, "hit('n', 's')", "allowed", 8)
	wantHit(t, app, "hit('o', 's', 10, '1 hour')", "allowed", 9)
	set("'o', 10, '1 hour', carry => 'reset'")
	wantHit(t, app, "hit('o', 's')", "allowed", 9)
}

// TestLimitMadeAgainRevivesNoReset is C-15: a tenant's row is dropped while counts are still to be reset, the
// row of all tenants decides meanwhile, and the tenant's row is made again. What was hit in between was
// reset then, although the new row keeps counts.
func TestLimitMadeAgainRevivesNoReset(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, `select pglimit.set_limit('l', 100, '1 hour');
		select pglimit.set_limit('l', 100, '1 hour', tenant => 't')`)
	wantHit(t, app, "hit('l', 's', cost => 50, tenant => 't')", "allowed", 50)
	mustExec(t, operator, `select pglimit.set_limit('l', 101, '1 hour', carry => 'reset', tenant => 't');
		select pglimit.drop_limit('l', 't')`)
	wantHit(t, app, "hit('l', 's', cost => 50, tenant => 't')", "allowed", 0)
	mustExec(t, operator, "select pglimit.set_limit('l', 100, '1 hour', tenant => 't')")
	wantHit(t, app, "hit('l', 's', tenant => 't')", "limit", 0)
}

// TestClosedLimitForgetsNothing is C-15: nothing is in proportion to 0, so what is used is kept. It was forgotten once a
// limit was closed, and given anew when it was opened again.
func TestClosedLimitForgetsNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		setCarry(t, operator, 10, algorithm, "keep", "")
		wantHit(t, app, "hit('l', '"+algorithm+"', cost => 8)", "allowed", 2)
		setCarry(t, operator, 0, algorithm, "proportional", "")
		wantHit(t, app, "hit('l', '"+algorithm+"')", "never", 0)
		setCarry(t, operator, 10, algorithm, "proportional", "")
		wantHit(t, app, "hit('l', '"+algorithm+"', cost => 2)", "allowed", 0)
	}
}

// TestCarryEnds: purge has hits go the straight way again once no counter of before is open, and that changes no answer.
// How long that may be is remembered of every row there was.
func TestCarryEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	state := func(want string) {
		t.Helper()
		got := mustScan[string](t, db.System(), `select format('%s, %s carries, %s', l.plain, (select count(*) from pglimit.limit_carries), l.carries_until - l.updated_at)
			from pglimit.limits l where l.limit_name = 'l'`)
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour')")
	wantHit(t, app, "hit('l', 's', cost => 5)", "allowed", 5)
	state("t, 0 carries, ")
	mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 min', carry => 'proportional')") // the same capacity
	state("t, 0 carries, ")
	mustExec(t, db.System(), "update pglimit.limits set open_until = updated_at + interval '1 hour'")
	mustExec(t, operator, "select pglimit.set_limit('l', 20, '1 min', carry => 'proportional')")
	mustExec(t, db.System(), "update pglimit.limits set carries_until = updated_at + interval '1 hour' where carries_until > clock_timestamp() + interval '59 min'")
	state("f, 1 carries, 01:00:00")
	mustExec(t, operator, "select pglimit.purge()")
	state("f, 1 carries, 01:00:00")
	wantHit(t, app, "hit('l', 's')", "allowed", 9)
	wantHit(t, app, "hit('l', 't')", "allowed", 19)
	mustExec(t, db.System(), `update pglimit.limits set carries_until = updated_at; update pglimit.limit_carries set carries_until = changed_at`)
	mustExec(t, operator, "select pglimit.purge()")
	state("t, 0 carries, ")
	for i := range int64(3) {
		wantHit(t, app, "hit('l', 's')", "allowed", 8-i)
		wantHit(t, app, "hit('l', 't')", "allowed", 18-i)
	}
	// of a limit that is dropped too
	mustExec(t, operator, "select pglimit.set_limit('l', 20, '1 min', carry => 'reset'); select pglimit.drop_limit('l')")
	mustExec(t, db.System(), "update pglimit.limit_carries set carries_until = changed_at")
	mustExec(t, operator, "select pglimit.purge()")
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.limit_carries"); n != 0 {
		t.Errorf("%d are left", n)
	}
	// a purge does not wait for somebody who changes the limit
	mustExec(t, operator, "select pglimit.set_limit('l', 20, '1 min'); select pglimit.set_limit('l', 30, '1 min', carry => 'reset')")
	mustExec(t, db.System(), `update pglimit.limits set carries_until = updated_at; update pglimit.limit_carries set carries_until = changed_at`)
	changes := systemConn(t, db)
	mustExec(t, changes, "begin; select from pglimit.limits for update")
	mustExec(t, operator, "select pglimit.purge()")
	mustExec(t, changes, "commit")
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.limit_carries"); n != 1 {
		t.Errorf("%d are left", n)
	}
}

// TestCarrySteps: what can come between a change of a limit and a hit, step by step. A hit that has looked the limit up
// before the change commits is part of what is carried, if its window is of before the change.
func TestCarrySteps(t *testing.T) {
	t.Parallel()
	const hit, proportional = "select pglimit.hit('l', 's')", "select pglimit.set_limit('l', 20, '1 hour', carry => 'proportional')"
	left := func(t *testing.T, db *dbtest.DB, subject string, remaining int64) {
		t.Helper()
		for range 2 {
			wantHit(t, db.Conn("pglimit_app"), "peek('l', '"+subject+"')", "allowed", remaining)
		}
		wantHit(t, db.Conn("pglimit_app"), "hit('l', '"+subject+"')", "allowed", remaining-1)
		wantHit(t, db.Conn("pglimit_app"), "hit('l', '"+subject+"')", "allowed", remaining-2)
	}
	// all of before: 4 of 10 are used
	for name, step := range map[string]func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn){
		// the row is locked, so the hit that knows the old limit waits, and the change is over before it counts
		"LookedUpBefore": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			holder := systemConn(t, db)
			mustExec(t, holder, "begin; select from pglimit.counters for update")
			end := waiting(t, db, app, hit)
			mustExec(t, operator, proportional)
			mustExec(t, holder, "commit")
			end()
			left(t, db, "s", 10)
		},
		"ChangeNotCommitted": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; "+proportional)
			wantHit(t, app, "hit('l', 's')", "allowed", 5)
			wantHit(t, app, "hit('l', 'new')", "allowed", 9)
			mustExec(t, operator, "commit")
			left(t, db, "s", 10)
			left(t, db, "new", 19) // a window that began after the change, as list_changes has it, stays
		},
		"ChangeRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; "+proportional+"; rollback")
			left(t, db, "s", 6)
		},
		"TwoChanges": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; "+proportional)
			if err := behind(t, operator, db.Conn("pglimit_operator"), "commit", "select pglimit.set_limit('l', 40, '1 hour', carry => 'proportional')"); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 24)
		},
		"FirstOfTwoRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; select pglimit.set_limit('l', 3, '1 hour', carry => 'reset')")
			if err := behind(t, operator, db.Conn("pglimit_operator"), "rollback", "select pglimit.set_limit('l', 30, '1 hour', carry => 'proportional')"); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 18)
		},
		"TwoMakeTheLimit": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "select pglimit.drop_limit('l'); begin; select pglimit.set_limit('l', 10, '1 hour')")
			if err := behind(t, operator, db.Conn("pglimit_operator"), "commit", proportional); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 12)
		},
		// who makes the key knows the old limit, and its window begins after the change
		"KeyMadeMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			maker := db.Conn("pglimit_app")
			mustExec(t, maker, "begin; select pglimit.hit('l', 'new')")
			end := waiting(t, db, app, "select pglimit.hit('l', 'new')")
			mustExec(t, operator, proportional)
			mustExec(t, maker, "rollback")
			end()
			left(t, db, "new", 19)
			left(t, db, "s", 12)
		},
		"KeyMadeBefore": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, "begin; select pglimit.hit('l', 'new')")
			mustExec(t, operator, proportional)
			mustExec(t, app, "commit")
			left(t, db, "new", 18)
		},
		// the one before has carried the counter; the second waits for it, and does not carry it again
		"RowLockedByWhoCarries": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, proportional)
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, db.Conn("pglimit_app"), "commit", hit); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 10)
		},
		"WhoCarriesRollsBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, proportional)
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, db.Conn("pglimit_app"), "rollback", hit); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 11)
		},
		// a refusal carries for itself alone
		"Refused": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, proportional)
			mustExec(t, app, "begin")
			wantHit(t, app, "hit('l', 's', cost => 15)", "limit", 12)
			if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
				t.Error("a refusal draws a transaction id")
			}
			mustExec(t, app, "commit")
			left(t, db, "s", 12)
		},
		// an override that comes before the change commits was there at the change
		"OverrideMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; "+proportional)
			mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit_override('l', 's', 30)")
			mustExec(t, operator, "commit")
			left(t, db, "s", 26)
		},
		// two who change the override: the second waits, and neither waits for a hit that waits for it
		"OverrideDroppedAndSet": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 30); "+proportional+"; begin; select pglimit.drop_limit_override('l', 's')")
			if err := behind(t, operator, db.Conn("pglimit_operator"), "commit", "select pglimit.set_limit_override('l', 's', 40)"); err != nil {
				t.Error(err)
			}
			left(t, db, "s", 36)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour')")
			wantHit(t, app, "hit('l', 's', cost => 4)", "allowed", 6)
			step(t, db, app, operator)
		})
	}
}

// TestCarryInUse is C-15 under load: everybody hits while the limit is raised, lowered and reset, and each counter is
// carried once over each change.
func TestCarryInUse(t *testing.T) {
	t.Parallel()
	for _, algorithm := range eachAlgorithm {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			operator := db.Conn("pglimit_operator")
			setCarry(t, operator, 5, algorithm, "keep", "")
			conns := appConns(t, db, 4)
			var allowed atomic.Int64
			var calls [4]atomic.Int64
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				together(t, conns, func(i int, conn *pgx.Conn) {
					for !stop.Load() {
						var ok bool
						if err := conn.QueryRow(t.Context(), "select allowed from pglimit.hit('l', 's')").Scan(&ok); err != nil {
							t.Error(err)
							return
						}
						if calls[i].Add(1); ok {
							allowed.Add(1)
						}
					}
				})
			}()
			want := int64(5)
			for _, step := range []struct {
				carry       string
				quota, more int64
			}{
				// lowered before it is reset, or a hit that knows the old limit finds room in what the new one began
				{"keep", 5, 0},
				{"reset", 5, 5},
				{"proportional", 10, 0},
				{"keep", 12, 2},
				{"keep", 3, 0},
				{"reset", 3, 3},
				{"proportional", 9, 0},
				{"keep", 10, 1},
				{"proportional", 5, 0},
				{"reset", 20, 20},
				{"keep", 1, 0},
				{"reset", 1, 1},
				{"keep", 4, 3},
			} {
				setCarry(t, operator, int(step.quota), algorithm, step.carry, "")
				want += step.more
				// each has looked the limit up since
				for i := range calls {
					before := calls[i].Load()
					for deadline := time.Now().Add(20 * time.Second); allowed.Load() < want || calls[i].Load() < before+5; {
						if time.Now().After(deadline) {
							break
						}
						time.Sleep(time.Millisecond)
					}
				}
				if got := allowed.Load(); got != want {
					t.Errorf("%+v: %d allowed, want %d", step, got, want)
					want = got
				}
			}
			stop.Store(true)
			<-done
		})
	}
}

// TestCarryIsTold: what cannot be is refused with what to type, and what is to be carried is told by explain_limit and
// list_changes.
func TestCarryIsTold(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	for _, carry := range []string{"null", "''", "'all'", "'KEEP'", "repeat('x', 2000)"} {
		_, err := operator.Exec(t.Context(), "select pglimit.set_limit('l', 10, '1 hour', carry => "+carry+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Detail == "" || server.Hint == "" || len(server.Message) > 200 {
			t.Errorf("carry %s: %v", carry, err)
		}
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.limits"); n != 0 {
		t.Errorf("%d limits", n)
	}
	mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour')")
	wantHit(t, app, "hit('l', 's', cost => 4)", "allowed", 6)
	mustExec(t, operator, "select pglimit.set_limit('l', 20, '1 hour', carry => 'proportional'); select pglimit.set_limit('l', 5, '1 hour', carry => 'proportional')")
	wantExplained(t, monitor, "'l', 's'", `.*counter: 4 used .*
arithmetic: counted until the limit was changed, goes on in proportion \(10 to 20, 20 to 5\): 2 of 5
answer: allowed: 3 left of 5`)
	wantHit(t, app, "hit('l', 's')", "allowed", 2)
	wantExplained(t, monitor, "'l', 's'", `.*arithmetic: 3 of 5 in the window that ends in .*`)
	mustExec(t, operator, "select pglimit.set_limit('l', 5, '1 hour', carry => 'reset')")
	wantExplained(t, monitor, "'l', 's'", `.*counter: 3 used .*
arithmetic: 0 of 5: what was counted before the limit was changed at 2.* is nothing
answer: allowed: 5 left of 5`)
	mustExec(t, operator, "select pglimit.set_limit('b', 4, '1 hour', 'token_bucket')")
	wantHit(t, app, "hit('b', 's', cost => 3)", "allowed", 1)
	mustExec(t, operator, "select pglimit.set_limit('b', 8, '2 hours', 'token_bucket')")
	wantExplained(t, monitor, "'b', 's'", `.*arithmetic: filled by 4 per 01:00:00 until now, goes on by 8 per 02:00:00 and lacks as much: 3 of 8
answer: allowed: 5 left of 8`)

	got := mustStrings(t, monitor, "select concat_ws(' ', after ->> 'max_hits', after ->> 'carry') from pglimit.list_changes('l')")
	if want := []string{"5 reset", "5 proportional", "20 proportional", "10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, key := range []string{"open_until", "carries_until", "plain", "straight_us"} {
		if mustScan[bool](t, monitor, "select bool_or(after ? '"+key+"' or before ? '"+key+"') from pglimit.list_changes('l')") {
			t.Errorf("the history tells %s", key)
		}
	}
}

// TestRatesOfABucket: two callers who bring two rates do not round each other's hits up, and who is refused is let in when
// it was told. Whatever was counted before fits a bucket.
func TestRatesOfABucket(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	system := systemConn(t, db)
	now := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)
	ask := func(maxHits, per string, at time.Time, cost int64, more, want string) time.Duration {
		t.Helper()
		var got string
		var retry *time.Duration
		if err := system.QueryRow(t.Context(), fmt.Sprintf(`select reason || ' ' || remaining, retry_after from pglimit._hit_special('l', 's', %s, %s, $1, 'token_bucket', 10, '', at => $2%s)`, maxHits, per, more), cost, at).Scan(&got, &retry); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s in %s at %v: %s, want %s", maxHits, per, at.Sub(now), got, want)
		}
		if retry == nil {
			return 0
		}
		return *retry
	}
	const slow, fast = "'1 hour'", "'1 min'"
	ask("7", slow, now, 10, "", "allowed 0")
	retry := ask("7", fast, now, 1, "", "limit 0")
	if retry != 8571429*time.Microsecond { // a seventh of a minute
		t.Errorf("retry after %v", retry)
	}
	ask("7", fast, now.Add(retry-time.Microsecond), 1, "", "limit 0")
	ask("7", slow, now.Add(retry), 1, "", "limit 0")
	ask("7", fast, now.Add(retry), 1, "", "allowed 0")
	// taking turns: of 2 and 6 that are used a third of a hit leaks three times
	then := now.Add(100 * time.Hour)
	ask("7", fast, then, 2, "", "allowed 8")
	for i := range 3 {
		then = then.Add(retry/3 + time.Microsecond)
		ask("7", fast, then, 1, "", []string{"allowed 7", "allowed 5", "allowed 4"}[i])
		ask("7", slow, then, 1, "", []string{"allowed 6", "allowed 4", "allowed 3"}[i])
	}
	for _, carry := range []string{"keep", "proportional", "reset", "proportional"} {
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('endless', 1, '36525 days', 'token_bucket', burst => 9223372036854775807, carry => '"+carry+"')")
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('endless', 9223372036854775807, '36525 days', 'token_bucket', burst => 1, carry => '"+carry+"')")
		wantHit(t, db.Conn("pglimit_app"), "hit('endless', '"+carry+"')", "allowed", 0)
	}
	mustExec(t, db.Conn("pglimit_app"), "select pglimit.charge('huge', 's', 9223372036854775807, max_hits => 1, per => '300 days')")
	wantHit(t, db.Conn("pglimit_app"), "peek('huge', 's', 1, '300 days', algorithm => 'token_bucket')", "limit", 0)
}
