package tests

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestQueueMachine compares random calls of one session at an endpoint with a queue with a model of it: every answer.
// What a grant may not do is looked at apart from that, and in the end everybody who waits must be served, in order.
func TestQueueMachine(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, system := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.System()
	outcomes := map[string]int{}
	sameSequences()
	rapid.Check(t, func(rt *rapid.T) {
		m := &queueMachine{
			ctx: t.Context(), app: app, operator: operator, system: system, outcomes: outcomes,
			shares: map[string]int64{}, holderCaps: map[string]*int64{},
		}
		m.exec(rt, system, "delete from pglimit.permits")
		m.setCaps(rt)
		for _, holder := range queueHolders {
			m.dropOverride(rt, holder)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim":    m.claim,
			"claim2":   m.claim,
			"enqueue":  m.enqueue,
			"enqueue2": m.enqueue,
			"come":     m.come,
			"come2":    m.come,
			"poll":     m.poll,
			"poll2":    m.poll,
			"round":    m.round,
			"round2":   m.round,
			"again":    m.pollEnded,
			"release":  m.release,
			"release2": m.release,
			"give up":  m.giveUp,
			"lapse":    m.lapse,
			"lapse2":   m.lapse,
			"caps":     m.setCaps,
			"override": m.setOverride,
		})
		m.drain(rt)
	})
	if !t.Failed() {
		for _, want := range []string{
			"claim granted", "claim holder", "claim endpoint", "claim installation", "claim queue", "claim never",
			"enqueue waiting", "enqueue queue full", "enqueue never",
			"poll granted", "poll holder", "poll endpoint", "poll installation", "poll queue", "poll never",
			"poll again", "poll lapsed", "poll deadline", "poll unknown",
			"ticket of a share", "grant before others", "drained",
		} {
			if outcomes[want] == 0 {
				t.Errorf("no %s: nothing is shown", want)
			}
		}
	}
	t.Log(outcomes)
}

var queueHolders = []string{"h1", "h2", "h3"}

// queueMachine is the model and the database beside it.
type queueMachine struct {
	ctx           context.Context
	app, operator *pgx.Conn
	system        *pgxpool.Pool
	outcomes      map[string]int // how often each was seen

	caps               [3]*int64 // of each holder, the endpoint, the installation
	fair               bool
	bound, holderBound int64             // of tickets that wait
	shares             map[string]int64  // overrides
	holderCaps         map[string]*int64 // overrides
	permits            []*queuePermit
	tickets            []*queueTicket // as they were drawn
	served             float64        // tag
}

type queuePermit struct {
	id     int64
	holder string
	weight int64
	pools  [3]bool // that it has slots in
	live   bool
}

type queueTicket struct {
	number int64
	holder string
	weight int64
	tag    float64
	state  string // waiting, granted, lapsed, deadline or unknown
	permit *queuePermit
	full   int   // the pool it was last refused for, 0 for none yet: looked at first
	ahead  int64 // as it was last looked at
	drawn  int   // tickets drawn when it ended: it is known at least until the next has its place
}

func (m *queueMachine) exec(rt *rapid.T, db rowQuerier, sql string, args ...any) {
	rt.Helper()
	if _, err := db.Exec(m.ctx, sql, args...); err != nil {
		rt.Fatal(sql, args, ": ", err)
	}
}

func (m *queueMachine) capsOf(holder string) [3]*int64 {
	caps := m.caps
	if own := m.holderCaps[holder]; own != nil {
		caps[0] = own
	}
	return caps
}

// inUse is how many slots of a holder's, the endpoint's or the installation's pool are.
func (m *queueMachine) inUse(k int, holder string) (n int64) {
	for _, p := range m.permits {
		if p.live && p.pools[k] && (k > 0 || p.holder == holder) {
			n += p.weight
		}
	}
	return n
}

// waiting are the tickets that wait, in the order in which they are served.
func (m *queueMachine) waiting() (tickets []*queueTicket) {
	for _, ticket := range m.tickets {
		if ticket.state == "waiting" {
			tickets = append(tickets, ticket)
		}
	}
	slices.SortStableFunc(tickets, func(a, b *queueTicket) int {
		switch {
		case a.tag < b.tag:
			return -1
		case a.tag > b.tag:
			return 1
		}
		return 0
	})
	return tickets
}

// room is what a pool has free, nil without a bound.
func (m *queueMachine) room(k int, holder string) *int64 {
	if cap := m.capsOf(holder)[k]; cap != nil {
		return ptr(*cap - m.inUse(k, holder))
	}
	return nil
}

func fits(weight int64, room *int64) bool { return room == nil || weight <= *room }

// mayGo says whether it is the turn of a ticket, or, if it is nil, of a claim without one: whether there is room for
// all before it who have room of their own, and for itself. Nobody overtakes another ticket of his holder.
func (m *queueMachine) mayGo(ticket *queueTicket, holder string, shared, own *int64) bool {
	rooms, before := map[string]*int64{}, int64(0)
	for _, h := range queueHolders {
		rooms[h] = m.room(0, h)
	}
	rooms[holder] = own
	for _, other := range m.waiting() {
		if other == ticket {
			return fits(before+ticket.weight, shared) && fits(ticket.weight, rooms[holder])
		}
		if ticket == nil && other.holder == holder {
			return false
		}
		if !fits(other.weight, rooms[other.holder]) {
			rooms[other.holder] = ptr(int64(0))
			continue
		}
		if ticket == nil {
			return false
		}
		before += other.weight
		if room := rooms[other.holder]; room != nil {
			rooms[other.holder] = ptr(*room - other.weight)
		}
	}
	return true
}

// ready says whether a ticket would be granted if it were polled now.
func (m *queueMachine) ready(ticket *queueTicket) bool {
	return m.mayGo(ticket, ticket.holder, m.sharedRoom(ticket.holder), m.room(0, ticket.holder))
}

func (m *queueMachine) sharedRoom(holder string) *int64 {
	a, b := m.room(1, holder), m.room(2, holder)
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// queueAnswer is what a claim or a poll answers.
type queueAnswer struct {
	reason     string
	cap, inUse *int64
}

func (a queueAnswer) String() string {
	return fmt.Sprintf("%s, %s of %s", a.reason, show(a.inUse), show(a.cap))
}

func show(v *int64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

var queuePools = [3]string{"holder", "endpoint", "installation"}

// claimed is what a claim answers.
func (m *queueMachine) claimed(ticket *queueTicket, holder string, weight int64) queueAnswer {
	caps := m.capsOf(holder)
	pools, shared := 0, 0
	for _, k := range []int{0, 2, 1} { // of two that are shared the endpoint's
		if caps[k] != nil {
			pools, shared = pools+1, k
		}
	}
	full := -1
	for k, cap := range caps {
		if cap == nil {
			continue
		}
		if weight > *cap {
			return queueAnswer{"never", cap, ptr(m.inUse(k, holder))}
		}
		if !fits(weight, m.room(k, holder)) {
			full = k
			break
		}
	}
	refused := queueAnswer{}
	if full >= 0 {
		refused = queueAnswer{queuePools[full], caps[full], ptr(m.inUse(full, holder))}
		// of a pool alone the turn is looked at first
		if ticket != nil || pools > 1 {
			return refused
		}
	}
	if (ticket != nil || m.fair) && !m.mayGo(ticket, holder, m.sharedRoom(holder), m.room(0, holder)) {
		k := shared // by all who wait, if any is
		return queueAnswer{"queue", caps[k], ptr(m.inUse(k, holder))}
	}
	if full >= 0 {
		return refused
	}
	return queueAnswer{reason: "granted"}
}

// polled is what a poll answers, and whether it went beyond the pool that was full the last time.
func (m *queueMachine) polled(ticket *queueTicket) (answer queueAnswer, looked bool) {
	if ticket.full > 0 {
		k := ticket.full - 1
		cap, inUse := m.capsOf(ticket.holder)[k], m.inUse(k, ticket.holder)
		room := m.room(k, ticket.holder)
		if cap != nil && ticket.weight > *cap {
			return queueAnswer{"never", cap, &inUse}, false
		}
		if cap != nil && !fits(ticket.weight, room) {
			return queueAnswer{queuePools[k], cap, &inUse}, false
		}
		shared, own := room, (*int64)(nil)
		if k == 0 {
			shared, own = nil, room
		}
		if !m.mayGo(ticket, ticket.holder, shared, own) {
			return queueAnswer{"queue", cap, &inUse}, true
		}
	}
	return m.claimed(ticket, ticket.holder, ticket.weight), true
}

func same(a, b *int64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func (m *queueMachine) granted(rt *rapid.T, id int64, holder string, weight int64) *queuePermit {
	p := &queuePermit{id: id, holder: holder, weight: weight, live: true}
	for k, cap := range m.capsOf(holder) {
		p.pools[k] = cap != nil
	}
	m.permits = append(m.permits, p)
	for k, cap := range m.capsOf(holder) {
		if cap != nil && m.inUse(k, holder) > *cap {
			rt.Fatalf("permit %d of %s: %d of %d in use of the %s", id, holder, m.inUse(k, holder), *cap, queuePools[k])
		}
	}
	return p
}

var (
	queueWeight = rapid.SampledFrom([]int64{1, 2, 1, 1, 3, 1, 1, 1})
	queueCaps   = [3]*rapid.Generator[int64]{
		rapid.SampledFrom([]int64{2, 1, 3, 2, 0}),
		rapid.SampledFrom([]int64{3, 4, 2, 5, 3, 1}),
		rapid.SampledFrom([]int64{3, 4, 2, 5, 3, 1}),
	}
)

func (m *queueMachine) claim(rt *rapid.T) {
	holder, weight := rapid.SampledFrom(queueHolders).Draw(rt, "holder"), queueWeight.Draw(rt, "weight")
	want := m.claimed(nil, holder, weight)
	var ready []*queueTicket
	for _, other := range m.waiting() {
		if m.ready(other) {
			ready = append(ready, other)
		}
	}
	var got queueAnswer
	var id *int64
	if err := m.app.QueryRow(m.ctx, "select reason, permit_id, cap, in_use from pglimit.claim_permit('e', $1, weight => $2)", holder, weight).
		Scan(&got.reason, &id, &got.cap, &got.inUse); err != nil {
		rt.Fatal(err)
	}
	if got.reason != want.reason || !same(got.cap, want.cap) || !same(got.inUse, want.inUse) || (id != nil) != (got.reason == "granted") {
		rt.Fatalf("claim of %d by %s: %v, want %v", weight, holder, got, want)
	}
	m.outcomes["claim "+got.reason]++
	if id == nil {
		return
	}
	m.granted(rt, *id, holder, weight)
	for _, other := range ready {
		if m.fair && !m.ready(other) {
			rt.Fatalf("a claim of %d by %s has the room of ticket %d", weight, holder, other.number)
		}
	}
}

func (m *queueMachine) enqueue(rt *rapid.T) {
	holder, weight := rapid.SampledFrom(queueHolders).Draw(rt, "holder"), queueWeight.Draw(rt, "weight")
	ticket := &queueTicket{holder: holder, weight: weight, tag: m.served, state: "waiting"}
	want, ofHolder := "waiting", int64(0)
	for _, cap := range m.capsOf(holder) {
		if cap != nil && weight > *cap {
			want = "never"
		}
	}
	for _, other := range m.waiting() {
		ticket.ahead++
		if other.holder == holder {
			ofHolder++
			ticket.tag = max(ticket.tag, other.tag)
		}
	}
	if want == "waiting" && (ofHolder >= m.holderBound || ticket.ahead >= m.bound) {
		want = "queue full"
	}
	share, shared := m.shares[holder]
	if !shared {
		share = 1
	}
	ticket.tag += float64(weight) / float64(share)

	var reason string
	var number, ahead *int64
	if err := m.app.QueryRow(m.ctx, "select reason, ticket, ahead from pglimit.enqueue_permit('e', $1, weight => $2, deadline => '1 hour')", holder, weight).
		Scan(&reason, &number, &ahead); err != nil {
		rt.Fatal(err)
	}
	if reason != want || (number != nil) != (want == "waiting") || number != nil && *ahead != ticket.ahead {
		rt.Fatalf("ticket of %d for %s: %s, want %s and %d ahead", weight, holder, reason, want, ticket.ahead)
	}
	m.outcomes["enqueue "+reason]++
	if number == nil {
		return
	}
	if shared && share > 1 {
		m.outcomes["ticket of a share"]++
	}
	ticket.number = *number
	m.tickets = append(m.tickets, ticket)
	// however long this test takes
	m.exec(rt, m.system, "update pglimit.permits set expires_at = ends_at where permit_id = $1", ticket.number)
}

// come draws a ticket and polls it.
func (m *queueMachine) come(rt *rapid.T) {
	drawn := len(m.tickets)
	m.enqueue(rt)
	if len(m.tickets) > drawn {
		m.pollOf(rt, m.tickets[drawn])
	}
}

// round polls all who wait, the last first.
func (m *queueMachine) round(rt *rapid.T) {
	for _, ticket := range slices.Backward(m.waiting()) {
		m.pollOf(rt, ticket)
	}
}

func (m *queueMachine) poll(rt *rapid.T) {
	waiting := m.waiting()
	if len(waiting) == 0 {
		rt.Skip("nobody waits")
	}
	m.pollOf(rt, rapid.SampledFrom(waiting).Draw(rt, "ticket"))
}

func (m *queueMachine) pollOf(rt *rapid.T, ticket *queueTicket) {
	rt.Helper()
	waiting := m.waiting()
	before := waiting[:slices.Index(waiting, ticket)]
	var ready []*queueTicket
	for _, other := range before {
		if m.ready(other) {
			ready = append(ready, other)
		}
	}
	want, looked := m.polled(ticket)
	ahead := ticket.ahead
	if looked {
		ahead = int64(len(before))
	}

	var got queueAnswer
	var id, gotAhead *int64
	if err := m.app.QueryRow(m.ctx, "select reason, permit_id, cap, in_use, ahead from pglimit.poll_ticket($1)", ticket.number).
		Scan(&got.reason, &id, &got.cap, &got.inUse, &gotAhead); err != nil {
		rt.Fatal(err)
	}
	if got.reason != want.reason || !same(got.cap, want.cap) || !same(got.inUse, want.inUse) || (id != nil) != (got.reason == "granted") {
		rt.Fatalf("poll of ticket %d (%d for %s): %v, want %v", ticket.number, ticket.weight, ticket.holder, got, want)
	}
	m.outcomes["poll "+got.reason]++
	switch got.reason {
	case "granted":
		ticket.state = "granted"
		ticket.permit = m.granted(rt, *id, ticket.holder, ticket.weight)
		m.served = max(m.served, ticket.tag)
		for _, other := range before {
			if !m.ready(other) && (other.holder == ticket.holder || slices.Contains(ready, other)) {
				rt.Fatalf("ticket %d of %s has the room of ticket %d", ticket.number, ticket.holder, other.number)
			}
		}
		if len(before) > 0 {
			m.outcomes["grant before others"]++
		}
		return
	case "never":
		ticket.state = "unknown"
		return
	case "queue":
		if ticket.full == 0 {
			ticket.full = 2
		}
	default:
		ticket.full = 1 + slices.Index(queuePools[:], got.reason)
	}
	if !same(gotAhead, &ahead) {
		rt.Fatalf("poll of ticket %d: %s ahead, want %d", ticket.number, show(gotAhead), ahead)
	}
	ticket.ahead = ahead
}

func (m *queueMachine) pollEnded(rt *rapid.T) {
	var ended []*queueTicket
	for _, ticket := range m.tickets {
		if ticket.state != "waiting" {
			ended = append(ended, ticket)
		}
	}
	if len(ended) == 0 {
		rt.Skip("all wait")
	}
	ticket := rapid.SampledFrom(ended).Draw(rt, "ticket")
	want := ticket.state
	if want == "granted" && !ticket.permit.live {
		want = "unknown"
	}
	var reason string
	var id *int64
	if err := m.app.QueryRow(m.ctx, "select reason, permit_id from pglimit.poll_ticket($1)", ticket.number).Scan(&reason, &id); err != nil {
		rt.Fatal(err)
	}
	if reason == "unknown" && (want == "lapsed" || want == "deadline") && len(m.tickets) > ticket.drawn {
		ticket.state, want = "unknown", "unknown" // another has its place
	}
	if reason != want || (id != nil) != (want == "granted") || id != nil && *id != ticket.permit.id {
		rt.Fatalf("poll of ticket %d, which is over: %s, want %s", ticket.number, reason, want)
	}
	if reason == "granted" {
		reason = "again"
	}
	m.outcomes["poll "+reason]++
}

func (m *queueMachine) livePermits() (live []*queuePermit) {
	for _, p := range m.permits {
		if p.live {
			live = append(live, p)
		}
	}
	return live
}

func (m *queueMachine) release(rt *rapid.T) {
	live := m.livePermits()
	if len(live) == 0 {
		rt.Skip("no permits")
	}
	m.releaseOf(rt, rapid.SampledFrom(live).Draw(rt, "permit"))
}

func (m *queueMachine) releaseOf(rt *rapid.T, p *queuePermit) {
	rt.Helper()
	m.end(rt, p.id)
	p.live = false
}

func (m *queueMachine) end(rt *rapid.T, id int64) {
	rt.Helper()
	var reason string
	if err := m.app.QueryRow(m.ctx, "select reason from pglimit.release_permit($1)", id).Scan(&reason); err != nil {
		rt.Fatal(err)
	}
	if reason != "released" {
		rt.Fatalf("release of %d: %s", id, reason)
	}
}

func (m *queueMachine) giveUp(rt *rapid.T) {
	waiting := m.waiting()
	if len(waiting) == 0 {
		rt.Skip("nobody waits")
	}
	ticket := rapid.SampledFrom(waiting).Draw(rt, "ticket")
	m.end(rt, ticket.number)
	ticket.state = "unknown"
}

// lapse ends a permit's lease, a ticket that is polled no more, or one whose deadline has come.
func (m *queueMachine) lapse(rt *rapid.T) {
	waiting, live := m.waiting(), m.livePermits()
	switch what := rapid.SampledFrom([]string{"lapsed", "permit", "deadline"}).Draw(rt, "what"); {
	case what == "permit" && len(live) > 0:
		p := rapid.SampledFrom(live).Draw(rt, "permit")
		m.exec(rt, m.system, "update pglimit.permits set expires_at = statement_timestamp() where permit_id = $1", p.id)
		p.live = false
	case what != "permit" && len(waiting) > 0:
		ticket := rapid.SampledFrom(waiting).Draw(rt, "ticket")
		m.exec(rt, m.system, `update pglimit.permits set expires_at = statement_timestamp(),
			ends_at = case $2 when 'deadline' then statement_timestamp() else ends_at end where permit_id = $1`, ticket.number, what)
		ticket.state, ticket.drawn = what, len(m.tickets)
	default:
		rt.Skip("nothing to lapse")
	}
}

func (m *queueMachine) setEndpoint(rt *rapid.T) {
	rt.Helper()
	if m.caps[2] != nil {
		m.exec(rt, m.operator, "select pglimit.set_installation_cap($1)", m.caps[2])
	}
	m.exec(rt, m.operator, `select pglimit.set_endpoint('e', $1, $2, '1 hour', in_installation => $3, fair => $4,
		queue_cap => $5, holder_queue_cap => $6)`, m.caps[0], m.caps[1], m.caps[2] != nil, m.fair, m.bound, m.holderBound)
}

func (m *queueMachine) setCaps(rt *rapid.T) {
	m.fair = rapid.Bool().Draw(rt, "fair")
	m.bound = rapid.SampledFrom([]int64{10, 10, 4}).Draw(rt, "queue cap")
	m.holderBound = rapid.SampledFrom([]int64{10, 10, 2}).Draw(rt, "holder queue cap")
	m.caps = [3]*int64{}
	for m.caps == [3]*int64{} {
		for k := range m.caps {
			if rapid.IntRange(0, 2).Draw(rt, queuePools[k]) < 2-k/2 { // the installation's every third time
				m.caps[k] = ptr(queueCaps[k].Draw(rt, "cap"))
			}
		}
	}
	m.setEndpoint(rt)
}

func (m *queueMachine) setOverride(rt *rapid.T) {
	holder := rapid.SampledFrom(queueHolders).Draw(rt, "holder")
	if rapid.IntRange(0, 3).Draw(rt, "drop") == 0 {
		m.dropOverride(rt, holder)
		return
	}
	var cap *int64
	if rapid.Bool().Draw(rt, "with cap") {
		cap = ptr(queueCaps[0].Draw(rt, "cap"))
	}
	share := rapid.SampledFrom([]int64{2, 3, 1}).Draw(rt, "share")
	m.exec(rt, m.operator, "select pglimit.set_endpoint_override('e', $1, $2, $3)", holder, cap, share)
	m.shares[holder], m.holderCaps[holder] = share, cap
}

func (m *queueMachine) dropOverride(rt *rapid.T, holder string) {
	m.exec(rt, m.operator, "select pglimit.drop_endpoint_override('e', $1)", holder)
	delete(m.shares, holder)
	delete(m.holderCaps, holder)
}

// drain releases one permit after the other. All who wait are polled, the last first, and are served in order.
func (m *queueMachine) drain(rt *rapid.T) {
	m.caps, m.fair = [3]*int64{nil, ptr(int64(3)), nil}, true
	m.setEndpoint(rt)
	for _, holder := range queueHolders {
		m.dropOverride(rt, holder)
	}
	for waiting := m.waiting(); len(waiting) > 0; waiting = m.waiting() {
		m.round(rt)
		served := len(waiting) - len(m.waiting())
		for k, ticket := range waiting {
			if (ticket.state == "granted") != (k < served) {
				rt.Fatalf("ticket %d of %s, the %dth of those who waited, is %s when %d were served", ticket.number, ticket.holder, k+1, ticket.state, served)
			}
		}
		live := m.livePermits()
		if len(live) == 0 {
			rt.Fatalf("%d wait for nobody", len(waiting))
		}
		m.releaseOf(rt, live[0])
		m.outcomes["drained"]++
	}
}
