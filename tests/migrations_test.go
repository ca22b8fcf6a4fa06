package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// rowQuerier is a connection, a pool or a transaction.
type rowQuerier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func mustExec(t *testing.T, db rowQuerier, sql string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func mustScan[T any](t *testing.T, db rowQuerier, sql string) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// serverVersion returns the major version.
func serverVersion(t *testing.T, db rowQuerier) int {
	t.Helper()
	return mustScan[int](t, db, "select current_setting('server_version_num')::int / 10000")
}

func mustUp(t *testing.T, conn *pgx.Conn, opts ...migrations.Option) migrations.Result {
	t.Helper()
	result, err := migrations.Up(t.Context(), conn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func mustCheck(t *testing.T, conn *pgx.Conn) migrations.Status {
	t.Helper()
	status, err := migrations.Check(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// wantCurrent fails unless the installation is whole, current and untouched.
func wantCurrent(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	s := mustCheck(t, conn)
	if !s.Installed || s.Pending() || s.Newer() || len(s.Drift) > 0 || s.DriftUnknown != "" {
		t.Errorf("not current: %+v", s)
	}
	if members := membersOfSystem(t, conn); members != "" {
		t.Errorf("the installer is left a member of pglimit_system: %s", members)
	}
}

// membersOfSystem lists who may act as pglimit_system, apart from the login that tests use for that
// (on 16 and later a role's creator may only give it to others).
func membersOfSystem(t *testing.T, db rowQuerier) string {
	t.Helper()
	return mustScan[string](t, db, `
		select coalesce(string_agg(m.member::regrole::text, ' '), '')
		from pg_auth_members m
		where m.roleid = to_regrole('pglimit_system')
			and m.member <> coalesce(to_regrole('pglimit_test_system'), 0)
			and coalesce(to_jsonb(m) ->> 'set_option', to_jsonb(m) ->> 'inherit_option', 'true')::bool`)
}

// sealedObjects returns what the installer recorded: a hash for every object.
func sealedObjects(t *testing.T, db rowQuerier) map[string]string {
	t.Helper()
	comment := mustScan[string](t, db, `select coalesce(max(obj_description(oid, 'pg_class')), '') from pg_class
		where relnamespace = to_regnamespace('pglimit') and relname = 'schema_version'`)
	var sealed struct{ Objects map[string]string }
	_, text, _ := strings.Cut(comment, "{")
	if err := json.Unmarshal([]byte("{"+text), &sealed); err != nil || len(sealed.Objects) == 0 {
		t.Fatalf("no seal in %q: %v", comment, err)
	}
	return sealed.Objects
}

// lockAll locks every table of pglimit in a transaction that stays open until release, or the end of
// the test.
func lockAll(t *testing.T, db *dbtest.DB, mode string) (release func()) {
	t.Helper()
	conn := db.Conn("pglimit_system")
	mustExec(t, conn, "set role pglimit_system; set application_name = 'pg_dump'; begin")
	mustExec(t, conn, fmt.Sprintf(`
		do $$
		declare
			v_table regclass;
		begin
			for v_table in
				select oid from pg_class where relnamespace = 'pglimit'::regnamespace and relkind = 'r'
			loop
				execute format('lock table %%s in %s mode', v_table);
			end loop;
		end
		$$`, mode))
	return func() { mustExec(t, conn, "commit") }
}

// privateServer starts a server of the test's own, for what concerns a whole server: roles, settings
// (name, value, …).
func privateServer(t *testing.T, settings ...string) *localpg.Server {
	t.Helper()
	options := localpg.Options{Settings: dbtest.Settings()}
	for i := 0; i < len(settings); i += 2 {
		options.Settings[settings[i]] = settings[i+1]
	}
	server, err := localpg.Start(t.Context(), options)
	if errors.Is(err, localpg.ErrNoBinaries) && os.Getenv("PGLIMIT_TEST_DATABASE_URL") != "" {
		t.Skip("needs a server of its own: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestUp(t *testing.T) {
	t.Parallel()

	t.Run("InstallsOnceAndIsDone", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		if s := mustCheck(t, conn); s.Installed || !s.Pending() || s.Newer() {
			t.Errorf("before: %+v", s)
		}
		first := mustUp(t, conn)
		if !first.Changed() || !first.CodeApplied || len(first.Applied) == 0 || first.SchemaFrom != 0 ||
			first.CodeTo != migrations.Version {
			t.Errorf("first: %+v", first)
		}
		wantCurrent(t, conn)
		again := mustUp(t, conn)
		if again.Changed() || again.SchemaFrom != first.SchemaTo || again.SchemaTo != first.SchemaTo ||
			again.CodeFrom != migrations.Version || again.CodeTo != migrations.Version {
			t.Errorf("again: %+v", again)
		}
	})

	t.Run("RecordsTheVersionForSQL", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		if got := mustScan[string](t, db.Super(), "select pglimit.pglimit_version()"); got != migrations.Version {
			t.Errorf("pglimit_version() = %s, want %s", got, migrations.Version)
		}
		status := mustCheck(t, db.Conn(""))
		if got := mustScan[string](t, db.System(), "select code_version || ' ' || code_hash from pglimit.installation"); got != migrations.Version+" "+status.WantCodeHash {
			t.Errorf("installation: %s", got)
		}
		if got := mustScan[int](t, db.System(), "select version from pglimit.schema_version"); got != status.WantSchemaVersion {
			t.Errorf("schema_version = %d, want %d", got, status.WantSchemaVersion)
		}
	})

	t.Run("GivesEverythingToTheSystemRole", func(t *testing.T) {
		t.Parallel()
		others := mustScan[string](t, dbtest.New(t).Super(), `
			select coalesce(string_agg(format('%s %s', o.what, o.owner::regrole), ', '), '')
			from (
				select 'schema' as what, nspowner as owner from pg_namespace where nspname = 'pglimit'
				union all
				select oid::regclass::text, relowner from pg_class where relnamespace = 'pglimit'::regnamespace
				union all
				select oid::regprocedure::text, proowner from pg_proc where pronamespace = 'pglimit'::regnamespace
				union all
				select oid::regtype::text, typowner from pg_type where typnamespace = 'pglimit'::regnamespace
			) o
			where o.owner <> 'pglimit_system'::regrole`)
		if others != "" {
			t.Errorf("owned by others: %s", others)
		}
	})

	t.Run("WorksAsSuperuser", func(t *testing.T) {
		t.Parallel()
		db, ordinary := dbtest.NewEmpty(t), dbtest.New(t)
		conn, err := pgx.Connect(t.Context(), db.SuperURL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		mustUp(t, conn)
		wantCurrent(t, conn)
		if got, want := sealedObjects(t, conn), sealedObjects(t, ordinary.Super()); !maps.Equal(got, want) {
			t.Error("the catalog differs from that of an ordinary login's installation")
		}
	})

	t.Run("WorksUnderHostileSettings", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		mustExec(t, conn, `
			set search_path = 'public'; set quote_all_identifiers = on; set row_security = off;
			set default_transaction_isolation = serializable; set lock_timeout = 1;
			set default_transaction_read_only = on; set timezone = 'Asia/Kathmandu'; set intervalstyle = iso_8601`)
		mustUp(t, conn)
		wantCurrent(t, conn)
		if got := mustScan[string](t, conn, "show timezone"); got != "Asia/Kathmandu" {
			t.Errorf("the session's settings were reset: timezone is %s", got)
		}
	})

	t.Run("KeepsTheSessionsRole", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		conn := db.Conn(dbtest.Installer)
		role := "pglimit_test_deploy_" + db.Name[len(db.Name)-8:]
		mustExec(t, conn, "create role "+role+" createrole; grant create on database "+
			pgx.Identifier{db.Name}.Sanitize()+" to "+role+"; grant "+role+" to current_user")
		defer db.Super().Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		if serverVersion(t, conn) >= 16 {
			// A role's creator may give it away: the installer created pglimit_system, this one did not.
			mustExec(t, db.Super(), "grant pglimit_system to "+role+" with admin true, inherit false, set false")
		}
		mustExec(t, conn, "set role "+role)
		mustUp(t, conn)
		wantCurrent(t, conn)
		if got := mustScan[string](t, conn, "select current_user::text"); got != role {
			t.Errorf("current_user is %s, was %s", got, role)
		}
	})

	t.Run("RefusesATransaction", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		mustExec(t, conn, "begin")
		if _, err := migrations.Up(t.Context(), conn); err == nil || !strings.Contains(err.Error(), "in a transaction") {
			t.Errorf("got %v", err)
		}
	})
}

// TestUpWhenCurrent: what every program does at every start must not depend on what others hold or
// what the login may do.
func TestUpWhenCurrent(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	release := lockAll(t, db, "access exclusive")
	for _, role := range []string{"", "pglimit_app", dbtest.Installer} {
		conn := db.Conn(role)
		mustExec(t, conn, "set default_transaction_read_only = on; set lock_timeout = '1ms'")
		if result := mustUp(t, conn); result.Changed() {
			t.Errorf("as %q: %+v", role, result)
		}
	}
	release()
	wantCurrent(t, db.Conn(""))
}

func TestUpWithoutPrivileges(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	mustUp(t, dbtest.NewEmpty(t).Conn(dbtest.Installer)) // the roles exist from here on

	var e *migrations.Error
	_, err := migrations.Up(t.Context(), db.Conn(""))
	if !errors.Is(err, migrations.ErrNotPrivileged) || !errors.As(err, &e) || e.Code != "42501" ||
		!strings.Contains(e.Hint, `grant pglimit_system to "pglimit_test_"`) {
		t.Errorf("without any privilege: %v", err)
	}

	// With the role, but without CREATE on the database.
	_, err = migrations.Up(t.Context(), db.Conn("pglimit_system"))
	if !errors.Is(err, migrations.ErrNotPrivileged) || !errors.As(err, &e) ||
		!strings.Contains(e.Hint, "grant create on database "+pgx.Identifier{db.Name}.Sanitize()) {
		t.Errorf("without CREATE: %v", err)
	}
	if s := mustCheck(t, db.Conn("")); s.Installed {
		t.Errorf("something was installed all the same: %+v", s)
	}
}

func TestUpOnWhatIsNotOurs(t *testing.T) {
	t.Parallel()

	t.Run("LeavesAForeignSchemaAlone", func(t *testing.T) {
		t.Parallel()
		conn := dbtest.NewEmpty(t).Conn(dbtest.Installer)
		mustExec(t, conn, "create schema pglimit; create table pglimit.mine ()")
		_, err := migrations.Up(t.Context(), conn)
		if !errors.Is(err, migrations.ErrUnsupported) || !strings.Contains(err.Error(), "belongs to pglimit_test_installer") {
			t.Errorf("Up: %v", err)
		}
		if _, err = migrations.Drop(t.Context(), conn, migrations.KeepRoles()); !errors.Is(err, migrations.ErrUnsupported) {
			t.Errorf("Drop: %v", err)
		}
		mustExec(t, conn, "table pglimit.mine")
	})

	t.Run("LeavesAnExtensionAlone", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		mustExec(t, db.Super(), `set allow_system_table_mods = on;
			insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
			values (99999, 'pglimit', 10, 'public'::regnamespace, false, '0.0.9')`)
		conn := db.Conn(dbtest.Installer)
		if _, err := migrations.Up(t.Context(), conn); !errors.Is(err, migrations.ErrUnsupported) ||
			!strings.Contains(err.Error(), "alter extension pglimit update") {
			t.Errorf("Up: %v", err)
		}
		if _, err := migrations.Drop(t.Context(), conn); !errors.Is(err, migrations.ErrUnsupported) {
			t.Errorf("Drop: %v", err)
		}
	})
}

func TestUpRefusesToGoBack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.System(), `
		update pglimit.installation set code_version = '99.0.0', code_hash = 'other';
		do $$
		begin
			execute format('comment on table pglimit.schema_version is %L', replace(replace(
				obj_description('pglimit.schema_version'::regclass, 'pg_class'),
				(substring(obj_description('pglimit.schema_version'::regclass, 'pg_class') from '"code_version": "[^"]+"')),
				'"code_version": "99.0.0"'), '"code_hash": "', '"code_hash": "x'));
		end
		$$`)
	conn := db.Conn(dbtest.Installer)
	if s := mustCheck(t, conn); !s.Newer() || s.Pending() || s.CodeVersion != "99.0.0" {
		t.Errorf("%+v", s)
	}
	for _, opts := range [][]migrations.Option{nil, {migrations.Reapply()}} {
		_, err := migrations.Up(t.Context(), conn, opts...)
		var e *migrations.Error
		if !errors.Is(err, migrations.ErrNewerInstalled) || !errors.As(err, &e) || e.Code != "PGL04" {
			t.Errorf("got %v", err)
		}
	}
}

func TestConcurrentUp(t *testing.T) {
	t.Parallel()

	t.Run("InOneDatabase", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		var applied, migrated atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 20 {
			conn := db.Conn(dbtest.Installer)
			wg.Go(func() {
				<-start
				result, err := migrations.Up(t.Context(), conn)
				if err != nil {
					t.Error(err)
				}
				migrated.Add(int32(len(result.Applied)))
				if result.CodeApplied {
					applied.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if applied.Load() != 1 || int(migrated.Load()) != mustCheck(t, db.Conn("")).WantSchemaVersion {
			t.Errorf("the code was applied %d times, and %d migrations ran", applied.Load(), migrated.Load())
		}
		wantCurrent(t, db.Conn(""))
	})

	// Roles are created at the same moment in each: the installer's lock is one database's.
	t.Run("InManyDatabasesOfANewServer", func(t *testing.T) {
		t.Parallel()
		server := privateServer(t)
		var conns []*pgx.Conn
		for range 6 {
			db := dbtest.NewEmptyOn(t, server.DSN("postgres"))
			conns = append(conns, db.Conn(dbtest.Installer), db.Conn(dbtest.Installer))
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, conn := range conns {
			wg.Go(func() {
				<-start
				if _, err := migrations.Up(t.Context(), conn); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		for _, conn := range conns {
			wantCurrent(t, conn)
		}
	})
}

// traffic hits a limit from several connections until stop, which fails the test unless every hit
// was answered, and returns how many there were.
func traffic(t *testing.T, db *dbtest.DB) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var hits atomic.Int32
	var wg sync.WaitGroup
	for i := range 2 {
		conn := db.Conn("pglimit_app")
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// Not with ctx: a hit that is under way shall end.
				_, err := conn.Exec(context.Background(), `select * from pglimit.hit(limit_name => 'traffic',
					subject => $1, max_hits => 1000000, per => '1 hour')`, fmt.Sprint(i, n%3))
				if err != nil {
					t.Errorf("a hit failed: %v", err)
					return
				}
				hits.Add(1)
			}
		})
	}
	return func() int {
		cancel()
		wg.Wait()
		return int(hits.Load())
	}
}

// TestUpUnderLoad: a pg_dump holds ACCESS SHARE on every table for hours, and whoever waits for more
// than it allows makes all later hits wait too.
func TestUpUnderLoad(t *testing.T) {
	t.Parallel()

	t.Run("AppliesCodeBesideADump", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		release := lockAll(t, db, "access share")
		stop := traffic(t, db)
		conn := db.Conn(dbtest.Installer)
		for range 3 {
			if result := mustUp(t, conn, migrations.Reapply(), migrations.RetryFor(0)); !result.CodeApplied {
				t.Errorf("%+v", result)
			}
		}
		if hits := stop(); hits == 0 {
			t.Error("no hit came through")
		}
		release()
		wantCurrent(t, conn)
	})

	t.Run("TakesNoStrongLockForWhatIsThere", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		// Whatever the code step has locked when it ends, a trigger on the way cannot miss.
		mustExec(t, db.System(), `
			create table pglimit.seen (what text);
			create function pglimit.look() returns trigger language plpgsql as $$
			begin
				insert into pglimit.seen
				select format('%s %s', l.relation::regclass, l.mode)
				from pg_locks l
				join pg_class c on c.oid = l.relation and c.relnamespace = 'pglimit'::regnamespace
				where l.pid = pg_backend_pid() and l.relation <> 'pglimit.seen'::regclass
					and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
				union all
				select 'the trigger ran';
				return null;
			end
			$$;
			create trigger look after update on pglimit.installation execute function pglimit.look()`)
		mustUp(t, db.Conn(dbtest.Installer), migrations.Reapply())
		if got := mustScan[string](t, db.System(), "select string_agg(what, ', ' order by what) from pglimit.seen"); got != "the trigger ran" {
			t.Errorf("strong locks: %s", got)
		}
	})

	t.Run("GivesUpRatherThanHoldUpHits", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		mustExec(t, db.System(), "drop policy counters_system_only on pglimit.counters; "+
			"alter table pglimit.counters no force row level security, disable row level security")
		release := lockAll(t, db, "access share")
		stop := traffic(t, db)
		conn := db.Conn(dbtest.Installer)
		_, err := migrations.Up(t.Context(), conn, migrations.Reapply(),
			migrations.LockTimeout(50*time.Millisecond), migrations.RetryFor(300*time.Millisecond))
		if !errors.Is(err, migrations.ErrLocked) || !strings.Contains(err.Error(), "pg_dump") {
			t.Errorf("got %v, want ErrLocked, naming who is in the way", err)
		}
		// The dump ends, and an Up that is trying gets through.
		done := make(chan error, 1)
		go func() {
			_, err := migrations.Up(t.Context(), conn, migrations.Reapply(), migrations.LockTimeout(50*time.Millisecond))
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if hits := stop(); hits == 0 {
			t.Error("no hit came through")
		}
		wantCurrent(t, conn)
	})
}

// killer ends the connection's server process after its nth statement.
type killer struct {
	kill func()
	n    int
	seen int
}

func (k *killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (k *killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	if k.seen++; k.seen == k.n {
		k.kill()
	}
}

// TestUpKilledMidway ends an Up after each of its statements in turn. The next Up finishes.
func TestUpKilledMidway(t *testing.T) {
	t.Parallel()

	killed := func(t *testing.T, db *dbtest.DB, n int) (statements int) {
		config, err := pgx.ParseConfig(db.URL(dbtest.Installer))
		if err != nil {
			t.Fatal(err)
		}
		k := &killer{n: n}
		config.Tracer = k
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		pid := conn.PgConn().PID()
		k.kill = func() { mustScan[bool](t, db.Super(), fmt.Sprintf("select pg_terminate_backend(%d, 5000)", pid)) }
		k.seen = 0 // connecting may have asked something
		_, err = migrations.Up(t.Context(), conn)
		if (err == nil) != (n == 0) {
			t.Errorf("killed after %d statements: %v", n, err)
		}
		return k.seen
	}

	dbtest.New(t) // with the roles there, every Up takes the same statements
	statements := killed(t, dbtest.NewEmpty(t), 0)
	if statements < 10 {
		t.Fatalf("only %d statements: the test does not see them", statements)
	}
	// After the last one there is nothing left to fail.
	for n := 1; n < statements; n++ {
		t.Run(fmt.Sprint("AfterStatement", n), func(t *testing.T) {
			t.Parallel()
			db := dbtest.NewEmpty(t)
			killed(t, db, n)
			conn := db.Conn(dbtest.Installer)
			if members := membersOfSystem(t, conn); members != "" {
				t.Errorf("left a member of pglimit_system: %s", members)
			}
			mustUp(t, conn)
			wantCurrent(t, conn)
		})
	}
}

func TestUpCancelled(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	// Somebody else is installing.
	mustExec(t, db.Conn(""), "select pg_advisory_lock(9628173550095224)")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := migrations.Up(ctx, db.Conn(dbtest.Installer)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

// TestInstallers: who may install, and what it leaves them with. Roles are the server's, so on a
// server of its own.
func TestInstallers(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	db := dbtest.NewEmptyOn(t, server.DSN("postgres"))
	login := func(t *testing.T, name, attributes string) *pgx.Conn {
		t.Helper()
		mustExec(t, db.Super(), fmt.Sprintf("create role %s login password 'secret' %s; grant create on database %s to %s",
			name, attributes, pgx.Identifier{db.Name}.Sanitize(), name))
		u, err := url.Parse(db.SuperURL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(name, "secret")
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}

	poor := login(t, "poor", "")
	_, err := migrations.Up(t.Context(), poor)
	if !errors.Is(err, migrations.ErrNotPrivileged) || !strings.Contains(err.Error(), `alter role "poor" createrole`) {
		t.Errorf("who may create no roles: %v", err)
	}

	first := login(t, "first", "createrole")
	mustUp(t, first)
	wantCurrent(t, first)

	t.Run("SecondOfTheSameKind", func(t *testing.T) {
		second := login(t, "second", "createrole")
		_, err := migrations.Up(t.Context(), second, migrations.Reapply())
		if serverVersion(t, second) < 16 {
			// Before 16 CREATEROLE is power over every role.
			if err != nil {
				t.Error(err)
			}
			wantCurrent(t, second)
			return
		}
		if !errors.Is(err, migrations.ErrNotPrivileged) ||
			!strings.Contains(err.Error(), `grant pglimit_system to "second" with inherit false, set true`) {
			t.Errorf("got %v", err)
		}
		mustExec(t, first, "grant pglimit_system to second with inherit false, set true")
		mustUp(t, second, migrations.Reapply())
		if got := membersOfSystem(t, second); got != "second" {
			t.Errorf("members: %s; what was granted before must stay, and nothing else", got)
		}
		mustExec(t, first, "revoke pglimit_system from second")
		wantCurrent(t, second)
	})

	t.Run("MemberWithoutCreateRole", func(t *testing.T) {
		member := login(t, "member", "")
		mustExec(t, db.Super(), "grant pglimit_system to member")
		mustUp(t, member, migrations.Reapply())
		if got := membersOfSystem(t, member); got != "member" {
			t.Errorf("members: %s; what was granted before must stay, and nothing else", got)
		}
		mustExec(t, db.Super(), "revoke pglimit_system from member")
		wantCurrent(t, member)
	})

	t.Run("AfterARoleIsMissing", func(t *testing.T) {
		// As after a restore on a server that never had the roles: what they were granted is lost.
		mustExec(t, db.Super(), "drop owned by pglimit_monitor; drop role pglimit_monitor")
		if s := mustCheck(t, poor); len(s.Drift) == 0 {
			t.Error("lost grants are no drift")
		}
		if result := mustUp(t, first); !result.CodeApplied || len(result.Applied) > 0 {
			t.Errorf("%+v", result)
		}
		wantCurrent(t, first)
	})
}

func TestReapplyOfWhatWasGivenAway(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Super(), "alter function pglimit.pglimit_version() owner to pg_monitor")
	_, err := migrations.Up(t.Context(), db.Conn(dbtest.Installer), migrations.Reapply())
	if !errors.Is(err, migrations.ErrNotPrivileged) || !strings.Contains(err.Error(), "alter function pglimit_version owner to pglimit_system") {
		t.Errorf("got %v", err)
	}
}

func TestCheckDrift(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql, want string
		stays           bool // not undone by applying the code: tables are nobody's but the owner's
	}{
		{"EditedFunction", `create or replace function pglimit.pglimit_version() returns text
			language sql stable as $$ select '0.0.0' $$`, "function pglimit.pglimit_version() differs", false},
		{
			"FunctionGivenAway", "alter function pglimit.pglimit_version() owner to pg_monitor",
			"function pglimit.pglimit_version() differs", true,
		},
		{
			"MoreGrants", "grant execute on function pglimit.pglimit_version() to public",
			"function pglimit.pglimit_version() differs", false,
		},
		{
			"FewerGrants", "revoke execute on function pglimit.pglimit_version() from pglimit_monitor",
			"function pglimit.pglimit_version() differs", false,
		},
		{
			"Comment", "comment on function pglimit.pglimit_version() is 'mine'",
			"function pglimit.pglimit_version() differs", false,
		},
		{"SchemaGrant", "grant create on schema pglimit to pglimit_app", "schema pglimit differs", true},
		{"TableGrant", "grant select on pglimit.limits to pglimit_app", "table pglimit.limits differs", false},
		{"ColumnGrant", "grant select (mode) on pglimit.limits to pglimit_app", "table pglimit.limits differs", true},
		{"Column", "alter table pglimit.limits add column mine text", "table pglimit.limits differs", true},
		{"ColumnDefault", "alter table pglimit.limits alter column mode set default 'off'", "table pglimit.limits differs", true},
		{"Options", "alter table pglimit.limits set (fillfactor = 42)", "table pglimit.limits differs", true},
		{"Logged", "alter table pglimit.sentinel set logged", "table pglimit.sentinel differs", true},
		{"RowSecurity", "alter table pglimit.limits no force row level security", "table pglimit.limits differs", false},
		{"PolicyGone", "drop policy limits_system_only on pglimit.limits", "policy limits_system_only on pglimit.limits is missing", false},
		{"PolicyWidened", "alter policy limits_system_only on pglimit.limits to public", "policy limits_system_only on pglimit.limits differs", false},
		{
			"Constraint", "alter table pglimit.limits drop constraint limits_max_hits_check",
			"constraint limits_max_hits_check on pglimit.limits is missing", true,
		},
		{"Index", "create index mine on pglimit.limits (mode)", "index pglimit.mine is not part of pglimit", true},
		{
			"Trigger", `create trigger mine before update on pglimit.limits execute function suppress_redundant_updates_trigger()`,
			"trigger mine on pglimit.limits is not part of pglimit", true,
		},
		{
			"Rule", "create rule mine as on delete to pglimit.limits do instead nothing",
			"rule mine on pglimit.limits is not part of pglimit", true,
		},
		{"Sequence", "alter sequence pglimit.permit_number cache 100", "sequence pglimit.permit_number differs", true},
		{"RowType", "alter type pglimit.limit_row add attribute mine text", "type pglimit.limit_row differs", true},
		{
			"MoreFunctions", "create function pglimit.mine(a int, b text) returns int language sql return 1",
			"function pglimit.mine(integer,text) is not part of pglimit", true,
		},
		{"MoreTypes", "create type pglimit.mine as enum ('a')", "type pglimit.mine is not part of pglimit", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			mustExec(t, db.Super(), c.sql)
			conn := db.Conn("")
			if got := mustCheck(t, conn).Drift; !slices.Contains(got, c.want) {
				t.Errorf("drift: %q, want %q in it", got, c.want)
			}
			// It is no reason to install anything: the text of the code is the same.
			if mustCheck(t, conn).Pending() || mustUp(t, conn).Changed() {
				t.Error("a change by hand makes Up pending")
			}
			if c.stays {
				return
			}
			result := mustUp(t, db.Conn(dbtest.Installer), migrations.Reapply())
			if !slices.Contains(result.Drift, c.want) {
				t.Errorf("Up found %q, want %q in it", result.Drift, c.want)
			}
			wantCurrent(t, conn)
			if got, want := sealedObjects(t, conn), sealedObjects(t, dbtest.New(t).Super()); !maps.Equal(got, want) {
				t.Error("applying the code did not bring back what was")
			}
		})
	}
}

// TestCheckAfterRestore: a restored dump is the same installation, seal included.
func TestCheckAfterRestore(t *testing.T) {
	t.Parallel()
	db, restored := dbtest.New(t), dbtest.NewEmpty(t)
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "--schema=pglimit", libpqURL(t, db.SuperURL())).Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "server version mismatch"):
		missing(t, "a pg_dump of the server's version")
	case errors.As(err, &exit):
		t.Fatal(err, string(exit.Stderr))
	case err != nil:
		t.Fatal(err)
	}
	if out, err := psql(t, restored.SuperURL(), dump, "-v", "ON_ERROR_STOP=on"); err != nil {
		t.Fatal(err, out)
	}
	wantCurrent(t, restored.Conn(""))
	if result := mustUp(t, restored.Conn("")); result.Changed() {
		t.Errorf("%+v", result)
	}
}

// rendered returns the file that Render writes.
func rendered(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := migrations.Render(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// missing ends a test for want of a program: in CI, which installs what it needs, as a failure.
func missing(t *testing.T, program string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("needs ", program)
	}
	t.Skip("needs ", program)
}

// psql runs a script as somebody would who has nothing else, and returns what it printed. What is rendered is to be run
// again where it did not get a lock: roles are the server's, and other tests install at the same time.
func psql(t *testing.T, dsn string, script []byte, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("psql"); err != nil {
		missing(t, "psql")
	}
	for attempt := 1; ; attempt++ {
		cmd := exec.CommandContext(t.Context(), "psql", slices.Concat(args, []string{"--no-psqlrc", "--quiet", "--file=-", libpqURL(t, dsn)})...)
		cmd.Env = append(os.Environ(), "PGOPTIONS=-c search_path=")
		cmd.Stdin = bytes.NewReader(script)
		out, err := cmd.CombinedOutput()
		if err == nil || attempt == 50 || !bytes.Contains(out, []byte("due to lock timeout")) {
			return string(out), err
		}
	}
}

// libpqURL leaves out what only pgx knows: it passes search_path on to the server.
func libpqURL(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("search_path")
	u.RawQuery = query.Encode()
	return u.String()
}

func TestRender(t *testing.T) {
	t.Parallel()
	script := rendered(t)
	db := dbtest.NewEmpty(t)
	want := sealedObjects(t, dbtest.New(t).Super())

	// With the settings that make psql go on after errors, as somebody's psqlrc may have.
	hostile := []string{"-v", "AUTOCOMMIT=off", "-v", "ON_ERROR_STOP=off", "-v", "ON_ERROR_ROLLBACK=on"}
	for _, args := range [][]string{nil, hostile} {
		if out, err := psql(t, db.URL(dbtest.Installer), script, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		conn := db.Conn(dbtest.Installer)
		wantCurrent(t, conn)
		if got := sealedObjects(t, conn); !maps.Equal(got, want) {
			t.Error("the catalog differs from the one that Up leaves")
		}
		if result := mustUp(t, conn); result.Changed() {
			t.Errorf("Up after it: %+v", result)
		}
	}

	t.Run("RepairsByBeingRunAgain", func(t *testing.T) {
		mustExec(t, db.System(), "drop policy limits_system_only on pglimit.limits; drop function pglimit.pglimit_version()")
		if out, err := psql(t, db.URL(dbtest.Installer), script); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		wantCurrent(t, db.Conn(""))
	})

	t.Run("FinishesWhatUpBegan", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		mustExec(t, db.System(), `comment on table pglimit.schema_version is null;
			update pglimit.installation set code_version = '0.0.1', code_hash = 'old'`)
		if out, err := psql(t, db.URL(dbtest.Installer), script); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		wantCurrent(t, db.Conn(""))
	})

	t.Run("RefusesToGoBack", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		mustExec(t, db.System(), "update pglimit.installation set code_version = '99.0.0'")
		out, err := psql(t, db.URL(dbtest.Installer), script, hostile...)
		if err == nil || !strings.Contains(out, "a newer pglimit is installed") || !strings.Contains(out, "HINT") {
			t.Errorf("%v\n%s", err, out)
		}
		if got := mustScan[string](t, db.System(), "select code_version from pglimit.installation"); got != "99.0.0" {
			t.Errorf("code_version is now %s", got)
		}
	})

	t.Run("LeavesNothingOnFailure", func(t *testing.T) {
		t.Parallel()
		db := dbtest.NewEmpty(t)
		broken := bytes.Replace(script, []byte("\ncommit;"), []byte("\nselect 1/0;\ncommit;"), 1)
		if out, err := psql(t, db.URL(dbtest.Installer), broken, hostile...); err == nil {
			t.Errorf("succeeded:\n%s", out)
		}
		if s := mustCheck(t, db.Conn("")); s.Installed {
			t.Errorf("%+v", s)
		}
	})

	t.Run("IsTheSameEachTime", func(t *testing.T) {
		t.Parallel()
		if !bytes.Equal(script, rendered(t)) {
			t.Error("two files of one version differ")
		}
		if strings.Contains(string(script), "<no value>") || strings.Contains(string(script), "{{") || strings.Contains(string(script), "@code_") {
			t.Error("something was not filled in")
		}
	})
}

func TestDrop(t *testing.T) {
	t.Parallel()
	server := privateServer(t)
	one, other := dbtest.NewEmptyOn(t, server.DSN("postgres")), dbtest.NewEmptyOn(t, server.DSN("postgres"))
	mustUp(t, one.Conn(dbtest.Installer))
	mustUp(t, other.Conn(dbtest.Installer))
	mustExec(t, one.Super(), "create view public.theirs as select * from pglimit.limits")
	roles := []string{"pglimit_app", "pglimit_operator", "pglimit_monitor", "pglimit_system"}

	t.Run("NeedsThePrivilege", func(t *testing.T) {
		if _, err := migrations.Drop(t.Context(), one.Conn("")); !errors.Is(err, migrations.ErrNotPrivileged) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("WaitsForNobody", func(t *testing.T) {
		defer lockAll(t, one, "access share")()
		_, err := migrations.Drop(t.Context(), one.Conn(dbtest.Installer),
			migrations.LockTimeout(10*time.Millisecond), migrations.RetryFor(20*time.Millisecond))
		if !errors.Is(err, migrations.ErrLocked) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("KeepsRolesInUseElsewhere", func(t *testing.T) {
		result, err := migrations.Drop(t.Context(), one.Conn(dbtest.Installer))
		if err != nil {
			t.Fatal(err)
		}
		if !result.Schema || len(result.Roles) > 0 || len(result.Kept) != len(roles) {
			t.Errorf("%+v", result)
		}
		for _, kept := range result.Kept {
			if !strings.Contains(kept.Reason, other.Name) {
				t.Errorf("%s was kept because of %q, want the other database named", kept.Name, kept.Reason)
			}
		}
		if mustScan[bool](t, one.Super(), "select to_regnamespace('pglimit') is not null or to_regclass('public.theirs') is not null") {
			t.Error("something is left")
		}
		wantCurrent(t, other.Conn(""))
	})

	t.Run("InstallsAgain", func(t *testing.T) {
		conn := one.Conn(dbtest.Installer)
		mustUp(t, conn)
		wantCurrent(t, conn)
		if _, err := migrations.Drop(t.Context(), conn, migrations.KeepRoles()); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("KeepsRolesThatTheDatabaseUses", func(t *testing.T) {
		mustExec(t, one.Super(), "create table public.theirs (); grant select on public.theirs to pglimit_app")
		defer mustExec(t, one.Super(), "drop table public.theirs")
		result, err := migrations.Drop(t.Context(), other.Conn(dbtest.Installer))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(result.Roles, roles[1:]) || len(result.Kept) != 1 || result.Kept[0].Name != "pglimit_app" {
			t.Errorf("%+v", result)
		}
	})

	t.Run("TakesTheRolesAlong", func(t *testing.T) {
		conn := one.Conn(dbtest.Installer)
		mustUp(t, conn)
		result, err := migrations.Drop(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if !result.Schema || !slices.Equal(result.Roles, roles) || len(result.Kept) > 0 {
			t.Errorf("%+v", result)
		}
		if mustScan[bool](t, conn, "select exists (select from pg_roles where rolname in ('pglimit_app', 'pglimit_operator', 'pglimit_monitor', 'pglimit_system'))") {
			t.Error("a role is left")
		}
	})

	t.Run("IsDoneWhenThereIsNothing", func(t *testing.T) {
		result, err := migrations.Drop(t.Context(), one.Conn(dbtest.Installer))
		if err != nil || result.Schema || len(result.Roles) > 0 || len(result.Kept) > 0 {
			t.Errorf("%+v, %v", result, err)
		}
	})
}
