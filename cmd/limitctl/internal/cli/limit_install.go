package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

type limitInstallOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	Name   string
	Tenant string
}

var limitInstallView = view[installed]{
	noun: "limit",
	columns: []column[installed]{
		{name: "tenant", value: func(r installed) any { return r.tenant }},
		{name: "limit_name", value: func(r installed) any { return r.name }},
		{name: "limit_version", value: func(r installed) any { return r.version }},
	},
	sentence: func(r installed) string {
		return fmt.Sprintf("Limit %s%s is there, version %d; limitctl limit show %[1]s shows it.", printable(r.name), ofTenant(r.tenant), r.version)
	},
}

func newLimitInstallCmd(f *Factory, runF func(context.Context, *limitInstallOptions) error) *cobra.Command {
	o := &limitInstallOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "install <name> [flags]",
		Short: "Make a ready limit, unless there is one",
		Long: `Make the limit that pglimit has ready under a name. One that is there is left as it is.

login_attempt (5 in 15m), upload_window (10 in 1h), password_reset_request (3 in 1h), password_reset_redeem
(5 in 1h); and those of check_sign_in, which holds to the same without them, so install one to change it:
sign_in_pair (5 in 15m), sign_in_source (20 in 15m), sign_in_account (100 in 15m).`,
		Example: `  limitctl limit install upload_window

  # And then, if ten are too few
  limitctl limit set upload_window --max-hits 50`,
		Args:              exactArgs("<name>"),
		ValidArgsFunction: cobra.FixedCompletions(pgclient.ReadyLimits(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if o.Name == pgclient.ReadyRequestInFlight {
				return usageError(o.Name+" is an endpoint", "limitctl endpoint install "+o.Name)
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitInstallRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, limitInstallView)
	return cmd
}

func limitInstallRun(ctx context.Context, o *limitInstallOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := installed{name: o.Name, tenant: o.Tenant}
	if r.version, err = client.InstallReady(ctx, o.Name, o.Tenant); err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, limitInstallView, r)
}
