package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var permitView = view[pgclient.PermitRow]{
	noun: "permit",
	columns: []column[pgclient.PermitRow]{
		{name: "permit_id", value: func(r pgclient.PermitRow) any { return r.ID }},
		{name: "tenant", value: func(r pgclient.PermitRow) any { return r.Tenant }, show: ifAny},
		{name: "endpoint", value: func(r pgclient.PermitRow) any { return r.Endpoint }},
		{name: "holder", value: func(r pgclient.PermitRow) any { return r.Holder }, show: flexible},
		{name: "weight", value: func(r pgclient.PermitRow) any { return r.Weight }},
		{name: "claimed_at", head: "CLAIMED", value: func(r pgclient.PermitRow) any { return r.ClaimedAt }},
		{name: "expires_at", head: "EXPIRES", value: func(r pgclient.PermitRow) any { return r.ExpiresAt }},
		{name: "state", value: func(r pgclient.PermitRow) any { return r.State }, color: func(r pgclient.PermitRow) (string, string) {
			return good(r.State == "live")
		}},
		{name: "note", value: func(r pgclient.PermitRow) any { return r.Note }, show: wide | ifAny},
		{name: "reasserted_at", head: "REASSERTED", value: func(r pgclient.PermitRow) any { return orZero(r.ReassertedAt) }, show: wide | ifAny},
	},
	name: func(r pgclient.PermitRow) string { return strconv.FormatInt(r.ID, 10) },
}

// orZero is NULL as the zero time.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// good is the colour and the sign of a state.
func good(yes bool) (color, sign string) {
	if yes {
		return green, "+ "
	}
	return yellow, "- "
}

func newPermitCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("permit", "Inspect and release permits", `
A permit is a lease on one or more places at an endpoint. It lapses by itself at its time; to release
it sooner frees its places at once, while whoever holds it may still be at work. Who waits for one has a
ticket, which is listed among them as waiting; to release it ends the wait, or sends it to the end of the
queue.`)
	cmd.AddCommand(newPermitListCmd(f, nil), newPermitShowCmd(f, nil), newPermitReleaseCmd(f, nil),
		newPermitReleaseHolderCmd(f, nil))
	return cmd
}

type permitListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint       string
	HeldLongerThan *time.Duration
	Holder         string
	IncludeLapsed  bool
	LapsesWithin   *time.Duration
	Tenant         *string
	listOptions
}

func newPermitListCmd(f *Factory, runF func(context.Context, *permitListOptions) error) *cobra.Command {
	o := &permitListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Aliases: []string{"ls"},
		Short:   "List permits, the oldest first",
		Long: `List permits in the order they were claimed, the oldest first.

Filters are exact. A permit whose lease has ended stays visible with --include-lapsed until its place is
taken again or purged.`,
		Example: `  # Who is running exports now?
  limitctl permit list --endpoint export

  # Who has been at it for an hour?
  limitctl permit list --held-longer-than 1h

  # Release everything a dead worker holds
  limitctl permit list --holder worker-7 -o name | xargs limitctl permit release --yes`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return permitListRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Endpoint, "endpoint", "", "only permits at this endpoint")
	flags.StringVar(&o.Holder, "holder", "", "only permits of this holder")
	flags.Var(optionalDuration{&o.HeldLongerThan}, "held-longer-than", "only permits claimed at least so long ago")
	flags.BoolVar(&o.IncludeLapsed, "include-lapsed", false, "also permits whose lease has ended")
	flags.Var(optionalDuration{&o.LapsesWithin}, "lapses-within", "only permits whose lease ends in that time, unless renewed")
	tenantFilterVar(flags, &o.Tenant)
	listFlags(cmd, &o.listOptions, permitView)
	completeFlag(cmd, "endpoint", f, endpointNames)
	return cmd
}

func permitListRun(ctx context.Context, o *permitListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.PermitRow]{
		command: "permit list",
		fetch: permitPages(client, pgclient.ListPermitsParams{
			Endpoint: o.Endpoint, HeldLongerThan: o.HeldLongerThan, Holder: o.Holder, IncludeLapsed: o.IncludeLapsed,
			LapsesWithin: o.LapsesWithin, Tenant: o.Tenant,
		}),
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    permitView,
	}.run(ctx)
}

func permitPages(client Client, filter pgclient.ListPermitsParams) page[pgclient.PermitRow] {
	return func(ctx context.Context, last *pgclient.PermitRow, n int) ([]pgclient.PermitRow, error) {
		p := filter
		p.MaxRows = n
		if last != nil {
			p.After = last.ID
		}
		return client.ListPermits(ctx, p)
	}
}

type permitShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	ID     int64
}

func newPermitShowCmd(f *Factory, runF func(context.Context, *permitShowOptions) error) *cobra.Command {
	o := &permitShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <permit-id> [flags]",
		Short: "Show one permit, live or lapsed",
		Long: `Show one permit, live or lapsed. A permit that was released or purged is gone, and so are all that were
there when the database crashed.`,
		Example: `  limitctl permit show 552906420170948609

  # When does it lapse?
  limitctl permit show 552906420170948609 -o json | jq -r .expires_at`,
		Args:              exactArgs("<permit-id>"),
		ValidArgsFunction: completeArgs(f, 1, permitIDs),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.ID, err = parsePermitID(args[0]); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return permitShowRun(cmd.Context(), o)
		},
	}
	outputVar(cmd, &o.Format, permitView)
	return cmd
}

func permitShowRun(ctx context.Context, o *permitShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findPermit(ctx, client, o.ID)
	if err != nil {
		return err
	}
	if row == nil {
		return &problem{
			message: fmt.Sprintf("there is no permit %d", o.ID),
			detail:  "It was released, purged, lost in a crash of the database, or never granted.",
			hint:    "limitctl permit list --include-lapsed",
		}
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, permitView, *row)
}

// findPermit returns nil for a permit that is not there. Ids ascend, so the one wanted is the first
// behind its predecessor.
func findPermit(ctx context.Context, client Client, id int64) (*pgclient.PermitRow, error) {
	rows, err := client.ListPermits(ctx, pgclient.ListPermitsParams{After: id - 1, IncludeLapsed: true, MaxRows: 1})
	if err != nil || len(rows) == 0 || rows[0].ID != id {
		return nil, err
	}
	return &rows[0], nil
}

func parsePermitID(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 {
		return 0, usageError("a permit id is a whole number: "+quote(s), "limitctl permit list shows the ids")
	}
	return id, nil
}

type permitReleaseOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Endpoint string
	Force    bool
	Format   string
	Holder   string
	IDs      []int64
	Tenant   *string
	Why      string
	consent
}

// released is one answer of release_permit.
type released struct {
	id       int64
	reason   pgclient.Reason
	released bool
	row      *pgclient.PermitRow // as it was before; nil when it was not there
}

// what is "permit 7 (export, held by "ann")".
func (r released) what() string {
	switch {
	case r.row == nil:
		return fmt.Sprintf("permit %d", r.id)
	case r.row.State == "waiting":
		return fmt.Sprintf("ticket %d (%s, of %s)", r.id, printable(r.row.Endpoint), quote(r.row.Holder))
	}
	return fmt.Sprintf("permit %d (%s, held by %s)", r.id, printable(r.row.Endpoint), quote(r.row.Holder))
}

var releaseView = view[released]{
	noun: "permit",
	columns: []column[released]{
		{name: "permit_id", value: func(r released) any { return r.id }},
		{name: "released", value: func(r released) any { return r.released }},
		{name: "reason", value: func(r released) any { return string(r.reason) }},
	},
	name: func(r released) string { return strconv.FormatInt(r.id, 10) },
	sentence: func(r released) string {
		what := r.what()
		switch r.reason {
		case pgclient.ReasonReleased:
			return "Released " + what + "."
		case pgclient.ReasonLapsed:
			return "Nothing to release: " + what + " had lapsed."
		case pgclient.ReasonUnknown:
			return "Nothing to release: " + what + " is not there any more, or never was."
		case pgclient.ReasonNotHolder:
			return "Not released: " + what + " is another holder's."
		}
		return fmt.Sprintf("%s: %s.", what, r.reason)
	},
}

func newPermitReleaseCmd(f *Factory, runF func(context.Context, *permitReleaseOptions) error) *cobra.Command {
	o := &permitReleaseOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "release {<permit-id>... | --endpoint <name> | --holder <name> | --tenant <name>} [flags]",
		Short: "Release permits, by id or by who holds them",
		Long: `Release permits: those with the ids given, or all live ones that match --endpoint, --holder and --tenant.
With ids, --holder releases only what is that holder's. With --force it is recorded who did it, and --why.

Releasing does not stop the work. If its holder still runs, more than the cap may run at once.`,
		Example: `  # A worker that is gone held this one
  limitctl permit release 552906420170948609

  # The same, so that others can see why
  limitctl permit release 552906420170948609 --force --why "worker 7 is gone"

  # Everything a dead worker holds: look first, then do it
  limitctl permit release --holder worker-7 --dry-run
  limitctl permit release --holder worker-7 --yes`,
		ValidArgsFunction: completeArgs(f, -1, permitIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				id, err := parsePermitID(arg)
				if err != nil {
					return err
				}
				o.IDs = append(o.IDs, id)
			}
			switch {
			case len(o.IDs) == 0 && o.Endpoint == "" && o.Holder == "" && o.Tenant == nil:
				return usageError("nothing says which permits to release", "limitctl permit release <permit-id>, or --holder, --endpoint, --tenant")
			case len(o.IDs) > 0 && (o.Endpoint != "" || o.Tenant != nil):
				return usageError("ids do not go with --endpoint and --tenant", "leave one or the other out")
			case o.Force && (len(o.IDs) == 0 || o.Holder != ""):
				return usageError("--force goes with ids alone", "limitctl permit release-holder <endpoint> <holder> --why <text> releases what a holder has")
			case !o.Force && cmd.Flags().Changed("why"):
				return usageError("--why goes with --force", "only a release by force is recorded: add --force, or leave --why out")
			}
			if o.Force {
				if err := needsWhy(o.Why); err != nil {
					return err
				}
			}
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return permitReleaseRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Endpoint, "endpoint", "", "all at this endpoint")
	flags.StringVar(&o.Holder, "holder", "", "all of this holder; with ids, only if they are this holder's")
	flags.BoolVar(&o.Force, "force", false, "whoever holds them, and record it; with ids and --why")
	flags.StringVar(&o.Why, "why", "", "the reason, which is recorded")
	flags.Var(optionalString{&o.Tenant}, "tenant", `all of this tenant; "" is the empty one`)
	o.consent.flags(flags)
	outputVar(cmd, &o.Format, releaseView)
	completeFlag(cmd, "endpoint", f, endpointNames)
	return cmd
}

func permitReleaseRun(ctx context.Context, o *permitReleaseOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	// Looked up also for ids, so that the question says what is at stake.
	var todo []released
	if len(o.IDs) > 0 {
		for _, id := range o.IDs {
			row, err := findPermit(ctx, client, id)
			if err != nil {
				return err
			}
			todo = append(todo, released{id: id, row: row})
		}
	} else {
		var more bool
		filter := pgclient.ListPermitsParams{Endpoint: o.Endpoint, Holder: o.Holder, Tenant: o.Tenant}
		for row, err := range pages(ctx, permitPages(client, filter), 0, &more) {
			if err != nil {
				return err
			}
			todo = append(todo, released{id: row.ID, row: &row})
		}
	}
	if len(todo) == 0 {
		fmt.Fprintln(o.IO.ErrOut, "No live permits found, nothing to release.")
		return nil
	}

	if o.DryRun {
		for _, r := range todo {
			switch {
			case r.row == nil:
				fmt.Fprintf(o.IO.ErrOut, "Permit %d is not there.\n", r.id)
			case r.row.State == "lapsed":
				fmt.Fprintf(o.IO.ErrOut, "Permit %d has lapsed already.\n", r.id)
			case len(o.IDs) > 0 && o.Holder != "" && r.row.Holder != o.Holder:
				fmt.Fprintf(o.IO.ErrOut, "Permit %d is another holder's.\n", r.id)
			default:
				fmt.Fprintf(o.IO.Out, "Would release %s.\n", r.what())
			}
		}
		return nil
	}
	if err := o.ask(o.IO, releaseQuestion(todo)); err != nil {
		return err
	}

	failed := 0
	_, err = list(printer{format: o.Format, now: o.Now(), streams: o.IO}, releaseView, func(yield func(released, error) bool) {
		for _, r := range todo {
			if err := ctx.Err(); err != nil {
				yield(r, err)
				return
			}
			var answer pgclient.ReleaseResult
			var err error
			if o.Force {
				answer, err = client.ForceRelease(ctx, r.id, o.Why)
			} else {
				answer, err = client.ReleasePermit(ctx, r.id, o.Holder)
			}
			r.released, r.reason = answer.Released, answer.Reason
			// That one found by its holder ended meanwhile is fine; an id that is not there may be a typing error.
			if !r.released && r.reason != pgclient.ReasonLapsed && len(o.IDs) > 0 {
				failed++
			}
			if !yield(r, err) {
				return
			}
		}
	})
	if err == nil && failed > 0 {
		err = &problem{
			message: fmt.Sprintf("%s of %d not released", plural(failed, "permit"), len(todo)),
			hint:    "limitctl permit list shows the live ones and their holders",
		}
	}
	return err
}

func releaseQuestion(todo []released) string {
	var b strings.Builder
	const shown = 10
	for i, r := range todo {
		if i == shown {
			fmt.Fprintf(&b, "  and %d more\n", len(todo)-shown)
			break
		}
		if r.row == nil {
			fmt.Fprintf(&b, "  permit %d: not there\n", r.id)
			continue
		}
		fmt.Fprintf(&b, "  permit %d: %s, held by %s, %s\n", r.id, printable(r.row.Endpoint), quote(r.row.Holder), r.row.State)
	}
	return b.String() + "Release " + plural(len(todo), "permit") + "? Work that still runs is not stopped."
}
