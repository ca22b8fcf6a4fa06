package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var installationView = view[pgclient.Installation]{
	noun: "installation",
	columns: []column[pgclient.Installation]{
		{name: "installation_cap", value: func(r pgclient.Installation) any { return r.InstallationCap }},
		{name: "in_use", value: func(r pgclient.Installation) any { return r.InUse }},
		{name: "epoch", value: func(r pgclient.Installation) any { return r.Epoch }},
		{name: "epoch_since", value: func(r pgclient.Installation) any { return r.EpochSince }},
		{name: "purge_after", value: func(r pgclient.Installation) any { return r.PurgeAfter }},
		{name: "last_purge_at", value: func(r pgclient.Installation) any { return r.LastPurgeAt }},
		{name: "code_version", value: func(r pgclient.Installation) any { return r.CodeVersion }},
		{name: "installed_at", value: func(r pgclient.Installation) any { return r.InstalledAt }},
		{name: "losses", value: func(r pgclient.Installation) any { return r.Losses }},
		{name: "lost_at", value: func(r pgclient.Installation) any { return r.LostAt }},
		{name: "live_known", value: func(r pgclient.Installation) any { return r.LiveKnown }},
		{name: "grace", value: func(r pgclient.Installation) any { return r.Grace }},
		{name: "reserved", value: func(r pgclient.Installation) any { return r.Reserved }},
	},
}

func newInstallationCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("installation", "Show and change what holds for all of pglimit here", `
The installation is pglimit in one database. Its cap bounds the permits in use over all tenants and
endpoints together, so that heavy work cannot take every connection.`)
	cmd.AddCommand(newInstallationShowCmd(f, nil), newInstallationSetCapCmd(f, nil),
		newInstallationSetPurgeAfterCmd(f, nil), newInstallationSetGraceCmd(f, nil),
		newInstallationRaiseEpochCmd(f, nil))
	return cmd
}

type installationShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
}

func newInstallationShowCmd(f *Factory, runF func(context.Context, *installationShowOptions) error) *cobra.Command {
	o := &installationShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show [flags]",
		Short: "Show the cap, its use, the epoch, losses and the last purge",
		Long: `Show the cap over all endpoints and how much of it is in use, how long purge lets things lie and when it
last ended, and the epoch. An epoch begins when pglimit is installed and whenever a crash of the database,
or the promotion of a standby, has emptied counters and permits: losses says how often that was, lost_at
when it was last found. For the grace time from then on room is kept for the permits that were live
before: live_known is how much, by the last purge, reserved what is left of it. in_use includes it.`,
		Example: `  limitctl installation show

  # When did a crash last empty counters and permits?
  limitctl installation show -o json | jq -r .lost_at`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return installationShowRun(cmd.Context(), o)
		},
	}
	outputVar(cmd, &o.Format, installationView)
	return cmd
}

func installationShowRun(ctx context.Context, o *installationShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := client.ShowInstallation(ctx)
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, installationView, row)
}

type setCapOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Cap    int64
	DryRun bool
	Format string
}

// setting is a change of one setting of the installation.
type setting[T any] struct {
	after, before T
	dryRun        bool
}

func settingView[T any](name, title string, print func(T) string) view[setting[T]] {
	return view[setting[T]]{
		noun: "setting",
		columns: []column[setting[T]]{
			{name: name, value: func(r setting[T]) any { return r.after }},
			{name: "before", value: func(r setting[T]) any { return r.before }},
			{name: "dry_run", value: func(r setting[T]) any { return r.dryRun }},
		},
		sentence: func(r setting[T]) string {
			changed := "Changed"
			if r.dryRun {
				changed = "Would change"
			}
			return fmt.Sprintf("%s %s from %s to %s.", changed, title, print(r.before), print(r.after))
		},
	}
}

func newInstallationSetCapCmd(f *Factory, runF func(context.Context, *setCapOptions) error) *cobra.Command {
	o := &setCapOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := settingView("installation_cap", "the cap of the installation", func(n int64) string { return strconv.FormatInt(n, 10) })
	cmd := &cobra.Command{
		Use:   "set-cap <number> [flags]",
		Short: "Set how many permits may be in use over all endpoints",
		Long: `Set how many permits may be in use over all tenants and endpoints together. 0 closes all endpoints that
count in it. Permits in use stay in use.`,
		Example: `  limitctl installation set-cap 25

  # What is it now?
  limitctl installation set-cap 25 --dry-run`,
		Args: exactArgs("<number>"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Cap, err = strconv.ParseInt(args[0], 10, 64); err != nil || o.Cap < 0 {
				return usageError("a cap is a whole number from 0 on: "+quote(args[0]), "limitctl installation set-cap 25")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return setCapRun(cmd.Context(), o, v)
		},
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, v)
	return cmd
}

func setCapRun(ctx context.Context, o *setCapOptions, v view[setting[int64]]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := setting[int64]{after: o.Cap, dryRun: o.DryRun}
	if o.DryRun {
		var now pgclient.Installation
		now, err = client.ShowInstallation(ctx)
		r.before = now.InstallationCap
	} else {
		r.before, err = client.SetInstallationCap(ctx, o.Cap)
	}
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, r)
}

type setPurgeAfterOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	DryRun bool
	Format string
	Idle   time.Duration
}

func newInstallationSetPurgeAfterCmd(f *Factory, runF func(context.Context, *setPurgeAfterOptions) error) *cobra.Command {
	o := &setPurgeAfterOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := settingView("purge_after", "the time before a purge", formatDuration)
	cmd := &cobra.Command{
		Use:   "set-purge-after <duration> [flags]",
		Short: "Set how long something is idle before purge removes it",
		Long: `Set how long a pool or a counter is idle before purge removes it. No decision depends on it; much shorter
than a day, purge also removes what is about to be used again.`,
		Example: `  limitctl installation set-purge-after 1d

  limitctl installation set-purge-after 12h --dry-run`,
		Args: exactArgs("<duration>"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Idle, err = parseDuration(args[0]); err != nil {
				return usageError("not a duration: "+quote(args[0])+": "+err.Error(), "limitctl installation set-purge-after 1d")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return setPurgeAfterRun(cmd.Context(), o, v)
		},
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, v)
	return cmd
}

func setPurgeAfterRun(ctx context.Context, o *setPurgeAfterOptions, v view[setting[time.Duration]]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := setting[time.Duration]{after: o.Idle, dryRun: o.DryRun}
	if o.DryRun {
		var now pgclient.Installation
		now, err = client.ShowInstallation(ctx)
		r.before = now.PurgeAfter
	} else {
		r.before, err = client.SetPurgeAfter(ctx, o.Idle)
	}
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, r)
}

type setGraceOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	DryRun bool
	Format string
	Grace  time.Duration
}

func newInstallationSetGraceCmd(f *Factory, runF func(context.Context, *setGraceOptions) error) *cobra.Command {
	o := &setGraceOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := settingView("grace", "the grace time after a crash", formatDuration)
	cmd := &cobra.Command{
		Use:   "set-grace <duration> [flags]",
		Short: "Set how long after a crash its permits can be reasserted",
		Long: `Set how long after a crash of the database, or the promotion of a standby, those who held permits can take
them again. As long as that new claims leave room for them, so it is at most a day; 0s keeps no room. The
Go client learns of a crash with its next renewal, at a third of the lease: a third of the longest lease
is a good time.`,
		Example: `  limitctl installation set-grace 3m

  limitctl installation set-grace 3m --dry-run`,
		Args: exactArgs("<duration>"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Grace, err = parseDuration(args[0]); err != nil {
				return usageError("not a duration: "+quote(args[0])+": "+err.Error(), "limitctl installation set-grace 3m")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return setGraceRun(cmd.Context(), o, v)
		},
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, v)
	return cmd
}

func setGraceRun(ctx context.Context, o *setGraceOptions, v view[setting[time.Duration]]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := setting[time.Duration]{after: o.Grace, dryRun: o.DryRun}
	if o.DryRun {
		var now pgclient.Installation
		now, err = client.ShowInstallation(ctx)
		r.before = now.Grace
	} else {
		r.before, err = client.SetGrace(ctx, o.Grace)
	}
	if err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, r)
}

type raiseEpochOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	consent
}

func newInstallationRaiseEpochCmd(f *Factory, runF func(context.Context, *raiseEpochOptions) error) *cobra.Command {
	o := &raiseEpochOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := settingView("epoch", "the epoch", func(n int64) string { return strconv.FormatInt(n, 10) })
	v.columns = v.columns[:2] // its --dry-run shows none
	cmd := &cobra.Command{
		Use:   "raise-epoch [flags]",
		Short: "Make all later permit ids greater than any before",
		Long: `Make all later permit ids greater than any given out before. It is for after a restore from a backup, or a
fail-over that lost transactions, where ids given out since would come a second time. A crash is noticed
without it. It cannot be taken back.`,
		Example: `  # After a restore, before the application starts
  limitctl installation raise-epoch --yes

  limitctl installation raise-epoch --dry-run`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return raiseEpochRun(cmd.Context(), o, v)
		},
	}
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, v)
	return cmd
}

func raiseEpochRun(ctx context.Context, o *raiseEpochOptions, v view[setting[int64]]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	now, err := client.ShowInstallation(ctx)
	if err != nil {
		return err
	}
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would raise the epoch, which is %d since %s.\n", now.Epoch, timestampOrNever(now.EpochSince))
		return nil
	}
	question := fmt.Sprintf("The epoch is %d since %s. Raise it? That cannot be taken back.", now.Epoch, timestampOrNever(now.EpochSince))
	if err := o.ask(o.IO, question); err != nil {
		return err
	}
	r := setting[int64]{before: now.Epoch}
	if r.after, err = client.RaiseEpoch(ctx); err != nil {
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, r)
}

func timestampOrNever(t time.Time) string {
	if t.IsZero() {
		return "the installation"
	}
	return t.UTC().Format(time.RFC3339)
}
