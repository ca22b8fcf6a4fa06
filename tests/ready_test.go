package tests

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestRequestInFlight: the ready endpoint lets a token have ten requests at once, whatever others have,
// and takes nothing from the cap over all endpoints.
func TestRequestInFlight(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	version := mustScan[int64](t, operator, "select pglimit.install_ready('request_in_flight')")
	var first int64
	for range 10 {
		first = *wantGrant(t, app, "'request_in_flight', 'token a'").ID
	}
	wantClaim(t, app, "'request_in_flight', 'token a'", "holder", 10, 10)
	wantGrant(t, app, "'request_in_flight', 'token b'")
	if n := mustScan[int64](t, operator, "select in_use from pglimit.show_installation()"); n != 0 {
		t.Errorf("%d slots of the installation are in use", n)
	}
	if _, err := app.Exec(t.Context(), "select pglimit.release_permit($1)", first); err != nil {
		t.Fatal(err)
	}
	wantGrant(t, app, "'request_in_flight', 'token a'")
	if bound := mustScan[string](t, app, "select time_bound || ' ' || on_outage || ' ' || limit_version from pglimit.claim_permit('request_in_flight', 'token c')"); !strings.HasPrefix(bound, "00:00:30 allow ") {
		t.Errorf("time bound, outage policy and version: %s; the row's version is %d", bound, version)
	}

	// It is set once, and in the history as anything that is set.
	if again := mustScan[int64](t, operator, "select pglimit.install_ready('request_in_flight')"); again != version {
		t.Errorf("version %d, then %d", version, again)
	}
	changed := mustScan[int64](t, operator, "select pglimit.set_endpoint('request_in_flight', 3, time_bound => '5 s')")
	if again := mustScan[int64](t, operator, "select pglimit.install_ready('request_in_flight')"); again != changed {
		t.Errorf("version %d of an operator's row, then %d", changed, again)
	}
	wantClaim(t, app, "'request_in_flight', 'token a'", "holder", 3, 10)
	if history := mustScan[string](t, operator, "select string_agg(action || ' ' || changed_by, ', ') from pglimit.list_changes('request_in_flight')"); history !=
		"set_endpoint pglimit_test_operator, set_endpoint pglimit_test_operator" {
		t.Errorf("history: %s", history)
	}

	// A tenant's own.
	own := mustScan[int64](t, operator, "select pglimit.install_ready('request_in_flight', 'acme')")
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_endpoints('request_in_flight')"); n != 2 || own == changed {
		t.Errorf("%d rows, version %d", n, own)
	}

	for _, name := range []string{"null", "''", "'audit.export'"} {
		_, err := operator.Exec(t.Context(), "select pglimit.install_ready("+name+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || !strings.Contains(server.Hint, "request_in_flight") {
			t.Errorf("install_ready(%s): %v", name, err)
		}
	}
	if _, err := operator.Exec(t.Context(), "begin read only; select pglimit.install_ready('request_in_flight')"); sqlState(err) != "PGL03" {
		t.Errorf("read-only: %v", err)
	}
}

// TestInstallReadyRace: a row that an operator sets at the same moment stays the operator's.
func TestInstallReadyRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "begin; select pglimit.set_endpoint('request_in_flight', 3)")
	installed := make(chan error, 1)
	other := db.Conn("pglimit_operator")
	pid := other.PgConn().PID()
	go func() {
		_, err := other.Exec(context.Background(), "select pglimit.install_ready('request_in_flight')")
		installed <- err
	}()
	for range 1000 {
		var waits bool
		if err := db.Super().QueryRow(t.Context(), "select cardinality(pg_blocking_pids($1::int)) > 0 from pg_sleep(0.001)", pid).Scan(&waits); err != nil {
			t.Fatal(err)
		} else if waits {
			break
		}
	}
	mustExec(t, operator, "commit")
	if err := <-installed; err != nil {
		t.Fatal(err)
	}
	if cap := mustScan[int64](t, operator, "select holder_cap from pglimit.list_endpoints('request_in_flight')"); cap != 3 {
		t.Errorf("the operator set a cap of 3, and it is %d", cap)
	}
}

// TestInstallReadyWaitsInOrder: it waits for a set_endpoint that has the name's lock and not yet the row's, and has
// nothing that the other then waits for.
func TestInstallReadyWaitsInOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := connect(t, db.SuperURL()), db.Conn("pglimit_operator")
	mustExec(t, first, "begin; select pglimit._lock_creation(5, 'request_in_flight')")
	mustExec(t, db.Super(), "select 1") // is connected before anybody waits, which ends after a second
	installed := make(chan error, 1)
	go func() {
		_, err := second.Exec(context.Background(), "select pglimit.install_ready('request_in_flight')")
		installed <- err
	}()
	waitForLock(t, db, second.PgConn().PID())
	mustExec(t, first, "select pglimit.set_endpoint('request_in_flight', 3)")
	mustExec(t, first, "commit")
	if err := <-installed; err != nil {
		t.Fatal(err)
	}
	if cap := mustScan[int64](t, second, "select holder_cap from pglimit.list_endpoints('request_in_flight')"); cap != 3 {
		t.Errorf("the cap was set to 3, and is %d", cap)
	}
}
