package tests

import (
	"flag"
	"fmt"
	"math/big"
	"testing"
	"time"

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

// TestAlgorithms compares random hits at random instants with an oracle that is plain, slow and exact: what is allowed,
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
				refused, subject := 0, 0
				rapid.Check(t, func(rt *rapid.T) {
					subject++
					quota := rapid.Int64Range(1, 12).Draw(rt, "quota")
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
							burst = rapid.Int64Range(1, 20).Draw(rt, "burst")
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
						var again *time.Duration
						err := system.QueryRow(t.Context(), `select allowed, reason, remaining, retry_after from pglimit._hit_special('l', $1, null, null, $2, null, null, '', look_only => $3, at => $4)`,
							fmt.Sprint("s", subject), cost, look, time.UnixMicro(at)).Scan(&allowed, &reason, &remaining, &again)
						if err != nil {
							rt.Fatal(err)
						}
						return allowed, reason, remaining, again
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
						cost := rapid.Int64Range(1, max(1, min(4, burst+1))).Draw(rt, "cost")
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
			})
		}
	}
}
