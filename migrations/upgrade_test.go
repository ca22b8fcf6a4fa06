package migrations_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/sql"
	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A product small enough to have two versions of. The real one is tested in tests/.

func roles() string {
	data, err := fs.ReadFile(sql.FS, "policies/roles.sql")
	if err != nil {
		panic(err)
	}
	return string(data)
}

func source(version string, code string, numbered ...string) migrations.Source {
	files := fstest.MapFS{}
	for i, text := range numbered {
		files["00"+string(rune('1'+i))+"_step.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	return migrations.NewSource(files, fstest.MapFS{
		"install.sql":        {Data: []byte(code)},
		"policies/roles.sql": {Data: []byte(roles())},
	}, version)
}

const (
	init1 = `create table pglimit.installation (code_version text, code_hash text);
		insert into pglimit.installation default values;
		create table pglimit.things (n int);`
	delta2 = `alter table pglimit.things add column if not exists m int;`
	code1  = `create or replace function pglimit.answer() returns int language sql as 'select 1';`
	code2  = `create or replace function pglimit.answer() returns int language sql as 'select 2';`
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scan[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	old := source("0.1.0", code1, init1)
	next := source("0.2.0", code2, init1, delta2)

	t.Run("AppliesWhatIsMissing", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		got, err := old.Up(t.Context(), conn)
		must(t, err)
		if !slices.Equal(got.Applied, []string{"001_step.sql"}) || !got.CodeApplied || got.CodeFrom != "" ||
			got.CodeTo != "0.1.0" || got.SchemaFrom != 0 || got.SchemaTo != 1 || len(got.Drift) > 0 {
			t.Errorf("installed: %+v", got)
		}
		status, err := next.Check(t.Context(), conn)
		must(t, err)
		if !status.Pending() || status.Newer() || status.SchemaVersion != 1 || status.WantSchemaVersion != 2 {
			t.Errorf("before the upgrade: %+v", status)
		}

		got, err = next.Up(t.Context(), conn)
		must(t, err)
		if !slices.Equal(got.Applied, []string{"002_step.sql"}) || !got.CodeApplied || got.CodeFrom != "0.1.0" ||
			got.CodeTo != "0.2.0" || got.SchemaFrom != 1 || got.SchemaTo != 2 || len(got.Drift) > 0 {
			t.Errorf("upgraded: %+v", got)
		}
		status, err = next.Check(t.Context(), conn)
		must(t, err)
		if status.Pending() || status.Newer() || len(status.Drift) > 0 || status.DriftUnknown != "" {
			t.Errorf("after the upgrade: %+v", status)
		}
	})

	t.Run("AppliesCodeAlone", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		_, err := old.Up(t.Context(), conn)
		must(t, err)
		got, err := source("0.1.0", code2, init1).Up(t.Context(), conn)
		must(t, err)
		if len(got.Applied) > 0 || !got.CodeApplied {
			t.Errorf("%+v", got)
		}
	})

	t.Run("NeverGoesBack", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		_, err := next.Up(t.Context(), conn)
		must(t, err)
		for name, older := range map[string]migrations.Source{
			"older code and schema":    old,
			"older code":               source("0.1.9", code1, init1, delta2),
			"older schema, newer code": source("0.3.0", code1, init1),
		} {
			_, err := older.Up(t.Context(), conn, migrations.Reapply())
			var e *migrations.Error
			if !errors.Is(err, migrations.ErrNewerInstalled) || !errors.As(err, &e) || e.Code != "PGL04" || e.Hint == "" {
				t.Errorf("%s: %v", name, err)
			}
			status, err := older.Check(t.Context(), conn)
			must(t, err)
			if !status.Newer() || status.Pending() {
				t.Errorf("%s: %+v", name, status)
			}
		}
		// The same version with other code is not older: so it is while developing.
		_, err = source("0.2.0", code1, init1, delta2).Up(t.Context(), conn)
		must(t, err)
	})

	t.Run("NeverGoesBackUnderTheLock", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		conn := db.Conn(dbtest.Installer)
		_, err := next.Up(t.Context(), conn)
		must(t, err)
		// Without the seal the first look knows nothing: as when it was taken before the newer
		// installer committed.
		_, err = db.System().Exec(t.Context(), "comment on table pglimit.schema_version is null")
		must(t, err)
		for name, older := range map[string]migrations.Source{
			"schema": source("0.2.0", code1, init1),
			"code":   source("0.1.9", code1, init1, delta2),
		} {
			if _, err := older.Up(t.Context(), conn); !errors.Is(err, migrations.ErrNewerInstalled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("RollingDeployEndsNewest", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		var wg sync.WaitGroup
		for i := range 10 {
			conn := db.Conn(dbtest.Installer)
			wg.Go(func() {
				if i%2 == 0 {
					if _, err := next.Up(t.Context(), conn); err != nil {
						t.Error(err)
					}
				} else if _, err := old.Up(t.Context(), conn); err != nil && !errors.Is(err, migrations.ErrNewerInstalled) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		status, err := next.Check(t.Context(), db.Conn(""))
		must(t, err)
		if status.Pending() || len(status.Drift) > 0 {
			t.Errorf("%+v", status)
		}
	})
}

func TestFailedStep(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	conn := db.Conn(dbtest.Installer)

	_, err := source("0.1.0", code1, init1, "create table pglimit.more (n int);\nselect nonsense;").Up(t.Context(), conn)
	var pgErr migrate.MigrationPgError
	if !errors.As(err, &pgErr) || pgErr.MigrationName != "002_step.sql" || pgErr.Code != "42703" {
		t.Fatalf("got %v", err)
	}
	line, err := migrate.ExtractErrorLine(pgErr.Sql, int(pgErr.Position))
	must(t, err)
	if line.Text != "select nonsense;" {
		t.Errorf("the error points at %q", line.Text)
	}
	if got := scan[string](t, conn, `select string_agg(relname, ' ' order by relname) from pg_class
		where relnamespace = to_regnamespace('pglimit') and relkind = 'r'`); got != "installation schema_version things" {
		t.Errorf("tables after the failure: %s", got)
	}
	if conn.PgConn().TxStatus() != 'I' {
		t.Error("the connection is left in a transaction")
	}

	_, err = source("0.1.0", "select nonsense", init1, delta2).Up(t.Context(), conn)
	if !errors.As(err, &pgErr) || pgErr.MigrationName != "install.sql" {
		t.Errorf("got %v", err)
	}
	status, err := migrations.Check(t.Context(), conn)
	must(t, err)
	if !status.Installed || !status.Pending() || status.DriftUnknown == "" {
		t.Errorf("half an installation: %+v", status)
	}
	got, err := source("0.1.0", code1, init1, delta2).Up(t.Context(), conn)
	must(t, err)
	if len(got.Applied) > 0 || got.SchemaFrom != 2 || !got.CodeApplied {
		t.Errorf("going on: %+v", got)
	}
}

// TestDeltaWaitsForNobody: a delta that alters a table needs a lock that a pg_dump or a report holds
// off for hours. Everybody who comes after a waiting ALTER TABLE waits with it, so it must not wait.
func TestDeltaWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	conn := db.Conn(dbtest.Installer)
	_, err := source("0.1.0", code1, init1).Up(t.Context(), conn)
	must(t, err)
	next := source("0.2.0", code2, init1, delta2)

	dump, err := db.System().Begin(t.Context())
	must(t, err)
	defer dump.Rollback(context.Background())
	_, err = dump.Exec(t.Context(), "set local application_name = 'pg_dump'; lock table pglimit.things in access share mode")
	must(t, err)

	_, err = next.Up(t.Context(), conn, migrations.LockTimeout(20*time.Millisecond), migrations.RetryFor(100*time.Millisecond))
	if !errors.Is(err, migrations.ErrLocked) || !strings.Contains(err.Error(), "pg_dump") {
		t.Fatalf("got %v, want ErrLocked, naming who holds the lock", err)
	}

	done := make(chan error)
	go func() {
		_, err := next.Up(t.Context(), conn, migrations.LockTimeout(20*time.Millisecond))
		done <- err
	}()
	reader := db.Conn("pglimit_system")
	for range 20 {
		_, err := reader.Exec(t.Context(), "set lock_timeout = '1s'; insert into pglimit.things (n) values (1)")
		must(t, err)
	}
	must(t, dump.Commit(t.Context()))
	must(t, <-done)
}

// TestTern: the version table, the files and the lock are tern's own, so that tern can take over.
func TestTern(t *testing.T) {
	t.Parallel()
	conn := dbtest.New(t).Conn("pglimit_system")
	_, err := conn.Exec(t.Context(), "set role pglimit_system")
	must(t, err)
	m, err := migrate.NewMigrator(t.Context(), conn, "pglimit.schema_version")
	must(t, err)
	must(t, m.LoadMigrations(migrations.FS()))
	version, err := m.GetCurrentVersion(t.Context())
	must(t, err)
	if int(version) != len(m.Migrations) {
		t.Errorf("tern sees version %d of %d", version, len(m.Migrations))
	}
	must(t, m.Migrate(t.Context()))
}
