package tests

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// A separator inside a tenant or limit name must not reach the counter of another key.
func TestSeparatorInANameMeetsNoOtherKey(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Pool("pglimit_app")
	const hit = "select (select h.allowed from pglimit.hit($1, $2, 5, '1 min', tenant => $3) h)"
	if _, err := app.Exec(t.Context(), hit, "b", "c", "a"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]any{{"b\x1fc", "d", "a"}, {"b", "c", "x\x1fa"}, {"a\x1fb", "c", ""}} {
		_, err := app.Exec(t.Context(), hit, args...)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "PGL01" {
			t.Errorf("hit%q: %v, want PGL01", args, err)
		}
	}
}

// With the holder's and the endpoint's pool both full, the refusal names the holder's.
func TestRefusalNamesTheFirstFullPool(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Pool("pglimit_app")
	const claim = "select c.reason from pglimit.claim_permit('e', 'h', holder_cap => 1, " +
		"endpoint_cap => 1, lease => '1 min') c"
	for _, want := range []string{"granted", "holder"} {
		var got string
		if err := app.QueryRow(t.Context(), claim).Scan(&got); err != nil || got != want {
			t.Errorf("reason %q %v, want %q", got, err, want)
		}
	}
}

// An operator's change in a read-only transaction says so in pglimit's own words.
func TestChangeInReadOnlyTransactionIsPGL03(t *testing.T) {
	t.Parallel()
	operator := dbtest.New(t).Conn("pglimit_operator")
	for _, call := range []string{
		"drop_endpoint('e')", "drop_limit('l')", "raise_epoch()", "set_grace('1 s')", "set_endpoint('e', holder_cap => 1)",
		"set_installation_cap(1)", "set_limit('l', 1, '1 min')", "set_purge_after('1 day')",
	} {
		_, err := operator.Exec(t.Context(), "begin read only; select pglimit."+call+"; commit")
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "PGL03" || pgErr.Hint == "" || strings.Contains(pgErr.Hint, "peek") {
			t.Errorf("%s: %v, want PGL03 with a hint of its own", call, err)
		}
		_, _ = operator.Exec(t.Context(), "rollback")
	}
}

// A hint says what to type, and what it says is right for the function that was called.
func TestHints(t *testing.T) {
	t.Parallel()
	operator := dbtest.New(t).Conn("pglimit_operator")
	for call, want := range map[string][2]string{
		"list_limits(max_rows => 0)": {"A page has 1 to 10,000 rows.", "Pass max_rows => 100,"},
		"set_grace('2 days')":        {"grace must be 0 or more, and at most 1 day.", "Pass an interval: grace => '30 s';"},
		"set_purge_after('-1 s')":    {"idle must be 0 or more, and at most 36525 days.", "Pass an interval: idle => '1 day';"},
	} {
		_, err := operator.Exec(t.Context(), "select pglimit."+call)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Detail != want[0] || !strings.HasPrefix(pgErr.Hint, want[1]) {
			t.Errorf("%s: %#v, want %q", call, err, want)
		}
	}
}

// A change of a row has one version of its own, whoever else changes it at the same time.
func TestVersionsOfChanges(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	for i, call := range []string{
		"set_limit('l', 1, '1 min')", "set_limit('l', 2, '1 min')", "set_endpoint('e', 1)", "set_endpoint('e', 2)", "set_limit('l', 3, '1 min')",
	} {
		if got := mustScan[int64](t, operator, "select pglimit."+call); got != int64(i+1) {
			t.Errorf("%s is version %d, want %d", call, got, i+1)
		}
	}

	// Who waits for the row draws a number after the one that it finds there.
	other := db.Conn("pglimit_operator")
	mustExec(t, operator, "begin; set local pglimit.in_transaction = 'allow'; select pglimit.set_limit('l', 4, '1 min')")
	pid := other.PgConn().PID()
	got := make(chan int64)
	go func() {
		var version int64
		_ = other.QueryRow(context.Background(), "select pglimit.set_limit('l', 5, '1 min')").Scan(&version)
		got <- version
	}()
	waitForLock(t, db, pid)
	mustExec(t, operator, "select pglimit.set_limit('l', 6, '1 min'); commit")
	version := <-got
	if row := mustScan[int64](t, operator, "select limit_version from pglimit.list_limits()"); version <= 7 || row != version {
		t.Errorf("the later change is version %d, the row's is %d, want both the same and above 7", version, row)
	}
}
