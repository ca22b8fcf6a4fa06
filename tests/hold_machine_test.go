package tests

import (
	"flag"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// A held is a charge that an oracle can find again.
type held struct {
	window  string
	level   *big.Int
	at      int64
	sums    [3]int64
	event   int
	charged int64
}

// A ledger is an oracle that also goes into debt and gives back.
type ledger interface {
	balance(now int64) int64 // may be negative
	charge(now, n int64) held
	giveBack(now, n int64, h *held) // of a hold, or of whatever is there
}

// windowLedger counts in windows that have names; the caller says which is the present one.
type windowLedger struct {
	quota, used int64
	window      string
	of          func(now int64, begin bool) string // "" when none is open
}

func (o *windowLedger) balance(now int64) int64 {
	if o.of(now, false) != o.window {
		return o.quota
	}
	return o.quota - o.used
}

func (o *windowLedger) charge(now, n int64) held {
	if o.of(now, false) != o.window || o.window == "" {
		o.window, o.used = o.of(now, true), 0
	}
	o.used += n
	return held{window: o.window}
}

func (o *windowLedger) giveBack(now, n int64, h *held) {
	if o.of(now, false) == o.window && (h == nil || h.window == o.window) {
		o.used -= min(n, o.used)
	}
}

// slidingLedger gives back of the present one of the two windows that it weighs.
type slidingLedger struct{ slidingOracle }

func (o *slidingLedger) window(now int64) string {
	return fmt.Sprint(o.start, " ", (now-o.start)/o.per)
}

func (o *slidingLedger) balance(now int64) int64 {
	if o.void(now) {
		return o.quota
	}
	n, elapsed := (now-o.start)/o.per, (now-o.start)%o.per
	weight := new(big.Rat).Mul(big.NewRat(o.counts[n-1], 1), big.NewRat(o.per-elapsed, o.per))
	return floor(new(big.Rat).Sub(big.NewRat(o.quota-o.counts[n], 1), weight))
}

func (o *slidingLedger) charge(now, n int64) held {
	if o.void(now) {
		o.start, o.counts = now, map[int64]int64{}
	}
	o.counts[(now-o.start)/o.per] += n
	o.last = now
	return held{window: o.window(now)}
}

func (o *slidingLedger) giveBack(now, n int64, h *held) {
	if !o.void(now) && (h == nil || h.window == o.window(now)) {
		k := (now - o.start) / o.per
		o.counts[k] -= min(n, o.counts[k])
	}
}

// bucketLedger is a bucket whose level is a whole number of microseconds times hits. Beside it lie all charges as
// they turned out to be: the level can never be below that of a bucket which knew them from the beginning.
type bucketLedger struct {
	quota, burst, per, at, since int64
	sums                         [3]int64 // microseconds given back, refunded, held
	level                        *big.Int
	events                       []bucketEvent
}

type bucketEvent struct{ at, n int64 }

func (o *bucketLedger) times(a, b int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
}

func (o *bucketLedger) now(now int64) *big.Int {
	level := new(big.Int).Sub(o.level, o.times(now-o.at, o.quota))
	if level.Sign() < 0 {
		return new(big.Int)
	}
	return level
}

func (o *bucketLedger) balance(now int64) int64 {
	left := new(big.Int).Sub(o.times(o.burst, o.per), o.now(now))
	return floor(new(big.Rat).SetFrac(left, big.NewInt(o.per)))
}

func (o *bucketLedger) charge(now, n int64) held {
	level := o.now(now)
	if level.Sign() == 0 {
		o.since, o.sums = now, [3]int64{}
	}
	o.level, o.at = level.Add(level, o.times(n, o.per)), now
	o.events = append(o.events, bucketEvent{now, n})
	return held{window: fmt.Sprint(o.since), level: new(big.Int).Set(o.level), at: now, sums: o.sums, event: len(o.events) - 1, charged: n}
}

func (o *bucketLedger) giveBack(now, n int64, h *held) {
	back := o.times(n, o.per)
	if h == nil {
		o.events = append(o.events, bucketEvent{now, -n})
	} else {
		o.events[h.event].n -= n
		there := new(big.Int).Sub(h.level, o.times(now-h.at+min(o.sums[0]-h.sums[0], h.sums[2])+o.sums[1]-h.sums[1], o.quota))
		if there.Sign() < 0 || h.window != fmt.Sprint(o.since) {
			there.SetInt64(0)
		}
		if there.Cmp(back) < 0 {
			back = there
		}
	}
	level := o.now(now)
	if level.Cmp(back) < 0 {
		back = level
	}
	o.level, o.at = new(big.Int).Sub(level, back), now
	if h == nil {
		o.sums[1] += o.up(back)
	} else {
		o.sums[0] += o.up(back)
	}
}

// up is how long something takes to leak, in microseconds.
func (o *bucketLedger) up(n *big.Int) int64 {
	return -floor(new(big.Rat).SetFrac(new(big.Int).Neg(n), big.NewInt(o.quota)))
}

// open counts a hold among those that may be given back, or no more.
func (o *bucketLedger) open(h held, sign int64) {
	if h.window == fmt.Sprint(o.since) {
		o.sums[2] += sign * o.up(o.times(h.charged, o.per))
	}
}

// least is the level of a bucket that knew all charges from the beginning.
func (o *bucketLedger) least(now int64) *big.Int {
	level, at := new(big.Int), int64(0)
	add := func(to, n int64) {
		if level.Sub(level, o.times(to-at, o.quota)); level.Sign() < 0 {
			level.SetInt64(0)
		}
		if level.Add(level, o.times(n, o.per)); level.Sign() < 0 {
			level.SetInt64(0)
		}
		at = to
	}
	for _, e := range o.events {
		add(e.at, e.n)
	}
	add(now, 0)
	return level
}

// TestBucketHoldsTogether: of two holds that overlap, the second gives back what was there since, less what the first gave.
func TestBucketHoldsTogether(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	system := db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system")
	ask := func(column string, second, cost int64, more string) int64 {
		return mustScan[int64](t, system, fmt.Sprintf(`select %s from pglimit._hit_special('l', 's', 1, '1 s', %d, 'token_bucket', 20, '',
			at => timestamptz '2026-10-20' + %d * interval '1 s'%s)`, column, cost, second, more))
	}
	settle := func(second, id, charged, want int64) {
		t.Helper()
		more := fmt.Sprintf(", forced => true, hold => (select row(h.*)::pglimit.holds from pglimit.holds h where h.hold_id = %d)", id)
		if got := ask("remaining", second, -charged, more); got != want {
			t.Errorf("second %d: %d remain, want %d", second, got, want)
		}
	}
	first := ask("charged", 0, 10, ", hold_for => '1 hour'")
	second := ask("charged", 0, 10, ", hold_for => '1 hour'")
	settle(6, first, 10, 10) // it lacks 14, of the first's ten 6 have leaked
	if got := ask("remaining", 11, 10, ""); got != 5 {
		t.Errorf("%d remain, want 5", got)
	}
	settle(11, second, 10, 10) // the bucket lacked no more than 5 before that hit
	if got := ask("remaining", 12, 11, ""); got != 0 {
		t.Errorf("%d remain, want 0", got)
	}
}

// TestHoldMachine compares random hits, partial hits, charges, refunds, holds and settlements, at random instants, with a
// ledger that is plain and exact. Of a bucket it also shows that no settlement gives back what had leaked long ago.
func TestHoldMachine(t *testing.T) {
	t.Parallel()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == "0" {
		_ = seed.Value.Set("20261130")
	}
	for _, algorithm := range eachAlgorithm {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			operator, system := db.Conn("pglimit_operator"), db.Conn("pglimit_system")
			mustExec(t, system, "set role pglimit_system")
			subject := 0
			seen := map[string]int{}
			rapid.Check(t, func(rt *rapid.T) {
				subject++
				quota := rapid.Int64Range(1, 12).Draw(rt, "quota")
				per := rapid.SampledFrom([]int64{1_000, 7_000_000, 86_400_000_000}).Draw(rt, "per")
				burst := quota
				durable := rapid.Bool().Draw(rt, "durable")
				args := fmt.Sprintf("'l', %d, '%d us', algorithm => '%s', durable => %v", quota, per, algorithm, durable)
				var o ledger
				var bucket *bucketLedger
				switch algorithm {
				case "fixed_window":
					end := int64(0)
					o = &windowLedger{quota: quota, of: func(now int64, begin bool) string {
						if begin {
							end = now + per
						}
						if now >= end {
							return ""
						}
						return fmt.Sprint(end)
					}}
				case "sliding_window":
					o = &slidingLedger{slidingOracle{quota: quota, per: per}}
				case "token_bucket":
					burst = rapid.Int64Range(1, 20).Draw(rt, "burst")
					args += fmt.Sprintf(", burst => %d", burst)
					bucket = &bucketLedger{quota: quota, burst: burst, per: per, level: new(big.Int)}
					o = bucket
				default:
					per = 30 * 86_400_000_000
					args = fmt.Sprintf("'l', %d, '1 month', algorithm => 'calendar', durable => %v", quota, durable)
					o = &windowLedger{quota: quota, of: func(now int64, _ bool) string { return time.UnixMicro(now).UTC().Format("2006-01") }}
				}
				if _, err := operator.Exec(t.Context(), "select pglimit.set_limit("+args+")"); err != nil {
					rt.Fatal(err)
				}
				now := time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
				ask := func(more string, cost int64) (reason string, remaining, charged int64) {
					sql := fmt.Sprintf("select reason, remaining, charged from pglimit._hit_special('l', 's%d', null, null, %d, null, null, '', at => $1%s)", subject, cost, more)
					if err := system.QueryRow(t.Context(), sql, time.UnixMicro(now)).Scan(&reason, &remaining, &charged); err != nil {
						rt.Fatal(sql, ": ", err)
					}
					return reason, remaining, charged
				}
				holds := map[int64]held{}
				for range rapid.IntRange(1, 30).Draw(rt, "steps") {
					switch rapid.IntRange(0, 7).Draw(rt, "pass") {
					case 0:
						now += rapid.Int64Range(0, 2*per).Draw(rt, "long")
					case 1, 2:
						now += per / quota
					case 3:
						now++
					case 4, 5:
						now += rapid.Int64Range(0, per/quota).Draw(rt, "short")
					}
					cost := rapid.Int64Range(1, burst+1).Draw(rt, "cost")
					left := o.balance(now)
					what := rapid.SampledFrom([]string{"hit", "up to", "charge", "refund", "hold", "hold", "settle", "settle"}).Draw(rt, "what")
					var reason, want string
					var remaining, charged int64
					wantCharged := cost
					switch what {
					case "hit", "hold":
						if what == "hold" {
							reason, remaining, charged = ask(", hold_for => '1 hour'", cost)
						} else {
							reason, remaining, charged = ask("", cost)
						}
						want = "allowed"
						switch {
						case cost > burst:
							want, wantCharged = "never", 0
						case cost > left:
							want, wantCharged = "limit", 0
						default:
							h := o.charge(now, cost)
							h.charged = cost
							if what == "hold" {
								holds[charged], wantCharged = h, charged
								if bucket != nil {
									bucket.open(h, 1)
								}
							}
						}
					case "up to":
						least := rapid.Int64Range(1, cost).Draw(rt, "at_least")
						reason, remaining, charged = ask(fmt.Sprintf(", at_least => %d", least), cost)
						want = "allowed"
						switch {
						case least <= left:
							wantCharged = min(cost, left)
							o.charge(now, wantCharged)
						case least > burst:
							want, wantCharged = "never", 0
						default:
							want, wantCharged = "limit", 0
						}
					case "charge":
						debt := rapid.Int64Range(-1, 15).Draw(rt, "max_debt")
						bound := "null"
						if debt >= 0 {
							bound = fmt.Sprint(debt)
						}
						reason, remaining, charged = ask(", forced => true, max_debt => "+bound, cost)
						want = "allowed"
						switch {
						case debt < 0 || cost <= left+debt:
							o.charge(now, cost)
						case cost > burst+debt:
							want, wantCharged = "never", 0
						default:
							want, wantCharged = "limit", 0
						}
					case "refund":
						reason, remaining, _ = ask(", forced => true", -cost)
						o.giveBack(now, cost, nil)
						want, charged = "allowed", wantCharged
					case "settle":
						if len(holds) == 0 {
							continue
						}
						ids := make([]int64, 0, len(holds))
						for id := range holds {
							ids = append(ids, id)
						}
						slices.Sort(ids)
						id := rapid.SampledFrom(ids).Draw(rt, "hold")
						h := holds[id]
						delete(holds, id)
						actual := rapid.Int64Range(0, h.charged+2).Draw(rt, "actual")
						table := "holds"
						if durable {
							table = "durable_holds"
						}
						reason, remaining, _ = ask(fmt.Sprintf(", forced => true, look_only => %v, hold => (select row(h.*)::pglimit.holds from pglimit.%s h where h.hold_id = %d)",
							actual == h.charged, table, id), actual-h.charged)
						open := bucket == nil || bucket.now(now).Sign() > 0 && h.window == fmt.Sprint(bucket.since)
						if actual > h.charged {
							o.charge(now, actual-h.charged)
						} else if actual < h.charged {
							o.giveBack(now, h.charged-actual, &h)
						}
						if bucket != nil && (actual > h.charged || actual < h.charged && open) {
							bucket.open(h, -1)
						}
						want, charged = "allowed", wantCharged
						if got := o.balance(now); got > left {
							seen["given back"]++
						} else if actual < h.charged {
							seen["too late"]++
						}
					}
					balance := o.balance(now)
					if what == "hit" || what == "hold" || what == "up to" {
						balance = max(balance, 0)
					}
					if reason != want || remaining != balance || charged != wantCharged {
						rt.Fatalf("%s of %d at %d: %s, %d remain, %d charged; want %s, %d, %d", what, cost, now, reason, remaining, charged, want, balance, wantCharged)
					}
					if bucket != nil && bucket.now(now).Cmp(bucket.least(now)) < 0 {
						rt.Fatalf("%s of %d at %d: the bucket lacks %v, and %v had it known all from the beginning", what, cost, now, bucket.now(now), bucket.least(now))
					}
					seen[what+" "+want]++
					if balance < 0 {
						seen["debt"]++
					}
				}
			})
			for _, what := range []string{"debt", "given back", "too late", "charge limit", "hold allowed", "hold limit", "up to allowed", "up to limit"} {
				if seen[what] == 0 && !t.Failed() {
					t.Errorf("never %s: nothing is shown", what)
				}
			}
		})
	}
}
