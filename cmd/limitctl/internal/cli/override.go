package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglimit/pglimit/pgclient"
)

// instant is an optional time as a column shows it.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

var overrideView = view[pgclient.LimitOverrideRow]{
	noun: "override",
	columns: []column[pgclient.LimitOverrideRow]{
		{name: "tenant", value: func(r pgclient.LimitOverrideRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.LimitOverrideRow) any { return r.Limit }},
		{name: "subject", value: func(r pgclient.LimitOverrideRow) any { return r.Subject }, show: flexible},
		{name: "max_hits", value: func(r pgclient.LimitOverrideRow) any { return r.MaxHits }},
		{name: "valid_from", head: "FROM", value: func(r pgclient.LimitOverrideRow) any { return instant(r.ValidFrom) }, show: ifAny},
		{name: "valid_until", head: "UNTIL", value: func(r pgclient.LimitOverrideRow) any { return instant(r.ValidUntil) }, show: ifAny},
		{name: "state", value: func(r pgclient.LimitOverrideRow) any { return r.State }, color: func(r pgclient.LimitOverrideRow) (string, string) {
			return good(r.State == "valid")
		}},
		{name: "limit_version", head: "VERSION", value: func(r pgclient.LimitOverrideRow) any { return r.LimitVersion }, show: wide},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.LimitOverrideRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.LimitOverrideRow) any { return r.UpdatedBy }, show: wide},
	},
	name: func(r pgclient.LimitOverrideRow) string { return printable(r.Limit) + "\t" + printable(r.Subject) },
}

func newOverrideCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("override", "Give single subjects a quota of their own", `
An override is what one subject has instead of a limit's hits, for a time or for ever. It also beats the
limit that a caller gives with the hit, needs no row of the limit, and is of exactly one tenant. It takes
effect with the next hit.`)
	cmd.AddCommand(newOverrideListCmd(f, nil), newOverrideSetCmd(f, nil), newOverrideDropCmd(f, nil))
	return cmd
}

type overrideListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	LimitName string
	Subject   string
	Tenant    *string
	listOptions
}

func newOverrideListCmd(f *Factory, runF func(context.Context, *overrideListOptions) error) *cobra.Command {
	o := &overrideListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List overrides, of one limit or of all",
		Long: `List overrides, of one limit or of all, also those that do not hold yet (future) and those that hold no
more (over). Filters are exact.`,
		Example: `  limitctl limit override list api

  # Drop those that are over
  limitctl limit override list --limit 0 -o jsonl | jq -r 'select(.state == "over") | [.limit_name, .subject] | @tsv'`,
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.LimitName = args[0]; o.LimitName == "" {
					return blankName() // as a filter it would mean any
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return overrideListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Subject, "subject", "", "only overrides of this subject")
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, overrideView)
	return cmd
}

func overrideListRun(ctx context.Context, o *overrideListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.LimitOverrideRow]{
		command: "limit override list",
		fetch: func(ctx context.Context, last *pgclient.LimitOverrideRow, n int) ([]pgclient.LimitOverrideRow, error) {
			p := pgclient.ListLimitOverridesParams{Limit: o.LimitName, MaxRows: n, Subject: o.Subject, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListLimitOverrides(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    overrideView,
	}.run(ctx)
}

// findOverride returns nil when the subject has none.
func findOverride(ctx context.Context, client Client, limit, subject, tenant string) (*pgclient.LimitOverrideRow, error) {
	if limit == "" || subject == "" {
		return nil, blankName() // as a filter it would mean any
	}
	rows, err := client.ListLimitOverrides(ctx, pgclient.ListLimitOverridesParams{Limit: limit, MaxRows: 1, Subject: subject, Tenant: &tenant})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// instantFlag is an instant, or a length of time from now on.
type instantFlag struct {
	now func() time.Time
	t   **time.Time
}

func (f instantFlag) Set(s string) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			*f.t = &t
			return nil
		}
	}
	d, err := parseDuration(s)
	if err != nil {
		return errors.New("it is an instant such as 2030-01-31T18:00:00Z, a day such as 2030-01-31 (UTC), or a time from now on such as 7d")
	}
	t := f.now().Add(d)
	*f.t = &t
	return nil
}

func (f instantFlag) String() string {
	if f.t == nil || *f.t == nil {
		return ""
	}
	return timestamp(**f.t)
}
func (f instantFlag) Type() string { return "instant" }

func instantVar(flags *pflag.FlagSet, now func() time.Time, t **time.Time, name, usage string) {
	flags.Var(instantFlag{now, t}, name, usage)
}

type overrideSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	DryRun     bool
	Format     string
	LimitName  string
	MaxHits    *int64
	Subject    string
	Tenant     string
	ValidFrom  *time.Time
	ValidUntil *time.Time
}

// overrideSet is the answer of set_limit_override.
type overrideSet struct {
	before   *pgclient.LimitOverrideRow // nil: it is new
	dryRun   bool
	override pgclient.SetLimitOverrideParams
	version  *int64 // nil for --dry-run
}

var overrideSetView = view[overrideSet]{
	noun: "override",
	columns: []column[overrideSet]{
		{name: "tenant", value: func(r overrideSet) any { return r.override.Tenant }},
		{name: "limit_name", value: func(r overrideSet) any { return r.override.Limit }},
		{name: "subject", value: func(r overrideSet) any { return r.override.Subject }},
		{name: "max_hits", value: func(r overrideSet) any { return r.override.MaxHits }},
		{name: "valid_from", value: func(r overrideSet) any { return instant(r.override.ValidFrom) }},
		{name: "valid_until", value: func(r overrideSet) any { return instant(r.override.ValidUntil) }},
		{name: "limit_version", value: func(r overrideSet) any { return r.version }},
		{name: "dry_run", value: func(r overrideSet) any { return r.dryRun }},
	},
	name: func(r overrideSet) string {
		return printable(r.override.Limit) + "\t" + printable(r.override.Subject)
	},
	sentence: func(r overrideSet) string {
		verb := "Gave"
		if r.dryRun {
			verb = "Would give"
		}
		text := fmt.Sprintf("%s %s %s of limit %s%s", verb, quote(r.override.Subject), plural(r.override.MaxHits, "hit"), printable(r.override.Limit), ofTenant(r.override.Tenant))
		if r.override.ValidFrom != nil {
			text += " from " + r.override.ValidFrom.UTC().Format(time.RFC3339)
		}
		if r.override.ValidUntil != nil {
			text += " until " + r.override.ValidUntil.UTC().Format(time.RFC3339)
		}
		if r.before != nil {
			text += fmt.Sprintf(" (was %d)", r.before.MaxHits)
		}
		return text + "."
	},
}

func newOverrideSetCmd(f *Factory, runF func(context.Context, *overrideSetOptions) error) *cobra.Command {
	o := &overrideSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "set <limit> <subject> --max-hits <number> [flags]",
		Short: "Give one subject hits of its own, instead of the limit's",
		Long: `Give one subject hits of its own in a window, instead of the limit's. It replaces an override that was
there, its times included. What the subject has used in its open window stays used.

--from and --until take an instant (2030-01-31T18:00:00Z), a day (2030-01-31, in UTC) or a time from now on
by this machine's clock (7d). Whether an override holds is decided by the database's.`,
		Example: `  # A customer imports his history this week
  limitctl limit override set api customer-7 --max-hits 5000 --until 7d

  # Nothing more for this one
  limitctl limit override set api customer-8 --max-hits 0`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if o.MaxHits == nil {
				return usageError("an override needs --max-hits", "limitctl limit override set "+o.LimitName+" <subject> --max-hits 100")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return overrideSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(countFlag{&o.MaxHits}, "max-hits", "hits allowed in a window; 0 refuses all")
	instantVar(flags, f.Now, &o.ValidFrom, "from", "when it begins to hold (default now)")
	instantVar(flags, f.Now, &o.ValidUntil, "until", "when it holds no more (default never)")
	tenantVar(flags, &o.Tenant)
	flags.Lookup("tenant").Usage = "whose subject it is (default the empty tenant)"
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, overrideSetView)
	return cmd
}

func overrideSetRun(ctx context.Context, o *overrideSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	before, err := findOverride(ctx, client, o.LimitName, o.Subject, o.Tenant)
	if err != nil {
		return err
	}
	result := overrideSet{before: before, dryRun: o.DryRun, override: pgclient.SetLimitOverrideParams{
		Limit: o.LimitName, Subject: o.Subject, MaxHits: *o.MaxHits, ValidFrom: o.ValidFrom, ValidUntil: o.ValidUntil, Tenant: o.Tenant,
	}}
	if !o.DryRun {
		version, err := client.SetLimitOverride(ctx, result.override)
		if err != nil {
			return err
		}
		result.version = &version
	}
	if err := record(printer{format: o.Format, now: o.Now(), streams: o.IO}, overrideSetView, result); err != nil {
		return err
	}
	hintNoRow(ctx, client, o.IO, o.LimitName, o.Tenant)
	return nil
}

type overrideDropOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Subject   string
	Tenant    string
	consent
}

// overrideDropped is the answer of drop_limit_override.
type overrideDropped struct {
	dropped bool
	limit   string
	subject string
	tenant  string
}

var overrideDropView = view[overrideDropped]{
	noun: "override",
	columns: []column[overrideDropped]{
		{name: "tenant", value: func(r overrideDropped) any { return r.tenant }},
		{name: "limit_name", value: func(r overrideDropped) any { return r.limit }},
		{name: "subject", value: func(r overrideDropped) any { return r.subject }},
		{name: "dropped", value: func(r overrideDropped) any { return r.dropped }},
	},
	name: func(r overrideDropped) string { return printable(r.limit) + "\t" + printable(r.subject) },
	sentence: func(r overrideDropped) string {
		return fmt.Sprintf("Dropped the override of %s: limit %s%s is its limit again.", quote(r.subject), printable(r.limit), ofTenant(r.tenant))
	},
}

func newOverrideDropCmd(f *Factory, runF func(context.Context, *overrideDropOptions) error) *cobra.Command {
	o := &overrideDropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "drop <limit> <subject> [flags]",
		Short: "Drop the override of a subject, who then has the limit again",
		Long:  "Drop the override of a subject, who then has the limit again. What is used stays used.",
		Example: `  limitctl limit override drop api customer-7

  limitctl limit override drop api customer-8 --tenant acme --yes`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return overrideDropRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	cmd.Flags().Lookup("tenant").Usage = "whose subject it is (default the empty tenant)"
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, overrideDropView)
	return cmd
}

func overrideDropRun(ctx context.Context, o *overrideDropOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	none := &problem{
		message: "limit " + quote(o.LimitName) + ofTenant(o.Tenant) + " has no override for " + quote(o.Subject),
		hint:    "limitctl limit override list " + o.LimitName + " shows what there is" + tenantHint(o.Tenant),
	}
	row, err := findOverride(ctx, client, o.LimitName, o.Subject, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return none
	}
	what := fmt.Sprintf("the override of %s, %s of limit %s%s", quote(o.Subject), plural(row.MaxHits, "hit"), printable(o.LimitName), ofTenant(o.Tenant))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Drop "+what+"?"); err != nil {
		return err
	}
	was, err := client.DropLimitOverride(ctx, pgclient.DropLimitOverrideParams{Limit: o.LimitName, Subject: o.Subject, Tenant: o.Tenant})
	if err != nil {
		return err
	}
	if !was {
		return none // somebody else was faster
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, overrideDropView,
		overrideDropped{dropped: was, limit: o.LimitName, subject: o.Subject, tenant: o.Tenant})
}
