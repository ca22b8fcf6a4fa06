package cli

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var endpointView = view[pgclient.EndpointRow]{
	noun: "endpoint",
	columns: []column[pgclient.EndpointRow]{
		{name: "tenant", value: func(r pgclient.EndpointRow) any { return r.Tenant }, show: ifAny},
		{name: "endpoint", value: func(r pgclient.EndpointRow) any { return r.Endpoint }},
		{name: "holder_cap", value: func(r pgclient.EndpointRow) any { return r.HolderCap }},
		{name: "endpoint_cap", value: func(r pgclient.EndpointRow) any { return r.EndpointCap }},
		{name: "time_bound", value: func(r pgclient.EndpointRow) any { return r.TimeBound }},
		{name: "longest", value: func(r pgclient.EndpointRow) any { return r.Longest }},
		{name: "row_cap", value: func(r pgclient.EndpointRow) any { return r.RowCap }},
		{name: "in_installation", value: func(r pgclient.EndpointRow) any { return r.InInstallation }, show: wide},
		{name: "mode", value: func(r pgclient.EndpointRow) any { return string(r.Mode) }},
		{name: "on_outage", value: func(r pgclient.EndpointRow) any { return string(r.OnOutage) }},
		{name: "fair", value: func(r pgclient.EndpointRow) any { return r.Fair }, show: wide},
		{name: "queue_cap", value: func(r pgclient.EndpointRow) any { return r.QueueCap }, show: wide},
		{name: "holder_queue_cap", value: func(r pgclient.EndpointRow) any { return r.HolderQueueCap }, show: wide},
		{name: "waiting", value: func(r pgclient.EndpointRow) any { return r.Waiting }},
		{name: "shadow_refused", value: func(r pgclient.EndpointRow) any { return r.ShadowRefused }, show: ifAny},
		{name: "limit_version", head: "VERSION", value: func(r pgclient.EndpointRow) any { return r.LimitVersion }, show: wide},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.EndpointRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.EndpointRow) any { return r.UpdatedBy }, show: wide},
	},
	name: func(r pgclient.EndpointRow) string { return printable(r.Endpoint) },
}

func newEndpointCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("endpoint", "Show and change endpoints", `
An endpoint is a heavy operation and how much of it may run at once: for each holder, over all holders,
and counted in the cap of the installation or not. A row of the empty tenant is for every tenant that
has no row of its own. Changes take effect with the next claim. An override gives one holder bounds of his
own.`)
	cmd.AddCommand(newEndpointListCmd(f, nil), newEndpointShowCmd(f, nil), newEndpointSetCmd(f, nil), newEndpointDropCmd(f, nil),
		newEndpointInstallCmd(f, nil), newEndpointOverrideCmd(f))
	return cmd
}

type endpointListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Tenant   *string
	listOptions
}

func newEndpointListCmd(f *Factory, runF func(context.Context, *endpointListOptions) error) *cobra.Command {
	o := &endpointListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<endpoint>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List endpoints, or the rows that tenants have for one",
		Long:    "List endpoints. With a name, list the rows of that endpoint: the common one, and those of tenants.",
		Example: `  limitctl endpoint list -o wide

  # Which have no cap for a single holder?
  limitctl endpoint list --limit 0 -o jsonl | jq -r 'select(.holder_cap == null).endpoint'

  # What would mode enforce have refused?
  limitctl endpoint list -o jsonl | jq 'select(.mode == "shadow") | {endpoint, shadow_refused}'`,
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Endpoint = args[0]
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointListRun(cmd.Context(), o)
		},
	}
	tenantFilterVar(cmd.Flags(), &o.Tenant)
	listFlags(cmd, &o.listOptions, endpointView)
	return cmd
}

func endpointListRun(ctx context.Context, o *endpointListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.EndpointRow]{
		command: "endpoint list",
		fetch: func(ctx context.Context, last *pgclient.EndpointRow, n int) ([]pgclient.EndpointRow, error) {
			p := pgclient.ListEndpointsParams{Endpoint: o.Endpoint, MaxRows: n, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListEndpoints(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    endpointView,
	}.run(ctx)
}

type endpointShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Format   string
	Tenant   string
}

func newEndpointShowCmd(f *Factory, runF func(context.Context, *endpointShowOptions) error) *cobra.Command {
	o := &endpointShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <endpoint> [flags]",
		Short: "Show one endpoint",
		Long:  "Show the row of an endpoint: the common one, or with --tenant the tenant's own.",
		Example: `  limitctl endpoint show export

  limitctl endpoint show export --tenant acme -o yaml`,
		Args:              exactArgs("<endpoint>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Endpoint = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointShowRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, endpointView)
	return cmd
}

func endpointShowRun(ctx context.Context, o *endpointShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findEndpoint(ctx, client, o.Endpoint, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noEndpoint(ctx, client, o.Endpoint, o.Tenant)
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, endpointView, *row)
}

// findEndpoint returns nil when the tenant has no such row.
func findEndpoint(ctx context.Context, client Client, name, tenant string) (*pgclient.EndpointRow, error) {
	if name == "" {
		return nil, blankName() // as a filter it would mean any
	}
	rows, err := client.ListEndpoints(ctx, pgclient.ListEndpointsParams{Endpoint: name, MaxRows: 1, Tenant: &tenant})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// noEndpoint says that there is no such row, and which tenants have one.
func noEndpoint(ctx context.Context, client Client, name, tenant string) error {
	p := &problem{
		message: "there is no endpoint " + quote(name) + ofTenant(tenant),
		hint:    "limitctl endpoint list shows what there is, limitctl endpoint set " + name + " --holder-cap 2 --time-bound 1m makes it",
	}
	rows, err := client.ListEndpoints(ctx, pgclient.ListEndpointsParams{Endpoint: name, MaxRows: 5})
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

type endpointSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	DryRun         bool
	Endpoint       string
	EndpointCap    change[int64]
	Fair           *bool
	Format         string
	HolderCap      change[int64]
	HolderQueueCap *int64
	InInstallation *bool
	Longest        change[time.Duration]
	Mode           string // "" for the words: as it is
	OnOutage       string
	QueueCap       *int64
	RowCap         change[int64]
	Tenant         string
	TimeBound      change[time.Duration]
}

// endpointSet is the answer of set_endpoint.
type endpointSet struct {
	before   *pgclient.EndpointRow // nil: it is new
	dryRun   bool
	endpoint pgclient.SetEndpointParams
	same     bool   // as before, so nothing was written
	version  *int64 // the new one, or that of before; nil for --dry-run
}

var endpointSetView = view[endpointSet]{
	noun: "endpoint",
	columns: []column[endpointSet]{
		{name: "tenant", value: func(r endpointSet) any { return r.endpoint.Tenant }},
		{name: "endpoint", value: func(r endpointSet) any { return r.endpoint.Endpoint }},
		{name: "holder_cap", value: func(r endpointSet) any { return r.endpoint.HolderCap }},
		{name: "endpoint_cap", value: func(r endpointSet) any { return r.endpoint.EndpointCap }},
		{name: "time_bound", value: func(r endpointSet) any { return r.endpoint.TimeBound }},
		{name: "longest", value: func(r endpointSet) any { return r.endpoint.Longest }},
		{name: "row_cap", value: func(r endpointSet) any { return r.endpoint.RowCap }},
		{name: "in_installation", value: func(r endpointSet) any { return !r.endpoint.OutsideInstallation }},
		{name: "mode", value: func(r endpointSet) any { return string(r.endpoint.Mode) }},
		{name: "on_outage", value: func(r endpointSet) any { return string(r.endpoint.OnOutage) }},
		{name: "fair", value: func(r endpointSet) any { return r.endpoint.Fair }},
		{name: "queue_cap", value: func(r endpointSet) any { return r.endpoint.QueueCap }},
		{name: "holder_queue_cap", value: func(r endpointSet) any { return r.endpoint.HolderQueueCap }},
		{name: "limit_version", value: func(r endpointSet) any { return r.version }},
		{name: "dry_run", value: func(r endpointSet) any { return r.dryRun }},
	},
	name: func(r endpointSet) string { return printable(r.endpoint.Endpoint) },
	sentence: func(r endpointSet) string {
		what := fmt.Sprintf("endpoint %s%s", printable(r.endpoint.Endpoint), ofTenant(r.endpoint.Tenant))
		is := terms(r.endpoint)
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
			text += " (was " + terms(endpointParams(*r.before)) + ")"
		}
		return text + "."
	},
}

// Those of set_endpoint.
const (
	defaultHolderQueueCap = 100
	defaultQueueCap       = 1000
)

// endpointParams are what sets an endpoint to what it is.
func endpointParams(r pgclient.EndpointRow) pgclient.SetEndpointParams {
	return pgclient.SetEndpointParams{
		Endpoint: r.Endpoint, EndpointCap: r.EndpointCap, Fair: r.Fair, HolderCap: r.HolderCap, HolderQueueCap: &r.HolderQueueCap,
		Longest: r.Longest, Mode: r.Mode, OnOutage: r.OnOutage, OutsideInstallation: !r.InInstallation, QueueCap: &r.QueueCap,
		RowCap: r.RowCap, TimeBound: r.TimeBound, Tenant: r.Tenant,
	}
}

// terms is "2 a holder, 8 in all, 30s, held 10m at the longest, 10000 rows", with what there is, and then what is unusual:
// "fair, up to 50 waiting, mode shadow".
func terms(p pgclient.SetEndpointParams) string {
	var parts []string
	if p.HolderCap != nil {
		parts = append(parts, strconv.FormatInt(*p.HolderCap, 10)+" a holder")
	}
	if p.EndpointCap != nil {
		parts = append(parts, strconv.FormatInt(*p.EndpointCap, 10)+" in all")
	}
	if p.TimeBound != nil {
		parts = append(parts, formatDuration(*p.TimeBound))
	}
	if p.Longest != nil {
		parts = append(parts, "held "+formatDuration(*p.Longest)+" at the longest")
	}
	if p.RowCap != nil {
		parts = append(parts, strconv.FormatInt(*p.RowCap, 10)+" rows")
	}
	if len(parts) == 0 {
		parts = append(parts, "no caps")
	}
	if p.Fair {
		parts = append(parts, "fair")
	}
	if *p.QueueCap != defaultQueueCap {
		parts = append(parts, fmt.Sprintf("up to %d waiting", *p.QueueCap))
	}
	if *p.HolderQueueCap != defaultHolderQueueCap {
		parts = append(parts, fmt.Sprintf("up to %d of a holder waiting", *p.HolderQueueCap))
	}
	if p.Mode != pgclient.ModeEnforce {
		parts = append(parts, "mode "+string(p.Mode))
	}
	return strings.Join(parts, ", ")
}

func newEndpointSetCmd(f *Factory, runF func(context.Context, *endpointSetOptions) error) *cobra.Command {
	o := &endpointSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	var inInstallation, fair bool
	cmd := &cobra.Command{
		Use:   "set <endpoint> [flags]",
		Short: "Make an endpoint, or change what the flags name",
		Long: `Make an endpoint, or change what the flags name and keep the rest; where that changes nothing, nothing is
written. A new one needs a cap. none takes a cap or a bound away.

A cap of 0 is closed: every claim is refused. Permits in use stay in use when a cap is lowered. Mode shadow
grants everything and counts what it would have refused; off grants everything. At a fair endpoint nobody
overtakes those who wait.`,
		Example: `  # Two exports for each user, eight in all, thirty seconds each
  limitctl endpoint set export --holder-cap 2 --endpoint-cap 8 --time-bound 30s

  # Try it before it refuses anybody, and look at shadow_refused
  limitctl endpoint set export --mode shadow

  # Close it until it is set again
  limitctl endpoint set export --endpoint-cap 0`,
		Args:              exactArgs("<endpoint>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Endpoint = args[0]
			if cmd.Flags().Changed("in-installation") {
				o.InInstallation = &inInstallation
			}
			if cmd.Flags().Changed("fair") {
				o.Fair = &fair
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	numberOrNoneVar(flags, &o.HolderCap, "holder-cap", "permits in use by each holder")
	numberOrNoneVar(flags, &o.EndpointCap, "endpoint-cap", "permits in use over all holders")
	durationOrNoneVar(flags, &o.TimeBound, "time-bound", "how long the work may take; a lease is 30s more")
	durationOrNoneVar(flags, &o.Longest, "longest", "how long a permit may be held, renewals included")
	numberOrNoneVar(flags, &o.RowCap, "row-cap", "how many rows the work may produce")
	flags.BoolVar(&inInstallation, "in-installation", true, "its permits count in the cap of the installation")
	enumVar(cmd, flags, &o.Mode, "mode", "", "", modeHelp+" (default enforce)", "enforce", "shadow", "off")
	flags.BoolVar(&fair, "fair", false, "claims that do not wait let those go first who do")
	flags.Var(countFlag{&o.QueueCap}, "queue-cap", "how many may wait; 0 lets nobody (default 1000)")
	flags.Var(countFlag{&o.HolderQueueCap}, "holder-queue-cap", "how many of one holder may wait (default 100)")
	enumVar(cmd, flags, &o.OnOutage, "on-outage", "", "", onOutageHelp, "allow", "refuse")
	tenantVar(flags, &o.Tenant)
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, endpointSetView)
	return cmd
}

func endpointSetRun(ctx context.Context, o *endpointSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	before, err := findEndpoint(ctx, client, o.Endpoint, o.Tenant)
	if err != nil {
		return err
	}
	set := pgclient.SetEndpointParams{
		Endpoint: o.Endpoint, Tenant: o.Tenant, Mode: pgclient.ModeEnforce, OnOutage: pgclient.OnOutageAllow,
		QueueCap: pgclient.N(defaultQueueCap), HolderQueueCap: pgclient.N(defaultHolderQueueCap),
	}
	if before != nil {
		set = endpointParams(*before)
	}
	was := set
	set.HolderCap = o.HolderCap.or(set.HolderCap)
	set.EndpointCap = o.EndpointCap.or(set.EndpointCap)
	set.TimeBound = o.TimeBound.or(set.TimeBound)
	set.Longest = o.Longest.or(set.Longest)
	set.RowCap = o.RowCap.or(set.RowCap)
	if o.InInstallation != nil {
		set.OutsideInstallation = !*o.InInstallation
	}
	if o.Fair != nil {
		set.Fair = *o.Fair
	}
	if o.QueueCap != nil {
		set.QueueCap = o.QueueCap
	}
	if o.HolderQueueCap != nil {
		set.HolderQueueCap = o.HolderQueueCap
	}
	if o.Mode != "" {
		set.Mode = pgclient.Mode(o.Mode)
	}
	if o.OnOutage != "" {
		set.OnOutage = pgclient.OnOutage(o.OnOutage)
	}

	same := reflect.DeepEqual(set, was)
	if same && before == nil && o.InInstallation == nil {
		return usageError("endpoint "+quote(o.Endpoint)+ofTenant(o.Tenant)+" is new, so it needs a cap: --holder-cap, --endpoint-cap, "+
			"or --in-installation for the installation's alone", "limitctl endpoint set "+o.Endpoint+" --holder-cap 2 --time-bound 1m")
	}
	result := endpointSet{before: before, dryRun: o.DryRun, endpoint: set, same: same && before != nil}
	switch {
	case result.same:
		result.version = &before.LimitVersion
	case !o.DryRun:
		version, err := client.SetEndpoint(ctx, set)
		if err != nil {
			return err
		}
		result.version = &version
	}
	p := printer{format: o.Format, now: o.Now(), streams: o.IO}
	if result.same {
		sayNothing(p, endpointSetView.sentence(result))
	}
	return record(p, endpointSetView, result)
}

func newEndpointDropCmd(f *Factory, runF func(context.Context, *dropOptions) error) *cobra.Command {
	o := &dropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := dropView("endpoint", "endpoint")
	cmd := &cobra.Command{
		Use:   "drop <endpoint> [flags]",
		Short: "Drop the row of an endpoint",
		Long: `Drop the row of an endpoint: the common one, or with --tenant the tenant's own, who then has the common one
again. Permits in use stay in use. Claims that give no cap themselves fail when no row is left.`,
		Example: `  limitctl endpoint drop export --tenant acme

  limitctl endpoint drop old_report --yes`,
		Args:              exactArgs("<endpoint>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointDropRun(cmd.Context(), o, v)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, v)
	return cmd
}

func endpointDropRun(ctx context.Context, o *dropOptions, v view[dropped]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findEndpoint(ctx, client, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noEndpoint(ctx, client, o.Name, o.Tenant)
	}
	what := fmt.Sprintf("endpoint %s%s, %s", printable(o.Name), ofTenant(o.Tenant), terms(endpointParams(*row)))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Drop "+what+"?"); err != nil {
		return err
	}
	was, err := client.DropEndpoint(ctx, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if !was {
		return noEndpoint(ctx, client, o.Name, o.Tenant) // somebody else was faster
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, dropped{dropped: was, name: o.Name, tenant: o.Tenant})
}

type endpointInstallOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	Name   string
	Tenant string
}

// installed is the ready row of a name, made or found.
type installed struct {
	name    string
	tenant  string
	version int64
}

var endpointInstallView = view[installed]{
	noun: "endpoint",
	columns: []column[installed]{
		{name: "tenant", value: func(r installed) any { return r.tenant }},
		{name: "endpoint", value: func(r installed) any { return r.name }},
		{name: "limit_version", value: func(r installed) any { return r.version }},
	},
	sentence: func(r installed) string {
		return fmt.Sprintf("Endpoint %s%s is there, version %d; limitctl endpoint show %[1]s shows it.", printable(r.name), ofTenant(r.tenant), r.version)
	},
}

func newEndpointInstallCmd(f *Factory, runF func(context.Context, *endpointInstallOptions) error) *cobra.Command {
	o := &endpointInstallOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "install <name> [flags]",
		Short: "Make a ready endpoint, unless there is one",
		Long: `Make the endpoint that pglimit has ready under a name. One that is there is left as it is.

request_in_flight caps how many requests of one token are in flight: 10 for each holder, 30 seconds each, not
counted in the cap of the installation.`,
		Example: `  limitctl endpoint install request_in_flight

  # And then, if ten are too many
  limitctl endpoint set request_in_flight --holder-cap 4`,
		Args:              exactArgs("<name>"),
		ValidArgsFunction: cobra.FixedCompletions([]string{pgclient.ReadyRequestInFlight}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if slices.Contains(pgclient.ReadyLimits(), o.Name) {
				return usageError(o.Name+" is a limit", "limitctl limit install "+o.Name)
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointInstallRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, endpointInstallView)
	return cmd
}

func endpointInstallRun(ctx context.Context, o *endpointInstallOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := installed{name: o.Name, tenant: o.Tenant}
	if r.version, err = client.InstallReady(ctx, o.Name, o.Tenant); err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, endpointInstallView, r)
}
