package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var changeView = view[pgclient.ChangeRow]{
	noun: "change",
	columns: []column[pgclient.ChangeRow]{
		{name: "version", value: func(r pgclient.ChangeRow) any { return r.Version }},
		{name: "changed_at", head: "CHANGED", value: func(r pgclient.ChangeRow) any { return r.ChangedAt }},
		{name: "changed_by", head: "BY", value: func(r pgclient.ChangeRow) any { return r.ChangedBy }},
		{name: "action", value: func(r pgclient.ChangeRow) any { return r.Action }},
		{name: "tenant", value: func(r pgclient.ChangeRow) any { return r.Tenant }, show: ifAny},
		{name: "name", value: func(r pgclient.ChangeRow) any { return r.Name }},
		{name: "before", value: func(r pgclient.ChangeRow) any { return r.Before }, show: flexible},
		{name: "after", value: func(r pgclient.ChangeRow) any { return r.After }, show: flexible},
		{name: "why", value: func(r pgclient.ChangeRow) any { return r.Why }, show: ifAny | flexible},
	},
}

func newChangeCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("change", "Show who changed what", `
A change is what somebody did to a limit, an endpoint or the installation, or a release by force: who, when,
from what and to what. Changes are kept for good. What services do leaves none.`)
	cmd.AddCommand(newChangeListCmd(f, nil))
	return cmd
}

type changeListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Action string
	Name   string
	Tenant *string
	listOptions
}

func newChangeListCmd(f *Factory, runF func(context.Context, *changeListOptions) error) *cobra.Command {
	o := &changeListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<name>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List changes, the newest first",
		Long: `List changes, the newest first. With a name, only those of the limits and endpoints of that name. The
version of a change is the version that the limit or the endpoint got.`,
		Example: `  # What became of this limit, and when?
  limitctl change list login_attempt -o wide

  # Who released permits by force?
  limitctl change list --action release_holder`,
		Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if o.Name = args[0]; o.Name == "" {
					return blankName() // as a filter it would mean any
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return changeListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	enumVar(cmd, flags, &o.Action, "action", "", "", "only these", "set_limit", "drop_limit", "set_endpoint", "drop_endpoint",
		"set_limit_override", "drop_limit_override", "block", "unblock", "block_range", "unblock_range", "set_endpoint_override", "drop_endpoint_override",
		"set_installation_cap", "set_purge_after", "set_grace", "raise_epoch", "force_release", "release_holder",
		"forget_sign_in")
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, changeView)
	return cmd
}

func changeListRun(ctx context.Context, o *changeListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.ChangeRow]{
		command: "change list",
		fetch: func(ctx context.Context, last *pgclient.ChangeRow, n int) ([]pgclient.ChangeRow, error) {
			p := pgclient.ListChangesParams{Action: o.Action, MaxRows: n, Name: o.Name, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Version
			}
			return client.ListChanges(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    changeView,
	}.run(ctx)
}
