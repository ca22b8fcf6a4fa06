package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglimit/pglimit/pgclient"
)

var endpointOverrideView = view[pgclient.EndpointOverrideRow]{
	noun: "override",
	columns: []column[pgclient.EndpointOverrideRow]{
		{name: "tenant", value: func(r pgclient.EndpointOverrideRow) any { return r.Tenant }, show: ifAny},
		{name: "endpoint", value: func(r pgclient.EndpointOverrideRow) any { return r.Endpoint }},
		{name: "holder", value: func(r pgclient.EndpointOverrideRow) any { return r.Holder }, show: flexible},
		{name: "holder_cap", value: func(r pgclient.EndpointOverrideRow) any { return r.HolderCap }},
		{name: "share", value: func(r pgclient.EndpointOverrideRow) any { return r.Share }},
		{name: "valid_from", head: "FROM", value: func(r pgclient.EndpointOverrideRow) any { return instant(r.ValidFrom) }, show: ifAny},
		{name: "valid_until", head: "UNTIL", value: func(r pgclient.EndpointOverrideRow) any { return instant(r.ValidUntil) }, show: ifAny},
		{name: "state", value: func(r pgclient.EndpointOverrideRow) any { return r.State }, color: func(r pgclient.EndpointOverrideRow) (string, string) {
			return good(r.State == "valid")
		}},
		{name: "limit_version", head: "VERSION", value: func(r pgclient.EndpointOverrideRow) any { return r.LimitVersion }, show: wide},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.EndpointOverrideRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.EndpointOverrideRow) any { return r.UpdatedBy }, show: wide},
	},
}

func newEndpointOverrideCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("override", "Show and change what single holders have of their own", `
An override gives one holder bounds of his own at an endpoint, for a while or for good: how many permits he
may have in use, and how many turns his tickets get for one of another's. It beats the endpoint's row and
what a claim says, and takes effect with the next claim.`)
	cmd.AddCommand(newEndpointOverrideListCmd(f, nil), newEndpointOverrideSetCmd(f, nil), newEndpointOverrideDropCmd(f, nil))
	return cmd
}

type endpointOverrideListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Holder   string
	Tenant   *string
	listOptions
}

func newEndpointOverrideListCmd(f *Factory, runF func(context.Context, *endpointOverrideListOptions) error) *cobra.Command {
	o := &endpointOverrideListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<endpoint>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List the overrides of endpoints",
		Long:    "List overrides, also those that do not hold yet or any more. With a name, those of that endpoint.",
		Example: `  limitctl endpoint override list export

  # Where has this holder bounds of his own?
  limitctl endpoint override list --holder worker-7`,
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.Endpoint = args[0]; o.Endpoint == "" {
					return blankName() // as a filter it would mean any
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointOverrideListRun(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Holder, "holder", "", "only those of this holder")
	tenantFilterVar(cmd.Flags(), &o.Tenant)
	listFlags(cmd, &o.listOptions, endpointOverrideView)
	return cmd
}

func endpointOverrideListRun(ctx context.Context, o *endpointOverrideListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.EndpointOverrideRow]{
		command: "endpoint override list",
		fetch: func(ctx context.Context, last *pgclient.EndpointOverrideRow, n int) ([]pgclient.EndpointOverrideRow, error) {
			p := pgclient.ListEndpointOverridesParams{Endpoint: o.Endpoint, Holder: o.Holder, MaxRows: n, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListEndpointOverrides(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    endpointOverrideView,
	}.run(ctx)
}

// findEndpointOverride returns nil when the tenant's holder has none.
func findEndpointOverride(ctx context.Context, client Client, endpoint, holder, tenant string) (*pgclient.EndpointOverrideRow, error) {
	if endpoint == "" || holder == "" {
		return nil, blankName() // as a filter it would mean any
	}
	rows, err := client.ListEndpointOverrides(ctx, pgclient.ListEndpointOverridesParams{Endpoint: endpoint, Holder: holder, MaxRows: 1, Tenant: &tenant})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

type endpointOverrideSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	DryRun     bool
	Endpoint   string
	Format     string
	Holder     string
	HolderCap  change[int64]
	Share      *int64
	Tenant     string
	ValidFrom  change[time.Time]
	ValidUntil change[time.Time]
}

// endpointOverrideSet is the answer of set_endpoint_override.
type endpointOverrideSet struct {
	before   *pgclient.EndpointOverrideRow // nil: it is new
	dryRun   bool
	override pgclient.SetEndpointOverrideParams
	same     bool   // as before, so nothing was written
	version  *int64 // the new one, or that of before; nil for --dry-run
}

var endpointOverrideSetView = view[endpointOverrideSet]{
	noun: "override",
	columns: []column[endpointOverrideSet]{
		{name: "tenant", value: func(r endpointOverrideSet) any { return r.override.Tenant }},
		{name: "endpoint", value: func(r endpointOverrideSet) any { return r.override.Endpoint }},
		{name: "holder", value: func(r endpointOverrideSet) any { return r.override.Holder }},
		{name: "holder_cap", value: func(r endpointOverrideSet) any { return r.override.HolderCap }},
		{name: "share", value: func(r endpointOverrideSet) any { return r.override.Share }},
		{name: "valid_from", value: func(r endpointOverrideSet) any { return instant(r.override.ValidFrom) }},
		{name: "valid_until", value: func(r endpointOverrideSet) any { return instant(r.override.ValidUntil) }},
		{name: "limit_version", value: func(r endpointOverrideSet) any { return r.version }},
		{name: "dry_run", value: func(r endpointOverrideSet) any { return r.dryRun }},
	},
	sentence: func(r endpointOverrideSet) string {
		what := ofHolder(r.override.Endpoint, r.override.Holder, r.override.Tenant)
		is := overrideTerms(r.override)
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
			text += " (was " + overrideTerms(endpointOverrideParams(*r.before)) + ")"
		}
		return text + "."
	},
}

// ofHolder names an override.
func ofHolder(endpoint, holder, tenant string) string {
	return fmt.Sprintf("the override of %s at endpoint %s%s", quote(holder), printable(endpoint), ofTenant(tenant))
}

// overrideTerms is "3 at once, 2 turns for one, until 2026-12-01T00:00:00.000000Z", with what there is.
func overrideTerms(p pgclient.SetEndpointOverrideParams) string {
	var parts []string
	if p.HolderCap != nil {
		parts = append(parts, strconv.FormatInt(*p.HolderCap, 10)+" at once")
	}
	if *p.Share != 1 {
		parts = append(parts, fmt.Sprintf("%d turns for one", *p.Share))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing of his own")
	}
	if p.ValidFrom != nil {
		parts = append(parts, "from "+timestamp(*p.ValidFrom))
	}
	if p.ValidUntil != nil {
		parts = append(parts, "until "+timestamp(*p.ValidUntil))
	}
	return strings.Join(parts, ", ")
}

// endpointOverrideParams are what sets an override to what it is.
func endpointOverrideParams(r pgclient.EndpointOverrideRow) pgclient.SetEndpointOverrideParams {
	return pgclient.SetEndpointOverrideParams{
		Endpoint: r.Endpoint, Holder: r.Holder, HolderCap: r.HolderCap, Share: &r.Share, Tenant: r.Tenant,
		ValidFrom: r.ValidFrom, ValidUntil: r.ValidUntil,
	}
}

func newEndpointOverrideSetCmd(f *Factory, runF func(context.Context, *endpointOverrideSetOptions) error) *cobra.Command {
	o := &endpointOverrideSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "set <endpoint> <holder> [flags]",
		Short: "Give a holder bounds of his own, or change what the flags name",
		Long: `Give a holder bounds of his own at an endpoint that is set, or change what the flags name and keep the rest.
A new one needs --holder-cap or --share, and holds from now on for good unless it says otherwise.

--holder-cap 0 is closed: every claim of his is refused. With none he has that of the claim or the endpoint.

--from and --until take an instant (2030-01-31T18:00:00Z), a day (2030-01-31, in UTC) or a time from now on
by this machine's clock (7d). Whether an override holds is decided by the database's.`,
		Example: `  # Five at once, until tomorrow
  limitctl endpoint override set export worker-7 --holder-cap 5 --until 1d

  # Twice as often as others, when many wait
  limitctl endpoint override set export billing --share 2`,
		Args:              exactArgs("<endpoint>", "<holder>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Endpoint, o.Holder = args[0], args[1]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointOverrideSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	numberOrNoneVar(flags, &o.HolderCap, "holder-cap", "permits in use by this holder")
	flags.Var(countFlag{&o.Share}, "share", "turns of his tickets for one of another's (default 1)")
	instantOrNoneVar(flags, &o.ValidFrom, f.Now, "from", "when it begins to hold (default now)")
	instantOrNoneVar(flags, &o.ValidUntil, f.Now, "until", "when it holds no more (default never)")
	tenantVar(flags, &o.Tenant)
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, endpointOverrideSetView)
	return cmd
}

func endpointOverrideSetRun(ctx context.Context, o *endpointOverrideSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	before, err := findEndpointOverride(ctx, client, o.Endpoint, o.Holder, o.Tenant)
	if err != nil {
		return err
	}
	set := pgclient.SetEndpointOverrideParams{Endpoint: o.Endpoint, Holder: o.Holder, Share: pgclient.N(1), Tenant: o.Tenant}
	if before != nil {
		set = endpointOverrideParams(*before)
	} else if !o.HolderCap.given && o.Share == nil {
		return usageError(ofHolder(o.Endpoint, o.Holder, o.Tenant)+" is new, so it needs --holder-cap or --share",
			"limitctl endpoint override set "+o.Endpoint+" "+o.Holder+" --holder-cap 5 --until 1d")
	}
	was := set
	set.HolderCap = o.HolderCap.or(set.HolderCap)
	if o.Share != nil {
		set.Share = o.Share
	}
	set.ValidFrom = o.ValidFrom.or(set.ValidFrom)
	set.ValidUntil = o.ValidUntil.or(set.ValidUntil)

	result := endpointOverrideSet{before: before, dryRun: o.DryRun, override: set, same: before != nil && reflect.DeepEqual(set, was)}
	switch {
	case result.same:
		result.version = &before.LimitVersion
	case !o.DryRun:
		version, err := client.SetEndpointOverride(ctx, set)
		if errors.Is(err, pgclient.ErrUnknownLimit) {
			return noEndpoint(ctx, client, o.Endpoint, o.Tenant)
		}
		if err != nil {
			return err
		}
		result.version = &version
	}
	p := printer{format: o.Format, now: o.Now(), streams: o.IO}
	if result.same {
		sayNothing(p, endpointOverrideSetView.sentence(result))
	}
	return record(p, endpointOverrideSetView, result)
}

type endpointOverrideDropOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Format   string
	Holder   string
	Tenant   string
	consent
}

// endpointOverrideDropped is the answer of drop_endpoint_override.
type endpointOverrideDropped struct {
	dropped                  bool
	endpoint, holder, tenant string
}

var endpointOverrideDropView = view[endpointOverrideDropped]{
	noun: "override",
	columns: []column[endpointOverrideDropped]{
		{name: "tenant", value: func(r endpointOverrideDropped) any { return r.tenant }},
		{name: "endpoint", value: func(r endpointOverrideDropped) any { return r.endpoint }},
		{name: "holder", value: func(r endpointOverrideDropped) any { return r.holder }},
		{name: "dropped", value: func(r endpointOverrideDropped) any { return r.dropped }},
	},
	sentence: func(r endpointOverrideDropped) string {
		return "Dropped " + ofHolder(r.endpoint, r.holder, r.tenant) + "."
	},
}

func newEndpointOverrideDropCmd(f *Factory, runF func(context.Context, *endpointOverrideDropOptions) error) *cobra.Command {
	o := &endpointOverrideDropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "drop <endpoint> <holder> [flags]",
		Short: "Take a holder's own bounds away",
		Long:  "Take a holder's own bounds at an endpoint away, so that he has those of all others. His permits stay in use.",
		Example: `  limitctl endpoint override drop export worker-7

  limitctl endpoint override drop export worker-7 --tenant acme --yes`,
		Args:              exactArgs("<endpoint>", "<holder>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Endpoint, o.Holder = args[0], args[1]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return endpointOverrideDropRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, endpointOverrideDropView)
	return cmd
}

func endpointOverrideDropRun(ctx context.Context, o *endpointOverrideDropOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findEndpointOverride(ctx, client, o.Endpoint, o.Holder, o.Tenant)
	if err != nil {
		return err
	}
	none := &problem{
		message: "there is no override of " + quote(o.Holder) + " at endpoint " + quote(o.Endpoint) + ofTenant(o.Tenant),
		hint:    "limitctl endpoint override list shows what there is",
	}
	if row == nil {
		return none
	}
	what := ofHolder(o.Endpoint, o.Holder, o.Tenant) + ", " + overrideTerms(endpointOverrideParams(*row))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Drop "+what+"?"); err != nil {
		return err
	}
	was, err := client.DropEndpointOverride(ctx, pgclient.DropEndpointOverrideParams{Endpoint: o.Endpoint, Holder: o.Holder, Tenant: o.Tenant})
	if err != nil {
		return err
	}
	if !was {
		return none // somebody else was faster
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, endpointOverrideDropView,
		endpointOverrideDropped{dropped: was, endpoint: o.Endpoint, holder: o.Holder, tenant: o.Tenant})
}

func instantOrNoneVar(flags *pflag.FlagSet, c *change[time.Time], now func() time.Time, name, usage string) {
	parse := func(s string) (time.Time, error) {
		var t *time.Time
		err := instantFlag{now, &t}.Set(s)
		return instant(t), err
	}
	flags.Var(noneFlag[time.Time]{c, parse, timestamp, "instant|none"}, name, usage)
}
