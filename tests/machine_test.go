package tests

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestPermitMachine compares random calls of one session with a model that knows no lanes, only
// permits and caps: every answer, and after every call the list of what is live.
func TestPermitMachine(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	operator := db.Conn("pglimit_operator")
	system := db.System()
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	highest := int64(0)
	outcomes := map[string]int{}
	seedRapid(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{
			ctx: t.Context(), app: app, operator: operator, system: system,
			highest: &highest, outcomes: outcomes,
			caps: map[string]machineCaps{}, slots: map[string]int64{}, highestCap: map[string]int64{},
		}
		m.exec(rt, system, "delete from pglimit.permits")
		m.setInstallationCap(rt, 6)
		for _, endpoint := range machineEndpoints {
			m.setCapsOf(rt, endpoint)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":       m.check,
			"claim":  m.claim,
			"claim2": m.claim, // the most frequent call
			"claim3": m.claim,
			"again":  m.again,
			"renew":  m.renew,
			"end":    m.release,
			"lapse":  m.lapse,
			"purge":  m.purge,
			"cap":    m.setCap,
		})
	})
	if !t.Failed() {
		for _, want := range []string{
			"claim granted", "claim again", "claim holder", "claim endpoint", "claim installation", "claim never",
			"renew renewed", "renew lapsed", "renew unknown",
			"release released", "release lapsed", "release unknown", "release not holder",
			"purge of pools",
		} {
			if outcomes[want] == 0 {
				t.Errorf("no %s: nothing is shown", want)
			}
		}
	}
	t.Log(outcomes)
}

var seedOnce sync.Once

// seedRapid makes for the same sequences in every run; others with -rapid.seed.
func seedRapid(t *testing.T) {
	t.Helper()
	seedOnce.Do(func() {
		if seed := flag.Lookup("rapid.seed"); seed.Value.String() == "0" {
			if err := seed.Value.Set("20261130"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

var (
	machineEndpoints = []string{"a", "b"}
	machineHolders   = []string{"h1", "h2"}
	machineRequests  = []string{"r1", "r2"}

	// Ranges of numbers would be mostly their lowest: everything closed.
	machineCap = rapid.SampledFrom([]int64{4, 3, 5, 2, 1, 0})
)

// machine is the model and the database beside it.
type machine struct {
	ctx           context.Context
	app, operator *pgx.Conn
	system        *pgxpool.Pool
	highest       *int64         // of all permit ids
	outcomes      map[string]int // how often each was seen

	caps         map[string]machineCaps // of endpoints
	installation int64
	permits      []*machinePermit // by id
	slots        map[string]int64 // pool → slots that were ever granted
	highestCap   map[string]int64 // pool → of the claims so far
}

type machineCaps struct {
	holder, endpoint *int64
	inInstallation   bool
}

type machinePermit struct {
	id               int64
	endpoint, holder string
	request          string
	weight           int64
	pools            []string
	lease            time.Duration
	expires          time.Time
	state            string           // live, lapsed or released
	slots            map[string]int64 // as it lapsed: the machine's slots of its pools that had not been purged
	forgotten        bool             // it has been called unknown
}

// mayBe says whether a permit that has lapsed may be called so, and may be called unknown: it is
// known as long as one of its lanes has neither a new holder nor been released or purged.
func (m *machine) mayBe(p *machinePermit) (lapsed, unknown bool) {
	unknown = true
	for pool, before := range p.slots {
		lapsed = lapsed || !p.forgotten
		unknown = unknown && m.slots[pool]-before >= p.weight
	}
	return lapsed, unknown
}

// lower notes the cap that a claim goes by. Under one that was lowered it may release what has lapsed.
func (m *machine) lower(pool string, cap int64) {
	if cap >= m.highestCap[pool] {
		m.highestCap[pool] = cap
		return
	}
	for _, p := range m.permits {
		if _, known := p.slots[pool]; known {
			p.slots[pool] = m.slots[pool] - p.weight
		}
	}
}

func (m *machine) exec(rt *rapid.T, db rowQuerier, sql string, args ...any) {
	rt.Helper()
	if _, err := db.Exec(m.ctx, sql, args...); err != nil {
		rt.Fatal(sql, args, ": ", err)
	}
}

func (m *machine) query(rt *rapid.T, sql string, args, results []any) {
	rt.Helper()
	if err := m.app.QueryRow(m.ctx, sql, args...).Scan(results...); err != nil {
		rt.Fatal(sql, args, ": ", err)
	}
}

func (m *machine) liveIn(pool string) (live []*machinePermit, inUse int64) {
	for _, p := range m.permits {
		if p.state == "live" && slices.Contains(p.pools, pool) {
			live = append(live, p)
			inUse += p.weight
		}
	}
	return live, inUse
}

// live is the live permit of a request, nil without one.
func (m *machine) live(endpoint, holder, request string) *machinePermit {
	for _, p := range m.permits {
		if request != "" && p.state == "live" && p.endpoint == endpoint && p.holder == holder && p.request == request {
			return p
		}
	}
	return nil
}

func (m *machine) claim(rt *rapid.T) {
	request := ""
	if rapid.IntRange(0, 3).Draw(rt, "with request") == 0 {
		request = rapid.SampledFrom(machineRequests).Draw(rt, "request")
	}
	m.claimFor(rt, rapid.SampledFrom(machineEndpoints).Draw(rt, "endpoint"), rapid.SampledFrom(machineHolders).Draw(rt, "holder"), request)
}

// again repeats a request, whatever became of its permit.
func (m *machine) again(rt *rapid.T) {
	var with []*machinePermit
	for _, p := range m.permits {
		if p.request != "" {
			with = append(with, p)
		}
	}
	if len(with) == 0 {
		rt.Skip("no requests")
	}
	p := rapid.SampledFrom(with).Draw(rt, "permit")
	m.claimFor(rt, p.endpoint, p.holder, p.request)
}

func (m *machine) claimFor(rt *rapid.T, endpoint, holder, request string) {
	weight := rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 2, 2, 3}).Draw(rt, "weight")
	lease := time.Duration(rapid.IntRange(1, 48).Draw(rt, "hours")) * time.Hour
	given := [3]*int64{}
	for k := range given {
		if rapid.IntRange(0, 7).Draw(rt, "cap given") == 0 {
			given[k] = ptr(machineCap.Draw(rt, "cap"))
		}
	}

	// What must come: the first pool without room refuses.
	caps := [3]*int64{
		cmp.Or(given[0], m.caps[endpoint].holder),
		cmp.Or(given[1], m.caps[endpoint].endpoint),
		given[2],
	}
	if given[2] == nil && m.caps[endpoint].inInstallation {
		caps[2] = &m.installation
	}
	names := [3]string{endpoint + "/" + holder, endpoint, "all"}
	reason, of := "granted", -1
	var pools []string
	for k, cap := range caps {
		if cap == nil {
			continue
		}
		pools = append(pools, names[k])
		m.lower(names[k], *cap)
		if _, inUse := m.liveIn(names[k]); of < 0 && weight > *cap {
			reason, of = "never", k
		} else if of < 0 && inUse+weight > *cap {
			reason, of = [3]string{"holder", "endpoint", "installation"}[k], k
		}
	}
	held := m.live(endpoint, holder, request)

	var r claimRow
	var cap, inUse *int64
	var from, to time.Time
	m.query(
		rt, `select c.granted, c.reason, c.permit_id, c.expires_at, c.cap, c.in_use, c.retry_after, statement_timestamp(), clock_timestamp()
			from pglimit.claim_permit($1, $2, $3, $4, $5, $6, $7, nullif($8, '')) c`,
		[]any{endpoint, holder, given[0], given[1], given[2], lease, weight, request},
		[]any{&r.Granted, &r.Reason, &r.ID, &r.ExpiresAt, &cap, &inUse, &r.RetryAfter, &from, &to},
	)
	what := fmt.Sprintf("claim of %d by %s of %s, caps given %v, request %q: %+v", weight, holder, endpoint, given, request, r)
	switch {
	case held != nil:
		if !r.Granted || r.Reason != "granted" || *r.ID != held.id || !r.ExpiresAt.Equal(held.expires) {
			rt.Fatalf("%s: want permit %d until %v again", what, held.id, held.expires)
		}
		m.outcomes["claim again"]++
		return
	case of < 0:
		if !r.Granted || r.Reason != "granted" {
			rt.Fatalf("%s: want a permit", what)
		}
		if *r.ID <= *m.highest {
			rt.Fatalf("%s: permit %d was before", what, *m.highest)
		}
		if r.ExpiresAt.Before(from.Add(lease)) || r.ExpiresAt.After(to.Add(lease)) || cap != nil || inUse != nil || r.RetryAfter != nil {
			rt.Fatalf("%s: lease of %v between %v and %v", what, lease, from, to)
		}
		*m.highest = *r.ID
		m.permits = append(m.permits, &machinePermit{
			id: *r.ID, endpoint: endpoint, holder: holder, request: request, weight: weight,
			pools: pools, lease: lease, expires: *r.ExpiresAt, state: "live",
		})
		for _, pool := range pools {
			m.slots[pool] += weight
		}
	default:
		live, want := m.liveIn(names[of])
		if r.Granted || r.Reason != reason || r.ID != nil || cap == nil || *cap != *caps[of] || inUse == nil || *inUse != want {
			rt.Fatalf("%s: want %s, %d of %d in use", what, reason, want, *caps[of])
		}
		if reason == "never" {
			if r.RetryAfter != nil {
				rt.Fatalf("%s: try again?", what)
			}
			break
		}
		// When enough slots are free if nobody releases.
		slices.SortFunc(live, func(p, q *machinePermit) int { return p.expires.Compare(q.expires) })
		over := want + weight - *caps[of]
		var freeAt time.Time
		for _, p := range live {
			if over > 0 {
				freeAt = p.expires
			}
			over -= p.weight
		}
		if r.RetryAfter == nil || from.Add(*r.RetryAfter).After(freeAt) || to.Add(*r.RetryAfter).Before(freeAt) {
			rt.Fatalf("%s: want a retry at %v", what, freeAt)
		}
	}
	m.outcomes["claim "+reason]++
}

func (m *machine) anyPermit(rt *rapid.T) *machinePermit {
	if len(m.permits) == 0 {
		rt.Skip("no permits")
	}
	return rapid.SampledFrom(m.permits).Draw(rt, "permit")
}

// checkEnded compares the answer about a permit that is not live.
func (m *machine) checkEnded(rt *rapid.T, call string, p *machinePermit, answer string) {
	rt.Helper()
	lapsed, unknown := false, true
	if p.state == "lapsed" {
		lapsed, unknown = m.mayBe(p)
	}
	if !(answer == "lapsed" && lapsed || answer == "unknown" && unknown) {
		rt.Fatalf("%s of permit %d, which has %s: %s (lapsed may be %v, unknown %v)", call, p.id, p.state, answer, lapsed, unknown)
	}
	p.forgotten = answer == "unknown"
	m.outcomes[call+" "+answer]++
}

func (m *machine) renew(rt *rapid.T) {
	p := m.anyPermit(rt)
	lease := p.lease
	var given *time.Duration
	if rapid.Bool().Draw(rt, "lease given") {
		lease = time.Duration(rapid.IntRange(1, 48).Draw(rt, "hours")) * time.Hour
		given = &lease
	}
	var renewed bool
	var reason string
	var expires *time.Time
	var from, to time.Time
	m.query(
		rt, "select r.renewed, r.reason, r.expires_at, statement_timestamp(), clock_timestamp() from pglimit.renew_permit($1, $2) r",
		[]any{p.id, given}, []any{&renewed, &reason, &expires, &from, &to},
	)
	if renewed != (p.state == "live") {
		rt.Fatalf("renewal of permit %d, which is %s: %s", p.id, p.state, reason)
	}
	if p.state != "live" {
		if expires != nil && (reason == "unknown" || !expires.Equal(p.expires)) {
			rt.Fatalf("renewal of permit %d, over since %v: %s since %v", p.id, p.expires, reason, expires)
		}
		m.checkEnded(rt, "renew", p, reason)
		return
	}
	if reason != "renewed" || expires.Before(from.Add(lease)) || expires.After(to.Add(lease)) {
		rt.Fatalf("renewal of permit %d by %v between %v and %v: %s until %v", p.id, lease, from, to, reason, expires)
	}
	p.expires = *expires
	m.outcomes["renew renewed"]++
}

func (m *machine) release(rt *rapid.T) {
	p := m.anyPermit(rt)
	var holder *string
	if rapid.Bool().Draw(rt, "holder given") {
		holder = ptr(rapid.SampledFrom(machineHolders).Draw(rt, "holder"))
	}
	var released bool
	var reason string
	m.query(rt, "select released, reason from pglimit.release_permit($1, $2)", []any{p.id, holder}, []any{&released, &reason})
	if p.state != "live" {
		if released {
			rt.Fatalf("release of permit %d, which is %s: %s", p.id, p.state, reason)
		}
		m.checkEnded(rt, "release", p, reason)
		return
	}
	want := "released"
	if holder != nil && *holder != p.holder {
		want = "not holder"
	}
	if reason != want || released != (want == "released") {
		rt.Fatalf("release of permit %d of %s: %s, want %s", p.id, p.holder, reason, want)
	}
	if released {
		p.state = "released"
	}
	m.outcomes["release "+reason]++
}

func (m *machine) lapse(rt *rapid.T) {
	p := m.anyPermit(rt)
	if p.state != "live" {
		rt.Skip("it is over")
	}
	if err := m.system.QueryRow(m.ctx, `update pglimit.permits set expires_at = statement_timestamp()
		where permit_id = $1 returning expires_at`, p.id).Scan(&p.expires); err != nil {
		rt.Fatal(err)
	}
	p.state, p.slots = "lapsed", map[string]int64{}
	for _, pool := range p.pools {
		p.slots[pool] = m.slots[pool]
	}
}

// purge removes the pools in which nothing is live: all of them, as they are idle from the first
// microsecond on.
func (m *machine) purge(rt *rapid.T) {
	more, purged := true, int64(0)
	for more {
		var n int64
		if err := m.operator.QueryRow(m.ctx, "select permits_purged, more from pglimit.purge()").Scan(&n, &more); err != nil {
			rt.Fatal(err)
		}
		purged += n
	}
	idle := 0
	for pool := range m.slots {
		if _, inUse := m.liveIn(pool); inUse > 0 {
			continue
		}
		idle++
		delete(m.slots, pool)
		delete(m.highestCap, pool)
		for _, p := range m.permits {
			delete(p.slots, pool)
		}
	}
	if (purged > 0) != (idle > 0) {
		rt.Fatalf("purge of %d pools: %d rows", idle, purged)
	}
	if idle > 0 {
		m.outcomes["purge of pools"]++
	}
}

func (m *machine) setCap(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "installation") {
		m.setInstallationCap(rt, 2*machineCap.Draw(rt, "cap"))
		return
	}
	m.setCapsOf(rt, rapid.SampledFrom(machineEndpoints).Draw(rt, "endpoint"))
}

func (m *machine) setInstallationCap(rt *rapid.T, cap int64) {
	m.exec(rt, m.operator, "select pglimit.set_installation_cap($1)", cap)
	m.installation = cap
}

// setCapsOf sets caps of one pool, two or three: only permits with one row go the shortest way.
func (m *machine) setCapsOf(rt *rapid.T, endpoint string) {
	caps := machineCaps{inInstallation: rapid.Bool().Draw(rt, "in installation")}
	pools := rapid.IntRange(1, 3).Draw(rt, "pools")
	if pools&1 > 0 {
		caps.holder = ptr(machineCap.Draw(rt, "holder cap"))
	}
	if pools&2 > 0 {
		caps.endpoint = ptr(machineCap.Draw(rt, "endpoint cap"))
	}
	m.exec(rt, m.operator, "select pglimit.set_endpoint($1, $2, $3, in_installation => $4)",
		endpoint, caps.holder, caps.endpoint, caps.inInstallation)
	m.caps[endpoint] = caps
}

// check compares what is live.
func (m *machine) check(rt *rapid.T) {
	rows, err := m.operator.Query(m.ctx, "select permit_id, expires_at from pglimit.list_permits(max_rows => 1000)")
	if err != nil {
		rt.Fatal(err)
	}
	got, want := map[int64]time.Time{}, map[int64]time.Time{}
	var id int64
	var expires time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &expires}, func() error { got[id] = expires; return nil }); err != nil {
		rt.Fatal(err)
	}
	for _, p := range m.permits {
		if p.state == "live" {
			want[p.id] = p.expires
		}
	}
	if !maps.EqualFunc(got, want, time.Time.Equal) {
		rt.Fatalf("live are %v, want %v", got, want)
	}
}

func ptr[T any](v T) *T { return &v }
