package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

// anyState is what --state takes for no filter.
const anyState = "all"

var holdView = view[pgclient.HoldRow]{
	noun: "hold",
	columns: []column[pgclient.HoldRow]{
		{name: "hold_id", value: func(r pgclient.HoldRow) any { return r.ID }},
		{name: "tenant", value: func(r pgclient.HoldRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.HoldRow) any { return r.Limit }},
		{name: "subject", value: func(r pgclient.HoldRow) any { return r.Subject }, show: flexible},
		{name: "charged", value: func(r pgclient.HoldRow) any { return r.Charged }},
		{name: "actual", value: func(r pgclient.HoldRow) any { return r.Actual }, show: ifAny},
		{name: "held_at", head: "HELD", value: func(r pgclient.HoldRow) any { return r.HeldAt }},
		{name: "expires_at", head: "EXPIRES", value: func(r pgclient.HoldRow) any { return r.ExpiresAt }},
		{name: "state", value: func(r pgclient.HoldRow) any { return string(r.State) }, color: func(r pgclient.HoldRow) (string, string) {
			return good(r.State != pgclient.HoldLapsed)
		}},
		{name: "durable", value: func(r pgclient.HoldRow) any { return r.Durable }, show: wide},
	},
	name: func(r pgclient.HoldRow) string { return strconv.FormatInt(r.ID, 10) },
}

func newHoldCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("hold", "Inspect holds", `
A hold is a charge by an estimate, which whoever made it settles when it is known what was used. Until then
the estimate counts. One that is not settled in time has lapsed: it stays charged, or the next purge gives
it back where the limit says so (limitctl limit set --on-lapse return).`)
	cmd.AddCommand(newHoldListCmd(f, nil))
	return cmd
}

type holdListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	LimitName string
	State     string
	Subject   string
	Tenant    *string
	listOptions
}

func newHoldListCmd(f *Factory, runF func(context.Context, *holdListOptions) error) *cobra.Command {
	o := &holdListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List open holds, of one limit or of all, the oldest first",
		Long: `List open holds, of one limit or of all, the oldest first. Filters are exact. Holds that are over are kept
until purge removes them: --state shows those that lapsed, were settled, or were returned by a purge.`,
		Example: `  limitctl hold list tokens --subject customer-8

  # Who does not settle what he holds?
  limitctl hold list tokens --state lapsed --limit 0 -o jsonl | jq -r .subject | sort | uniq -c`,
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
			return holdListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	enumVar(cmd, flags, &o.State, "state", "", string(pgclient.HoldOpen), "only holds in this state (default open)",
		string(pgclient.HoldOpen), string(pgclient.HoldLapsed), string(pgclient.HoldSettled), string(pgclient.HoldReturned), anyState)
	flags.StringVar(&o.Subject, "subject", "", "only holds of this subject")
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, holdView)
	return cmd
}

func holdListRun(ctx context.Context, o *holdListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.HoldRow]{
		command: "hold list",
		fetch: func(ctx context.Context, last *pgclient.HoldRow, n int) ([]pgclient.HoldRow, error) {
			p := pgclient.ListHoldsParams{Limit: o.LimitName, MaxRows: n, Subject: o.Subject, Tenant: o.Tenant}
			if o.State != anyState {
				p.State = pgclient.HoldState(o.State)
			}
			if last != nil {
				p.After = last.ID
			}
			return client.ListHolds(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    holdView,
	}.run(ctx)
}
