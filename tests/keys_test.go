package tests

import (
	"errors"
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
		"drop_endpoint('e')", "drop_limit('l')", "raise_epoch()", "set_endpoint('e', holder_cap => 1)",
		"set_installation_cap(1)", "set_limit('l', 1, '1 min')", "set_purge_after('1 day')",
	} {
		_, err := operator.Exec(t.Context(), "begin read only; select pglimit."+call+"; commit")
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "PGL03" || pgErr.Hint == "" {
			t.Errorf("%s: %v, want PGL03 with a hint", call, err)
		}
		_, _ = operator.Exec(t.Context(), "rollback")
	}
}
