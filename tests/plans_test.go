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
		for _, plan := range plans {
			onState := strings.Contains(plan, "on permits") || strings.Contains(plan, "on counters")
			// hit has no limit 1: the first row must come without the others being read
			sorts := strings.Contains(plan, "on counters") && strings.Contains(plan, "Sort")
			if onState && (sorts || strings.Contains(plan, "Bitmap") || strings.Contains(plan, "Seq Scan")) {
				t.Errorf("%s:\n%s", state, plan)
			}
		}
	}
	work := func(times int) {
		conn := db.Conn("pglimit_app")
		for range times {
			mustExec(t, conn, calls[0])
			mustExec(t, conn, "select from pglimit.claim_permit('e', 'h', holder_cap => 4, lease => '1 hour') c, "+
				"lateral pglimit.release_permit(c.permit_id)")
		}
	}

	plansOf("empty")
	vacuum := func() {
		mustExec(t, db.Super(), "vacuum (analyze) pglimit.permits")
		mustExec(t, db.Super(), "vacuum (analyze) pglimit.counters")
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
		$$`} {
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
