package cli

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglimit/pglimit/pgclient"
)

// text is an optional text as a column shows it.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// blockee is whom a block is about: a subject, or with --range a network instead.
type blockee struct {
	Network netip.Prefix
	Range   bool
	Subject string
}

func (b *blockee) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&b.Range, "range", false, "the subject is a range of addresses, such as 203.0.113.0/24")
}

// parse makes a network of the subject, where that is one.
func (b *blockee) parse() error {
	if !b.Range {
		return nil
	}
	network, err := netip.ParsePrefix(b.Subject)
	if err != nil {
		address, err := netip.ParseAddr(b.Subject)
		if err != nil || address.Zone() != "" {
			return usageError(quote(b.Subject)+" is no range of addresses", "write it as 203.0.113.0/24 or 2001:db8::/32")
		}
		network = netip.PrefixFrom(address, address.BitLen())
	}
	b.Network, b.Subject = network.Masked(), ""
	return nil
}

// networkText is a network as a column shows it.
func networkText(network netip.Prefix) string {
	if !network.IsValid() {
		return ""
	}
	return network.String()
}

// blocked is who a block refuses, in a sentence.
func blocked(subject string, network netip.Prefix) string {
	if network.IsValid() {
		return network.String()
	}
	return quote(subject)
}

// blockedName is who a block refuses, for -o name.
func blockedName(subject string, network netip.Prefix) string {
	if network.IsValid() {
		return network.String()
	}
	return printable(subject)
}

// atLimit is where a subject is blocked, in a sentence.
func atLimit(limit, tenant string) string {
	if limit == pgclient.AllLimits {
		return "every limit" + ofTenant(tenant)
	}
	return "limit " + printable(limit) + ofTenant(tenant)
}

var blockView = view[pgclient.BlockRow]{
	noun: "block",
	columns: []column[pgclient.BlockRow]{
		{name: "tenant", value: func(r pgclient.BlockRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.BlockRow) any { return r.Limit }},
		{name: "subject", value: func(r pgclient.BlockRow) any { return r.Subject }, show: flexible},
		{name: "network", value: func(r pgclient.BlockRow) any { return networkText(r.Network) }, show: ifAny},
		{name: "blocked_until", head: "UNTIL", value: func(r pgclient.BlockRow) any { return instant(r.BlockedUntil) }},
		{name: "state", value: func(r pgclient.BlockRow) any { return r.State }, color: func(r pgclient.BlockRow) (string, string) {
			return good(r.State == "over")
		}},
		{name: "strikes", value: func(r pgclient.BlockRow) any { return r.Strikes }, show: wide},
		{name: "why", value: func(r pgclient.BlockRow) any { return text(r.Why) }, show: ifAny},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.BlockRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.BlockRow) any { return r.UpdatedBy }},
	},
	name: func(r pgclient.BlockRow) string { return printable(r.Limit) + "\t" + blockedName(r.Subject, r.Network) },
}

func newBlockCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("block", "Refuse subjects, or ranges of addresses, for a time or for ever", `
A block refuses every hit of one subject, whatever it has left and whatever the limit's mode is, at one
limit or, with the limit '*', at every limit of its tenant. It takes effect with the next hit and survives a
crash. With --range it refuses all subjects that are addresses in a network. Services make blocks too: those
of pglimit.pause are listed and lifted here.`)
	cmd.AddCommand(newBlockListCmd(f, nil), newBlockSetCmd(f, nil), newBlockDropCmd(f, nil))
	return cmd
}

type blockListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	LimitName string
	Tenant    *string
	blockee
	listOptions
}

func newBlockListCmd(f *Factory, runF func(context.Context, *blockListOptions) error) *cobra.Command {
	o := &blockListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List blocks, of one limit or of all",
		Long: `List blocks, of one limit or of all, also those that are over, until a purge removes them. Filters are
exact; '*' as the limit shows the blocks at every limit. Of a subject that is an address, those of the ranges
it is in are shown too.`,
		Example: `  limitctl block list api

  # Who refuses this address, and since when is this range blocked?
  limitctl block list --subject 203.0.113.7
  limitctl block list --subject 203.0.113.0/24 --range

  # Who is blocked at every limit
  limitctl block list '*'`,
		Args:              maxArgs(1),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.LimitName = args[0]; o.LimitName == "" {
					return blankName() // as a filter it would mean any
				}
			}
			if err := o.parse(); err != nil {
				return err
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return blockListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Subject, "subject", "", "only blocks that refuse this subject")
	o.blockee.flags(flags)
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, blockView)
	return cmd
}

func blockListRun(ctx context.Context, o *blockListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.BlockRow]{
		command: "block list",
		fetch: func(ctx context.Context, last *pgclient.BlockRow, n int) ([]pgclient.BlockRow, error) {
			p := pgclient.ListBlocksParams{Limit: o.LimitName, MaxRows: n, Network: o.Network, Subject: o.Subject, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListBlocks(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    blockView,
	}.run(ctx)
}

type blockSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Duration  time.Duration
	DryRun    bool
	Format    string
	LimitName string
	Tenant    string
	Why       string
	blockee
}

// blockSet is the answer of block and of block_range.
type blockSet struct {
	block   pgclient.BlockParams
	dryRun  bool
	network netip.Prefix
	until   *time.Time
}

var blockSetView = view[blockSet]{
	noun: "block",
	columns: []column[blockSet]{
		{name: "tenant", value: func(r blockSet) any { return r.block.Tenant }},
		{name: "limit_name", value: func(r blockSet) any { return r.block.Limit }},
		{name: "subject", value: func(r blockSet) any { return r.block.Subject }},
		{name: "network", value: func(r blockSet) any { return networkText(r.network) }},
		{name: "blocked_until", value: func(r blockSet) any { return instant(r.until) }},
		{name: "why", value: func(r blockSet) any { return r.block.Why }},
		{name: "dry_run", value: func(r blockSet) any { return r.dryRun }},
	},
	name: func(r blockSet) string {
		return printable(r.block.Limit) + "\t" + blockedName(r.block.Subject, r.network)
	},
	sentence: func(r blockSet) string {
		verb, long := "Blocked", " for ever"
		if r.dryRun {
			verb = "Would block"
		}
		if r.block.Duration != nil {
			long = " for " + formatDuration(*r.block.Duration)
		}
		return fmt.Sprintf("%s %s at %s%s.", verb, blocked(r.block.Subject, r.network), atLimit(r.block.Limit, r.block.Tenant), long)
	},
}

func newBlockSetCmd(f *Factory, runF func(context.Context, *blockSetOptions) error) *cobra.Command {
	o := &blockSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "set <limit> <subject> [flags]",
		Short: "Refuse one subject, or a range of addresses, at a limit or with '*' at every limit",
		Long: `Refuse one subject at a limit, or with '*' at every limit of its tenant, from the next hit on. It replaces
a block that was there. The subject is what the service passes to hit, exactly. With --range it is a network,
and all subjects that are addresses in it are refused, however they are written; while this looks for those
that were counted, subjects that are new wait.`,
		Example: `  # It scrapes: nothing for a day
  limitctl block set api 203.0.113.7 --for 1d --why "it scrapes, ticket 7"

  # Nobody from there signs in
  limitctl block set login 203.0.113.0/24 --range --for 12h

  # Nothing more, anywhere
  limitctl block set '*' customer-8 --why "left without paying"`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if o.LimitName == "" || o.Subject == "" {
				return blankName()
			}
			if cmd.Flags().Changed("for") && o.Duration == 0 {
				return usageError("--for of nothing would block nobody", "without --for it is for ever; limitctl block drop lifts a block")
			}
			if err := o.parse(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return blockSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	durationVar(flags, &o.Duration, "for", 0, "for how long (default for ever)")
	flags.StringVar(&o.Why, "why", "", "the reason, which is recorded")
	o.blockee.flags(flags)
	tenantVar(flags, &o.Tenant)
	flags.Lookup("tenant").Usage = "whose subject it is (default the empty tenant)"
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, blockSetView)
	return cmd
}

func blockSetRun(ctx context.Context, o *blockSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	result := blockSet{dryRun: o.DryRun, network: o.Network, block: pgclient.BlockParams{Limit: o.LimitName, Subject: o.Subject, Tenant: o.Tenant, Why: o.Why}}
	if o.Duration != 0 {
		result.block.Duration = &o.Duration
	}
	switch {
	case o.DryRun:
	case o.Range:
		result.until, err = client.BlockRange(ctx, pgclient.BlockRangeParams{
			Duration: result.block.Duration, Limit: o.LimitName, Network: o.Network, Tenant: o.Tenant, Why: o.Why,
		})
	default:
		result.until, err = client.Block(ctx, result.block)
	}
	if err != nil {
		return err
	}
	if err := record(printer{format: o.Format, now: o.Now(), streams: o.IO}, blockSetView, result); err != nil {
		return err
	}
	if network, err := netip.ParsePrefix(o.Subject); err == nil && !o.Range && !network.IsSingleIP() {
		// Nothing else would tell who meant the network that its addresses go on
		line(o.IO.ErrOut, "HINT:", "this is the subject of that name alone; with --range it is the addresses in "+network.Masked().String())
	}
	if o.LimitName != pgclient.AllLimits {
		hintNoRow(ctx, client, o.IO, o.LimitName, o.Tenant)
	}
	return nil
}

type blockDropOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Tenant    string
	blockee
	consent
}

// blockDropped is the answer of unblock and of unblock_range.
type blockDropped struct {
	limit, subject, tenant string
	network                netip.Prefix
}

var blockDropView = view[blockDropped]{
	noun: "block",
	columns: []column[blockDropped]{
		{name: "tenant", value: func(r blockDropped) any { return r.tenant }},
		{name: "limit_name", value: func(r blockDropped) any { return r.limit }},
		{name: "subject", value: func(r blockDropped) any { return r.subject }},
		{name: "network", value: func(r blockDropped) any { return networkText(r.network) }},
		{name: "dropped", value: func(blockDropped) any { return true }},
	},
	name: func(r blockDropped) string { return printable(r.limit) + "\t" + blockedName(r.subject, r.network) },
	sentence: func(r blockDropped) string {
		return fmt.Sprintf("Lifted the block of %s at %s.", blocked(r.subject, r.network), atLimit(r.limit, r.tenant))
	},
}

func newBlockDropCmd(f *Factory, runF func(context.Context, *blockDropOptions) error) *cobra.Command {
	o := &blockDropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "drop <limit> <subject> [flags]",
		Short: "Lift the block of a subject, who then has what the limit says",
		Long: `Lift the block of a subject, who then has what the limit says. A block at every limit is lifted as '*'; one
at a limit stays. With --range it is the block of that very network: wider and narrower ones stay.`,
		Example: `  limitctl block drop api 203.0.113.7

  limitctl block drop login 203.0.113.0/24 --range

  limitctl block drop '*' customer-8 --tenant acme --yes`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if o.LimitName == "" || o.Subject == "" {
				return blankName()
			}
			if err := o.parse(); err != nil {
				return err
			}
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return blockDropRun(cmd.Context(), o)
		},
	}
	o.blockee.flags(cmd.Flags())
	tenantVar(cmd.Flags(), &o.Tenant)
	cmd.Flags().Lookup("tenant").Usage = "whose subject it is (default the empty tenant)"
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, blockDropView)
	return cmd
}

func blockDropRun(ctx context.Context, o *blockDropOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	rows, err := client.ListBlocks(ctx, pgclient.ListBlocksParams{
		Limit: o.LimitName, MaxRows: 1, Network: o.Network, Subject: o.Subject, Tenant: &o.Tenant,
	})
	if err != nil {
		return err
	}
	who := blocked(o.Subject, o.Network)
	// the subject's own block is listed first; one of a range that it is in is another
	if len(rows) == 0 || rows[0].Subject != o.Subject {
		p := &problem{
			message: who + " is not blocked at " + atLimit(o.LimitName, o.Tenant),
			hint:    "limitctl block list --subject " + who + " shows where it is" + tenantHint(o.Tenant),
		}
		if o.Range {
			p.hint = "limitctl block list shows what is" + tenantHint(o.Tenant)
		} else if len(rows) > 0 {
			p.detail = fmt.Sprintf("The range %s, which it is in, is.", rows[0].Network)
		}
		return p
	}
	what := fmt.Sprintf("the block of %s at %s", who, atLimit(o.LimitName, o.Tenant))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would lift %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Lift "+what+"?"); err != nil {
		return err
	}
	// it is gone afterwards, whether it was over or somebody else was faster
	if o.Range {
		_, err = client.UnblockRange(ctx, pgclient.UnblockRangeParams{Limit: o.LimitName, Network: o.Network, Tenant: o.Tenant})
	} else {
		_, err = client.Unblock(ctx, pgclient.UnblockParams{Limit: o.LimitName, Subject: o.Subject, Tenant: o.Tenant})
	}
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, blockDropView,
		blockDropped{limit: o.LimitName, subject: o.Subject, tenant: o.Tenant, network: o.Network})
}
