package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

type limitExplainOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Subject   string
	Tenant    string
}

var explainView = view[pgclient.ExplainRow]{
	noun: "step",
	columns: []column[pgclient.ExplainRow]{
		{name: "step", value: func(r pgclient.ExplainRow) any { return r.Step }},
		{name: "says", value: func(r pgclient.ExplainRow) any { return r.Says }},
		{name: "facts", value: func(r pgclient.ExplainRow) any { return r.Facts }, show: wide},
	},
}

func newLimitExplainCmd(f *Factory, runF func(context.Context, *limitExplainOptions) error) *cobra.Command {
	o := &limitExplainOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "explain <limit> <subject> [flags]",
		Short: "Explain how the next hit of a subject is decided",
		Long: `Explain how the next hit of a subject is decided: by which row, with which override and block, from what is
counted and held, by which sum. Nothing is counted by it. -o json has the rows behind each step.
The subject is what the service passes to hit, exactly. Those of sign-ins are hashes: limitctl
sign-in show has them.`,
		Example: `  # Why is bob refused?
  limitctl limit explain login_attempt bob

  # Which row decides?
  limitctl limit explain api u7 --tenant acme -o jsonl | jq 'select(.step == "rule").facts'`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitExplainRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, explainView)
	return cmd
}

func limitExplainRun(ctx context.Context, o *limitExplainOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	rows, err := client.ExplainLimit(ctx, pgclient.ExplainParams{Limit: o.LimitName, Subject: o.Subject, Tenant: o.Tenant})
	if err != nil {
		return err
	}
	_, err = list(printer{format: o.Format, now: o.Now(), streams: o.IO}, explainView, func(yield func(pgclient.ExplainRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	})
	return err
}
