package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var counterView = view[pgclient.CounterRow]{
	noun: "counter",
	columns: []column[pgclient.CounterRow]{
		{name: "tenant", value: func(r pgclient.CounterRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.CounterRow) any { return r.Limit }},
		{name: "subject", value: func(r pgclient.CounterRow) any { return r.Subject }, show: flexible},
		{name: "used", value: func(r pgclient.CounterRow) any { return r.Used }},
		{name: "window_start", head: "SINCE", value: func(r pgclient.CounterRow) any { return since(r) }},
		{name: "reset_at", head: "RESETS", value: func(r pgclient.CounterRow) any { return r.ResetAt }},
		{name: "state", value: func(r pgclient.CounterRow) any { return r.State }, color: func(r pgclient.CounterRow) (string, string) {
			return good(r.State == "open")
		}},
		{name: "shadow_refused", value: func(r pgclient.CounterRow) any { return nonZero(r.ShadowRefused) }, show: ifAny},
		{name: "algorithm", value: func(r pgclient.CounterRow) any { return string(r.Algorithm) }, show: wide},
		{name: "durable", value: func(r pgclient.CounterRow) any { return r.Durable }, show: wide},
	},
	name: func(r pgclient.CounterRow) string { return printable(r.Limit) + "\t" + printable(r.Subject) },
}

// since is when the window began. A bucket has none.
func since(r pgclient.CounterRow) time.Time {
	if r.Algorithm == pgclient.AlgorithmTokenBucket {
		return time.Time{}
	}
	return r.WindowStart
}

// nonZero is NULL for a zero that says nothing: no debt, a limit that was not in mode shadow.
func nonZero(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func newCounterCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("counter", "Inspect and clear counters", `
A counter is how much of a limit one subject has used in its present window. A subject without hits has
none, and a closed one no longer counts.`)
	cmd.AddCommand(newCounterListCmd(f, nil), newCounterShowCmd(f, nil), newCounterForgetCmd(f, nil))
	return cmd
}

type counterListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	IncludeClosed bool
	LimitName     string
	Subject       string
	Tenant        *string
	listOptions
}

func newCounterListCmd(f *Factory, runF func(context.Context, *counterListOptions) error) *cobra.Command {
	o := &counterListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List counters, of one limit or of all",
		Long: `List counters, of one limit or of all. Filters are exact. Counters whose window has ended are shown with
--include-closed until they are purged.`,
		Example: `  limitctl counter list login_attempt

  # Who is at five failed sign-ins or more?
  limitctl counter list login_attempt --limit 0 -o jsonl | jq -r 'select(.used >= 5).subject'`,
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
			return counterListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.IncludeClosed, "include-closed", false, "also counters whose window has ended")
	flags.StringVar(&o.Subject, "subject", "", "only counters of this subject")
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, counterView)
	return cmd
}

func counterListRun(ctx context.Context, o *counterListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.CounterRow]{
		command: "counter list",
		fetch: func(ctx context.Context, last *pgclient.CounterRow, n int) ([]pgclient.CounterRow, error) {
			p := pgclient.ListCountersParams{
				IncludeClosed: o.IncludeClosed, Limit: o.LimitName, MaxRows: n, Subject: o.Subject, Tenant: o.Tenant,
			}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListCounters(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    counterView,
	}.run(ctx)
}

type counterShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Subject   string
	Tenant    string
}

// standing is what peek answers about a subject, and the counter behind it.
type standing struct {
	counter  *pgclient.CounterRow // nil when nothing is counted
	debt     int64
	decision *pgclient.Decision // nil when the limit has no row, so that only its callers know it
	limit    string
	subject  string
	tenant   string
	used     int64
}

var standingView = view[standing]{
	noun: "counter",
	columns: []column[standing]{
		{name: "tenant", value: func(s standing) any { return s.tenant }},
		{name: "limit_name", value: func(s standing) any { return s.limit }},
		{name: "subject", value: func(s standing) any { return s.subject }},
		{name: "allowed", value: func(s standing) any {
			if s.decision == nil {
				return nil
			}
			return s.decision.Allowed
		}, color: func(s standing) (string, string) {
			if s.decision == nil {
				return plain, ""
			}
			return good(s.decision.Allowed)
		}},
		{name: "reason", value: func(s standing) any {
			if s.decision == nil {
				return nil
			}
			return string(s.decision.Reason)
		}},
		{name: "used", value: func(s standing) any { return s.used }},
		{name: "debt", value: func(s standing) any { return nonZero(s.debt) }, show: ifAny},
		{name: "shadow_refused", value: func(s standing) any {
			if s.counter == nil {
				return (*int64)(nil)
			}
			return nonZero(s.counter.ShadowRefused)
		}, show: ifAny},
		{name: "quota", value: func(s standing) any { return s.number(func(d *pgclient.Decision) int64 { return d.Quota }) }},
		{name: "remaining", value: func(s standing) any { return s.number(func(d *pgclient.Decision) int64 { return d.Remaining }) }},
		{name: "retry_after", value: func(s standing) any {
			if s.decision == nil || s.decision.Allowed || s.decision.RetryAfter == 0 {
				return (*time.Duration)(nil)
			}
			return &s.decision.RetryAfter
		}},
		{name: "window_start", value: func(s standing) any {
			if s.counter == nil {
				return time.Time{}
			}
			return since(*s.counter)
		}},
		{name: "reset_at", value: func(s standing) any {
			if s.counter == nil {
				return time.Time{}
			}
			return s.counter.ResetAt
		}},
	},
}

func (s standing) number(of func(*pgclient.Decision) int64) *int64 {
	if s.decision == nil {
		return nil
	}
	n := of(s.decision)
	return &n
}

func newCounterShowCmd(f *Factory, runF func(context.Context, *counterShowOptions) error) *cobra.Command {
	o := &counterShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <limit> <subject> [flags]",
		Short: "Show what a subject has used, and whether its next hit is allowed",
		Long: `Show what a subject has used of a limit, and whether its next hit is allowed. Nothing is counted by it.
What is used is what the next hit goes by: of a sliding_window also what still weighs of the window before,
of a token_bucket what it lacks. At its reset nothing is used any more. limitctl limit explain says more.

Where callers give a limit with each hit and it has no row of its own, only what is used is known.`,
		Example: `  # Why can bob not sign in?
  limitctl counter show login_attempt bob

  # For how many seconds?
  limitctl counter show login_attempt bob -o json | jq .retry_after_seconds`,
		Args:              exactArgs("<limit>", "<subject>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subject = args[0], args[1]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return counterShowRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, standingView)
	return cmd
}

func counterShowRun(ctx context.Context, o *counterShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	s := standing{limit: o.LimitName, subject: o.Subject, tenant: o.Tenant}

	decision, err := client.Peek(ctx, pgclient.HitParams{Limit: o.LimitName, Subject: o.Subject, Tenant: o.Tenant})
	switch {
	case err == nil:
		s.decision = &decision
	case !errors.Is(err, pgclient.ErrUnknownLimit):
		return err
	}
	unknown := err
	rows, err := client.ListCounters(ctx, pgclient.ListCountersParams{
		Limit: o.LimitName, MaxRows: 1, Subject: o.Subject, Tenant: &o.Tenant,
	})
	switch {
	case err != nil:
		return err
	case len(rows) > 0:
		s.counter, s.used = &rows[0], rows[0].Used
	case unknown != nil:
		p := explain(unknown)
		return &problem{
			message: fmt.Sprintf("there is neither a limit %s nor a counter of %s", quote(o.LimitName), quote(o.Subject)),
			hint:    "limitctl limit list shows the limits, limitctl counter list what is counted" + tenantHint(o.Tenant),
			state:   p.state,
			cause:   unknown,
		}
	}
	if unknown != nil {
		fmt.Fprintf(o.IO.ErrOut, "Limit %s has no row; its quota is known to its callers only.\n", quote(o.LimitName))
	} else if err := s.weigh(ctx, client); err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, standingView, s)
}

// weigh asks for what is used by the sum that decides: the counter's own number leaves out what weighs of a window before,
// and peek how far below nothing it is.
func (s *standing) weigh(ctx context.Context, client Client) error {
	steps, err := client.ExplainLimit(ctx, pgclient.ExplainParams{Limit: s.limit, Subject: s.subject, Tenant: s.tenant})
	if err != nil {
		return err
	}
	for _, step := range steps {
		var sum struct{ Debt, Used int64 }
		if step.Step != "arithmetic" || step.Facts == nil {
			continue
		}
		if err := json.Unmarshal(step.Facts, &sum); err != nil {
			return fmt.Errorf("explain_limit answers %s: %w", step.Facts, err)
		}
		s.debt, s.used = sum.Debt, sum.Used
	}
	return nil
}

// tenantHint reminds of a tenant that was not named.
func tenantHint(tenant string) string {
	if tenant == "" {
		return "; --tenant names another tenant than the empty one"
	}
	return ""
}

type counterForgetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Subjects  []string
	Tenant    string
	consent
}

// forgotten is one answer of forget.
type forgotten struct {
	forgotten bool
	limit     string
	subject   string
	tenant    string
}

var forgetView = view[forgotten]{
	noun: "counter",
	columns: []column[forgotten]{
		{name: "tenant", value: func(r forgotten) any { return r.tenant }},
		{name: "limit_name", value: func(r forgotten) any { return r.limit }},
		{name: "subject", value: func(r forgotten) any { return r.subject }},
		{name: "forgotten", value: func(r forgotten) any { return r.forgotten }},
	},
	name: func(r forgotten) string { return printable(r.limit) + "\t" + printable(r.subject) },
	sentence: func(r forgotten) string {
		if !r.forgotten {
			return fmt.Sprintf("Nothing to forget: %s had no open count of %s.", printable(r.limit), quote(r.subject))
		}
		return fmt.Sprintf("Forgot what %s had counted of %s.", printable(r.limit), quote(r.subject))
	},
}

func newCounterForgetCmd(f *Factory, runF func(context.Context, *counterForgetOptions) error) *cobra.Command {
	o := &counterForgetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "forget <limit> <subject>... [flags]",
		Short: "Give subjects their whole quota back",
		Long: `Clear what is counted of subjects, so that they have their whole quota again. A subject without an open
count is no error.`,
		Example: `  # bob has proved who he is
  limitctl counter forget login_attempt bob

  # In a script
  limitctl counter forget --yes --tenant acme upload_window plugin-7 plugin-8`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) >= 2 {
				return nil
			}
			return exactArgs("<limit>", "<subject>")(cmd, args)
		},
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName, o.Subjects = args[0], args[1:]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return counterForgetRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, forgetView)
	return cmd
}

func counterForgetRun(ctx context.Context, o *counterForgetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	if !o.Yes {
		var open []string
		for _, subject := range o.Subjects {
			rows, err := client.ListCounters(ctx, pgclient.ListCountersParams{
				Limit: o.LimitName, MaxRows: 1, Subject: subject, Tenant: &o.Tenant,
			})
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				open = append(open, fmt.Sprintf("%s: %d used, until %s", quote(subject), rows[0].Used, rows[0].ResetAt.UTC().Format(time.RFC3339)))
			}
		}
		switch {
		case o.DryRun && len(open) == 0:
			fmt.Fprintln(o.IO.ErrOut, "No open counters found, nothing to forget.")
			return nil
		case o.DryRun:
			for _, what := range open {
				fmt.Fprintf(o.IO.Out, "Would forget %s.\n", what)
			}
			return nil
		}
		question := fmt.Sprintf("Forget what %s has counted of %s?", printable(o.LimitName), plural(len(o.Subjects), "subject"))
		for i, what := range open {
			open[i] = "  " + what + "\n"
		}
		if err := o.ask(o.IO, strings.Join(open, "")+question); err != nil {
			return err
		}
	}
	_, err = list(printer{format: o.Format, now: o.Now(), streams: o.IO}, forgetView, func(yield func(forgotten, error) bool) {
		for _, subject := range o.Subjects {
			r := forgotten{limit: o.LimitName, subject: subject, tenant: o.Tenant}
			if err := ctx.Err(); err != nil {
				yield(r, err)
				return
			}
			var err error
			r.forgotten, err = client.Forget(ctx, pgclient.ForgetParams{Limit: o.LimitName, Subject: subject, Tenant: o.Tenant})
			if !yield(r, err) {
				return
			}
		}
	})
	return err
}
