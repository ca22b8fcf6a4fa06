package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

func newPurgeCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("purge", "Remove what nobody has come back to", `
Permits and counters end by themselves; purge gives the space of the forgotten ones back, and holds that
nobody settled where their limit says on_lapse "return". Run it now and then, from a scheduler or with --every.`)
	cmd.AddCommand(newPurgeRunCmd(f, nil))
	return cmd
}

type purgeRunOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	All    bool
	Batch  int64
	Every  time.Duration // 0: once
	Format string
}

// purged is what one run of purge removed.
type purged struct {
	at       time.Time
	counters int64
	holds    int64
	more     bool
	permits  int64
	returned int64
}

// any tells whether there was something to do.
func (r purged) any() bool { return r.permits+r.counters+r.holds+r.returned > 0 }

// what says it in words; of holds only where there were some.
func (r purged) what() string {
	parts := []string{plural(r.permits, "permit"), plural(r.counters, "counter")}
	if r.holds > 0 {
		parts = append(parts, plural(r.holds, "hold"))
	}
	text := strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
	if r.returned > 0 {
		text += ", gave " + plural(r.returned, "hold") + " back"
	}
	return text
}

var purgeView = view[purged]{
	noun: "purge",
	columns: []column[purged]{
		{name: "permits_purged", value: func(r purged) any { return r.permits }},
		{name: "counters_purged", value: func(r purged) any { return r.counters }},
		{name: "holds_purged", value: func(r purged) any { return r.holds }},
		{name: "holds_returned", value: func(r purged) any { return r.returned }},
		{name: "more", value: func(r purged) any { return r.more }},
	},
	sentence: func(r purged) string {
		text := "Purged " + r.what() + "."
		if r.more {
			text += " There may be more; --all goes on until there is none."
		}
		return text
	},
}

// purgeEveryView is for a run that goes on: each round a line of a log.
var purgeEveryView = view[purged]{
	noun: "purge",
	columns: append([]column[purged]{
		{name: "at", value: func(r purged) any { return r.at }},
	}, purgeView.columns[:4]...),
	sentence: func(r purged) string {
		return r.at.UTC().Format(time.RFC3339) + " purged " + r.what()
	},
}

func newPurgeRunCmd(f *Factory, runF func(context.Context, *purgeRunOptions) error) *cobra.Command {
	o := &purgeRunOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "run [--batch <number>] [--all | --every <duration>] [flags]",
		Short: "Purge one batch, all there is, or all of it again and again",
		Long: `Purge one batch, with --all batch after batch until nothing is left, or with --every all of it again and
again until it is interrupted, where there is no scheduler. Several at once do no harm.

It removes what has been idle for the installation's purge_after only, so it does not ask. With --every
it goes on when the database is away, and says so on stderr. On a standby it does nothing.`,
		Example: `  # From cron, once an hour
  limitctl purge run --all

  # As a service of its own, a line for each round that removed something
  limitctl purge run --every 10m -o jsonl`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Batch < 1:
				return usageError("--batch is at least 1", "leave it out for 1000")
			case cmd.Flags().Changed("every") && o.Every < time.Second:
				return usageError("--every is too short", "1s is the shortest, 10m is plenty")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return purgeRunRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.All, "all", false, "go on until nothing is left to purge")
	flags.Int64Var(&o.Batch, "batch", 1000, "rows of one call, which is one transaction")
	durationVar(flags, &o.Every, "every", 0, "purge all again and again, with this pause")
	flags.Lookup("every").DefValue = "" // 0 is once
	cmd.MarkFlagsMutuallyExclusive("all", "every")
	outputVar(cmd, &o.Format, purgeView)
	return cmd
}

func purgeRunRun(ctx context.Context, o *purgeRunOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if o.Every > 0 {
		return purgeEvery(ctx, o, client)
	}
	sum, err := purgeBatches(ctx, o, client)
	if err != nil {
		if sum.any() {
			fmt.Fprintf(o.IO.ErrOut, "Purged %s before it failed.\n", sum.what())
		}
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, purgeView, sum)
}

// purgeBatches purges one batch, or all there are. What it returns with an error was removed before.
func purgeBatches(ctx context.Context, o *purgeRunOptions, client Client) (sum purged, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return sum, err
		}
		r, err := client.Purge(ctx, o.Batch)
		if isStandby(err) {
			line(o.IO.ErrOut, "NOTICE:", "this is a standby: nothing to purge here") // as purge() itself says there
			sum.more = false
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		sum.permits += r.PermitsPurged
		sum.counters += r.CountersPurged
		sum.holds += r.HoldsPurged
		sum.returned += r.HoldsReturned
		sum.more = r.More
		if !r.More || !o.All && o.Every == 0 {
			return sum, nil
		}
	}
}

// isStandby tells a standby by what it says to "begin read write", in whatever language.
func isStandby(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "0A000"
}

// purgeEvery goes on until it is interrupted, which is how it is meant to end. A round that fails is
// reported and the next one tried, unless the first fails: then it was set up wrong.
func purgeEvery(ctx context.Context, o *purgeRunOptions, client Client) error {
	p := printer{format: o.Format, streams: o.IO}
	if o.Format == formatJSON {
		p.format = formatLines // one array would never end
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for first := true; ; first = false {
		sum, err := purgeBatches(ctx, o, client)
		sum.at, p.now = o.Now(), o.Now()
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil && first:
			return err
		case err != nil:
			writeProblem(o.IO, sum.at.UTC().Format(time.RFC3339)+" limitctl purge run", explain(err))
		}
		if sum.any() {
			if _, err := list(p, purgeEveryView, func(yield func(purged, error) bool) { yield(sum, nil) }); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
