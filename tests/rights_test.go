package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// testers are all logins that tests call functions and read tables as.
var testers = []string{"pglimit_app", "pglimit_operator", "pglimit_monitor", "pg_read_all_data", "pg_write_all_data", ""}

// TestTestersAreOrdinary is C-33: a test of rights shows nothing when its login passes every check
// anyway, by an attribute, by owning the tables or by a membership.
func TestTestersAreOrdinary(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for _, role := range testers {
		conn := db.Conn(role)
		var login string
		var mighty, owns, passes bool
		if err := conn.QueryRow(t.Context(), `
			select current_user, r.rolsuper or r.rolbypassrls or r.rolcreaterole or r.rolreplication,
				pg_has_role(current_user, 'pglimit_system', 'member')
					or exists (select from pg_class c where c.relnamespace = 'pglimit'::regnamespace and pg_has_role(current_user, c.relowner, 'member')),
				exists (select from pg_class c where c.relnamespace = 'pglimit'::regnamespace and c.relkind = 'r'
					and c.relname <> 'schema_version' and not row_security_active(c.oid))
			from pg_roles r where r.rolname = current_user`).Scan(&login, &mighty, &owns, &passes); err != nil {
			t.Fatal(err)
		}
		if mighty || owns || passes {
			t.Errorf("%s (%q): attributes %v, owner %v, passes policies %v", login, role, mighty, owns, passes)
		}
	}
}

// bypasser returns the connection string of a login that no policy binds, a member of a role.
func bypasser(t *testing.T, db *dbtest.DB, role string) string {
	t.Helper()
	super := db.Super()
	name := fmt.Sprintf("pglimit_test_bypass_%d", rand.Uint32())
	mustExec(t, super, fmt.Sprintf("create role %s login bypassrls password '%[1]s'", name))
	t.Cleanup(func() {
		if _, err := super.Exec(context.Background(), "drop role "+name); err != nil {
			t.Error(err)
		}
	})
	mustExec(t, super, fmt.Sprintf("grant %s to %s", role, name))
	u, err := url.Parse(db.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, name)
	return u.String()
}

// TestBypassRLS is C-33 from the other side: a service that runs as a login with BYPASSRLS gets the
// same answers and no more rights, for no table is granted to anybody. It is the policies alone that
// such a login passes, so with pg_read_all_data, as a backup needs it, it sees all.
func TestBypassRLS(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conn, err := pgx.Connect(t.Context(), bypasser(t, db, "pglimit_app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for i := range int64(2) {
		wantHit(t, conn, "hit('l', 's', 2, '1 hour')", "allowed", 1-i)
		wantGrant(t, conn, "'e', 'h', 2, lease => '1 hour'")
	}
	wantHit(t, db.Conn("pglimit_app"), "hit('l', 's', 2, '1 hour')", "limit", 0)
	for _, sql := range []string{"select from pglimit.counters", "delete from pglimit.permits", "select pglimit.purge()", "set role pglimit_system"} {
		if _, err := conn.Exec(t.Context(), sql); sqlState(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}

	backup, err := pgx.Connect(t.Context(), bypasser(t, db, "pg_read_all_data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backup.Close(context.Background()) })
	const count = "select count(*) from pglimit.counters"
	if all, seen := mustScan[int](t, backup, count), mustScan[int](t, db.Conn("pg_read_all_data"), count); all != 1 || seen != 0 {
		t.Errorf("%d rows with BYPASSRLS, %d without; want 1 and 0", all, seen)
	}
}

// TestUsageOfTheSchemaOpensNothing is C-32: who may not use the schema is refused for that alone, so
// this gives it to everybody, as people do who look for the cause of a "permission denied". Still no
// function, table or sequence is anybody's but those it was granted to.
func TestUsageOfTheSchemaOpensNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Super(), "grant usage on schema pglimit to public")
	nobody := db.Conn("")
	system := db.Conn("pglimit_system")
	calls := mustStrings(t, system, `
		select format('select from pglimit.%I(%s)', p.proname, (
			select string_agg('null::' || format_type(x.type, null), ', ' order by x.n)
			from unnest(p.proargtypes) with ordinality x (type, n)))
		from pg_proc p
		where p.pronamespace = 'pglimit'::regnamespace`)
	for _, name := range mustStrings(t, system, `select c.oid::regclass::text from pg_class c
		where c.relnamespace = 'pglimit'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relname <> 'schema_version'`) {
		calls = append(calls, "select from "+name, "insert into "+name+" default values", "delete from "+name, "truncate "+name,
			"copy "+name+" to stdout", "alter table "+name+" no force row level security",
			"create policy mine on "+name+" using (true)", "comment on table "+name+" is 'mine'")
	}
	for _, name := range mustStrings(t, system, `select c.oid::regclass::text from pg_class c
		where c.relnamespace = 'pglimit'::regnamespace and c.relkind = 'S'`) {
		calls = append(calls, "select from "+name, "select nextval('"+name+"')", "select setval('"+name+"', 1)", "select currval('"+name+"')")
	}
	calls = append(calls, "create table pglimit.mine ()", "create function pglimit.hit() returns int language sql return 1",
		"drop function pglimit.hit", "drop schema pglimit cascade", "set role pglimit_system", "set role pglimit_app", "set session authorization pglimit_system",
		"grant pglimit_app to current_user", "comment on schema pglimit is 'mine'")
	for _, sql := range calls {
		if _, err := nobody.Exec(t.Context(), sql); sqlState(err) != "42501" {
			t.Errorf("%s: %v, want 42501", sql, err)
		}
	}
	if len(calls) < 80 {
		t.Errorf("only %d calls", len(calls))
	}
}

// TestSideDoors is C-55: the app's login reaches no row around the functions, by no role it could
// become, no view and no setting; and a setting that was local once, and is ” since, breaks nothing.
func TestSideDoors(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for _, view := range mustStrings(t, app, `select c.oid::regclass::text from pg_class c where c.relnamespace = 'pglimit'::regnamespace
		and c.relkind in ('v', 'm') and coalesce(c.reloptions @> array['security_invoker=true'], false) is not true`) {
		t.Errorf("view %s reads with its owner's rights", view)
	}
	for _, role := range append(mustStrings(t, app, "select r.rolname::text from pg_roles r where pg_has_role(current_user, r.oid, 'member')"), "pglimit_system", "pglimit_operator") {
		_, err := app.Exec(t.Context(), "set role "+pgx.Identifier{role}.Sanitize())
		if strings.HasPrefix(role, "pglimit_test_") || role == "pglimit_app" {
			if err != nil {
				t.Error(err)
			}
		} else if sqlState(err) != "42501" {
			t.Errorf("the app may become %s: %v", role, err)
		}
		for _, sql := range []string{"select from pglimit.counters", "select pglimit.list_counters()", "select pglimit._hit_special('l', 's', 1, '1 s', 1, null, null, '')"} {
			if _, err := app.Exec(t.Context(), sql); sqlState(err) != "42501" {
				t.Errorf("as %s: %s: %v", role, sql, err)
			}
		}
		mustExec(t, app, "reset role")
	}
	for _, setting := range []string{"pglimit.tenant", "pglimit.in_transaction"} {
		for _, value := range []string{"error", "allow"} {
			mustExec(t, app, fmt.Sprintf("begin; set local %s = '%s'", setting, value))
			mustHit(t, app, "hit('l', 's', 9, '1 hour')")
			mustExec(t, app, "commit")
		}
		if got := mustScan[string](t, app, fmt.Sprintf("select current_setting('%s')", setting)); got != "" {
			t.Errorf("%s is %q", setting, got)
		}
	}
	wantHit(t, app, "hit('l', 's', 9, '1 hour')", "allowed", 6) // in_transaction's two and this one
	wantGrant(t, app, "'e', 'h', 9, lease => '1 hour'")
}

// TestRepeatedWrites is C-34 for the app's role: no policy asks for a right to read that an upsert
// would need. Twice, since it is the second call that meets the row.
func TestRepeatedWrites(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for i := range int64(2) {
		wantHit(t, app, "hit('l', 's', 9, '1 hour')", "allowed", 8-i)
		id := *wantGrant(t, app, "'e', 'h', 9, lease => '1 hour'").ID
		wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "renewed")
		for _, call := range []string{"set_limit('l', 9, '1 hour')", "set_endpoint('e', 9)", "set_installation_cap(9)", "set_purge_after('1 day')", "set_grace('1 day')", "raise_epoch()", "purge()"} {
			mustExec(t, operator, "select pglimit."+call)
		}
		wantReassert(t, app, fmt.Sprintf("%d, 'e', 'h', 9, lease => '1 hour'", id), "renewed")
	}
}

// TestDumps is C-34: which logins can dump a database with pglimit in it, as docs/backup.md says. A
// dump that stops says why; the one that would leave rows out in silence is named there.
func TestDumps(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('dumped', 9, '1 hour')")
	const (
		whole   = "dumped\t9" // the row of the limit
		without = "PostgreSQL database dump complete"
	)
	for _, c := range []struct {
		who, url string
		args     []string
		holds    string // "": it stops
		lacks    string
		says     string
	}{
		{who: "superuser", url: db.SuperURL(), holds: whole},
		{who: "a backup role", url: bypasser(t, db, "pg_read_all_data"), holds: whole},
		{who: "the database's owner", url: db.URL(dbtest.Installer), says: "permission denied for schema pglimit"},
		{who: "the database's owner", url: db.URL(dbtest.Installer), args: []string{"--exclude-schema=pglimit"}, holds: without, lacks: "pglimit.hit"},
		{who: "the tables' owner", url: db.URL("pglimit_system"), says: "query would be affected by row-level security policy"},
		{who: "the tables' owner", url: db.URL("pglimit_system"), args: []string{"--enable-row-security"}, holds: whole},
		{who: "a reader of all data", url: db.URL("pg_read_all_data"), says: "query would be affected by row-level security policy"},
		{who: "a reader of all data", url: db.URL("pg_read_all_data"), args: []string{"--exclude-table-data=pglimit.*"}, holds: "FUNCTION pglimit.hit", lacks: whole},
		{who: "a reader of all data, in silence", url: db.URL("pg_read_all_data"), args: []string{"--enable-row-security"}, holds: "COPY pglimit.limits", lacks: whole},
	} {
		out, err := exec.CommandContext(t.Context(), "pg_dump", append(c.args, libpqURL(t, c.url))...).Output()
		var exit *exec.ExitError
		stopped := errors.As(err, &exit)
		switch {
		case errors.Is(err, exec.ErrNotFound), stopped && strings.Contains(string(exit.Stderr), "server version mismatch"):
			missing(t, "a pg_dump of the server's version")
		case err != nil && !stopped:
			t.Fatal(err)
		case c.says != "":
			if !stopped || !strings.Contains(string(exit.Stderr), c.says) {
				t.Errorf("%s %v: %v, want it to stop with %q", c.who, c.args, err, c.says)
			}
		case stopped:
			t.Errorf("%s %v: %s", c.who, c.args, exit.Stderr)
		case !strings.Contains(string(out), c.holds) || c.lacks != "" && strings.Contains(string(out), c.lacks):
			t.Errorf("%s %v: want %q in the dump and not %q", c.who, c.args, c.holds, c.lacks)
		}
	}
}
