package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

type permitReleaseHolderOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Format   string
	Holder   string
	Tenant   string
	Why      string
	consent
}

// holderReleased is the answer of release_holder.
type holderReleased struct {
	endpoint, holder, tenant string
	released                 int64
}

var holderReleasedView = view[holderReleased]{
	noun: "holder",
	columns: []column[holderReleased]{
		{name: "tenant", value: func(r holderReleased) any { return r.tenant }},
		{name: "endpoint", value: func(r holderReleased) any { return r.endpoint }},
		{name: "holder", value: func(r holderReleased) any { return r.holder }},
		{name: "released", value: func(r holderReleased) any { return r.released }},
	},
	sentence: func(r holderReleased) string {
		return fmt.Sprintf("Released %s that %s held at %s%s.", plural(r.released, "permit"), quote(r.holder), printable(r.endpoint), ofTenant(r.tenant))
	},
}

// needsWhy refuses a reason that is blank.
func needsWhy(why string) error {
	if strings.TrimSpace(why) == "" {
		return usageError("--why is missing: a release by force is recorded with its reason", `--why "worker 7 is gone"`)
	}
	return nil
}

func newPermitReleaseHolderCmd(f *Factory, runF func(context.Context, *permitReleaseHolderOptions) error) *cobra.Command {
	o := &permitReleaseHolderOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "release-holder <endpoint> <holder> --why <text> [flags]",
		Short: "Release all that a holder has at an endpoint, and record why",
		Long: `Release all permits that a holder has at an endpoint, all or none, and record who did it and why. What the
holder claims meanwhile stays his.

Releasing does not stop the work. If its holder still runs, more than the cap may run at once.`,
		Example: `  # Look first, then do it
  limitctl permit release-holder export worker-7 --why "it is gone" --dry-run
  limitctl permit release-holder export worker-7 --why "it is gone" --yes`,
		Args:              exactArgs("<endpoint>", "<holder>"),
		ValidArgsFunction: completeArgs(f, 1, endpointNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Endpoint, o.Holder = args[0], args[1]
			if o.Endpoint == "" || o.Holder == "" {
				return usageError("the endpoint or the holder is empty", "is a variable not set?") // as filters they would mean any
			}
			if err := needsWhy(o.Why); err != nil {
				return err
			}
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return permitReleaseHolderRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Why, "why", "", "the reason, which is recorded")
	tenantVar(flags, &o.Tenant)
	o.consent.flags(flags)
	outputVar(cmd, &o.Format, holderReleasedView)
	return cmd
}

func permitReleaseHolderRun(ctx context.Context, o *permitReleaseHolderOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var todo []released
	var more bool
	filter := pgclient.ListPermitsParams{Endpoint: o.Endpoint, Holder: o.Holder, Tenant: &o.Tenant}
	for row, err := range pages(ctx, permitPages(client, filter), 0, &more) {
		if err != nil {
			return err
		}
		todo = append(todo, released{id: row.ID, row: &row})
	}
	if len(todo) == 0 {
		fmt.Fprintln(o.IO.ErrOut, "No live permits found, nothing to release.")
		return nil
	}
	if o.DryRun {
		for _, r := range todo {
			fmt.Fprintf(o.IO.Out, "Would release permit %d (%s, held by %s).\n", r.id, printable(r.row.Endpoint), quote(r.row.Holder))
		}
		return nil
	}
	if err := o.ask(o.IO, releaseQuestion(todo)); err != nil {
		return err
	}
	n, err := client.ReleaseHolder(ctx, pgclient.ReleaseHolderParams{Endpoint: o.Endpoint, Holder: o.Holder, Tenant: o.Tenant, Why: o.Why})
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, holderReleasedView,
		holderReleased{endpoint: o.Endpoint, holder: o.Holder, released: n, tenant: o.Tenant})
}
