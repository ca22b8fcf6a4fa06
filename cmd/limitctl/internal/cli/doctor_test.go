package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// setupDoctor is a database in which all is well.
func setupDoctor(tty bool) *testBundle {
	b := setup(tty)
	b.migrator.session = Session{Login: "ops", Now: testNow, Roles: []string{"pg_monitor", "pglimit_operator"}}
	b.migrator.status = migrations.Status{
		Installed: true, CodeHash: "h", WantCodeHash: "h", CodeVersion: "0.1.0", WantCodeVersion: "0.1.0", SchemaVersion: 1, WantSchemaVersion: 1,
	}
	b.client.doctor = []pgclient.DoctorRow{{Check: "call", State: pgclient.CheckOK, Message: "peek answers"}}
	return b
}

const allWell = "connection\tok\tconnected to database \"app\" at db.example.com:5432 as ops, a member of pg_monitor, pglimit_operator\t\n" +
	"clock\tok\tthe server's clock and this machine's agree\t\n" +
	"schema\tok\tpglimit 0.1.0, schema version 1 is installed, as this limitctl has it\t\n" +
	"drift\tok\tnothing was changed by hand\t\n"

func TestDoctor(t *testing.T) {
	t.Parallel()
	b := setupDoctor(false)
	b.want(t, b.run("doctor"), exitOK, allWell+"call\tok\tpeek answers\t\n", "")
	if !b.client.closed || len(b.client.calls) != 1 || b.client.calls[0] != `doctor {"HeldFor":null,"SnapshotFor":null}` {
		t.Errorf("closed %v, calls %q", b.client.closed, b.client.calls)
	}

	b = setupDoctor(false)
	b.run("doctor", "--held-for", "0s", "--snapshot-for", "1d")
	if len(b.client.calls) != 1 || b.client.calls[0] != `doctor {"HeldFor":0,"SnapshotFor":86400000000000}` {
		t.Errorf("calls %q", b.client.calls)
	}
}

// A terminal gets a table, and what to type on lines of its own.
func TestDoctorOnATerminal(t *testing.T) {
	t.Parallel()
	b := setupDoctor(true)
	b.client.doctor = []pgclient.DoctorRow{
		{Check: "prepared", State: pgclient.CheckWarning, Message: "prepared transaction 'x'", Hint: "rollback prepared 'x';"},
		{Check: "functions", State: pgclient.CheckFailure, Message: "everybody may call\x1b[2J"},
		{Check: "blockers", State: pgclient.CheckSkipped, Message: "needs pg_monitor"},
	}
	b.want(t, b.run("doctor", "--color", "never"), exitError, `CHECK       STATE      MESSAGE
connection  + ok       connected to database "app" at db.example.com:5432 as ops, a member of pg_monitor, pglimit_operator
clock       + ok       the server's clock and this machine's agree
schema      + ok       pglimit 0.1.0, schema version 1 is installed, as this limitctl has it
drift       + ok       nothing was changed by hand
prepared    - warning  prepared transaction 'x'
functions   ! failure  everybody may call\u001b[2J
blockers      skipped  needs pg_monitor
HINT, prepared: rollback prepared 'x';
`, "")
}

// C-45: whatever is wrong, it is said, and the exit code says it too.
func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	missing := &pgconn.PgError{Code: "42883", Message: "function pglimit.doctor() does not exist"}
	for name, tt := range map[string]struct {
		change       func(*testBundle)
		strict, code int // exit codes, with --strict and without
		says         string
		stops        bool // before the checks of the database
	}{
		"Superuser":    {func(b *testBundle) { b.migrator.session.Super = true }, 1, 0, "connection\twarning\t", false},
		"NoRole":       {func(b *testBundle) { b.migrator.session.Roles = []string{"pglimit_app"} }, 1, 0, "grant pglimit_monitor to ops\n", false},
		"ClockFast":    {func(b *testBundle) { b.migrator.session.Now = testNow.Add(time.Minute) }, 1, 0, "the server's clock is 1m from", false},
		"ClockSlow":    {func(b *testBundle) { b.migrator.session.Now = testNow.Add(-time.Hour) }, 1, 0, "the server's clock is 1h from", false},
		"NotInstalled": {func(b *testBundle) { b.migrator.status = migrations.Status{WantSchemaVersion: 1} }, 1, 1, "schema\tfailure\tpglimit is not installed", true},
		"Foreign":      {func(b *testBundle) { b.migrator.status = migrations.Status{ForeignOwner: "joe"} }, 1, 1, "schema\tfailure\tschema pglimit exists and belongs to joe", true},
		"Unfinished":   {func(b *testBundle) { b.migrator.status.CodeVersion, b.migrator.status.CodeHash = "", "" }, 1, 1, "begun and not finished", true},
		"Pending":      {func(b *testBundle) { b.migrator.status.WantCodeHash = "i" }, 1, 0, "schema\twarning\t", false},
		"Newer":        {func(b *testBundle) { b.migrator.status.CodeVersion = "0.2.0" }, 0, 0, "newer than this limitctl", false},
		"Drift":        {func(b *testBundle) { b.migrator.status.Drift = []string{"function f() differs"} }, 1, 1, "drift\tfailure\tfunction f() differs: it was", false},
		"DriftUnknown": {func(b *testBundle) { b.migrator.status.DriftUnknown = "another major version" }, 0, 0, "drift\tskipped\t", false},
		"Standby":      {func(b *testBundle) { b.migrator.session.Standby = true }, 0, 0, "server\tok\tthis is a standby", true},
		"DoctorBroken": {func(b *testBundle) { b.client.err = missing }, 1, 1, "server\tfailure\tdoctor fails: function pglimit.doctor() does not exist", false},
		"Warning": {func(b *testBundle) {
			b.client.doctor[0] = pgclient.DoctorRow{Check: "purge", State: pgclient.CheckWarning, Message: "late", Hint: "purge"}
		}, 1, 0, "purge\twarning\tlate\tpurge\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for strict, want := range map[bool]int{false: tt.code, true: tt.strict} {
				b := setupDoctor(false)
				tt.change(b)
				args := []string{"doctor"}
				if strict {
					args = append(args, "--strict")
				}
				if code := b.run(args...); code != want || !strings.Contains(b.out.String(), tt.says) || b.errOut.Len() > 0 {
					t.Errorf("strict %v: exit code %d, want %d; %s%s", strict, code, want, b.out, b.errOut)
				}
				if asked := len(b.client.calls) > 0; asked == tt.stops {
					t.Errorf("the database was asked: %v", asked)
				}
			}
		})
	}
}

func TestDoctorNotPermitted(t *testing.T) {
	t.Parallel()
	b := setupDoctor(false)
	b.client.err = &pgconn.PgError{Code: "42501", Message: "permission denied for function doctor"}
	b.want(t, b.run("doctor"), exitConnect, "", "limitctl doctor: permission denied for function doctor (SQLSTATE 42501)\n"+
		"HINT: grant the login a role of pglimit: pglimit_monitor for list and show, pglimit_operator for the rest\n")
}

func TestDoctorParses(t *testing.T) {
	t.Parallel()
	parses[doctorOptions]{args: "", want: doctorOptions{}}.check(t, newDoctorCmd)
	parses[doctorOptions]{args: "--strict --held-for 1s -o json", want: doctorOptions{
		Strict: true, HeldFor: pgclient.D(time.Second), Format: formatJSON,
	}}.check(t, newDoctorCmd)
	parses[doctorOptions]{args: "--held-for soon", err: "--held-for"}.check(t, newDoctorCmd)
	parses[doctorOptions]{args: "now", err: "too many arguments"}.check(t, newDoctorCmd)
	parses[endpointInstallOptions]{args: "request_in_flight --tenant acme", want: endpointInstallOptions{
		Name: "request_in_flight", Tenant: "acme",
	}}.check(t, newEndpointInstallCmd)
	parses[endpointInstallOptions]{args: "", err: "missing argument: <name>"}.check(t, newEndpointInstallCmd)
}

func TestEndpointInstall(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.want(t, b.run("endpoint", "install", "request_in_flight"), exitOK,
		"Endpoint request_in_flight is there, version 7; limitctl endpoint show request_in_flight shows it.\n", "")
	if len(b.client.calls) != 1 || b.client.calls[0] != `install_ready request_in_flight ""` {
		t.Errorf("calls %q", b.client.calls)
	}
}
