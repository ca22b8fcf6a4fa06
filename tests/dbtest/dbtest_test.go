package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/migrations"
)

func TestMain(m *testing.M) { Main(m) }

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func scan[T any](t *testing.T, db querier, sql string) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("InstallsAsOrdinaryLogin", func(t *testing.T) {
		t.Parallel()
		db := New(t)
		status, err := migrations.Check(t.Context(), db.Conn(""))
		if err != nil || !status.Installed || status.Pending() || len(status.Drift) > 0 {
			t.Errorf("status %+v, %v", status, err)
		}
		if got := scan[string](t, db.Super(), `select rolsuper || ' ' || rolcreaterole || ' ' || rolcreatedb
			from pg_roles where rolname = 'pglimit_test_installer'`); got != "false true true" {
			t.Errorf("superuser, createrole, createdb of the installer: %s", got)
		}
	})

	t.Run("IsolatesTests", func(t *testing.T) {
		t.Parallel()
		one, other := New(t), New(t)
		if _, err := one.System().Exec(t.Context(), "create table pglimit.mine ()"); err != nil {
			t.Fatal(err)
		}
		if scan[bool](t, other.System(), "select to_regclass('pglimit.mine') is not null") {
			t.Error("one test sees the other's table")
		}
	})
}

func TestNewEmpty(t *testing.T) {
	t.Parallel()
	if scan[bool](t, NewEmpty(t).Super(), "select to_regnamespace('pglimit') is not null") {
		t.Error("the schema is there")
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	db := New(t)
	roles := []string{"pglimit_app", "pglimit_operator", "pglimit_monitor", "pglimit_system", "pg_read_all_data", ""}
	for _, role := range roles {
		t.Run("MemberOf"+role, func(t *testing.T) {
			conn := db.Conn(role)
			if got := scan[string](t, conn, `select coalesce(string_agg(roleid::regrole::text, ','), '')
				from pg_auth_members where member = session_user::regrole`); got != role {
				t.Errorf("member of %q, want %q", got, role)
			}
			if scan[bool](t, conn, "select rolsuper or rolcreaterole from pg_roles where rolname = session_user") {
				t.Error("the login may too much")
			}
			if got := scan[string](t, db.Pool(role), "select current_setting('search_path')"); got != "" {
				t.Errorf("search_path = %q, want none", got)
			}
		})
	}
	if got := scan[string](t, db.System(), "select current_user"); got != "pglimit_system" {
		t.Errorf("System() acts as %s", got)
	}
	if !scan[bool](t, db.Super(), "select usesuper from pg_user where usename = current_user") {
		t.Error("Super() is none")
	}
	if first, again := db.Pool(""), db.Pool(""); first != again {
		t.Error("each call makes another pool")
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	one, err1 := migrator{}.Hash()
	other, err2 := migrator{}.Hash()
	if err1 != nil || err2 != nil || one == "" || one != other {
		t.Errorf("%q %v, %q %v: want the same", one, err1, other, err2)
	}
}
