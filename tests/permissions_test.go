package tests

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// sqlState returns the SQLSTATE of an error, "" of nil and "?" of an error that is not the server's.
func sqlState(err error) string {
	var server *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &server):
		return server.Code
	}
	return "?"
}

func mustStrings(t *testing.T, db *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// mayCall is who may call what: a app, o operator, m monitor.
var mayCall = map[string]string{
	"heartbeat_replica":       "a",
	"sign_in_succeeded":       "a",
	"sign_in_failed":          "a",
	"check_sign_in":           "a",
	"strike":                  "a",
	"unblock":                 "o",
	"unblock_range":           "o",
	"pause":                   "ao",
	"list_blocks":             "om",
	"block":                   "o",
	"block_range":             "o",
	"admit":                   "a",
	"charge":                  "a",
	"claim_permit":            "a",
	"doctor":                  "om",
	"drop_endpoint":           "o",
	"drop_endpoint_override":  "o",
	"drop_limit":              "o",
	"drop_limit_override":     "o",
	"explain_limit":           "om",
	"enqueue_permit":          "a",
	"force_release":           "o",
	"forget":                  "ao",
	"forget_sign_in":          "o",
	"hit":                     "a",
	"hit_many":                "a",
	"hit_up_to":               "a",
	"hold":                    "a",
	"install_ready":           "o",
	"list_changes":            "om",
	"list_counters":           "om",
	"list_endpoint_overrides": "om",
	"list_endpoints":          "om",
	"list_holds":              "om",
	"list_limit_overrides":    "om",
	"list_limits":             "om",
	"list_permits":            "om",
	"peek":                    "aom",
	"pglimit_version":         "aom",
	"poll_ticket":             "a",
	"purge":                   "o",
	"raise_epoch":             "o",
	"reassert_permit":         "a",
	"refund":                  "a",
	"release_holder":          "o",
	"release_permit":          "ao",
	"renew_permit":            "a",
	"set_endpoint":            "o",
	"set_endpoint_override":   "o",
	"set_grace":               "o",
	"set_installation_cap":    "o",
	"set_limit":               "o",
	"set_limit_override":      "o",
	"set_purge_after":         "o",
	"settle":                  "a",
	"show_installation":       "om",
	"show_sign_in":            "om",
	"simulate":                "o",
}

// outsiders are logins that may use nothing, whatever they may do elsewhere in the database.
var outsiders = []string{"", "pg_read_all_data", "pg_write_all_data"}

// TestFunctionPermissions calls every function there is as everybody there is. An argument is null
// of its type, so that whoever may call reaches the function's own checks.
func TestFunctionPermissions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	calls := mustStrings(t, db.Conn("pglimit_system"), `
		select format('%s|select from pglimit.%I(%s)', p.proname, p.proname, (
			select string_agg('null::' || format_type(x.type, null), ', ' order by x.n)
			from unnest(p.proargtypes) with ordinality x (type, n)))
		from pg_proc p
		where p.pronamespace = 'pglimit'::regnamespace
		order by 1`)
	seen := map[string]bool{}
	roles := append([]string{"pglimit_app", "pglimit_operator", "pglimit_monitor"}, outsiders...)
	for _, role := range roles {
		conn := db.Conn(role)
		for _, call := range calls {
			name, sql, _ := strings.Cut(call, "|")
			if seen[name] = true; mayCall[name] == "" && !strings.HasPrefix(name, "_") {
				t.Fatalf("function %s is not in the matrix", name)
			}
			letter, _ := strings.CutPrefix(role, "pglimit_")
			may := strings.HasPrefix(role, "pglimit_") && strings.Contains(mayCall[name], letter[:1])
			_, err := conn.Exec(t.Context(), sql)
			if denied := sqlState(err) == "42501"; denied == may {
				t.Errorf("%q calls %s: got %v, may call: %v", role, sql, err, may)
			} else if may && sqlState(err) != "" && sqlState(err) != "PGL01" && sqlState(err) != "PGL02" {
				t.Errorf("%q calls %s: %v", role, sql, err)
			}
		}
	}
	for name := range mayCall {
		if !seen[name] {
			t.Errorf("function %s is in the matrix alone", name)
		}
	}
}

// TestTablePermissions reads and writes every table and sequence as everybody.
func TestTablePermissions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Pool("pglimit_operator"), `
		select pglimit.set_limit('login', 3, '1 minute');
		select pglimit.set_limit('bill', 3, '1 minute', durable => true);
		select pglimit.set_endpoint('export', 2, time_bound => '1 minute');
		select pglimit.set_endpoint_override('export', 'b', 3);
		select pglimit.set_limit_override('login', 'vip', 30);
		select pglimit.block('login', 'bad');
		select pglimit.block_range('login', '203.0.113.0/24')`)
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.hit('login', 'a')")
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.hit('bill', 'a')")
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.sign_in_succeeded('ann', '203.0.113.7')")
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.heartbeat_replica('shop', 'r1')")
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.hold('login', 'a', 1, '1 minute'), pglimit.hold('bill', 'a', 1, '1 minute')")
	mustExec(t, db.Pool("pglimit_app"), "select pglimit.claim_permit('export', 'a')")
	mustExec(t, db.Pool("pglimit_operator"), "select pglimit.purge()")
	mustExec(t, db.Pool("pglimit_operator"), "select pglimit.set_limit('login', 4, '1 hour', carry => 'proportional')")
	tables := mustStrings(t, db.Conn("pglimit_system"), `
		select c.relname::text from pg_class c
		where c.relnamespace = 'pglimit'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') order by 1`)
	sequences := mustStrings(t, db.Conn("pglimit_system"), `
		select c.relname::text from pg_class c
		where c.relnamespace = 'pglimit'::regnamespace and c.relkind = 'S' order by 1`)
	if len(tables) < 8 || len(sequences) < 2 {
		t.Fatalf("tables %q, sequences %q", tables, sequences)
	}
	for _, role := range []string{"pglimit_app", "pglimit_operator", "pglimit_monitor", ""} {
		conn := db.Conn(role)
		for _, table := range tables {
			if table == "schema_version" {
				continue // tern's: says nothing but a number
			}
			for _, sql := range []string{
				"select from pglimit.%s", "insert into pglimit.%s default values", "delete from pglimit.%s",
				"truncate pglimit.%s", "do $$ begin lock table pglimit.%s in access share mode; end $$",
			} {
				if _, err := conn.Exec(t.Context(), fmt.Sprintf(sql, table)); sqlState(err) != "42501" {
					t.Errorf("%q: %s: %v", role, fmt.Sprintf(sql, table), err)
				}
			}
		}
		for _, sequence := range sequences {
			for _, sql := range []string{
				"select from pglimit.%s", "select nextval('pglimit.%s')", "select setval('pglimit.%s', 1)",
			} {
				if _, err := conn.Exec(t.Context(), fmt.Sprintf(sql, sequence)); sqlState(err) != "42501" {
					t.Errorf("%q: %s: %v", role, fmt.Sprintf(sql, sequence), err)
				}
			}
		}
	}

	// Those who may read or write every table meet the policies.
	reader, writer := db.Conn("pg_read_all_data"), db.Conn("pg_write_all_data")
	for _, table := range tables {
		if table == "schema_version" {
			continue
		}
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit."+table); n == 0 {
			t.Errorf("%s is empty, nothing is shown by reading nothing from it", table)
		}
		if n := mustScan[int](t, reader, "select count(*) from pglimit."+table); n != 0 {
			t.Errorf("pg_read_all_data reads %d rows of %s", n, table)
		}
		for _, sql := range []string{"delete from pglimit." + table, "update pglimit." + table + " set " +
			mustScan[string](t, db.System(), fmt.Sprintf(`select attname || ' = default' from pg_attribute
				where attrelid = 'pglimit.%s'::regclass and attnum = 1`, table))} {
			tag, err := writer.Exec(t.Context(), sql)
			if err != nil || tag.RowsAffected() != 0 {
				t.Errorf("pg_write_all_data: %s: %v, %v", sql, tag, err)
			}
		}
	}
	for _, sql := range []string{
		"insert into pglimit.sentinel (epoch) values (9)",
		"insert into pglimit.creation_locks values (1)",
		"insert into pglimit.purge_progress (last_purge_at) values (now())",
		"insert into pglimit.installation (installation_cap) values (1)",
		"insert into pglimit.counters values ('k', 1, 1, 1, now(), now())",
		"insert into pglimit.permits values ('p', 1, 1, 1, now(), 1)",
		"insert into pglimit.limits values ('', 'l', 1, '1 s', 'fixed_window', null, false, 'enforce', 'allow', 1, now(), 'me')",
		"insert into pglimit.limit_overrides values ('', 'l', 's', 1, null, null, 1, now(), 'me')",
		"insert into pglimit.changes values (1, now(), 'me', 'set_limit', '', 'l')",
		"insert into pglimit.endpoints values ('', 'e', 1, 1, '1 s', '1 s', 1, true, 'enforce', 'allow', 1, now(), 'me')",
	} {
		if _, err := writer.Exec(t.Context(), sql); sqlState(err) != "42501" {
			t.Errorf("pg_write_all_data: %s: %v", sql, err)
		}
	}
}

// TestRowSecurity: one policy a table, on a shape that nobody can read two ways.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	conn := dbtest.New(t).Conn("")
	got := mustStrings(t, conn, `
		select format('%s rls=%s forced=%s %s', c.relname, c.relrowsecurity, c.relforcerowsecurity, coalesce((
			select string_agg(format('%s permissive=%s for=%s to=%s using=%s check=%s', p.polname, p.polpermissive,
				p.polcmd, p.polroles::regrole[], pg_get_expr(p.polqual, c.oid), pg_get_expr(p.polwithcheck, c.oid)), '; ')
			from pg_policy p where p.polrelid = c.oid), 'none'))
		from pg_class c
		where c.relnamespace = 'pglimit'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'schema_version'
		order by c.relname`)
	if len(got) < 7 {
		t.Errorf("only %d tables", len(got))
	}
	for _, line := range got {
		table, _, _ := strings.Cut(line, " ")
		want := fmt.Sprintf("%s rls=t forced=t %s_system_only permissive=t for=* to={pglimit_system} using=true check=true", table, table)
		if line != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
	}
}

// TestFunctionCatalog: what every function must have, so that a new one cannot forget it.
func TestFunctionCatalog(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conn := db.Conn("")
	for what, condition := range map[string]string{
		"may be called by public":            "exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x where x.grantee = 0)",
		"has no comment":                     "coalesce(obj_description(p.oid, 'pg_proc'), '') = ''",
		"is not owned by pglimit_system":     "p.proowner <> 'pglimit_system'::regrole",
		"is public and no security definer":  "p.proname !~ '^_' and not p.prosecdef and p.proname <> 'doctor'", // see its header
		"is internal and a security definer": "p.proname ~ '^_' and p.prosecdef",
		"is public and has no fixed search_path": `p.proname !~ '^_' and not exists (select from unnest(p.proconfig) c
			where c = 'search_path=pg_catalog, pg_temp')`,
		"has an EXCEPTION block": "p.proname in ('hit', 'claim_permit', '_take_lanes', '_find_lanes', 'renew_permit', 'release_permit') and p.prosrc ~* 'exception\\s+when'",
	} {
		if bad := mustStrings(t, conn, `select p.oid::regprocedure::text from pg_proc p
			where p.pronamespace = 'pglimit'::regnamespace and `+condition); len(bad) > 0 {
			t.Errorf("%s: %s", what, strings.Join(bad, ", "))
		}
	}
	members := mustStrings(t, conn, `select rolname::text from pg_roles
		where rolname in ('pglimit_app', 'pglimit_operator', 'pglimit_monitor', 'pglimit_system')
			and not (rolsuper or rolbypassrls or rolcanlogin or rolcreaterole or rolcreatedb) order by 1`)
	if !slices.Equal(members, []string{"pglimit_app", "pglimit_monitor", "pglimit_operator", "pglimit_system"}) {
		t.Errorf("roles without any attribute: %q", members)
	}
}
