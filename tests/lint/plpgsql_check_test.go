package lint_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestPlpgsqlCheck has the extension plpgsql_check read every function. PL/pgSQL itself reads a
// statement when it first runs it, so that a branch no test takes may hold anything.
func TestPlpgsqlCheck(t *testing.T) {
	t.Parallel()

	ctx := t.Context()
	db := dbtest.New(t)
	conn, err := db.Super().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()

	var packaged bool
	err = conn.QueryRow(ctx, `
		select exists (select from pg_available_extensions where name = 'plpgsql_check')`).Scan(&packaged)
	if err != nil {
		t.Fatal(err)
	}
	if !packaged {
		const message = "this server has no extension plpgsql_check; install the package " +
			"(Debian, Ubuntu: postgresql-NN-plpgsql-check), or run make lint, which does"
		if os.Getenv("CI") != "" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	if _, err := conn.Exec(ctx, "create schema lint; create extension plpgsql_check schema lint"); err != nil {
		t.Fatal(err)
	}

	var checked int
	err = conn.QueryRow(ctx, `
		select count(*)
		from pg_proc p
		join pg_language l on l.oid = p.prolang
		where p.pronamespace = 'pglimit'::regnamespace and l.lanname = 'plpgsql'`).Scan(&checked)
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Fatal("the schema has no functions in PL/pgSQL")
	}

	rows, err := conn.Query(ctx, `
		select p.oid::regprocedure::text, c.finding
		from pg_proc p
		join pg_language l on l.oid = p.prolang
		cross join lateral lint.plpgsql_check_function(
			p.oid,
			fatal_errors => false,
			security_warnings => true
		) as c (finding)
		where p.pronamespace = 'pglimit'::regnamespace and l.lanname = 'plpgsql'
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	var function, finding string
	_, err = pgx.ForEachRow(rows, []any{&function, &finding}, func() error {
		t.Errorf("%s: %s", function, finding)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
