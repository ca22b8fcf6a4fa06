package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/tests/dbtest"
)

type doctorRow struct {
	Check   string `db:"check_name"`
	State   string
	Message string
	Hint    string
}

// doctor returns what doctor(args) found.
func doctor(t *testing.T, db *pgx.Conn, args string) []doctorRow {
	t.Helper()
	rows, err := db.Query(t.Context(), "select check_name, state, message, coalesce(hint, '') as hint from pglimit.doctor("+args+")")
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[doctorRow])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantRow returns the row of a check that says what is wanted; state and message are beginning and
// part of it.
func wantRow(t *testing.T, found []doctorRow, check, state, message string) doctorRow {
	t.Helper()
	for _, r := range found {
		if r.Check == check && r.State == state && strings.Contains(r.Message, message) {
			if state != "ok" && r.Hint == "" {
				t.Errorf("%s: %s: no hint", check, r.Message)
			}
			return r
		}
	}
	t.Errorf("no %s of %s that says %q in %q", state, check, message, found)
	return doctorRow{}
}

// cure is the statement that a hint begins with.
func cure(r doctorRow) string {
	statement, _, _ := strings.Cut(r.Hint, ";")
	return statement
}

// doctorBundle is a database on a server of the tests of doctor alone, for roles and settings are the
// server's, and the two logins that ask: an operator who may see all sessions, and one who may not.
type doctorBundle struct {
	*dbtest.DB
	monitor, operator *pgx.Conn
}

func setupDoctor(t *testing.T, server *localpg.Server) doctorBundle {
	t.Helper()
	db := dbtest.NewOn(t, server.DSN("postgres"))
	b := doctorBundle{DB: db, monitor: db.Conn("pglimit_monitor"), operator: db.Conn("pglimit_operator")}
	mustExec(t, db.Super(), "grant pg_monitor to pglimit_test_operator")
	return b
}

// forgottenSlot leaves the slot of a standby behind that asked to keep what its queries see, and is gone.
func forgottenSlot(t *testing.T, db *dbtest.DB, slot string) {
	t.Helper()
	mustExec(t, db.Super(), "select pg_create_physical_replication_slot('"+slot+"', true)")
	config, err := pgconn.ParseConfig(db.SuperURL())
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams = map[string]string{"replication": "true"}
	standby, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(context.Background())
	standby.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " PHYSICAL " +
		mustScan[string](t, db.Super(), "select pg_current_wal_flush_lsn()::text")})
	if err := standby.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	if message, err := standby.ReceiveMessage(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, ok := message.(*pgproto3.CopyBothResponse); !ok {
		t.Fatalf("%T", message)
	}
	oldest := mustScan[int64](t, db.Super(), "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0) // sent at, of no matter
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest))
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest>>32))
	feedback = binary.BigEndian.AppendUint64(feedback, 0) // none of the catalog
	standby.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	if err := standby.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	until := func(condition string) {
		t.Helper()
		for range 1000 {
			if mustScan[bool](t, db.Super(), "select "+condition+" from pg_replication_slots, pg_sleep(0.005) where slot_name = '"+slot+"'") {
				return
			}
		}
		t.Fatalf("the slot never came to be: %s", condition)
	}
	until("xmin is not null")
	if err := standby.Conn().Close(); err != nil {
		t.Fatal(err)
	}
	until("not active")
}

// TestDoctor is C-31, C-33 and C-45: each check fails for real, and its hint mends it where that is a
// statement.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := privateServer(t, "max_prepared_transactions", "4")
	checks := []string{
		"server", "objects", "functions", "row_security", "installation", "call", "defaults", "sentinel", "purge", "roles", "blockers", "prepared", "snapshots", "vacuum",
	}

	// First, before any login is there that it would warn of.
	t.Run("Healthy", func(t *testing.T) {
		db := setupDoctor(t, server)
		app := db.Conn("pglimit_app")
		wantHit(t, app, "hit('l', 's', 9, '1 hour')", "allowed", 8)
		wantGrant(t, app, "'e', 'h', 1, lease => '1 hour'")
		mustExec(t, db.operator, "select pglimit.purge()")
		for _, begin := range []string{"begin", "begin read only", "begin isolation level serializable"} {
			mustExec(t, db.operator, begin)
			var names []string
			for _, r := range doctor(t, db.operator, "'1 hour'") {
				names = append(names, r.Check)
				if r.State != "ok" {
					t.Errorf("%s: %+v", begin, r)
				}
			}
			if !slices.Equal(names, checks) {
				t.Errorf("checks %q, want %q", names, checks)
			}
			mustExec(t, db.operator, "commit")
		}
		found := doctor(t, db.monitor, "")
		wantRow(t, found, "blockers", "skipped", "needs pg_monitor")
		wantRow(t, found, "snapshots", "skipped", "needs pg_monitor")
		for _, r := range found {
			if r.State != "ok" && r.State != "skipped" {
				t.Errorf("%+v", r)
			}
		}
		for _, args := range []string{"null", "'-1 s'", "snapshot_for => null", "snapshot_for => '-1 s'"} {
			if _, err := db.monitor.Exec(t.Context(), "select pglimit.doctor("+args+")"); sqlState(err) != "PGL01" {
				t.Errorf("doctor(%s): %v", args, err)
			}
		}
	})

	t.Run("Psql", func(t *testing.T) {
		db := setupDoctor(t, server)
		out, err := exec.CommandContext(t.Context(), "psql", "-XAtc", "select * from pglimit.doctor() where check_name = 'call'",
			libpqURL(t, db.URL("pglimit_operator"))).CombinedOutput()
		switch {
		case errors.Is(err, exec.ErrNotFound):
			missing(t, "psql")
		case err != nil || string(out) != "call|ok|peek answers; hit was not called, which takes pglimit_app and a transaction that may write|\n":
			t.Errorf("%v: %s", err, out)
		}
	})

	// C-45: each call of the service fails, and doctor says so and why.
	t.Run("BrokenForEverybody", func(t *testing.T) {
		for _, tt := range []struct{ name, sql, fails, check, message string }{
			{"Dropped", "drop function pglimit.hit", "42883", "objects", "function pglimit.hit(text,text,bigint,"},
			{"InternalDropped", "drop function pglimit._check_hit", "42883", "objects", "function pglimit._check_hit("},
			{
				"Raises", `do $$ begin execute replace(pg_get_functiondef('pglimit._check_hit'::regproc), 'begin', 'begin perform 1/0;'); end $$`,
				"22012", "call", "division by zero (SQLSTATE 22012)",
			},
			{"TableDropped", "drop table pglimit.counters", "42P01", "objects", "table pglimit.counters is missing"},
			{
				"NotGranted", "revoke all on function pglimit.hit from pglimit_app", "42501",
				"functions", "pglimit_app may not call pglimit.hit(text,text,bigint,",
			},
			{
				"SchemaClosed", "revoke usage on schema pglimit from pglimit_app", "42501",
				"functions", "pglimit_app may not use the schema",
			},
			{
				"RunsAsCaller", "alter function pglimit.hit security invoker", "42501",
				"functions", "runs with the rights of its caller",
			},
			{
				"OtherOwner", "alter function pglimit.hit owner to pg_monitor", "42501",
				"functions", "runs with the rights of pg_monitor",
			},
			{"PolicyDropped", "drop policy counters_system_only on pglimit.counters", "42501", "row_security", "row-level security of pglimit.counters"},
			{"TableGivenAway", "alter table pglimit.counters owner to pg_monitor", "42501", "row_security", "pglimit.counters belongs to pg_monitor"},
			{"TableChanged", "alter table pglimit.counters rename column turn to lap", "42703", "call", `SQLSTATE 42703`},
		} {
			t.Run(tt.name, func(t *testing.T) {
				db := setupDoctor(t, server)
				app := db.Conn("pglimit_app")
				wantHit(t, app, "hit('l', 's', 9, '1 hour')", "allowed", 8)
				mustExec(t, db.Super(), tt.sql)
				for range 100 {
					call := "hit"
					if strings.Contains(tt.sql, "_check_hit") {
						call = "peek" // a hit calls it only for what is not usual
					}
					if _, err := app.Exec(t.Context(), "select pglimit."+call+"('l', 's', 9, '1 hour')"); sqlState(err) != tt.fails {
						t.Fatalf("%s: %v, want %s", call, err, tt.fails)
					}
				}
				for _, conn := range []*pgx.Conn{db.operator, db.monitor} {
					wantRow(t, doctor(t, conn, ""), tt.check, "failure", tt.message)
				}
			})
		}

		// hit alone: who may call it, finds it out.
		t.Run("HitRaises", func(t *testing.T) {
			db := setupDoctor(t, server)
			super, err := pgx.Connect(t.Context(), db.SuperURL())
			if err != nil {
				t.Fatal(err)
			}
			defer super.Close(context.Background())
			wantRow(t, doctor(t, super, ""), "call", "ok", "peek and hit answer")
			mustExec(t, super, `do $$ begin execute replace(pg_get_functiondef('pglimit.hit'::regproc), 'v_max bigint;', 'v_max bigint := 1/0;'); end $$`)
			wantRow(t, doctor(t, super, ""), "call", "failure", "division by zero")
			if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters"); n != 0 {
				t.Errorf("doctor recorded %d hits", n)
			}
		})
	})

	t.Run("Functions", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.Super(), `
			grant execute on function pglimit.peek to public;
			grant execute on function pglimit.purge to pg_monitor;
			grant execute on function pglimit._hit_special to pglimit_app;
			create function pglimit.mine() returns int language sql return 1`)
		found := doctor(t, db.monitor, "")
		for message, state := range map[string]string{
			"everybody (PUBLIC) may call pglimit.peek(":  "failure",
			"pg_monitor may call pglimit.purge(bigint)":  "warning",
			"pglimit_app may call pglimit._hit_special(": "warning",
			"pglimit.mine() is not part of pglimit":      "warning",
			"everybody (PUBLIC) may call pglimit.mine":   "failure",
		} {
			r := wantRow(t, found, "functions", state, message)
			if !strings.Contains(message, "mine() is not") {
				mustExec(t, db.Super(), cure(r))
			}
		}
		mustExec(t, db.Super(), "drop function pglimit.mine()")
		wantRow(t, doctor(t, db.monitor, ""), "functions", "ok", "")
	})

	t.Run("Record", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.Super(), "comment on table pglimit.schema_version is 'mine'")
		wantRow(t, doctor(t, db.monitor, ""), "objects", "warning", "record of its objects is missing")
		mustExec(t, db.Super(), "comment on table pglimit.schema_version is '{mine'")
		wantRow(t, doctor(t, db.monitor, ""), "objects", "warning", "record of its objects cannot be read")
	})

	t.Run("RowSecurity", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.Super(), `
			alter table pglimit.counters no force row level security;
			alter table pglimit.permits disable row level security;
			create policy mine on pglimit.limits using (true);
			drop policy endpoints_system_only on pglimit.endpoints;
			create policy endpoints_system_only on pglimit.endpoints to pglimit_system using (true) with check (tenant <> '');
			grant select on pglimit.changes to public, pg_monitor;
			grant usage on pglimit.permit_number to pg_monitor`)
		found := doctor(t, db.monitor, "")
		for _, table := range []string{"counters", "permits", "limits", "endpoints"} {
			wantRow(t, found, "row_security", "failure", "pglimit."+table+" is not")
		}
		wantRow(t, found, "row_security", "warning", "everybody (PUBLIC) has rights on pglimit.changes")
		wantRow(t, found, "row_security", "warning", "pg_monitor has rights on pglimit.changes")
		wantRow(t, found, "row_security", "warning", "pg_monitor has rights on pglimit.permit_number")
		if n := len(slices.DeleteFunc(found, func(r doctorRow) bool { return r.Check != "row_security" })); n != 7 {
			t.Errorf("%d findings", n)
		}
	})

	t.Run("Installation", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.operator, "select pglimit.set_installation_cap(301)")
		r := wantRow(t, doctor(t, db.monitor, ""), "installation", "warning", "is 301, and there are 300 connections")
		mustExec(t, db.operator, cure(r))
		wantRow(t, doctor(t, db.monitor, ""), "installation", "ok", "0 of 75 slots")
		mustExec(t, db.System(), "delete from pglimit.installation")
		wantRow(t, doctor(t, db.monitor, ""), "installation", "failure", "no row")
		mustExec(t, db.Super(), "drop function pglimit.show_installation")
		wantRow(t, doctor(t, db.monitor, ""), "installation", "failure", "show_installation fails: function pglimit.show_installation() does not exist")
	})

	t.Run("Sentinel", func(t *testing.T) {
		db := setupDoctor(t, server)
		app := db.Conn("pglimit_app")
		wantGrant(t, app, cats)
		mustExec(t, db.System(), lose)
		wantRow(t, doctor(t, db.monitor, ""), "sentinel", "warning", "since the last claim, losses in all: 1")
		wantGrant(t, app, cats)
		wantRow(t, doctor(t, db.monitor, ""), "sentinel", "warning", "emptied counters and permits at ")
		mustExec(t, db.System(), "update pglimit.installation set lost_at = lost_at - interval '1 day'")
		wantRow(t, doctor(t, db.monitor, ""), "sentinel", "ok", "losses in all: 1")
	})

	t.Run("Purge", func(t *testing.T) {
		db := setupDoctor(t, server)
		wantRow(t, doctor(t, db.monitor, ""), "purge", "ok", "nothing to purge")
		wantRow(t, doctor(t, db.monitor, ""), "sentinel", "ok", "no permit was claimed yet")
		wantGrant(t, db.Conn("pglimit_app"), "'e', 'h', 1, lease => '1 hour'")
		wantRow(t, doctor(t, db.monitor, ""), "sentinel", "ok", "nothing was lost")
		wantRow(t, doctor(t, db.monitor, ""), "purge", "warning", "there was no purge yet")
		mustExec(t, db.operator, "select pglimit.purge()")
		wantRow(t, doctor(t, db.monitor, ""), "purge", "ok", "the last purge was at ")
		mustExec(t, db.System(), "update pglimit.purge_progress set last_purge_at = last_purge_at - interval '25 hours'")
		r := wantRow(t, doctor(t, db.monitor, ""), "purge", "warning", "the last purge was at ")
		if !strings.Contains(r.Hint, "limitctl purge run --all") {
			t.Errorf("hint %q", r.Hint)
		}
	})

	t.Run("Defaults", func(t *testing.T) {
		db := setupDoctor(t, server)
		db.Conn("pglimit_app") // so that its login is there
		for sql, message := range map[string]string{
			"alter database " + db.Name + " set default_transaction_isolation = 'serializable'":                             "default_transaction_isolation is serializable",
			"alter role pglimit_test_app set default_transaction_read_only = on":                                            "default_transaction_read_only of pglimit_test_app is on",
			"alter role pglimit_test_app in database " + db.Name + " set default_transaction_isolation = 'repeatable read'": "default_transaction_isolation of pglimit_test_app is repeatable read",
		} {
			wantRow(t, doctor(t, db.monitor, ""), "defaults", "ok", "")
			mustExec(t, db.Super(), sql)
			if _, err := db.Conn("pglimit_app").Exec(t.Context(), "select pglimit.hit('l', 's', 9, '1 hour')"); sqlState(err) != "PGL03" {
				t.Errorf("%s: %v", sql, err)
			}
			mustExec(t, db.Super(), cure(wantRow(t, doctor(t, db.monitor, ""), "defaults", "warning", message)))
		}
		mustExec(t, db.Super(), "alter role pglimit_test_app set default_transaction_read_only = off")
		mustExec(t, db.Super(), "alter role pglimit_test_monitor set default_transaction_read_only = on") // who only looks
		wantRow(t, doctor(t, db.monitor, ""), "defaults", "ok", "")
		mustExec(t, db.Super(), "alter role pglimit_test_app reset all")
		mustExec(t, db.Super(), "alter role pglimit_test_monitor reset all")
	})

	// C-33: logins that no policy binds, directly or through another role.
	t.Run("Roles", func(t *testing.T) {
		db := setupDoctor(t, server)
		bypasser(t, db.DB, "pglimit_app")
		mustExec(t, db.Super(), `
			create role doctor_group; grant pglimit_system to doctor_group;
			create role doctor_deep login; grant doctor_group to doctor_deep;
			create role doctor_super login superuser; grant pglimit_operator to doctor_super;
			create role doctor_plain login; grant pglimit_app to doctor_plain`)
		t.Cleanup(func() { // the server's other databases are still asked
			if _, err := db.Super().Exec(context.Background(), "drop role doctor_deep, doctor_group, doctor_super, doctor_plain"); err != nil {
				t.Error(err)
			}
		})
		found := doctor(t, db.monitor, "")
		wantRow(t, found, "roles", "warning", "login doctor_deep is a member of pglimit_system")
		wantRow(t, found, "roles", "warning", "login doctor_super, with SUPERUSER, is a member of pglimit_operator")
		r := wantRow(t, found, "roles", "warning", ", with BYPASSRLS, is a member of pglimit_app")
		for _, r := range found {
			if strings.Contains(r.Message, "doctor_plain") || strings.Contains(r.Message, "doctor_group") {
				t.Errorf("%+v", r)
			}
		}
		mustExec(t, db.Super(), strings.TrimSuffix(cure(r), ";"))
		for _, r := range doctor(t, db.monitor, "") {
			if strings.Contains(r.Message, "BYPASSRLS") {
				t.Errorf("after its cure: %+v", r)
			}
		}
	})

	t.Run("RoleIsMissing", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.Super(), "alter role pglimit_app rename to doctor_app")
		found := doctor(t, db.operator, "")
		mustExec(t, db.Super(), "alter role doctor_app rename to pglimit_app")
		wantRow(t, found, "functions", "failure", "role pglimit_app is missing")
	})

	// C-31: who is in the way, by name, with the statement that ends it.
	t.Run("Blockers", func(t *testing.T) {
		db := setupDoctor(t, server)
		app := db.Conn("pglimit_app")
		mustExec(t, app, "begin; set local pglimit.in_transaction = 'allow'; select pglimit.hit('l', 's', 9, '1 hour')")
		pid := app.PgConn().PID()
		wantRow(t, doctor(t, db.operator, "'1 hour'"), "blockers", "ok", "")
		wantRow(t, doctor(t, db.monitor, "'0 s'"), "blockers", "skipped", fmt.Sprintf("these hold some: %d (pglimit_test_app)", pid))
		r := wantRow(t, doctor(t, db.operator, "'0 s'"), "blockers", "warning", fmt.Sprintf("session %d of pglimit_test_app holds locks on counters", pid))
		if !strings.Contains(r.Message, "idle in transaction: begin; set local") {
			t.Errorf("message %q", r.Message)
		}
		reader := db.Conn("pglimit_monitor")
		mustExec(t, reader, "begin; select pglimit.list_counters()") // is in nobody's way
		mustExec(t, db.Super(), cure(r))
		if _, err := app.Exec(t.Context(), "commit"); err == nil {
			t.Error("the session still lives")
		}
		// Its end is asked for, not awaited.
		mustExec(t, db.Super(), fmt.Sprintf("do $$ begin for n in 1..1000 loop exit when not exists (select from pg_stat_activity where pid = %d); "+
			"perform pg_stat_clear_snapshot(), pg_sleep(0.01); end loop; end $$", pid))
		wantRow(t, doctor(t, db.operator, "'0 s'"), "blockers", "ok", "")
		mustExec(t, reader, "commit")

		locker, err := db.Super().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Rollback(context.Background())
		for _, table := range []string{"counters", "permits"} {
			if _, err := locker.Exec(t.Context(), "lock table pglimit."+table+" in access exclusive mode"); err != nil {
				t.Fatal(err)
			}
		}
		found := doctor(t, db.operator, "'0 s'")
		wantRow(t, found, "call", "failure", "SQLSTATE 55P03")
		wantRow(t, found, "installation", "failure", "lock timeout")
		wantRow(t, found, "blockers", "warning", "holds locks on counters, permits")
	})

	t.Run("Prepared", func(t *testing.T) {
		db := setupDoctor(t, server)
		app := db.Conn("pglimit_app")
		for _, sql := range []string{
			"begin", "set local pglimit.in_transaction = 'allow'", "select pglimit.hit('l', 's', 9, '1 hour')", "prepare transaction 'for''gotten'",
		} {
			mustExec(t, app, sql)
		}
		mustExec(t, db.Super(), "create table public.elsewhere ()")
		other, err := pgx.Connect(t.Context(), db.SuperURL())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		for _, sql := range []string{"begin", "insert into public.elsewhere default values", "prepare transaction 'elsewhere'"} {
			mustExec(t, other, sql)
		}
		wantRow(t, doctor(t, db.monitor, "'1 hour'"), "prepared", "ok", "")
		found := doctor(t, db.monitor, "'0 s'")
		r := wantRow(t, found, "prepared", "warning", "prepared transaction 'for''gotten' of pglimit_test_app has held locks on counters")
		for _, r := range found {
			if r.Check == "prepared" && strings.Contains(r.Message, "elsewhere") {
				t.Errorf("%+v", r)
			}
		}
		wantRow(t, doctor(t, db.operator, "snapshot_for => '0 s'"), "snapshots", "ok", "prepared transaction 'elsewhere'")
		mustExec(t, app, cure(r))
		mustExec(t, db.Super(), "rollback prepared 'elsewhere'")
		wantRow(t, doctor(t, db.monitor, "'0 s'"), "prepared", "ok", "no prepared transaction")
	})

	t.Run("Snapshots", func(t *testing.T) {
		db := setupDoctor(t, server)
		reader := db.Conn("")
		mustExec(t, reader, "begin isolation level repeatable read; select 1")
		r := wantRow(t, doctor(t, db.operator, "snapshot_for => '0 s'"), "snapshots", "ok", fmt.Sprintf("session %d of pglimit_test_", reader.PgConn().PID()))
		if r.Hint != fmt.Sprintf("select pg_terminate_backend(%d);", reader.PgConn().PID()) {
			t.Errorf("hint %q", r.Hint)
		}
		wantRow(t, doctor(t, db.monitor, "snapshot_for => '0 s'"), "snapshots", "skipped", "needs pg_monitor")

		forgottenSlot(t, db.DB, "doctor")
		r = wantRow(t, doctor(t, db.monitor, ""), "snapshots", "ok", "replication slot doctor, not in use")
		mustExec(t, db.Super(), cure(r))
		for _, r := range doctor(t, db.monitor, "") {
			if strings.Contains(r.Message, "replication slot") {
				t.Errorf("%+v", r)
			}
		}
	})

	t.Run("Vacuum", func(t *testing.T) {
		db := setupDoctor(t, server)
		mustExec(t, db.System(), `alter table pglimit.counters set (autovacuum_enabled = off)`)
		r := wantRow(t, doctor(t, db.monitor, ""), "vacuum", "warning", "autovacuum is off for pglimit.counters")
		// Dead rows by the thousand, without a vacuum that comes before the look.
		system := systemConn(t, db.DB)
		mustExec(t, system, `insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
			select 'k' || n, 1, 1, 1, now(), now() from generate_series(1, 100001) n`)
		mustExec(t, system, "delete from pglimit.counters")
		mustExec(t, system, "select pg_stat_force_next_flush()")
		r2 := wantRow(t, doctor(t, db.monitor, ""), "vacuum", "warning", "pglimit.counters has 100001 dead rows beside 0 live ones")
		mustExec(t, db.System(), cure(r2))
		mustExec(t, db.System(), cure(r))
		wantRow(t, doctor(t, db.monitor, ""), "vacuum", "ok", "")

		mustExec(t, db.Super(), "alter system set autovacuum = off")
		mustExec(t, db.Super(), "select pg_reload_conf()")
		until := func(setting string) {
			for range 1000 { // a session hears of it between two statements
				if mustScan[string](t, db.monitor, "select current_setting('autovacuum') from pg_sleep(0.005)") == setting {
					return
				}
			}
		}
		until("off")
		r = wantRow(t, doctor(t, db.monitor, ""), "vacuum", "warning", "autovacuum is off")
		for _, sql := range strings.Split(strings.TrimSuffix(r.Hint, ";"), ";") {
			mustExec(t, db.Super(), sql)
		}
		until("on")
		wantRow(t, doctor(t, db.monitor, ""), "vacuum", "ok", "")
	})

	// Last, for there is no way back: the same server as a standby.
	t.Run("Standby", func(t *testing.T) {
		db := setupDoctor(t, server)
		url := db.URL("pglimit_monitor")
		if err := os.WriteFile(filepath.Join(server.DataDir, "standby.signal"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { // so that databases can be dropped again
			if err := os.Remove(filepath.Join(server.DataDir, "standby.signal")); err != nil {
				t.Error(err)
			}
			if err := server.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if found := doctor(t, conn, ""); len(found) != 1 || found[0].Check != "server" || found[0].State != "ok" || !strings.Contains(found[0].Message, "this is a standby") {
			t.Errorf("%+v", found)
		}
	})
}
