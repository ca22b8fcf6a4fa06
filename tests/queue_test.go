package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

type pollRow struct {
	Granted    bool
	Reason     string
	ID         *int64
	Ahead      *int64
	PollAfter  *time.Duration
	RetryAfter *time.Duration
}

func enqueue(t *testing.T, db rowQuerier, args string) int64 {
	t.Helper()
	var ticket *int64
	var enqueued bool
	var reason string
	if err := db.QueryRow(t.Context(), "select enqueued, reason, ticket from pglimit.enqueue_permit("+args+")").Scan(&enqueued, &reason, &ticket); err != nil {
		t.Fatal(args, ": ", err)
	}
	if !enqueued || reason != "waiting" || ticket == nil {
		t.Fatalf("enqueue_permit(%s): %s", args, reason)
	}
	return *ticket
}

func wantPoll(t *testing.T, db rowQuerier, ticket int64, want string) (r pollRow) {
	t.Helper()
	if err := db.QueryRow(t.Context(), fmt.Sprintf("select granted, reason, permit_id, ahead, poll_after, retry_after from pglimit.poll_ticket(%d)", ticket)).
		Scan(&r.Granted, &r.Reason, &r.ID, &r.Ahead, &r.PollAfter, &r.RetryAfter); err != nil {
		t.Fatal(err)
	}
	if r.Reason != want {
		t.Errorf("poll_ticket(%d): %s, want %s", ticket, r.Reason, want)
	}
	waits := r.Reason == "holder" || r.Reason == "endpoint" || r.Reason == "installation" || r.Reason == "queue"
	granted := r.Reason == "granted" || r.Reason == "shadow" || r.Reason == "off"
	if r.Granted != granted || (r.ID != nil) != granted || (r.PollAfter != nil) != waits || (r.Ahead != nil) != waits || waits && r.RetryAfter == nil {
		t.Errorf("poll_ticket(%d): contradicts itself: %+v", ticket, r)
	}
	if waits && (*r.PollAfter <= 0 || *r.PollAfter > time.Second) {
		t.Errorf("poll_ticket(%d): poll after %v", ticket, *r.PollAfter)
	}
	return r
}

// TestQueueOrder: tickets of a holder are served in order, and holders take turns, a holder with a share of two has two
// for one of another's; whoever polls first.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_endpoint('e', endpoint_cap => 1, time_bound => '1 hour', in_installation => false)")
	mustExec(t, operator, "select pglimit.set_endpoint_override('e', 'twice', share => 2)")
	held := wantGrant(t, app, "'e', 'x'")
	names := map[int64]string{}
	for _, name := range strings.Fields("one1 one2 one3 one4 twice1 twice2 twice3 twice4 late1 late2") {
		names[enqueue(t, app, fmt.Sprintf("'e', '%s'", name[:len(name)-1]))] = name
	}
	// virtual finishes: one 1 2 3 4, twice 0.5 1 1.5 2, late 1 2; equal ones in the order they came
	want := strings.Fields("twice1 one1 twice2 late1 twice3 one2 twice4 late2 one3 one4")
	var got []string
	for range want {
		for ticket := range names {
			if r := wantPoll(t, app, ticket, "endpoint"); r.Granted {
				t.Fatalf("%s has a permit beside another", names[ticket])
			}
		}
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
		for ticket, name := range names {
			var granted bool
			var id *int64
			if err := app.QueryRow(t.Context(), fmt.Sprintf("select granted, permit_id from pglimit.poll_ticket(%d)", ticket)).Scan(&granted, &id); err != nil {
				t.Fatal(err)
			}
			if granted {
				got, held.ID = append(got, name), id
				delete(names, ticket)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
	// who comes when others have been served begins where they are
	first := enqueue(t, app, "'e', 'new'")
	second := enqueue(t, app, "'e', 'one'")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
	wantPoll(t, app, second, "queue")
	wantPoll(t, app, first, "granted")
}

// TestFairNewcomer: a claim without a ticket overtakes nobody at a fair endpoint, but those who could not go anyway.
func TestFairNewcomer(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, fair := range []bool{true, false} {
		e := fmt.Sprintf("e%v", fair)
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_endpoint('%s', holder_cap => 1, endpoint_cap => 2, time_bound => '1 hour', in_installation => false, fair => %v)", e, fair))
		a := wantGrant(t, app, fmt.Sprintf("'%s', 'a'", e))
		b := wantGrant(t, app, fmt.Sprintf("'%s', 'b'", e))
		c := enqueue(t, app, fmt.Sprintf("'%s', 'c'", e))
		wantPoll(t, app, c, "endpoint")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *b.ID), "released")
		if !fair {
			wantGrant(t, app, fmt.Sprintf("'%s', 'd'", e))
			wantPoll(t, app, c, "endpoint")
			continue
		}
		wantClaim(t, app, "'etrue', 'd'", "queue", 2, 1)
		wantClaim(t, app, "'etrue', 'd', request_id => 'r'", "queue", 2, 1)
		wantClaim(t, app, "'etrue', 'a'", "holder", 1, 1)
		granted := wantPoll(t, app, c, "granted")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *granted.ID), "released")
		// a waits for his own permit to end, so he is in nobody's way
		d := enqueue(t, app, "'etrue', 'a'")
		wantPoll(t, app, d, "holder")
		x := wantGrant(t, app, "'etrue', 'd'")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *x.ID), "released")
		// … and in somebody's as soon as he can go
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *a.ID), "released")
		wantClaim(t, app, "'etrue', 'd'", "queue", 2, 0)
		wantPoll(t, app, d, "granted")
		wantGrant(t, app, "'etrue', 'd'")
	}
}

// TestTicketEnds: a ticket that is polled no more, whose deadline has come, that is released or was never drawn.
func TestTicketEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, system := db.Conn("pglimit_app"), db.System()
	const args = "'e', 'h', endpoint_cap => 1, lease => '1 hour'"
	held := wantGrant(t, app, args)
	silent, late, gone, next := enqueue(t, app, args), enqueue(t, app, args), enqueue(t, app, args), enqueue(t, app, args)
	if r := wantPoll(t, app, next, "endpoint"); *r.Ahead != 3 {
		t.Errorf("%d ahead, want 3", *r.Ahead)
	}
	mustExec(t, system, fmt.Sprintf("update pglimit.permits set expires_at = clock_timestamp() where permit_id = %d", silent))
	mustExec(t, system, fmt.Sprintf("update pglimit.permits set expires_at = clock_timestamp(), ends_at = clock_timestamp() where permit_id = %d", late))
	wantReason(t, app, fmt.Sprintf("release_permit(%d, 'h')", gone), "released")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
	first := wantPoll(t, app, next, "granted")
	wantPoll(t, app, silent, "lapsed")
	wantPoll(t, app, late, "deadline")
	wantPoll(t, app, gone, "unknown")
	for _, never := range []int64{1, 0, -1, *held.ID} {
		wantPoll(t, app, never, "unknown")
	}
	// the reply to the grant was lost: the same permit
	if again := wantPoll(t, app, next, "granted"); *again.ID != *first.ID {
		t.Errorf("the second poll has permit %d, the first %d", *again.ID, *first.ID)
	}
	if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()"); n != 1 {
		t.Errorf("%d permits and tickets are left, want 1", n)
	}
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *first.ID), "released")
	wantPoll(t, app, next, "unknown")
}

// TestTicketThatCanNeverGo does not hold up those behind it.
func TestTicketThatCanNeverGo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const args = "'e', 'h', weight => 3"
	mustExec(t, operator, "select pglimit.set_endpoint('e', endpoint_cap => 3, time_bound => '1 hour')")
	heavy, light := enqueue(t, app, args), enqueue(t, app, "'e', 'h'")
	mustExec(t, operator, "select pglimit.set_endpoint('e', endpoint_cap => 2, time_bound => '1 hour')")
	if got := mustScan[string](t, app, "select reason from pglimit.enqueue_permit("+args+")"); got != "never" {
		t.Errorf("a ticket above the cap: %s", got)
	}
	wantPoll(t, app, heavy, "never")
	wantPoll(t, app, heavy, "unknown")
	wantPoll(t, app, light, "granted")
}

// TestCapLoweredBelowAPolledTicket: the ticket is over as well when it had been waiting for that pool, whichever it is;
// it does not keep those behind it, and claims without a ticket, out of an empty pool.
func TestCapLoweredBelowAPolledTicket(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for full, caps := range map[string][2]string{
		"holder":       {"holder_cap => 3", "holder_cap => 2"},
		"endpoint":     {"endpoint_cap => 3", "endpoint_cap => 2"},
		"installation": {"in_installation => true", "in_installation => true"},
	} {
		set := "select pglimit.set_endpoint('" + full + "', time_bound => '1 hour', fair => true, "
		if full != "installation" {
			set += "in_installation => false, "
		}
		mustExec(t, operator, "select pglimit.set_installation_cap(3)")
		mustExec(t, operator, set+caps[0]+")")
		held := wantGrant(t, app, "'"+full+"', 'h', weight => 3")
		heavy := enqueue(t, app, "'"+full+"', 'h', weight => 3, deadline => '1 hour'")
		wantPoll(t, app, heavy, full)
		light := enqueue(t, app, "'"+full+"', 'h'")
		mustExec(t, operator, "select pglimit.set_installation_cap(2)")
		mustExec(t, operator, set+caps[1]+")")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
		wantPoll(t, app, heavy, "never")
		l := wantPoll(t, app, light, "granted")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *l.ID), "released")
	}
}

// TestHolderDoesNotOvertakeHimself: a light ticket waits for the heavy one that its holder drew before, also while that
// one's slots are not free in the holder's own pool; tickets of others need not wait for it.
func TestHolderDoesNotOvertakeHimself(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	const args = ", holder_cap => 2, endpoint_cap => 10, lease => '1 hour'"
	a, b := wantGrant(t, app, "'e', 'h'"+args), wantGrant(t, app, "'e', 'h'"+args)
	heavy := enqueue(t, app, "'e', 'h', weight => 2"+args)
	light := enqueue(t, app, "'e', 'h'"+args)
	other := enqueue(t, app, "'e', 'other'"+args)
	wantPoll(t, app, heavy, "holder")
	wantPoll(t, app, light, "holder")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *a.ID), "released")
	wantPoll(t, app, light, "queue")
	wantPoll(t, app, heavy, "holder")
	wantPoll(t, app, other, "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *b.ID), "released")
	wantPoll(t, app, light, "queue")
	h := wantPoll(t, app, heavy, "granted")
	wantPoll(t, app, light, "holder")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *h.ID), "released")
	wantPoll(t, app, light, "granted")
}

// TestHeavyTicket waits for its slots, and lighter ones behind it wait for it.
func TestHeavyTicket(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	const args = "endpoint_cap => 3, lease => '1 hour'"
	a, b := wantGrant(t, app, "'e', 'a', "+args), wantGrant(t, app, "'e', 'b', weight => 2, "+args)
	light1 := enqueue(t, app, "'e', 'c', "+args)
	heavy := enqueue(t, app, "'e', 'd', weight => 3, "+args)
	light2 := enqueue(t, app, "'e', 'e', weight => 2, "+args)
	var lights []int64
	for range 4 {
		lights = append(lights, enqueue(t, app, "'e', 'f', "+args))
	}
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *a.ID), "released")
	wantPoll(t, app, heavy, "endpoint")
	wantPoll(t, app, light2, "endpoint")
	one := wantPoll(t, app, light1, "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *b.ID), "released")
	wantPoll(t, app, light2, "queue") // of f's the first two have virtual finishes of 1 and 2, this has 2
	wantPoll(t, app, lights[1], "queue")
	f1 := wantPoll(t, app, lights[0], "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *one.ID), "released")
	l2 := wantPoll(t, app, light2, "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *f1.ID), "released")
	f2 := wantPoll(t, app, lights[1], "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *l2.ID), "released")
	wantPoll(t, app, lights[2], "queue")
	wantPoll(t, app, lights[3], "queue")
	wantPoll(t, app, heavy, "endpoint")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *f2.ID), "released")
	wantPoll(t, app, lights[2], "queue")
	wantPoll(t, app, heavy, "granted")
	wantPoll(t, app, lights[2], "endpoint")
}

// TestQueueFull: so many tickets wait at an endpoint, and so many of one holder; a refusal writes nothing.
func TestQueueFull(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_endpoint('e', 1, time_bound => '1 hour', queue_cap => 3, holder_queue_cap => 2)")
	wantFull := func(holder string, cap, inUse int64) {
		t.Helper()
		mustExec(t, app, "begin")
		var reason string
		var ticket *int64
		var gotCap, gotInUse int64
		if err := app.QueryRow(t.Context(), "select reason, ticket, cap, in_use from pglimit.enqueue_permit('e', '"+holder+"')").Scan(&reason, &ticket, &gotCap, &gotInUse); err != nil {
			t.Fatal(err)
		}
		if reason != "queue full" || ticket != nil || gotCap != cap || gotInUse != inUse {
			t.Errorf("%s: %s, %d of %d; want queue full, %d of %d", holder, reason, gotInUse, gotCap, inUse, cap)
		}
		if mustScan[bool](t, app, "select pg_current_xact_id_if_assigned() is not null") {
			t.Error("the refusal has a transaction number")
		}
		mustExec(t, app, "commit")
	}
	first := enqueue(t, app, "'e', 'a'")
	enqueue(t, app, "'e', 'a'")
	wantFull("a", 2, 2)
	enqueue(t, app, "'e', 'b'")
	wantFull("b", 3, 3)
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", first), "released")
	enqueue(t, app, "'e', 'b'")
	wantFull("c", 3, 3)
}

// TestPollWritesNothing while nothing changes, but to extend the ticket's life now and then.
func TestPollWritesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	const args = "'e', 'h', endpoint_cap => 1, lease => '1 hour'"
	held := wantGrant(t, app, args)
	ticket := enqueue(t, app, args)
	wantPoll(t, app, ticket, "endpoint") // notes which pool is full
	life := func() time.Time {
		return mustScan[time.Time](t, db.System(), fmt.Sprintf("select expires_at from pglimit.permits where permit_id = %d", ticket))
	}
	before := life()
	mustExec(t, app, "begin")
	for range 20 {
		wantPoll(t, app, ticket, "endpoint")
	}
	if mustScan[bool](t, app, "select pg_current_xact_id_if_assigned() is not null") {
		t.Error("a poll has a transaction number")
	}
	mustExec(t, app, "commit")
	mustExec(t, db.System(), fmt.Sprintf("update pglimit.permits set expires_at = clock_timestamp() + interval '500 ms' where permit_id = %d", ticket))
	wantPoll(t, app, ticket, "endpoint")
	if !life().After(before) {
		t.Errorf("the ticket lives until %v, before %v", life(), before)
	}
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
	wantPoll(t, app, ticket, "granted")
}

// TestTicketOfAnother: a ticket is of its endpoint and its holder.
func TestTicketOfAnother(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	const args = "endpoint_cap => 1, lease => '1 hour'"
	ticket := enqueue(t, app, "'e', 'a', "+args)
	for _, other := range []string{"'e', 'b'", "'f', 'a'"} {
		if got := mustScan[string](t, app, fmt.Sprintf("select reason from pglimit.claim_permit(%s, %s, ticket => %d)", other, args, ticket)); got != "no ticket" {
			t.Errorf("%s with a's ticket: %s", other, got)
		}
	}
	if got := mustScan[string](t, app, fmt.Sprintf("select reason from pglimit.claim_permit('e', 'a', %s, ticket => %d)", args, ticket)); got != "granted" {
		t.Errorf("a with a's ticket: %s", got)
	}
	for _, other := range []string{"'e', 'b'", "'f', 'a'"} {
		if got := mustScan[string](t, app, fmt.Sprintf("select reason from pglimit.claim_permit(%s, %s, ticket => %d)", other, args, ticket)); got != "no ticket" {
			t.Errorf("%s with a's ticket, after its grant: %s", other, got)
		}
	}
	if _, err := app.Exec(t.Context(), "select pglimit.claim_permit('e', 'a', endpoint_cap => 1, lease => '1 s', ticket => 1, request_id => 'r')"); sqlState(err) != "PGL01" {
		t.Errorf("ticket and request_id: %v", err)
	}
}

// TestTicketThatIsAPermit: a number that is no ticket of the endpoint is worth nothing in any mode, and what has it goes
// on.
func TestTicketThatIsAPermit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, mode := range []string{"shadow", "off"} {
		mustExec(t, operator, "select pglimit.set_endpoint('"+mode+"', endpoint_cap => 1, time_bound => '1 hour', mode => '"+mode+"')")
		enqueue(t, app, "'"+mode+"', 'h'")
		permit := wantGrant(t, app, "'"+mode+" not', 'a', weight => 2, endpoint_cap => 2, holder_cap => 2, lease => '1 hour'")
		wantReason(t, app, fmt.Sprintf("claim_permit('%s', 'h', ticket => %d)", mode, *permit.ID), "no ticket")
		wantReason(t, app, fmt.Sprintf("renew_permit(%d)", *permit.ID), "renewed")
	}
}

// TestWaitersComeWhileSlotsAreLocked steps through the race of a fair endpoint: a claim without a ticket looks and sees
// nobody wait, a ticket is drawn, the slot is free. The claim must not have it.
func TestWaitersComeWhileSlotsAreLocked(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	system, other := db.Conn("pglimit_system"), db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_endpoint('e', endpoint_cap => 1, time_bound => '1 hour', in_installation => false, fair => true)")
	wantReason(t, other, fmt.Sprintf("release_permit(%d)", *wantGrant(t, other, "'e', 'x'").ID), "released")
	// hold the slot, so that the claim, which has seen nobody, looks again and again
	mustExec(t, system, "set role pglimit_system; begin")
	mustExec(t, system, "select from pglimit.permits where pool = e'\\x1fe\\x1f' for update")
	result := make(chan string)
	go func() {
		conn := db.Conn("pglimit_app")
		var reason string
		if err := conn.QueryRow(t.Context(), "select reason from pglimit.claim_permit('e', 'newcomer')").Scan(&reason); err != nil {
			reason = err.Error()
		}
		result <- reason
	}()
	time.Sleep(50 * time.Millisecond)
	ticket := enqueue(t, other, "'e', 'waiter'")
	mustExec(t, system, "commit")
	if got := <-result; got != "queue" {
		t.Errorf("the newcomer: %s, want queue", got)
	}
	wantPoll(t, other, ticket, "granted")
}

// TestQueueRace: many wait at once, some give up without a word, some hold their permit a while; claims without a ticket
// come in between. No cap is exceeded, nobody who goes on polling is left without a permit, and a holder's tickets are
// served in the order he drew them.
func TestQueueRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_endpoint('e', holder_cap => 2, endpoint_cap => 3, time_bound => '1 hour', in_installation => false, fair => true)")
	stop := observe(t, db, func(pool string) int {
		switch {
		case pool == "\x1fe\x1f":
			return 3
		case strings.HasPrefix(pool, "\x1fe\x1f"):
			return 2
		}
		return 1 << 30 // the queue
	})
	deadline := time.Now().Add(10 * hammering)
	var granted, gaveUp, overtaken atomic.Int64
	goOn := func() bool { return time.Now().Before(deadline) && (granted.Load() < 100 || gaveUp.Load() < 5) }
	var mu sync.Mutex
	drawn := map[string][]int64{} // by holder: tickets that wait, in order
	drop := func(holder string, ticket int64) {
		mu.Lock()
		defer mu.Unlock()
		drawn[holder] = slices.DeleteFunc(drawn[holder], func(other int64) bool { return other == ticket })
	}
	together(t, appConns(t, db, 12), func(i int, conn *pgx.Conn) {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		for goOn() {
			holder := fmt.Sprintf("h%d", rng.IntN(4))
			if i == 0 { // without a ticket
				var id *int64
				if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit('e', 'newcomer')").Scan(&id); err != nil {
					t.Error(err)
					return
				}
				if id != nil {
					mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", *id))
				}
				time.Sleep(time.Millisecond)
				continue
			}
			mu.Lock()
			ticket := enqueue(t, conn, fmt.Sprintf("'e', '%s'", holder))
			drawn[holder] = append(drawn[holder], ticket)
			mu.Unlock()
			giveUp := rng.IntN(10) == 0
			for polls := 0; ; polls++ {
				if giveUp && polls == 2 {
					drop(holder, ticket)
					gaveUp.Add(1)
					mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", ticket))
					break
				}
				var id *int64
				var reason string
				var wait *time.Duration
				if err := conn.QueryRow(t.Context(), fmt.Sprintf("select permit_id, reason, poll_after from pglimit.poll_ticket(%d)", ticket)).Scan(&id, &reason, &wait); err != nil {
					t.Error(err)
					return
				}
				if id != nil {
					mu.Lock()
					// those before it had gone, or may have been granted in this very moment
					if n := slices.Index(drawn[holder], ticket); n > 2 {
						overtaken.Add(1)
					}
					mu.Unlock()
					drop(holder, ticket)
					granted.Add(1)
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
					mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", *id))
					break
				}
				if wait == nil {
					t.Errorf("a ticket that is polled ended: %s", reason)
					return
				}
				time.Sleep(*wait)
			}
		}
	})
	stop()
	if granted.Load() < 50 || gaveUp.Load() < 5 {
		t.Errorf("%d granted, %d gave up: nothing is shown", granted.Load(), gaveUp.Load())
	}
	if overtaken.Load() > 0 {
		t.Errorf("%d tickets went before older ones of the same holder", overtaken.Load())
	}
	if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()"); n != 0 {
		t.Errorf("%d permits or tickets are left", n)
	}
	t.Logf("%d granted, %d gave up", granted.Load(), gaveUp.Load())
}

// TestHeavyTicketOfAHolder waits for slots of its holder's own pool: lighter ones of his let it go first, those of others
// need not wait for it.
func TestHeavyTicketOfAHolder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_endpoint('e', holder_cap => 2, endpoint_cap => 9, time_bound => '1 hour', in_installation => false, fair => true)")
	held := wantGrant(t, app, "'e', 'h'")
	heavy, light, other := enqueue(t, app, "'e', 'h', weight => 2"), enqueue(t, app, "'e', 'h'"), enqueue(t, app, "'e', 'o'")
	wantPoll(t, app, light, "queue")
	wantPoll(t, app, heavy, "holder")
	wantPoll(t, app, light, "queue")
	for range 5 { // whichever lane it meets first
		wantClaim(t, app, "'e', 'h'", "queue", 9, 1)
	}
	wantPoll(t, app, other, "granted")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", *held.ID), "released")
	wantPoll(t, app, light, "queue")
	wantPoll(t, app, heavy, "granted")
	wantPoll(t, app, light, "holder")
}

// TestTicketGivenUpWhileGranted: whoever gives a ticket up while its permit is being granted is not told that he did, for
// then nobody would look for the permit.
func TestTicketGivenUpWhileGranted(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, other, super := db.Conn("pglimit_app"), db.Conn("pglimit_app"), connect(t, db.SuperURL())
	mustExec(t, db.Super(), "select 1") // is connected before anybody waits, which ends after a second
	ticket := enqueue(t, app, "'e', 'h', endpoint_cap => 2, weight => 2, lease => '1 hour'")
	mustExec(t, super, "begin; select pglimit._lock_creation(2, e'\\x1fe\\x1f')")
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		wantPoll(t, app, ticket, "granted")
	}()
	waitForLock(t, db, app.PgConn().PID())
	released := make(chan struct{})
	go func() {
		defer close(released)
		wantReason(t, other, fmt.Sprintf("release_permit(%d)", ticket), "unknown")
	}()
	waitForLock(t, db, other.PgConn().PID())
	mustExec(t, super, "commit")
	<-polled
	<-released
	wantPoll(t, other, ticket, "granted")
}

// TestTicketInOtherModes: in modes shadow and off a ticket that is over is worth nothing, and one that is good is used up.
func TestTicketInOtherModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shadow", "off"} {
		db := dbtest.New(t)
		app := db.Conn("pglimit_app")
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_endpoint('e', endpoint_cap => 0, time_bound => '1 hour', mode => '"+mode+"')")
		ticket, gone := enqueue(t, app, "'e', 'h'"), enqueue(t, app, "'e', 'h'")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", gone), "released")
		wantPoll(t, app, gone, "unknown")
		wantReason(t, app, fmt.Sprintf("claim_permit('e', 'h', ticket => %d)", gone), "no ticket")
		wantReason(t, app, fmt.Sprintf("claim_permit('e', 'other', ticket => %d)", ticket), "no ticket")
		first := wantPoll(t, app, ticket, mode)
		if again := wantPoll(t, app, ticket, "granted"); *again.ID != *first.ID {
			t.Errorf("%s: permit %d, then %d", mode, *first.ID, *again.ID)
		}
		if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()"); n != 1 {
			t.Errorf("%s: %d permits and tickets", mode, n)
		}
	}
}
