package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

// maxSkew is how far this machine's clock may be from the server's before relative times mislead.
const maxSkew = 5 * time.Second

type doctorOptions struct {
	Client   func(context.Context) (Client, error)
	IO       *IOStreams
	Migrator func(context.Context) (Migrator, error)
	Now      func() time.Time

	Format      string
	HeldFor     *time.Duration
	SnapshotFor *time.Duration
	Strict      bool
}

var doctorView = view[pgclient.DoctorRow]{
	noun: "check",
	columns: []column[pgclient.DoctorRow]{
		{name: "check_name", head: "CHECK", value: func(r pgclient.DoctorRow) any { return r.Check }},
		{name: "state", value: func(r pgclient.DoctorRow) any { return string(r.State) }, color: func(r pgclient.DoctorRow) (string, string) {
			switch r.State {
			case pgclient.CheckOK:
				return green, "+ "
			case pgclient.CheckFailure:
				return red, "! "
			case pgclient.CheckSkipped:
				return plain, "  "
			}
			return yellow, "- "
		}},
		{name: "message", value: func(r pgclient.DoctorRow) any { return r.Message }},
		{name: "hint", value: func(r pgclient.DoctorRow) any { return r.Hint }, show: ifAny},
	},
}

func newDoctorCmd(f *Factory, runF func(context.Context, *doctorOptions) error) *cobra.Command {
	o := &doctorOptions{Client: f.Client, IO: f.IO, Migrator: f.Migrator, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check the database: is pglimit whole, does it answer, who is in its way",
		Long: `Check the database and say of each thing what is wrong with it and what to type next: whether pglimit is
installed, current and unchanged, whether its functions are there, may be called and answer, who holds
locks on its tables, prepared transactions too, which logins pass its policies, whether anybody purges.
A check is ok, a warning, a failure, or skipped where the login may not see enough; with pg_monitor
besides pglimit_operator or pglimit_monitor it sees all. Nothing is written.

The exit code is 1 after a failure, with --strict also after a warning. select * from pglimit.doctor() is
the same from SQL, but for connection, clock, schema and drift.`,
		Example: `  limitctl doctor

  # What is not as it should be, from cron
  limitctl doctor --strict -o jsonl | jq -c 'select(.state == "warning" or .state == "failure")'

  # Who has been in the way for a second?
  limitctl doctor --held-for 1s`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return doctorRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(optionalDuration{&o.HeldFor}, "held-for", "name transactions that have held locks for this long (default 5s)")
	flags.Var(optionalDuration{&o.SnapshotFor}, "snapshot-for", "name snapshots that have been held for this long (default 1h)")
	flags.BoolVar(&o.Strict, "strict", false, "exit with 1 after a warning too")
	outputVar(cmd, &o.Format, doctorView)
	return cmd
}

func doctorRun(ctx context.Context, o *doctorOptions) error {
	rows, err := examine(ctx, o)
	if err != nil {
		return err
	}
	p := printer{format: o.Format, now: o.Now(), streams: o.IO}
	v := doctorView
	people := o.Format == formatAuto && o.IO.outTTY
	if people {
		v.columns = v.columns[:3] // hints are long, and to be copied: they get lines of their own
	}
	if _, err := list(p, v, func(yield func(pgclient.DoctorRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}); err != nil {
		return err
	}
	bad := false
	for _, r := range rows {
		bad = bad || r.State == pgclient.CheckFailure || o.Strict && r.State == pgclient.CheckWarning
		if people && r.Hint != "" {
			line(o.IO.Out, "HINT, "+printable(r.Check)+":", r.Hint)
		}
	}
	if bad {
		return silent(exitError)
	}
	return nil
}

// examine makes the checks, ours first: without an answer to those the others may not be there.
func examine(ctx context.Context, o *doctorOptions) ([]pgclient.DoctorRow, error) {
	m, err := o.Migrator(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var rows []pgclient.DoctorRow
	add := func(check string, state pgclient.CheckState, message, hint string) {
		rows = append(rows, pgclient.DoctorRow{Check: check, Hint: hint, Message: message, State: state})
	}

	before := o.Now()
	session, err := m.Session(ctx)
	if err != nil {
		return nil, err
	}
	checkSession(add, m, session)
	checkClock(add, session.Now, before, o.Now())
	status, err := m.Check(ctx)
	if err != nil {
		return nil, err
	}
	if !checkSchema(add, schemaStatus{Status: status}) {
		return rows, nil
	}
	if session.Standby {
		add("server", pgclient.CheckOK, "this is a standby: counters and permits are on the primary, nothing else is checked here", primaryHint)
		return rows, nil
	}

	client, err := o.Client(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.Doctor(ctx, pgclient.DoctorParams{HeldFor: o.HeldFor, SnapshotFor: o.SnapshotFor})
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code != "42501" {
		// It may be doctor itself that is broken. Who may not call it is told so as by any command.
		p := explain(err)
		add("server", pgclient.CheckFailure, "doctor fails: "+p.message+" (SQLSTATE "+p.state+")", p.hint)
		return rows, nil
	}
	return append(rows, found...), err
}

type addCheck func(check string, state pgclient.CheckState, message, hint string)

func checkSession(add addCheck, m Migrator, s Session) {
	where := fmt.Sprintf("connected to database %s at %s as %s", quote(m.Database()), m.Server(), s.Login)
	if s.Super {
		add("connection", pgclient.CheckWarning, where+", a superuser: what is closed to others is open to it",
			"create role ops login; grant pglimit_operator, pg_monitor to ops")
		return
	}
	if !slices.Contains(s.Roles, "pglimit_operator") && !slices.Contains(s.Roles, "pglimit_monitor") {
		add("connection", pgclient.CheckWarning, where+", which is no member of pglimit_operator or pglimit_monitor",
			fmt.Sprintf("grant pglimit_monitor to %s", s.Login))
		return
	}
	add("connection", pgclient.CheckOK, where+", a member of "+strings.Join(s.Roles, ", "), "")
}

// checkClock compares clocks. The server's said now at some time between before and after.
func checkClock(add addCheck, now, before, after time.Time) {
	skew := time.Duration(0)
	switch {
	case now.Before(before):
		skew = now.Sub(before)
	case now.After(after):
		skew = now.Sub(after)
	}
	if skew.Abs() > maxSkew {
		add("clock", pgclient.CheckWarning, fmt.Sprintf("the server's clock is %s from this machine's", formatDuration(skew.Abs().Truncate(time.Second))),
			"pglimit decides by the server's clock alone; set both by NTP, or times relative to now mislead")
		return
	}
	add("clock", pgclient.CheckOK, "the server's clock and this machine's agree", "")
}

// checkSchema tells whether there is something that can be asked.
func checkSchema(add addCheck, s schemaStatus) bool {
	versions := fmt.Sprintf("pglimit %s, schema version %d", orNone(s.CodeVersion), s.SchemaVersion)
	own := fmt.Sprintf("%s, schema version %d", s.WantCodeVersion, s.WantSchemaVersion)
	switch state := s.state(); {
	case state == "foreign":
		p := explain(foreignSchema(s.ForeignOwner, exitError))
		add("schema", pgclient.CheckFailure, p.message, p.hint)
		return false
	case state == "not installed":
		add("schema", pgclient.CheckFailure, "pglimit is not installed in this database", "limitctl schema up installs it")
		return false
	case s.CodeVersion == "":
		add("schema", pgclient.CheckFailure, "an installation was begun and not finished", "limitctl schema up finishes it")
		return false
	case state == "pending":
		add("schema", pgclient.CheckWarning, versions+" is installed; this limitctl has "+own, "limitctl schema up brings it up to date")
	case state == "newer":
		add("schema", pgclient.CheckOK, versions+" is installed, newer than this limitctl, which has "+own, "")
	default:
		add("schema", pgclient.CheckOK, versions+" is installed, as this limitctl has it", "")
	}
	switch {
	case s.DriftUnknown != "":
		add("drift", pgclient.CheckSkipped, "changes by hand cannot be told: "+s.DriftUnknown, "limitctl schema up --reapply")
	case len(s.Drift) == 0:
		add("drift", pgclient.CheckOK, "nothing was changed by hand", "")
	}
	for _, d := range s.Drift[:min(len(s.Drift), 20)] {
		add("drift", pgclient.CheckFailure, d+": it was changed by hand", reapplyHint)
	}
	return true
}
