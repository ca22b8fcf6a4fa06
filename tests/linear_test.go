package tests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglimit/pglimit/tests/dbtest"
)

const (
	linearClients = 6
	linearCalls   = 40 // of a client in a round
	linearRounds  = 5
)

// TestLinearizable records what several sessions see while they claim, renew and release under
// leases of a few milliseconds, lose replies and ask again, and a purge removes what it can. Of each
// pool there must be an order of the calls, none before it was sent or after its reply, in which a
// pool that serves one call at a time gives the same answers.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		caps               [3]int64 // 0: no such pool
		endpoints, holders int
	}{
		"OnePool":    {[3]int64{3, 0, 0}, 1, 1},
		"ThreePools": {[3]int64{2, 3, 4}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{t: t, db: dbtest.New(t), caps: tt.caps, endpoints: tt.endpoints, holders: tt.holders, seen: map[string]int{}}
			r.url = r.db.URL("pglimit_app")
			mustExec(t, r.db.Pool("pglimit_operator"), "select pglimit.set_purge_after('0 s')")
			for range linearRounds {
				mustExec(t, r.db.System(), "delete from pglimit.permits")
				r.record()
				checkLinear(t, r.histories())
				if t.Failed() {
					return
				}
			}
			t.Log(r.seen)
			for _, want := range []string{
				"claim granted", "claim refused", "claim lost", "renew renewed", "renew lapsed", "renew unknown", "renew lost",
				"release released", "release lapsed", "release unknown", "release lost", "claim again",
			} {
				if r.seen[want] == 0 {
					t.Errorf("no %s: nothing is shown", want)
				}
			}
		})
	}
}

// linearCall is what was asked and answered. The instants are the server's, in microseconds: every
// look at the clock for this call was between from and to.
type linearCall struct {
	kind     string // claim, renew or release
	weight   int64
	cap      int64 // of the pool whose history this is
	lease    int64
	request  string
	from, to int64
	lost     bool // nobody knows whether it happened

	id      int64 // of a renewal or release; of a claim the answer, 0 when refused
	done    bool
	reason  string
	expires int64
	inUse   int64
}

func (c linearCall) String() string {
	what := fmt.Sprintf("%s %d", c.kind, c.id)
	if c.kind == "claim" {
		what = fmt.Sprintf("claim of %d %s", c.weight, c.request)
	}
	switch {
	case c.lost:
		what += " → ?"
	case c.kind == "claim" && c.done:
		what += fmt.Sprintf(" → %d until %d", c.id, c.expires)
	case c.kind == "claim":
		what += fmt.Sprintf(" → %s, %d of %d in use", c.reason, c.inUse, c.cap)
	case c.kind == "renew" && c.done:
		what += fmt.Sprintf(" → until %d", c.expires)
	default:
		what += " → " + c.reason
	}
	return fmt.Sprintf("%s (lease %d; %d to %d)", what, c.lease, c.from, c.to)
}

// linearPermit is a permit that holds lanes of a pool, or was released and may be asked for again.
type linearPermit struct {
	id        int64 // 0: that of a claim whose reply was lost
	request   string
	weight    int64
	low, high int64 // bounds of expires_at, which are the same when an answer told it
	released  bool
	left      linearUses
}

// linearUses counts the calls of the history that are still to come: those that found the permit
// live, those that may have, and those that did not.
type linearUses struct{ live, lost, over int }

// possiblyOver: the call may have seen the end of the lease. possiblyLive: or not.
func (p linearPermit) possiblyOver(c linearCall) bool { return c.to >= p.low }
func (p linearPermit) possiblyLive(c linearCall) bool { return !p.released && c.from < p.high }

// linearModel is a pool that serves one call at a time. Its state is a sorted []linearPermit.
func linearModel(history []porcupine.Operation) porcupine.Model {
	uses := map[int64]linearUses{}
	for _, op := range history {
		c := op.Input.(linearCall)
		u := uses[c.id]
		switch {
		case c.lost:
			u.lost++
		case c.done:
			u.live++
		default:
			u.over++
		}
		uses[c.id] = u
	}
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{[]linearPermit(nil)} },
		Step: func(state, input, _ any) (next []any) {
			for _, s := range linearStep(state.([]linearPermit), input.(linearCall), uses) {
				slices.SortFunc(s, func(p, q linearPermit) int {
					return cmp.Or(cmp.Compare(p.id, q.id), cmp.Compare(p.low, q.low), cmp.Compare(p.high, q.high),
						cmp.Compare(p.request, q.request), cmp.Compare(p.weight, q.weight))
				})
				next = append(next, s)
			}
			return next
		},
		Equal:             func(s, u any) bool { return slices.Equal(s.([]linearPermit), u.([]linearPermit)) },
		DescribeOperation: func(input, _ any) string { return input.(linearCall).String() },
		DescribeState: func(state any) string {
			var b strings.Builder
			for _, p := range state.([]linearPermit) {
				fmt.Fprintf(&b, "%d: %d until %d", p.id, p.weight, p.high)
				if p.released {
					b.WriteString(" released")
				}
				b.WriteString("; ")
			}
			return b.String()
		},
	}
	return nondeterministic.ToModel()
}

// linearStep returns the states in which the call may leave the pool, none when it cannot be
// answered so.
func linearStep(s []linearPermit, c linearCall, uses map[int64]linearUses) (next [][]linearPermit) {
	with := func(i int, p linearPermit) []linearPermit {
		s := slices.Clone(s)
		s[i] = p
		if p.released && p.left == (linearUses{}) {
			s = slices.Delete(s, i, i+1)
		}
		return s
	}
	if c.kind == "claim" {
		return linearClaim(s, c, uses, with)
	}
	i := slices.IndexFunc(s, func(p linearPermit) bool { return p.id == c.id })
	if i < 0 {
		// Its lanes went to others: it had lapsed.
		if c.done {
			return nil
		}
		return [][]linearPermit{s}
	}
	p := s[i]
	if !c.lost && !c.done {
		if p.released && c.reason != "unknown" || !p.released && !p.possiblyOver(c) {
			return nil
		}
		p.left.over--
		return [][]linearPermit{with(i, p)}
	}
	if c.lost {
		p.left.lost--
		next = append(next, with(i, p))
	} else {
		p.left.live--
	}
	if !p.possiblyLive(c) {
		return next
	}
	switch {
	case c.kind == "release":
		p.released = true
	case c.lost:
		p.low, p.high = c.from+c.lease, c.to+c.lease
	default:
		p.low, p.high = c.expires, c.expires
	}
	return append(next, with(i, p))
}

func linearClaim(s []linearPermit, c linearCall, uses map[int64]linearUses, with func(int, linearPermit) []linearPermit) (next [][]linearPermit) {
	if !c.lost && !c.done {
		// That its request has no permit is not asked: the pool is looked at first, the request next,
		// and a release between the two leaves a refusal that no single instant explains.
		var least, most int64
		for _, p := range s {
			if p.possiblyLive(c) {
				most += p.weight
				if !p.possiblyOver(c) {
					least += p.weight
				}
			}
		}
		if c.inUse < least || c.inUse > most || c.inUse+c.weight <= c.cap {
			return nil
		}
		return [][]linearPermit{s}
	}
	if c.lost {
		next = append(next, s)
	}
	fresh := true
	for i, p := range s {
		if p.id == c.id && p.id != 0 {
			fresh = false
		}
		if c.request == "" || p.request != c.request || p.released {
			continue
		}
		if !p.possiblyOver(c) {
			fresh = false
		}
		// The permit that the request has.
		if !c.lost && p.possiblyLive(c) && (p.id == 0 || p.id == c.id) && c.expires >= p.low && c.expires <= p.high {
			if p.id == 0 {
				p.left = uses[c.id]
			}
			p.id, p.low, p.high = c.id, c.expires, c.expires
			p.left.live--
			next = append(next, with(i, p))
		}
	}
	if !fresh {
		return next
	}
	// A new permit. What has lapsed may lose its lanes, but not what will be renewed by a call that
	// saw it live, for that has a lock on it. What nobody can renew any more may as well lose them now:
	// the clock was read before the claim took effect, so whoever comes after it sees the lapse. Not so
	// where the reply was lost.
	kept := [][]linearPermit{nil}
	for _, p := range s {
		mayGo := !p.released && p.possiblyOver(c) && p.left.live == 0
		mayStay := !mayGo || c.lost || p.left.lost > 0 || p.id == 0
		before := kept
		kept = nil
		for _, k := range before {
			if mayStay {
				kept = append(kept, append(slices.Clone(k), p))
			}
			if mayGo {
				kept = append(kept, k)
			}
		}
	}
	p := linearPermit{id: c.id, request: c.request, weight: c.weight, low: c.expires, high: c.expires}
	if c.lost {
		p.id, p.low, p.high = 0, c.from+c.lease, c.to+c.lease
	} else {
		p.left = uses[c.id]
		p.left.live--
	}
	for _, k := range kept {
		inUse := int64(0)
		for _, p := range k {
			if !p.released {
				inUse += p.weight
			}
		}
		if inUse+c.weight <= c.cap {
			next = append(next, append(k, p))
		}
	}
	return next
}

// checkLinear reports the histories that no order explains.
func checkLinear(t *testing.T, histories map[string][]porcupine.Operation) {
	t.Helper()
	judged := 0
	defer func() {
		if judged == 0 && !t.Failed() {
			t.Errorf("no verdict on any of %d pools: nothing is shown", len(histories))
		}
	}()
	for pool, history := range histories {
		model := linearModel(history)
		result, info := porcupine.CheckOperationsVerbose(model, history, 15*time.Second)
		if result == porcupine.Ok {
			judged++
			continue
		}
		if result == porcupine.Unknown {
			// On a busy machine the search may not end in time; that is no breach.
			t.Logf("pool %q: no verdict on %d calls in 15 s", pool, len(history))
			continue
		}
		// Not in t.TempDir, which is removed at the end.
		where := "nowhere"
		if file, err := os.CreateTemp("", "pglimit-linear-*.html"); err == nil {
			if err := errors.Join(porcupine.Visualize(model, info, file), file.Close()); err == nil {
				where = file.Name()
			}
		}
		var longest []int
		for _, partition := range info.PartialLinearizations() {
			for _, order := range partition {
				if len(order) > len(longest) {
					longest = order
				}
			}
		}
		var calls strings.Builder
		for i, op := range history {
			mark := ' '
			if !slices.Contains(longest, i) {
				mark = '!' // no place for it in the longest order found
			}
			fmt.Fprintf(&calls, "\n%c %10d to %10d  %d: %v", mark, op.Call/1000, op.Return/1000, op.ClientId, op.Input)
		}
		t.Errorf("pool %q: %v; at most %d of %d calls have an order; drawn in %s%s", pool, result, len(longest), len(history), where, calls.String())
	}
}

// recorder lets clients loose on a database.
type recorder struct {
	t                  *testing.T
	db                 *dbtest.DB
	url                string
	caps               [3]int64
	endpoints, holders int

	mu    sync.Mutex
	start time.Time
	calls []recorded
	known []knownPermit
	seen  map[string]int
}

type recorded struct {
	linearCall
	client    int
	call, ret time.Duration
	pools     []string
	args      claimArgs
}

type knownPermit struct {
	id    int64
	pools []string
}

// histories are the calls by pool: a refusal is in that of the pool that refused.
func (r *recorder) histories() map[string][]porcupine.Operation {
	slices.SortFunc(r.calls, func(c, d recorded) int { return cmp.Compare(c.call, d.call) })
	histories := map[string][]porcupine.Operation{}
	for _, c := range r.calls {
		for _, pool := range c.pools {
			input := c.linearCall
			input.cap = r.caps[strings.Count(pool, "*")]
			histories[pool] = append(histories[pool], porcupine.Operation{
				ClientId: c.client, Input: input, Call: int64(c.call), Return: int64(c.ret),
			})
		}
	}
	return histories
}

func (r *recorder) record() {
	r.start, r.calls, r.known = time.Now(), nil, nil
	stop := make(chan struct{})
	var purge, clients sync.WaitGroup
	operator := r.db.Pool("pglimit_operator")
	purge.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				if _, err := operator.Exec(r.t.Context(), "select pglimit.purge()"); err != nil {
					r.t.Error("purge: ", err)
					return
				}
			}
		}
	})
	for i := range linearClients {
		clients.Go(func() {
			if err := (&linearClient{recorder: r, number: i}).run(r.t.Context()); err != nil {
				r.t.Error(err)
			}
		})
	}
	clients.Wait()
	close(stop)
	purge.Wait()
}

type linearClient struct {
	*recorder
	number int
	conn   *pgx.Conn
	again  *claimArgs // the claim whose reply was lost
	last   int64      // the server's clock when it was read last
}

type claimArgs struct{ endpoint, holder, request string }

func (c *linearClient) run(ctx context.Context) (err error) {
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer func() { _ = c.conn.Close(ctx) }()
	var now time.Time
	if err := c.conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	c.last = now.UnixMicro()
	for range linearCalls {
		c.mu.Lock()
		var permit knownPermit
		if n := len(c.known); n > 0 {
			permit = c.known[max(0, n-1-rand.IntN(5))]
		}
		c.mu.Unlock()
		switch n := rand.IntN(10); {
		case permit.id == 0 || n < 5 || c.again != nil:
			err = c.claim(ctx)
		case n < 7:
			lease := linearLease()
			err = c.do(ctx, recorded{linearCall: linearCall{kind: "renew", id: permit.id, lease: lease.Microseconds()}, pools: permit.pools},
				"select renewed, reason, null::bigint, expires_at, null::bigint, statement_timestamp(), clock_timestamp() from pglimit.renew_permit(%d, '%d microseconds')",
				permit.id, lease.Microseconds())
		default:
			err = c.do(ctx, recorded{linearCall: linearCall{kind: "release", id: permit.id}, pools: permit.pools},
				"select released, reason, null::bigint, null::timestamptz, null::bigint, statement_timestamp(), clock_timestamp() from pglimit.release_permit(%d)",
				permit.id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func linearLease() time.Duration { return time.Duration(1+rand.IntN(20)) * time.Millisecond }

func (c *linearClient) claim(ctx context.Context) error {
	args := claimArgs{fmt.Sprint("e", rand.IntN(c.endpoints)), fmt.Sprint("h", rand.IntN(c.holders)), ""}
	if rand.IntN(3) == 0 {
		args.request = fmt.Sprint("r", rand.IntN(3))
	}
	if c.again != nil {
		args = *c.again
	}
	c.again = nil
	lease, weight := linearLease(), int64(1+rand.IntN(4)/3)
	var pools []string
	caps := [3]string{"null", "null", "null"}
	for k, pool := range [3]string{args.endpoint + "/" + args.holder, args.endpoint + "/*", "*/*"} {
		if c.caps[k] > 0 {
			caps[k] = fmt.Sprint(c.caps[k])
			pools = append(pools, pool)
		}
	}
	request := ""
	if args.request != "" {
		request = args.endpoint + "/" + args.holder + "/" + args.request
	}
	return c.do(ctx, recorded{linearCall: linearCall{kind: "claim", weight: weight, lease: lease.Microseconds(), request: request}, args: args, pools: pools},
		`select granted, reason, permit_id, expires_at, in_use, statement_timestamp(), clock_timestamp()
			from pglimit.claim_permit('%s', '%s', %s, %s, %s, '%d microseconds', %d, nullif('%s', ''))`,
		args.endpoint, args.holder, caps[0], caps[1], caps[2], lease.Microseconds(), weight, args.request)
}

func (c *linearClient) connect(ctx context.Context) error {
	config, err := pgx.ParseConfig(c.url)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

// do makes a call, or loses its reply, and records it.
func (c *linearClient) do(ctx context.Context, r recorded, sql string, args ...any) error {
	sql = fmt.Sprintf(sql, args...)
	r.client, r.call = c.number, time.Since(c.start)
	if rand.IntN(16) == 0 {
		r.lost, r.from = true, c.last
		if err := c.lose(ctx, sql); err != nil {
			return fmt.Errorf("lose %s: %w", sql, err)
		}
		if r.args.request != "" {
			c.again = &r.args
		}
		r.to, r.ret = c.last, time.Since(c.start)
		c.note(r, r.kind+" lost")
		return nil
	}
	var id, inUse *int64
	var expires *time.Time
	var from, to time.Time
	err := c.conn.QueryRow(ctx, sql).Scan(&r.done, &r.reason, &id, &expires, &inUse, &from, &to)
	r.ret = time.Since(c.start)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "55P03" {
		c.t.Log("a busy machine: ", err) // and nothing happened
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	r.from, r.to = from.UnixMicro(), to.UnixMicro()
	c.last = r.to
	if r.done && r.kind != "release" {
		r.expires = expires.UnixMicro()
	}
	outcome := r.kind + " " + r.reason
	if r.kind == "claim" && r.done {
		r.id = *id
	} else if r.kind == "claim" {
		outcome = "claim refused"
		r.inUse = *inUse
		k := slices.Index([]string{"holder", "endpoint", "installation"}, r.reason)
		r.pools = slices.DeleteFunc(r.pools, func(pool string) bool { return strings.Count(pool, "*") != k })
		if len(r.pools) != 1 {
			return fmt.Errorf("%s: refused by %q", sql, r.reason)
		}
	}
	c.note(r, outcome)
	return nil
}

func (c *linearClient) note(r recorded, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, r)
	if r.kind == "claim" && r.done {
		if slices.ContainsFunc(c.known, func(p knownPermit) bool { return p.id == r.id }) {
			outcome = "claim again"
		} else {
			c.known = append(c.known, knownPermit{r.id, r.pools})
		}
	}
	c.seen[outcome]++
}

// lose sends a call, or all of it but its end, and hangs up. It comes back when the server has no
// session for it any more: what has not happened by then never will.
func (c *linearClient) lose(ctx context.Context, sql string) error {
	hijacked, err := c.conn.PgConn().Hijack()
	if err != nil {
		return err
	}
	message, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return err
	}
	if rand.IntN(4) == 0 {
		message = message[:len(message)-1]
	}
	_, err = hijacked.Conn.Write(message)
	if err := errors.Join(err, hijacked.Conn.Close(), c.connect(ctx)); err != nil {
		return err
	}
	for {
		var now time.Time
		var there bool
		if err := c.conn.QueryRow(ctx, fmt.Sprintf("select exists (select from pg_stat_activity where pid = %d), clock_timestamp()", hijacked.PID)).
			Scan(&there, &now); err != nil {
			return err
		}
		if !there {
			c.last = now.UnixMicro()
			return nil
		}
	}
}
