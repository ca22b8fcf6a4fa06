package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestRequest is C-25 (the lost reply): a claim that is sent again has the permit of the first, and
// takes nothing.
func TestRequest(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	live := func() int {
		return mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()")
	}
	for name, caps := range map[string]string{"one pool": "1", "three pools": "1, 1, 1", "two slots": "2, weight => 2"} {
		claim := fmt.Sprintf("'e', '%s', %s, lease => '1 hour', request_id => 'r1'", name, caps)
		first := wantGrant(t, app, claim)
		again := wantGrant(t, app, claim)
		if *again.ID != *first.ID || !again.ExpiresAt.Equal(*first.ExpiresAt) {
			t.Errorf("%s: the retry has %d until %v, the first %d until %v", name, *again.ID, again.ExpiresAt, *first.ID, first.ExpiresAt)
		}
		if n := live(); n != 1 {
			t.Errorf("%s: %d permits", name, n)
		}
		wantClaim(t, app, strings.Replace(claim, "r1", "r2", 1), "holder", first.capOf(caps), first.capOf(caps))

		// Whatever else it asks for, what is held is the answer.
		for _, other := range []string{"0", "1, lease => '2 hours'", "1, weight => 3"} {
			args := fmt.Sprintf("'e', '%s', %s, request_id => 'r1'", name, other)
			if !strings.Contains(args, "lease") {
				args += ", lease => '1 hour'"
			}
			if r := wantGrant(t, app, args); *r.ID != *first.ID {
				t.Errorf("%s: claim_permit(%s) has %d, want %d", name, args, *r.ID, *first.ID)
			}
		}

		// Another holder, endpoint or tenant is another request.
		for _, args := range []string{"'e', 'x'", "'e2', '" + name + "'", "'e', '" + name + "', tenant => 't'"} {
			r := wantGrant(t, app, args+", holder_cap => 1, lease => '1 hour', request_id => 'r1'")
			if *r.ID == *first.ID {
				t.Errorf("%s: claim_permit(%s) has the permit of another", name, args)
			}
			wantReason(t, app, fmt.Sprintf("release_permit(%d)", *r.ID), "released")
		}

		// After a release or a lapse it is a new claim.
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *first.ID), "released")
		second := wantGrant(t, app, claim)
		if *second.ID <= *first.ID {
			t.Errorf("%s: after the release %d follows %d", name, *second.ID, *first.ID)
		}
		mustExec(t, db.System(), "update pglimit.permits set expires_at = clock_timestamp() where permit_id = "+fmt.Sprint(*second.ID))
		third := wantGrant(t, app, claim)
		if *third.ID <= *second.ID {
			t.Errorf("%s: after the lapse %d follows %d", name, *third.ID, *second.ID)
		}
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", *third.ID), "released")
	}
}

// capOf is the holder's cap in the arguments.
func (claimRow) capOf(caps string) int64 { return int64(caps[0] - '0') }

// TestRequestOverlaps steps a retry into its first attempt: it waits, then has the permit of the
// first, or its own when the first went away.
func TestRequestOverlaps(t *testing.T) {
	t.Parallel()
	for _, caps := range []string{"1", "2", "9, 9, 9"} {
		for _, end := range []string{"commit", "rollback"} {
			t.Run(caps+" "+end, func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				first, retry := db.Conn("pglimit_app"), db.Conn("pglimit_app")
				args := fmt.Sprintf("'e', 'h', %s, lease => '1 hour', request_id => 'r1'", caps)
				mustExec(t, first, "begin")
				id := *wantGrant(t, first, args).ID
				pid := retry.PgConn().PID()
				got := make(chan *int64)
				go func() {
					var id *int64
					if err := retry.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit("+args+")").Scan(&id); err != nil {
						t.Error("retry: ", err)
					}
					got <- id
				}()
				waitForLock(t, db, pid)
				mustExec(t, first, end)
				second := <-got
				if second == nil {
					t.Fatal("the retry was refused")
				}
				if (end == "commit") != (*second == id) {
					t.Errorf("first %d, then %s; the retry has %d", id, end, *second)
				}
				if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()"); n != 1 {
					t.Errorf("%d permits", n)
				}
			})
		}
	}
}

// waitForLock returns when the backend waits for a lock, or has had long enough to.
func waitForLock(t *testing.T, db *dbtest.DB, pid uint32) {
	t.Helper()
	super := db.Super()
	for range 1000 {
		if mustScan[bool](t, super, fmt.Sprintf("select cardinality(pg_blocking_pids(%d)) > 0", pid)) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("backend %d waits for nobody", pid)
}

// TestRequestRace sends each request from four connections at once: one permit a request.
func TestRequestRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 8)
	ids := make([][]int64, len(conns))
	together(t, conns, func(i int, conn *pgx.Conn) {
		for n := range 60 {
			var id *int64
			if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit('e', 'h', 200, 200, 200, '1 hour', request_id => $1)",
				fmt.Sprintf("r%d-%d", i/4, n)).Scan(&id); err != nil || id == nil {
				t.Errorf("%v, %v", id, err)
				return
			}
			ids[i] = append(ids[i], *id)
		}
	})
	for i := range conns {
		for n := range ids[i] {
			if len(ids[i/4*4]) > n && ids[i][n] != ids[i/4*4][n] {
				t.Errorf("request %d-%d has permits %d and %d", i/4, n, ids[i][n], ids[i/4*4][n])
			}
		}
	}
	if n := mustScan[int](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits(max_rows => 1000)"); n != 120 {
		t.Errorf("%d permits for 120 requests", n)
	}
}

// TestRefusedRequestWritesNothing: neither a row nor a transaction number.
func TestRefusedRequestWritesNothing(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	for _, caps := range []string{"1", "1, 1, 1"} {
		holder := "h" + caps[:1] + fmt.Sprint(len(caps))
		wantGrant(t, app, fmt.Sprintf("'e%d', '%s', %s, lease => '1 hour', request_id => 'r1'", len(caps), holder, caps))
		mustExec(t, app, "begin")
		wantClaim(t, app, fmt.Sprintf("'e%d', '%s', %s, lease => '1 hour', request_id => 'r2'", len(caps), holder, caps), "holder", 1, 1)
		wantClaim(t, app, fmt.Sprintf("'e%d', '%s', %s, lease => '1 hour', weight => 2, request_id => 'r2'", len(caps), holder, caps), "never", 1, 1)
		if assigned := mustScan[bool](t, app, "select pg_current_xact_id_if_assigned() is not null"); assigned {
			t.Errorf("caps %s: the refusals have a transaction number", caps)
		}
		mustExec(t, app, "commit")
	}
}

// TestLongest: neither a claim nor renewals hold a permit longer than the endpoint's longest.
func TestLongest(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_endpoint('e', 9, time_bound => '1 minute', longest => '5 minutes')")
	for _, args := range []string{"'e', 'h'", "'e', 'h', weight => 2"} {
		id := *wantGrant(t, app, args).ID
		ends := mustScan[string](t, db.System(), fmt.Sprintf("select distinct (ends_at - expires_at)::text from pglimit.permits where permit_id = %d", id))
		if ends != "00:03:30" {
			t.Errorf("%s: ends %s after its lease, want 3.5 minutes", args, ends)
		}
		wantReason(t, app, fmt.Sprintf("renew_permit(%d, '1 hour')", id), "renewed")
		if n := mustScan[int](t, db.System(), fmt.Sprintf("select count(*) from pglimit.permits where permit_id = %d and expires_at <> ends_at", id)); n != 0 {
			t.Errorf("%s: renewed for an hour, %d rows do not end at the end", args, n)
		}
		long := wantGrant(t, app, strings.Replace(args, "'h'", "'h2', lease => '1 hour'", 1))
		if n := mustScan[int](t, db.System(), fmt.Sprintf("select count(*) from pglimit.permits where permit_id = %d and expires_at <> ends_at", *long.ID)); n != 0 {
			t.Errorf("%s: claimed for an hour, %d rows do not end at the end", args, n)
		}
	}
	wantGrant(t, app, "'free', 'h', 1, lease => '1 hour'")
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.permits where pool like '%free%' and ends_at is not null"); n != 0 {
		t.Error("a permit without an endpoint's row has an end")
	}
}
