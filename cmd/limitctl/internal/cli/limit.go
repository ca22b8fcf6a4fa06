package cli

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var limitView = view[pgclient.LimitRow]{
	noun: "limit",
	columns: []column[pgclient.LimitRow]{
		{name: "tenant", value: func(r pgclient.LimitRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.LimitRow) any { return r.Limit }},
		{name: "max_hits", value: func(r pgclient.LimitRow) any { return r.MaxHits }},
		{name: "per", value: func(r pgclient.LimitRow) any { return r.Per }},
		{name: "algorithm", value: func(r pgclient.LimitRow) any { return string(r.Algorithm) }},
		{name: "burst", value: func(r pgclient.LimitRow) any { return r.Burst }, show: ifAny},
		{name: "durable", value: func(r pgclient.LimitRow) any { return r.Durable }, show: wide},
		{name: "mode", value: func(r pgclient.LimitRow) any { return string(r.Mode) }},
		{name: "on_outage", value: func(r pgclient.LimitRow) any { return string(r.OnOutage) }},
		{name: "on_lapse", value: func(r pgclient.LimitRow) any { return string(r.OnLapse) }, show: wide},
		{name: "limit_version", head: "VERSION", value: func(r pgclient.LimitRow) any { return r.LimitVersion }, show: wide},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.LimitRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.LimitRow) any { return r.UpdatedBy }, show: wide},
		{name: "shadow_refused", value: func(r pgclient.LimitRow) any { return r.ShadowRefused }, show: ifAny},
	},
	name: func(r pgclient.LimitRow) string { return printable(r.Limit) },
}

// The words that set_limit and set_endpoint take.
const (
	modeHelp     = "what its refusals do"
	onLapseHelp  = "what becomes of holds that nobody settles (default keep: they stay charged)"
	onOutageHelp = "what callers should do while the database is away (default allow)"
)

func newLimitCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("limit", "Show and change limits", `
A limit says how many hits each subject has in a window. A row of the empty tenant is for every tenant
that has no row of its own. Changes take effect with the next hit.`)
	cmd.AddCommand(newLimitListCmd(f, nil), newLimitShowCmd(f, nil), newLimitSetCmd(f, nil), newLimitDropCmd(f, nil), newOverrideCmd(f))
	return cmd
}

type limitListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	LimitName string
	Tenant    *string
	listOptions
}

func newLimitListCmd(f *Factory, runF func(context.Context, *limitListOptions) error) *cobra.Command {
	o := &limitListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List limits, or the rows that tenants have for one",
		Long:    "List limits. With a name, list the rows of that limit: the common one, and those of tenants.",
		Example: `  limitctl limit list

  # Keep a copy of all limits
  limitctl limit list --limit 0 -o yaml > limits.yaml`,
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.LimitName = args[0]
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitListRun(cmd.Context(), o)
		},
	}
	tenantFilterVar(cmd.Flags(), &o.Tenant)
	listFlags(cmd, &o.listOptions, limitView)
	return cmd
}

func limitListRun(ctx context.Context, o *limitListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.LimitRow]{
		command: "limit list",
		fetch: func(ctx context.Context, last *pgclient.LimitRow, n int) ([]pgclient.LimitRow, error) {
			p := pgclient.ListLimitsParams{Limit: o.LimitName, MaxRows: n, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListLimits(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    limitView,
	}.run(ctx)
}

type limitShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Tenant    string
}

func newLimitShowCmd(f *Factory, runF func(context.Context, *limitShowOptions) error) *cobra.Command {
	o := &limitShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <limit> [flags]",
		Short: "Show one limit",
		Long:  "Show the row of a limit: the common one, or with --tenant the tenant's own.",
		Example: `  limitctl limit show login_attempt

  limitctl limit show api --tenant acme -o json`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitShowRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, limitView)
	return cmd
}

func limitShowRun(ctx context.Context, o *limitShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findLimit(ctx, client, o.LimitName, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noLimit(ctx, client, o.LimitName, o.Tenant)
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, limitView, *row)
}

// findLimit returns nil when the tenant has no such row.
func findLimit(ctx context.Context, client Client, name, tenant string) (*pgclient.LimitRow, error) {
	if name == "" {
		return nil, blankName() // as a filter it would mean any
	}
	rows, err := client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: name, MaxRows: 1, Tenant: &tenant})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func blankName() error {
	return usageError("the name is empty", "is a variable not set? A name is printable ASCII")
}

// noLimit says that there is no such row, and which tenants have one.
func noLimit(ctx context.Context, client Client, name, tenant string) error {
	p := &problem{
		message: "there is no limit " + quote(name) + ofTenant(tenant),
		hint:    "limitctl limit list shows what there is, limitctl limit set " + name + " --max-hits 100 --per 1m makes it",
	}
	rows, err := client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: name, MaxRows: 5})
	if err != nil || len(rows) == 0 {
		return p
	}
	tenants := make([]string, 0, len(rows))
	for _, r := range rows {
		tenants = append(tenants, quote(r.Tenant))
	}
	p.detail = "Tenants that have one: " + strings.Join(tenants, ", ")
	p.hint = "name the tenant: --tenant " + rows[0].Tenant
	if rows[0].Tenant == "" {
		p.hint = "leave --tenant out for the common one"
	}
	return p
}

func ofTenant(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " of tenant " + quote(tenant)
}

type limitSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Algorithm string // "" for the words: as it is
	Burst     change[int64]
	DryRun    bool
	Format    string
	LimitName string
	MaxHits   *int64
	Mode      string
	OnLapse   string
	OnOutage  string
	Per       change[time.Duration]
	Tenant    string
}

// limitSet is the answer of set_limit.
type limitSet struct {
	before  *pgclient.LimitRow // nil: it is new
	dryRun  bool
	limit   pgclient.SetLimitParams
	same    bool   // as before, so nothing was written
	version *int64 // the new one, or that of before; nil for --dry-run
}

var limitSetView = view[limitSet]{
	noun: "limit",
	columns: []column[limitSet]{
		{name: "tenant", value: func(r limitSet) any { return r.limit.Tenant }},
		{name: "limit_name", value: func(r limitSet) any { return r.limit.Limit }},
		{name: "max_hits", value: func(r limitSet) any { return r.limit.MaxHits }},
		{name: "per", value: func(r limitSet) any { return r.limit.Per }},
		{name: "algorithm", value: func(r limitSet) any { return string(r.limit.Algorithm) }},
		{name: "burst", value: func(r limitSet) any { return r.limit.Burst }},
		{name: "mode", value: func(r limitSet) any { return string(r.limit.Mode) }},
		{name: "on_outage", value: func(r limitSet) any { return string(r.limit.OnOutage) }},
		{name: "on_lapse", value: func(r limitSet) any { return string(r.limit.OnLapse) }},
		{name: "limit_version", value: func(r limitSet) any { return r.version }},
		{name: "dry_run", value: func(r limitSet) any { return r.dryRun }},
	},
	name: func(r limitSet) string { return printable(r.limit.Limit) },
	sentence: func(r limitSet) string {
		what := fmt.Sprintf("limit %s%s", printable(r.limit.Limit), ofTenant(r.limit.Tenant))
		is := fmt.Sprintf("%s per %s", plural(r.limit.MaxHits, "hit"), formatDuration(r.limit.Per))
		mode := func(m pgclient.Mode) string {
			if m == "" || m == pgclient.ModeEnforce && (r.before == nil || r.before.Mode == m) {
				return ""
			}
			return ", mode " + string(m)
		}
		is += mode(r.limit.Mode)
		var text string
		switch {
		case r.same:
			return "Nothing to change: " + what + " is " + is + "."
		case r.dryRun && r.before == nil:
			text = "Would make " + what + ": " + is
		case r.dryRun:
			text = "Would change " + what + " to " + is
		case r.before == nil:
			text = "Made " + what + ": " + is
		default:
			text = "Changed " + what + " to " + is
		}
		if r.before != nil {
			was := ""
			if r.before.Mode != r.limit.Mode {
				was = ", mode " + string(r.before.Mode)
			}
			text += fmt.Sprintf(" (was %d per %s%s)", r.before.MaxHits, formatDuration(r.before.Per), was)
		}
		return text + "."
	},
}

func newLimitSetCmd(f *Factory, runF func(context.Context, *limitSetOptions) error) *cobra.Command {
	o := &limitSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	var per time.Duration
	cmd := &cobra.Command{
		Use:   "set <limit> [flags]",
		Short: "Make a limit, or change what the flags name",
		Long: `Make a limit, or change what the flags name and keep the rest; where that changes nothing, nothing is
written. A new one needs --max-hits and --per.

--max-hits 0 is closed: every hit is refused. A new --per carries over what is counted already. A window
begins with a subject's first hit; worst burst: twice --max-hits within any span of --per.

--mode shadow allows what would be refused and counts it, to try a limit out: limit show adds it up,
counter list says whose it is. --mode off allows everything and counts nothing.`,
		Example: `  # Five failed sign-ins in a quarter of an hour
  limitctl limit set login_attempt --max-hits 5 --per 15m

  # More for one tenant; look at it first
  limitctl limit set api --tenant acme --max-hits 5000 --per 1m --dry-run

  # Whom would this refuse?
  limitctl limit set api --max-hits 50 --mode shadow`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName = args[0]
			if cmd.Flags().Changed("per") {
				o.Per = change[time.Duration]{given: true, value: &per}
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(countFlag{&o.MaxHits}, "max-hits", "hits allowed in a window; 0 refuses all")
	durationVar(flags, &per, "per", 0, "length of a window, such as 1m or 1d12h")
	flags.Lookup("per").DefValue = "" // 0 is no window
	flags.StringVar(&o.Algorithm, "algorithm", "", `how it counts (default fixed_window)`)
	numberOrNoneVar(flags, &o.Burst, "burst", "for algorithms that have one")
	enumVar(cmd, flags, &o.Mode, "mode", "", "", modeHelp+" (default enforce)", "enforce", "shadow", "off")
	enumVar(cmd, flags, &o.OnLapse, "on-lapse", "", "", onLapseHelp, "keep", "return")
	enumVar(cmd, flags, &o.OnOutage, "on-outage", "", "", onOutageHelp, "allow", "refuse")
	tenantVar(flags, &o.Tenant)
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, limitSetView)
	return cmd
}

func limitSetRun(ctx context.Context, o *limitSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	before, err := findLimit(ctx, client, o.LimitName, o.Tenant)
	if err != nil {
		return err
	}
	set := pgclient.SetLimitParams{Limit: o.LimitName, Tenant: o.Tenant, Algorithm: pgclient.AlgorithmFixedWindow, Mode: pgclient.ModeEnforce, OnOutage: pgclient.OnOutageAllow, OnLapse: pgclient.OnLapseKeep}
	if before != nil {
		set.MaxHits, set.Per, set.Burst = before.MaxHits, before.Per, before.Burst
		set.Algorithm, set.Mode, set.OnOutage = before.Algorithm, before.Mode, before.OnOutage
		set.OnLapse = before.OnLapse
	} else if o.MaxHits == nil || !o.Per.given {
		return usageError("limit "+quote(o.LimitName)+ofTenant(o.Tenant)+" is new, so it needs --max-hits and --per",
			"limitctl limit set "+o.LimitName+" --max-hits 100 --per 1m")
	}
	was := set
	if o.MaxHits != nil {
		set.MaxHits = *o.MaxHits
	}
	if o.Per.given {
		set.Per = *o.Per.value
	}
	set.Burst = o.Burst.or(set.Burst)
	if o.Algorithm != "" {
		set.Algorithm = pgclient.Algorithm(o.Algorithm)
	}
	if o.Mode != "" {
		set.Mode = pgclient.Mode(o.Mode)
	}
	if o.OnLapse != "" {
		set.OnLapse = pgclient.OnLapse(o.OnLapse)
	}
	if o.OnOutage != "" {
		set.OnOutage = pgclient.OnOutage(o.OnOutage)
	}

	result := limitSet{before: before, dryRun: o.DryRun, limit: set, same: before != nil && reflect.DeepEqual(set, was)}
	switch {
	case result.same:
		result.version = &before.LimitVersion
	case !o.DryRun:
		version, err := client.SetLimit(ctx, set)
		if err != nil {
			return err
		}
		result.version = &version
	}
	p := printer{format: o.Format, now: o.Now(), streams: o.IO}
	if result.same {
		sayNothing(p, limitSetView.sentence(result))
	}
	return record(p, limitSetView, result)
}

type dropOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	Name   string
	Tenant string
	consent
}

// dropped is the answer of drop_limit and drop_endpoint.
type dropped struct {
	dropped bool
	name    string
	tenant  string
}

func dropView(noun, column1 string) view[dropped] {
	return view[dropped]{
		noun: noun,
		columns: []column[dropped]{
			{name: "tenant", value: func(r dropped) any { return r.tenant }},
			{name: column1, value: func(r dropped) any { return r.name }},
			{name: "dropped", value: func(r dropped) any { return r.dropped }},
		},
		name: func(r dropped) string { return printable(r.name) },
		sentence: func(r dropped) string {
			return fmt.Sprintf("Dropped %s %s%s.", noun, printable(r.name), ofTenant(r.tenant))
		},
	}
}

func newLimitDropCmd(f *Factory, runF func(context.Context, *dropOptions) error) *cobra.Command {
	o := &dropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := dropView("limit", "limit_name")
	cmd := &cobra.Command{
		Use:   "drop <limit> [flags]",
		Short: "Drop the row of a limit",
		Long: `Drop the row of a limit: the common one, or with --tenant the tenant's own, who then has the common one
again. Calls that give no limit themselves fail when no row is left.`,
		Example: `  # Back to the common limit
  limitctl limit drop api --tenant acme

  limitctl limit drop old_api --yes`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitDropRun(cmd.Context(), o, v)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, v)
	return cmd
}

func limitDropRun(ctx context.Context, o *dropOptions, v view[dropped]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findLimit(ctx, client, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noLimit(ctx, client, o.Name, o.Tenant)
	}
	what := fmt.Sprintf("limit %s%s, %s per %s", printable(o.Name), ofTenant(o.Tenant), plural(row.MaxHits, "hit"), formatDuration(row.Per))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Drop "+what+"?"); err != nil {
		return err
	}
	was, err := client.DropLimit(ctx, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if !was {
		return noLimit(ctx, client, o.Name, o.Tenant) // somebody else was faster
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, dropped{dropped: was, name: o.Name, tenant: o.Tenant})
}
