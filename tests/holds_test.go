package tests

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// answer is the one row of a call as text, as psql would show it.
func answer(t *testing.T, db rowQuerier, columns, call string) string {
	t.Helper()
	return mustScan[string](t, db, "select concat_ws(' ', "+columns+") from pglimit."+call)
}

func wantAnswer(t *testing.T, db rowQuerier, columns, call, want string) {
	t.Helper()
	if got := answer(t, db, columns, call); got != want {
		t.Errorf("%s: %s, want %s", call, got, want)
	}
}

var eachAlgorithm = []string{"fixed_window", "sliding_window", "token_bucket", "calendar"}

// perOf is a length that each algorithm takes, and that no test lasts.
func perOf(algorithm string) string {
	if algorithm == "calendar" {
		return "1 year"
	}
	return "300 days"
}

// TestHitUpTo: as many as there are, and not fewer than at_least.
func TestHitUpTo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const columns = "allowed, reason, remaining, charged, retry_after is not null"
	for _, algorithm := range eachAlgorithm {
		mustExec(t, operator, "select pglimit.set_limit('"+algorithm+"', 10, '"+perOf(algorithm)+"', '"+algorithm+"')")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 4)", "t allowed 6 4 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 7)", "f limit 6 0 t")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 11)", "f never 6 0 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20, 6)", "t allowed 0 6 f")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 's', 20)", "f limit 0 0 t")
		wantAnswer(t, app, columns, "hit_up_to('"+algorithm+"', 'new', 9223372036854775807)", "t allowed 0 10 f")
	}
	for _, bad := range []string{"0", "null", "3, 0", "3, 4", "3, null", "-1, -1"} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit_up_to('fixed_window', 's', "+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

var _ *pgx.Conn
