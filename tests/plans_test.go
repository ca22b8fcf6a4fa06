package tests

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// A plan made while a table is empty, tiny, full of dead rows or huge must still go to the newest row by
// index: a bitmap or sequential scan would read every dead turn that a held snapshot pins.
func TestPlansNeverReadDeadTurns(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	calls := []string{
		"select from pglimit.hit('l', 's', 1000000, '1 hour')",
		"select from pglimit.peek('l', 's', 1000000, '1 hour')",
		"select from pglimit.forget('l', 's')",
		"select from pglimit.purge(1)",
		"select from pglimit.list_counters(max_rows => 5)",
		"select from pglimit.hit('bucket', 's')",
		"select from pglimit.hit('sliding', 's')",
		"select from pglimit.hit('month', 's')",
		"select from pglimit.hit('bill', 's')",
		"select from pglimit.peek('bucket', 's')",
		"select from pglimit.forget('bill', 's')",
		// holds, which have no index but their number
		"select from pglimit.settle((pglimit.hold('l', 's', 1, '1 hour', 1000000, '1 hour')).hold_id, 1)",
		"select from pglimit.hold('bill', 's', 1, '1 hour')",
		"select from pglimit.list_holds(max_rows => 5)",
		"select from pglimit.explain_limit('l', 's')",
		"select from pglimit.explain_limit('bill', 's')",
		// the special ways: a limit in shadow, a subject with an override
		"select from pglimit.set_limit('shadow', 1, '1 hour', mode => 'shadow')",
		"select from pglimit.hit('shadow', 's')",
		"select from pglimit.hit('shadow', 's')",
		"select from pglimit.list_limits()",
		"select from pglimit.set_limit_override('o', 's', 1000000)",
		"select from pglimit.hit('o', 's', 1, '1 hour')",
		"select from pglimit.peek('o', 's', 1, '1 hour')",
		"select from pglimit.hit('o', 's', 1, '1 hour')",
		// a range at one limit, and at all; who is in it and who is not
		"select from pglimit.block_range('r', '203.0.113.0/24')",
		"select from pglimit.hit('r', '203.0.113.7', 1, '1 hour')",
		"select from pglimit.hit('r', '198.51.100.7', 1000000, '1 hour')",
		"select from pglimit.block_range('*', '203.0.113.0/25', '1 hour')",
		"select from pglimit.peek('r', '203.0.113.7', 1, '1 hour')",
		"select from pglimit.unblock_range('*', '203.0.113.0/25')",
		// many keys: those of the straight way, new ones, those that are decided one by one
		"select from pglimit.hit_many('{l,l,many,bucket,bill}', '{s,t,s,s,s}', null, '{1000000,1000000,1000000,null,null}', '{1 hour,1 hour,1 hour,null,null}')",
		"select from pglimit.hit_many('{many,l}', '{s,s}', null, '{1000000,1000000}', '{1 hour,1 hour}')",
		// what goes with a count
		"select pglimit.settle(h.hold_id, 1) from pglimit.hold('bucket', 's', 2, '1 hour') h",
		"select pglimit.settle(h.hold_id, 1) from pglimit.hold('bill', 's', 2, '1 hour') h",
		"select from pglimit.hit_up_to('sliding', 's', 2)",
		"select from pglimit.charge('bucket', 's', 2)",
		"select from pglimit.refund('bucket', 's', 2)",
		"select from pglimit.explain_limit('bucket', 's')",
		"select from pglimit.block('*', 'blocked')",
		"select from pglimit.strike('l', 'struck')",
		"select from pglimit.sign_in_failed('ann', '203.0.113.7')",
		"select from pglimit.check_sign_in('ann', '203.0.113.7')",
		"select from pglimit.show_sign_in('ann', '203.0.113.7')",
		"select from pglimit.forget_sign_in('ann', '203.0.113.7')",
		"select from pglimit.sign_in_succeeded('ann', '203.0.113.7')",
		"select from pglimit.list_blocks()",
		`select from pglimit.admit('[{"limit": "l", "subject": "s", "max_hits": 1000000, "per": "1 hour"}, {"limit": "bill", "subject": "s"}]')`,
	}
	mustExec(t, db.System(), "update pglimit.installation set lost_at = now(), grace = '1 day'")
	reassert := 1 << 38 // an id of no epoch that there was
	// plans are those of a new session, which plans by what it finds
	plansOf := func(state string) {
		config, err := pgx.ParseConfig(db.SuperURL())
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var plans []string
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(n.Message, "plan:") {
				plans = append(plans, n.Message)
			}
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		mustExec(t, conn, "load 'auto_explain'; set auto_explain.log_min_duration = 0; "+
			"set auto_explain.log_nested_statements = on; set client_min_messages = log")
		for _, call := range calls {
			mustExec(t, conn, call)
		}
		id := mustScan[int64](t, conn, "select c.permit_id from pglimit.claim_permit('e', 'h', holder_cap => 4, "+
			"endpoint_cap => 8, installation_cap => 9, lease => '1 hour') c")
		// the ways of one pool, of a lane with dead turns to visit and of several slots
		mustExec(t, db.System(), `update pglimit.permits set changes = 8 where pool = e'\x1fone\x1f'`)
		for _, args := range []string{"endpoint_cap => 32", "endpoint_cap => 32", "endpoint_cap => 32, request_id => 'r'", "holder_cap => 40, weight => 2"} {
			mustExec(t, conn, "select pglimit.release_permit(c.permit_id) from pglimit.claim_permit('one', 'h', lease => '1 hour', "+args+") c")
		}
		reassert++
		wantReason(t, conn, fmt.Sprintf("reassert_permit(%d, 'one', 'h', 4, 8, 9, '1 hour')", reassert), "reasserted")
		wantReason(t, conn, fmt.Sprintf("reassert_permit(%d, 'one', 'h', 4, 8, 9, '1 hour')", reassert), "renewed")
		mustExec(t, conn, fmt.Sprintf("select from pglimit.release_permit(%d)", reassert))
		// a queue, a claim at a fair endpoint, one beyond the caps
		ticket := mustScan[int64](t, conn, "select ticket from pglimit.enqueue_permit('fair', 'h')")
		for range 2 {
			mustExec(t, conn, fmt.Sprintf("select from pglimit.poll_ticket(%d)", ticket))
		}
		mustExec(t, conn, "select from pglimit.claim_permit('fair', 'h')")
		for range 3 {
			mustExec(t, conn, "select pglimit.release_permit(c.permit_id) from pglimit.claim_permit('shadow', 'h') c")
		}
		mustExec(t, conn, fmt.Sprintf("select from pglimit.release_permit(%d)", ticket))
		mustExec(t, conn, "select from pglimit.list_endpoints()")
		mustExec(t, conn, fmt.Sprintf("select from pglimit.renew_permit(%d)", id))
		mustExec(t, conn, fmt.Sprintf("select from pglimit.release_permit(%d)", id))
		if len(plans) < len(calls) {
			t.Fatalf("%s: only %d plans seen", state, len(plans))
		}
		if byCtid := slices.ContainsFunc(plans, func(plan string) bool {
			return strings.Contains(plan, "row_count = 1") && strings.Contains(plan, "Tid Scan on permits")
		}); !byCtid {
			t.Errorf("%s: no claim of one pool goes by ctid", state)
		}
		if newest := slices.ContainsFunc(plans, func(plan string) bool {
			return strings.Contains(plan, "Scan Backward using permits_pkey on permits a")
		}); !newest {
			t.Errorf("%s: no claim looks for lanes above the cap from the newest row", state)
		}
		if nearest := slices.ContainsFunc(plans, func(plan string) bool {
			return strings.Contains(plan, "Scan Backward using block_ranges_pkey on block_ranges") &&
				strings.Contains(plan, ".limit_name) AND") && strings.Contains(plan, ".last)")
		}); !nearest {
			t.Errorf("%s: no hit looks for the ranges of an address from the nearest on", state)
		}
		charges := 0
		for _, plan := range plans {
			// hit_many: rows are locked in the order of keys, answers are in the order of places
			if strings.Contains(plan, "CTE looked") {
				charges++
				if !strings.Contains(plan, "Tid Scan on counters c") || !strings.Contains(plan, ".key COLLATE") || strings.Contains(plan, "Right Join") || strings.Contains(plan, "Merge") {
					t.Errorf("%s:\n%s", state, plan)
				}
			}
		}
		if charges < 2 {
			t.Errorf("%s: %d plans of hit_many", state, charges)
		}
		for _, plan := range plans {
			// the keys that addresses of a range can have, and not all
			if strings.Contains(plan, "_address(") && (!strings.Contains(plan, "Index Cond: ((key >= (") || strings.Contains(plan, "Gather")) {
				t.Errorf("%s:\n%s", state, plan)
			}
			if strings.Contains(plan, "on block_ranges") && strings.Contains(plan, "Seq Scan") {
				t.Errorf("%s:\n%s", state, plan)
			}
			onHolds := strings.Contains(plan, "on holds") || strings.Contains(plan, "on durable_holds")
			onState := onHolds || strings.Contains(plan, "on permits") || strings.Contains(plan, "on counters") || strings.Contains(plan, "on durable_counters")
			// hit has no limit 1: the first row must come without the others being read. Of a plan with a limit it is keys
			// that are sorted
			sorts := strings.Contains(plan, "on counters") && strings.Contains(plan, "Sort  (") && !strings.Contains(plan, "Limit  (") && !strings.Contains(plan, "_address(") ||
				onHolds && strings.Contains(plan, "Sort  (")
			if onState && (sorts || strings.Contains(plan, "Bitmap") || strings.Contains(plan, "Seq Scan")) {
				t.Errorf("%s:\n%s", state, plan)
			}
		}
	}
	work := func(times int) {
		conn := db.Conn("pglimit_app")
		for range times {
			mustExec(t, conn, calls[0])
			mustExec(t, conn, "select from pglimit.hit('shadow', 's') a, pglimit.hit('o', 's', 1, '1 hour') b")
			mustExec(t, conn, "select from pglimit.claim_permit('e', 'h', holder_cap => 4, lease => '1 hour') c, "+
				"lateral pglimit.release_permit(c.permit_id)")
		}
	}

	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_endpoint('fair', endpoint_cap => 2, time_bound => '1 hour', fair => true)")
	mustExec(t, operator, `
		select pglimit.set_limit('bucket', 1000000, '1 hour', 'token_bucket');
		select pglimit.set_limit('sliding', 1000000, '1 hour', 'sliding_window');
		select pglimit.set_limit('month', 1000000, '1 month', 'calendar');
		select pglimit.set_limit('bill', 1000000, '1 hour', durable => true)`)
	mustExec(t, operator, "select pglimit.set_endpoint('shadow', endpoint_cap => 0, time_bound => '1 hour', mode => 'shadow')")
	mustExec(t, operator, "select pglimit.set_endpoint_override('fair', 'x', 2)")
	wantGrant(t, db.Conn("pglimit_app"), "'fair', 'x'")
	wantGrant(t, db.Conn("pglimit_app"), "'fair', 'x'")

	plansOf("empty")
	vacuum := func() {
		mustExec(t, db.Super(), "vacuum (analyze) pglimit.permits")
		mustExec(t, db.Super(), "vacuum (analyze) pglimit.counters")
		mustExec(t, db.Super(), "vacuum (analyze) pglimit.holds")
	}
	vacuum()
	plansOf("tiny, analyzed")
	work(1500)
	vacuum()
	plansOf("emptied of dead rows, with room left")
	holder := db.Conn("")
	mustExec(t, holder, "begin isolation level repeatable read; select 1")
	work(500)
	vacuum()
	plansOf("full of dead rows")

	// In the order of the keys, and with the other index built at the end: the cheapest ways to fill
	// an index.
	var wg sync.WaitGroup
	for _, sql := range []string{`
		insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
		select e'\x1fl\x1f' || (10000000 + i), 1, 0, 1, now(), now() + interval '1 h' from generate_series(1, 1000000) i`, `
		do $$
		declare
			v_index text := pg_get_indexdef('pglimit.permits_permit_id_idx'::regclass);
		begin
			drop index pglimit.permits_permit_id_idx;
			insert into pglimit.permits (pool, lane, turn, permit_id, expires_at, row_count)
			select e'\x1fe\x1f' || (10000000 + i / 4), 1 + i % 4, 1, i, now() + interval '1 h', 4 from generate_series(0, 999999) i;
			execute v_index;
		end
		$$`, `
		insert into pglimit.holds (hold_id, tenant, limit_name, subject, charged, held_at, expires_at, returns)
		select i, '', 'l', 's' || i, 1, now(), now() + interval '1 h', false from generate_series(1, 200000) i`} {
		wg.Go(func() {
			if _, err := db.System().Exec(t.Context(), sql); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	plansOf("a million rows, not analyzed")
	vacuum()
	plansOf("a million rows")
}
