package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

// anySource stands for the source where only the account's count is looked at: that is the same from all of them.
const anySource = "0.0.0.0"

var signInView = view[pgclient.SignInCount]{
	noun: "count",
	columns: []column[pgclient.SignInCount]{
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.SignInCount) any { return r.Limit }},
		{name: "subject", value: func(r pgclient.SignInCount) any { return r.Subject }, show: flexible},
		{name: "used", value: func(r pgclient.SignInCount) any { return r.Used }},
		{name: "quota", value: func(r pgclient.SignInCount) any { return r.Quota }},
		{name: "remaining", value: func(r pgclient.SignInCount) any { return r.Remaining }, color: func(r pgclient.SignInCount) (string, string) {
			return good(r.RetryAfter == 0)
		}},
		{name: "retry_after", value: func(r pgclient.SignInCount) any {
			if r.RetryAfter == 0 {
				return (*time.Duration)(nil)
			}
			return &r.RetryAfter
		}},
		{name: "reset_at", head: "RESETS", value: func(r pgclient.SignInCount) any { return r.ResetAt }},
		{name: "known", value: func(r pgclient.SignInCount) any { return r.Known }},
	},
	name: func(r pgclient.SignInCount) string { return printable(r.Limit) + "\t" + printable(r.Subject) },
}

func newSignInCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("sign-in", "See why a sign-in is refused, and let it in again", `
Where a service asks check_sign_in, failures count for the account, for the address they came from, and for
the two together. They are kept under hashes, so counter list names nobody: this takes the account as it was
typed.`)
	cmd.AddCommand(newSignInShowCmd(f, nil), newSignInForgetCmd(f, nil))
	return cmd
}

type signInShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Account string
	Format  string
	Source  string
	Tenant  string
}

func newSignInShowCmd(f *Factory, runF func(context.Context, *signInShowOptions) error) *cobra.Command {
	o := &signInShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <account> --source <address> [flags]",
		Short: "Show what the next sign-in of an account goes by",
		Long: `Show what the next sign-in of an account from an address goes by: the failures of the account, of the address
and of the two together. Nothing is counted by it. Where the two are known, for the account has signed in from
there within 90 days, the last alone refuses. limitctl limit explain takes the subjects, and says more.`,
		Example: `  # Why can ann not sign in?
  limitctl sign-in show ann@example.com --source 203.0.113.7

  # For how many seconds?
  limitctl sign-in show ann@example.com --source 203.0.113.7 -o json | jq 'map(.retry_after_seconds) | max'`,
		Args: exactArgs("<account>"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Account = args[0]; o.Account == "" {
				return blankName()
			}
			if o.Source == "" {
				return usageError("--source is missing", "it is the address that the account signs in from, such as 203.0.113.7")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return signInShowRun(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Source, "source", "", "the address that it signs in from, without a port")
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, signInView)
	return cmd
}

func signInShowRun(ctx context.Context, o *signInShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	counts, err := client.ShowSignIn(ctx, pgclient.SignInParams{Account: o.Account, Source: o.Source, Tenant: o.Tenant})
	if err != nil {
		return err
	}
	_, err = list(printer{format: o.Format, now: o.Now(), streams: o.IO}, signInView, func(yield func(pgclient.SignInCount, error) bool) {
		for _, r := range counts {
			if !yield(r, nil) {
				return
			}
		}
	})
	return err
}

type signInForgetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Account string
	Format  string
	Source  string
	Tenant  string
	consent
}

// signInForgotten is the answer of forget_sign_in.
type signInForgotten struct {
	account, source, tenant string
	forgotten               bool
}

// from is whose failures they are, in a sentence.
func (r signInForgotten) from() string {
	if r.source == "" {
		return quote(r.account) + ofTenant(r.tenant)
	}
	return quote(r.account) + " and " + printable(r.source) + ofTenant(r.tenant)
}

var signInForgetView = view[signInForgotten]{
	noun: "sign-in",
	columns: []column[signInForgotten]{
		{name: "tenant", value: func(r signInForgotten) any { return r.tenant }},
		{name: "account", value: func(r signInForgotten) any { return r.account }},
		{name: "source", value: func(r signInForgotten) any { return r.source }},
		{name: "forgotten", value: func(r signInForgotten) any { return r.forgotten }},
	},
	name: func(r signInForgotten) string { return printable(r.account) },
	sentence: func(r signInForgotten) string {
		if !r.forgotten {
			return "Nothing to forget: no failure of " + r.from() + " is counted."
		}
		return "Forgot the failures of " + r.from() + "."
	},
}

func newSignInForgetCmd(f *Factory, runF func(context.Context, *signInForgetOptions) error) *cobra.Command {
	o := &signInForgetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "forget <account> [flags]",
		Short: "Give an account its sign-in attempts back",
		Long: `Give an account its sign-in attempts back. With --source also those of the account from there and those of
the address, which others may share. It is recorded, without the account's name. An account of which nothing
is counted is no error.`,
		Example: `  # Strangers have locked ann out, from everywhere
  limitctl sign-in forget ann@example.com

  # She mistyped it herself, five times
  limitctl sign-in forget ann@example.com --source 203.0.113.7 --yes`,
		Args: exactArgs("<account>"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Account = args[0]; o.Account == "" {
				return blankName()
			}
			if cmd.Flags().Changed("source") && o.Source == "" {
				// a script's empty variable does not mean the account alone
				return usageError("--source is blank", "without --source it is the account's alone")
			}
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return signInForgetRun(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Source, "source", "", "the address that it signs in from, whose failures are forgotten too")
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, signInForgetView)
	return cmd
}

func signInForgetRun(ctx context.Context, o *signInForgetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := signInForgotten{account: o.Account, source: o.Source, tenant: o.Tenant}
	if !o.Yes {
		p := pgclient.SignInParams{Account: o.Account, Source: o.Source, Tenant: o.Tenant}
		if p.Source == "" {
			p.Source = anySource
		}
		counts, err := client.ShowSignIn(ctx, p)
		if err != nil {
			return err
		}
		var open []string
		for _, c := range counts {
			if c.Used > 0 && (o.Source != "" || c.Limit == "sign_in_account") {
				open = append(open, fmt.Sprintf("%s: %d of %d used, until %s",
					printable(c.Limit), c.Used, c.Quota, c.ResetAt.UTC().Format(time.RFC3339)))
			}
		}
		switch {
		case o.DryRun && len(open) == 0:
			fmt.Fprintln(o.IO.ErrOut, "No failures are counted, nothing to forget.")
			return nil
		case o.DryRun:
			for _, what := range open {
				fmt.Fprintf(o.IO.Out, "Would forget %s.\n", what)
			}
			return nil
		}
		for i, what := range open {
			open[i] = "  " + what + "\n"
		}
		if err := o.ask(o.IO, strings.Join(open, "")+"Forget the failures of "+r.from()+"?"); err != nil {
			return err
		}
	}
	r.forgotten, err = client.ForgetSignIn(ctx, pgclient.SignInParams{Account: o.Account, Source: o.Source, Tenant: o.Tenant})
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, signInForgetView, r)
}
