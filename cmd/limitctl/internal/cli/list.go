package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// pageSize is how many rows one call fetches at most.
const pageSize = 500

// listOptions are the flags that all lists share.
type listOptions struct {
	Format   string
	Interval time.Duration
	Limit    int
	Watch    bool
}

func listFlags[T any](cmd *cobra.Command, o *listOptions, v view[T]) {
	flags := cmd.Flags()
	outputVar(cmd, &o.Format, v)
	flags.IntVarP(&o.Limit, "limit", "L", 30, "show at most this many; 0 shows all")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "show again and again; in a pipe as jsonl")
	durationVar(flags, &o.Interval, "interval", 2*time.Second, "pause between two looks of --watch")
}

// check finds what the flags' own parsing cannot.
func (o *listOptions) check(cmd *cobra.Command) error {
	switch {
	case o.Limit < 0:
		return usageError("--limit cannot be negative", "--limit 0 shows all")
	case !o.Watch && cmd.Flags().Changed("interval"):
		return usageError("--interval goes with --watch", "add --watch, or leave --interval out")
	case o.Watch && o.Interval < 100*time.Millisecond:
		return usageError("--interval is too short", "100ms is the shortest")
	case o.Watch && o.Format != formatAuto && o.Format != formatTable && o.Format != formatWide && o.Format != formatLines:
		return usageError("--watch cannot be shown as "+o.Format, "-o table, wide and jsonl can")
	}
	return nil
}

// page fetches up to n rows behind last, which is nil for the first page.
type page[T any] func(ctx context.Context, last *T, n int) ([]T, error)

// pages yields up to limit rows, 0 for all, and tells in more whether there were others.
func pages[T any](ctx context.Context, fetch page[T], limit int, more *bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		*more = false
		var last *T
		for seen := 0; ; {
			want := pageSize
			if limit > 0 {
				want = min(pageSize, limit-seen+1) // one more, to know whether there is
			}
			if err := ctx.Err(); err != nil {
				yield(*new(T), err)
				return
			}
			rows, err := fetch(ctx, last, want)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for i := range rows {
				if limit > 0 && seen == limit {
					*more = true
					return
				}
				if !yield(rows[i], nil) {
					return
				}
				seen++
			}
			if len(rows) < want {
				return
			}
			last = &rows[len(rows)-1]
		}
	}
}

// lister runs a list command: once, or again and again.
type lister[T any] struct {
	command string
	fetch   page[T]
	now     func() time.Time
	options listOptions
	streams *IOStreams
	view    view[T]
}

func (l lister[T]) run(ctx context.Context) error {
	if l.options.Watch {
		return l.watch(ctx)
	}
	return l.once(ctx, l.streams, l.options.Format)
}

func (l lister[T]) once(ctx context.Context, streams *IOStreams, format string) error {
	var more bool
	p := printer{format: format, now: l.now(), stamp: l.options.Watch, streams: streams}
	n, err := list(p, l.view, pages(ctx, l.fetch, l.options.Limit, &more))
	if err != nil {
		return err
	}
	switch {
	case n == 0 && format != formatJSON && format != formatYAML && format != formatCSV && !l.options.Watch:
		fmt.Fprintf(streams.ErrOut, "No %ss found.\n", l.view.noun)
	case more && !l.options.Watch:
		fmt.Fprintf(streams.ErrOut, "These are the first %d %ss; --limit 0 shows all.\n", n, l.view.noun)
	}
	return nil
}

// watch shows the list until it is interrupted, which is how it is meant to end. Once it has worked,
// the database may come and go.
func (l lister[T]) watch(ctx context.Context) error {
	redraw := l.streams.outTTY && l.options.Format != formatLines
	format := l.options.Format
	if !redraw && format == formatAuto {
		format = formatLines
	}
	ticker := time.NewTicker(l.options.Interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		streams := *l.streams
		var frame bytes.Buffer
		streams.Out = &frame
		if err := l.once(ctx, &streams, format); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			p := explain(err)
			if first || p.code != exitConnect {
				return err
			}
			problems := *l.streams
			if redraw {
				frame.Reset()
				problems.ErrOut = &frame
			}
			writeProblem(&problems, "limitctl "+l.command, p)
		}
		var err error
		if redraw {
			if frame.Len() == 0 {
				fmt.Fprintf(&frame, "No %ss.\n", l.view.noun)
			}
			err = l.draw(frame.String())
		} else {
			_, err = l.streams.Out.Write(frame.Bytes())
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// draw writes a frame over the last one. It clears what is left of each line instead of the whole
// screen first, which would flicker, and stops at the bottom, below which the terminal would scroll.
func (l lister[T]) draw(frame string) error {
	_, height := l.streams.size()
	lines := strings.Split(strings.TrimSuffix(frame, "\n"), "\n")
	head := fmt.Sprintf("limitctl %s, every %s, %s", l.command, formatDuration(l.options.Interval), l.now().Format(time.TimeOnly))
	lines = append([]string{head, ""}, lines...)
	if len(lines) > height-1 && height > 4 {
		hidden := len(lines) - (height - 2)
		lines = append(lines[:height-2], fmt.Sprintf("(%d more lines)", hidden))
	}
	_, err := fmt.Fprint(l.streams.Out, "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[K\n\x1b[J")
	return err
}
