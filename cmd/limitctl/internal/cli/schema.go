package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/migrations"
)

func newSchemaCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("schema", "Install, update, check and remove pglimit in a database", `
pglimit lives in the schema pglimit of a database. limitctl carries the version of it that it was built
with. Installing takes a login with CREATE on the database and CREATEROLE, no superuser.`)
	cmd.AddCommand(newSchemaUpCmd(f, nil), newSchemaStatusCmd(f, nil), newSchemaRenderCmd(f, nil), newSchemaDropCmd(f, nil))
	return cmd
}

type schemaUpOptions struct {
	IO       *IOStreams
	Migrator func(context.Context) (Migrator, error)
	Now      func() time.Time

	DryRun   bool
	Format   string
	Reapply  bool
	RetryFor time.Duration
}

// upResult is what schema up did, and where.
type upResult struct {
	database string
	migrations.Result
}

var upView = view[upResult]{
	noun: "installation",
	columns: []column[upResult]{
		{name: "database", value: func(r upResult) any { return r.database }},
		{name: "changed", value: func(r upResult) any { return r.Changed() }},
		{name: "schema_from", value: func(r upResult) any { return int64(r.SchemaFrom) }},
		{name: "schema_to", value: func(r upResult) any { return int64(r.SchemaTo) }},
		{name: "code_from", value: func(r upResult) any { return r.CodeFrom }},
		{name: "code_to", value: func(r upResult) any { return r.CodeTo }},
		{name: "code_applied", value: func(r upResult) any { return r.CodeApplied }},
		{name: "applied", value: func(r upResult) any { return r.Applied }},
		{name: "drift", value: func(r upResult) any { return r.Drift }},
	},
	sentence: func(r upResult) string {
		var text string
		switch {
		case !r.Changed():
			text = fmt.Sprintf("Nothing to do: pglimit %s is installed in database %s.", r.CodeTo, quote(r.database))
		case r.CodeFrom == "" && r.SchemaFrom == 0:
			text = fmt.Sprintf("Installed pglimit %s in database %s.", r.CodeTo, quote(r.database))
		case r.CodeFrom == r.CodeTo && len(r.Applied) == 0:
			text = fmt.Sprintf("Applied the code of pglimit %s again in database %s.", r.CodeTo, quote(r.database))
		default:
			text = fmt.Sprintf("Updated pglimit in database %s from %s to %s.", quote(r.database), orNone(r.CodeFrom), r.CodeTo)
		}
		if len(r.Applied) > 0 {
			text += "\nMigrations: " + strings.Join(r.Applied, ", ")
		}
		by := "\nHad been changed by hand: "
		if !r.Changed() {
			by = "\nChanged by hand: "
		}
		for _, d := range r.Drift {
			text += by + d
		}
		return text
	},
}

func orNone(version string) string {
	if version == "" {
		return "an unfinished installation"
	}
	return version
}

func newSchemaUpCmd(f *Factory, runF func(context.Context, *schemaUpOptions) error) *cobra.Command {
	o := &schemaUpOptions{IO: f.IO, Migrator: f.Migrator, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "up [flags]",
		Short: "Install pglimit, or bring it up to date",
		Long: `Install pglimit in the database, or bring an installation up to date. When there is nothing to do nothing is
written or locked, so it may run with every deployment, from every replica at once, while the limiter is
in use.

A newer version than limitctl's own is left alone. Of changes made by hand it warns; --reapply undoes those
of functions, policies and grants. It takes the time it needs: --retry-for bounds the wait for locks, and
--timeout does not apply.`,
		Example: `  # Before the new version of the application starts
  limitctl schema up

  # As the login that may create roles
  limitctl schema up --database-url 'postgres://admin@db.example.com/app'`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return schemaUpRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing; limitctl schema render shows the SQL")
	flags.BoolVar(&o.Reapply, "reapply", false, "apply functions, policies and grants even if they are current")
	durationVar(flags, &o.RetryFor, "retry-for", 30*time.Second, "how long to try for locks that others hold")
	outputVar(cmd, &o.Format, upView)
	return cmd
}

func schemaUpRun(ctx context.Context, o *schemaUpOptions) error {
	m, err := o.Migrator(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if o.DryRun {
		status, err := m.Check(ctx)
		if err != nil {
			return err
		}
		if status.ForeignOwner != "" {
			return foreignSchema(status.ForeignOwner, exitError) // as without --dry-run
		}
		fmt.Fprintln(o.IO.Out, wouldUp(status, o.Reapply, m.Database()))
		if !o.Reapply && !status.Pending() {
			warnOfDrift(o.IO, status.Drift)
		}
		return nil
	}
	opts := []migrations.Option{migrations.RetryFor(o.RetryFor)}
	if o.Reapply {
		opts = append(opts, migrations.Reapply())
	}
	result, err := m.Up(ctx, opts...)
	if err != nil {
		return err
	}
	if !result.Changed() {
		// Up looks for changes by hand only where it would undo them.
		status, err := m.Check(ctx)
		if err != nil {
			return err
		}
		result.Drift = status.Drift
		warnOfDrift(o.IO, status.Drift)
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, upView, upResult{database: m.Database(), Result: result})
}

// warnOfDrift says what schema up leaves as it is.
func warnOfDrift(streams *IOStreams, drift []string) {
	if len(drift) > 0 {
		line(streams.ErrOut, "WARNING:", "pglimit was changed by hand")
		line(streams.ErrOut, "HINT:", reapplyHint)
	}
}

const reapplyHint = "limitctl schema up --reapply puts functions, policies and grants back; tables it leaves as they are"

// foreignSchema is what schema up fails with where the name is taken.
func foreignSchema(owner string, code int) error {
	return &problem{
		code:    code,
		message: "schema pglimit exists and belongs to " + owner,
		detail:  "pglimit installs into a schema of that name, owned by pglimit_system.",
		hint:    "rename or drop that schema; if it was made for pglimit: alter schema pglimit owner to pglimit_system",
		state:   "PGL04",
	}
}

func wouldUp(s migrations.Status, reapply bool, database string) string {
	switch in := " in database " + quote(database); {
	case s.Newer():
		return fmt.Sprintf("Would do nothing: pglimit %s is installed%s, newer than %s.", s.CodeVersion, in, s.WantCodeVersion)
	case !s.Installed:
		return fmt.Sprintf("Would install pglimit %s%s.", s.WantCodeVersion, in)
	case s.Pending():
		return fmt.Sprintf("Would update pglimit%s from %s, schema version %d, to %s, schema version %d.",
			in, orNone(s.CodeVersion), s.SchemaVersion, s.WantCodeVersion, s.WantSchemaVersion)
	case reapply:
		return fmt.Sprintf("Would apply the code of pglimit %s again%s.", s.WantCodeVersion, in)
	default:
		return fmt.Sprintf("Would do nothing: pglimit %s is installed%s.", s.CodeVersion, in)
	}
}

type schemaStatusOptions struct {
	IO       *IOStreams
	Migrator func(context.Context) (Migrator, error)
	Now      func() time.Time

	Format string
}

// schemaStatus is what is installed, and where.
type schemaStatus struct {
	database string
	server   string
	migrations.Status
}

// state is one word for it all.
func (s schemaStatus) state() string {
	switch {
	case s.ForeignOwner != "":
		return "foreign"
	case !s.Installed:
		return "not installed"
	case s.Newer():
		return "newer"
	case s.Pending():
		return "pending"
	case len(s.Drift) > 0:
		return "drifted"
	}
	return "current"
}

var statusView = view[schemaStatus]{
	noun: "installation",
	columns: []column[schemaStatus]{
		{name: "state", value: func(s schemaStatus) any { return s.state() }, color: func(s schemaStatus) (string, string) {
			return good(s.state() == "current" || s.state() == "newer")
		}},
		{name: "database", value: func(s schemaStatus) any { return s.database }},
		{name: "server", value: func(s schemaStatus) any { return s.server }},
		{name: "code_version", value: func(s schemaStatus) any { return s.CodeVersion }},
		{name: "want_code_version", value: func(s schemaStatus) any { return s.WantCodeVersion }},
		{name: "schema_version", value: func(s schemaStatus) any { return int64(s.SchemaVersion) }},
		{name: "want_schema_version", value: func(s schemaStatus) any { return int64(s.WantSchemaVersion) }},
		{name: "code_hash", value: func(s schemaStatus) any { return s.CodeHash }},
		{name: "want_code_hash", value: func(s schemaStatus) any { return s.WantCodeHash }},
		{name: "drift", value: func(s schemaStatus) any { return s.Drift }},
		{name: "drift_unknown", value: func(s schemaStatus) any { return s.DriftUnknown }, show: ifAny},
	},
}

func newSchemaStatusCmd(f *Factory, runF func(context.Context, *schemaStatusOptions) error) *cobra.Command {
	o := &schemaStatusOptions{IO: f.IO, Migrator: f.Migrator, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Tell what is installed, and whether it is current",
		Long: `Tell what is installed, whether it is what this limitctl would install, and what was changed by hand. Any
login may ask, also on a standby.

The exit code is 8 when pglimit is missing, out of date or changed by hand, or when the schema pglimit is
something else, and 0 when it is current or newer.`,
		Example: `  limitctl schema status

  # Refuse to deploy before the schema is there
  limitctl schema status -o json > /dev/null || exit 1`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return schemaStatusRun(cmd.Context(), o)
		},
	}
	outputVar(cmd, &o.Format, statusView)
	return cmd
}

func schemaStatusRun(ctx context.Context, o *schemaStatusOptions) error {
	m, err := o.Migrator(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	status, err := m.Check(ctx)
	if err != nil {
		return err
	}
	s := schemaStatus{database: m.Database(), server: m.Server(), Status: status}
	if err := record(printer{format: o.Format, now: o.Now(), streams: o.IO}, statusView, s); err != nil {
		return err
	}
	switch s.state() {
	case "foreign":
		return foreignSchema(s.ForeignOwner, exitSchema)
	case "not installed":
		line(o.IO.ErrOut, "HINT:", "limitctl schema up installs it")
		return silent(exitSchema)
	case "pending":
		line(o.IO.ErrOut, "HINT:", "limitctl schema up brings it up to date")
		return silent(exitSchema)
	case "drifted":
		line(o.IO.ErrOut, "HINT:", reapplyHint)
		return silent(exitSchema)
	}
	return nil
}

type schemaRenderOptions struct {
	IO     *IOStreams
	Render func(io.Writer) error
}

func newSchemaRenderCmd(f *Factory, runF func(context.Context, *schemaRenderOptions) error) *cobra.Command {
	o := &schemaRenderOptions{IO: f.IO, Render: f.Render}
	return &cobra.Command{
		Use:   "render [flags]",
		Short: "Print the installation as one file for psql",
		Long: `Print the installation as one file for psql, to read before it runs, or to hand to whoever may run it. It
does the same as limitctl schema up, can be run again, and needs no connection to print.`,
		Example: `  limitctl schema render | less

  limitctl schema render | psql -X -f - 'postgres://admin@db.example.com/app'`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return schemaRenderRun(o)
		},
	}
}

func schemaRenderRun(o *schemaRenderOptions) error {
	// Whole or not at all: half of it could be run.
	var b bytes.Buffer
	if err := o.Render(&b); err != nil {
		return err
	}
	_, err := o.IO.Out.Write(b.Bytes())
	return err
}

type schemaDropOptions struct {
	Client   func(context.Context) (Client, error)
	IO       *IOStreams
	Migrator func(context.Context) (Migrator, error)
	Now      func() time.Time

	Format    string
	KeepRoles bool
	RetryFor  time.Duration
	consent
}

// dropResult is what schema drop did, and where.
type dropResult struct {
	database string
	migrations.DropResult
}

var schemaDropView = view[dropResult]{
	noun: "installation",
	columns: []column[dropResult]{
		{name: "database", value: func(r dropResult) any { return r.database }},
		{name: "schema_dropped", value: func(r dropResult) any { return r.Schema }},
		{name: "roles_dropped", value: func(r dropResult) any { return r.Roles }},
		{name: "roles_kept", value: func(r dropResult) any {
			kept := make([]string, 0, len(r.Kept))
			for _, k := range r.Kept {
				kept = append(kept, k.Name+": "+k.Reason)
			}
			return kept
		}},
	},
	sentence: func(r dropResult) string {
		text := fmt.Sprintf("Nothing to drop: there is no schema pglimit in database %s.", quote(r.database))
		if r.Schema {
			text = fmt.Sprintf("Dropped schema pglimit from database %s.", quote(r.database))
		}
		if len(r.Roles) > 0 {
			text += "\nDropped roles: " + strings.Join(r.Roles, ", ")
		}
		for _, k := range r.Kept {
			text += "\nKept role " + k.Name + ": " + strings.ReplaceAll(k.Reason, "\n", ", ")
		}
		return text
	},
}

func newSchemaDropCmd(f *Factory, runF func(context.Context, *schemaDropOptions) error) *cobra.Command {
	o := &schemaDropOptions{IO: f.IO, Migrator: f.Migrator, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "drop [flags]",
		Short: "Remove pglimit from the database, with all it holds",
		Long: `Remove the schema pglimit with all limits, endpoints, permits and counters, and whatever else depends on it.
The roles pglimit_* go too, unless another database uses them. It cannot be taken back.`,
		Example: `  # Asks for the name of the database first
  limitctl schema drop

  # A database that is only for tests
  limitctl schema drop --yes --keep-roles`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return schemaDropRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.consent.flags(flags)
	flags.BoolVar(&o.KeepRoles, "keep-roles", false, "leave the roles pglimit_* alone")
	durationVar(flags, &o.RetryFor, "retry-for", 30*time.Second, "how long to try for locks that others hold")
	outputVar(cmd, &o.Format, schemaDropView)
	return cmd
}

func schemaDropRun(ctx context.Context, o *schemaDropOptions) error {
	m, err := o.Migrator(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if !o.Yes {
		status, err := m.Check(ctx)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("schema pglimit (%s) with everything in it from database %s at %s",
			orNone(status.CodeVersion), quote(m.Database()), m.Server())
		switch {
		case o.DryRun && !status.Installed:
			fmt.Fprintf(o.IO.ErrOut, "Nothing to drop: pglimit is not installed in database %s.\n", quote(m.Database()))
			return nil
		case o.DryRun:
			fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
			return nil
		}
		if err := o.askFor(o.IO, "Drop "+what+"? That cannot be taken back.", m.Database()); err != nil {
			return err
		}
	}
	opts := []migrations.Option{migrations.RetryFor(o.RetryFor)}
	if o.KeepRoles {
		opts = append(opts, migrations.KeepRoles())
	}
	result, err := m.Drop(ctx, opts...)
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, schemaDropView, dropResult{database: m.Database(), DropResult: result})
}
