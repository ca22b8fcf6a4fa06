package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/internal/eventlog"
	"github.com/pglimit/pglimit/pgclient"
)

// simulateBatch is about how many events one call decides: so many that the call is no burden, so few that it ends long
// before a time-out and holds nothing for long.
const simulateBatch = 2000

// newLimitName is the limit of a simulation that names none. Nobody has a row of it.
const newLimitName = "limitctl simulate"

type simulateOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Algorithm string
	AtMost    *float64 // a share
	Burst     *int64
	Format    string
	Key       string
	LimitName string
	Log       string
	LogFormat string
	MaxHits   *int64
	Per       *window
	Tenant    string
	TimeZone  string
	Top       int
}

// simulation is what a limit would have done to a log.
type simulation struct {
	limit   pgclient.SimulateParams // without events
	atMost  *float64
	events  int
	from    time.Time
	until   time.Time
	first   time.Time // refusal; zero for none
	last    time.Time
	refused int
	skipped int // lines that the format does not know
	subject int // subjects
	touched int // subjects with a refusal
	when    []string
	who     []string
}

var simulationView = view[simulation]{
	noun: "simulation",
	columns: []column[simulation]{
		{name: "max_hits", value: func(s simulation) any { return s.limit.MaxHits }, show: ifAny},
		{name: "events", value: func(s simulation) any { return int64(s.events) }},
		{name: "subjects", value: func(s simulation) any { return int64(s.subject) }},
		{name: "from", value: func(s simulation) any { return timeOrNone(s.from) }},
		{name: "until", value: func(s simulation) any { return timeOrNone(s.until) }},
		{name: "malformed_lines", value: func(s simulation) any { return int64(s.skipped) }},
		{name: "refused", value: func(s simulation) any { return int64(s.refused) }},
		{name: "refused_percent", value: func(s simulation) any { return percent(s.refused, s.events) }},
		{name: "refused_subjects", value: func(s simulation) any { return int64(s.touched) }},
		{name: "first_refusal", value: func(s simulation) any { return timeOrNone(s.first) }},
		{name: "last_refusal", value: func(s simulation) any { return timeOrNone(s.last) }},
		{name: "when", value: func(s simulation) any { return s.when }},
		{name: "who", value: func(s simulation) any { return s.who }},
	},
}

// timeOrNone is a time of a log, which is too long ago to be told relative to now.
func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return timestamp(t)
}

func percent(part, whole int) json.RawMessage {
	if whole == 0 {
		return json.RawMessage("0")
	}
	return json.RawMessage(strconv.FormatFloat(math.Round(float64(part)/float64(whole)*1e4)/100, 'f', -1, 64))
}

// percentFlag is a share: 1%, 0.5%.
type percentFlag struct{ share **float64 }

func (f percentFlag) Set(s string) error {
	p, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "%")), 64)
	if err != nil || !(p >= 0 && p <= 100) {
		return errors.New("it is a percentage from 0% to 100%")
	}
	p /= 100
	*f.share = &p
	return nil
}

func (f percentFlag) String() string {
	if f.share == nil || *f.share == nil {
		return ""
	}
	return strconv.FormatFloat(**f.share*100, 'f', -1, 64) + "%"
}
func (f percentFlag) Type() string { return "percent" }

func newSimulateCmd(f *Factory, runF func(context.Context, *simulateOptions) error) *cobra.Command {
	o := &simulateOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "simulate <log> [flags]",
		Short: "Replay a recorded log through a limit, and say what it would have refused",
		Long: `Replay a recorded log through a limit, by the log's own clock and the code that decides hits, and say what
it would have refused, when, and of whom. Nothing of it stays in the database, and no hit waits for it.

The log is a file, or - for stdin:
  sshd    syslog; a failed password is an event of its address, or with --key user of its user
  access  common or combined log format, likewise
  csv     time, key, cost; a heading may name them in another order
  jsonl   objects with time, key and cost
Times are RFC 3339 or seconds since 1970, without a zone UTC; a cost that is missing is 1.

The limit is that of --limit-name, with what other flags change of it, or one of --max-hits and --per.
--at-most looks for the least --max-hits that refuses no larger share of the events. A limit's overrides
and mode play no part. Raise --timeout for a subject with more than some 20,000 events.`,
		Example: `  # Whom would five failures in a quarter of an hour have stopped?
  limitctl simulate /var/log/auth.log --max-hits 5 --per 15m

  # Would half of it do?
  limitctl simulate access.log --limit-name api --max-hits 50

  # Which limit would have refused one request in a hundred?
  limitctl simulate access.log --per 1m --algorithm sliding_window --at-most 1%`,
		Args: exactArgs("<log>"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Log = args[0]
			if err := o.check(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return simulateRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	enumVar(cmd, flags, &o.Algorithm, "algorithm", "", "", "how it counts", algorithms...)
	flags.Var(percentFlag{&o.AtMost}, "at-most", "look for the least --max-hits that refuses at most so much, such as 1%")
	flags.Var(countFlag{&o.Burst}, "burst", "what a token_bucket holds")
	enumVar(cmd, flags, &o.Key, "key", "", string(eventlog.KeyAddress), "whom sshd and access logs are counted by", string(eventlog.KeyAddress), string(eventlog.KeyUser))
	flags.StringVar(&o.LimitName, "limit-name", "", "the limit whose row gives what no flag does")
	completeFlag(cmd, "limit-name", f, limitNames)
	enumVar(cmd, flags, &o.LogFormat, "log-format", "", string(eventlog.FormatAuto), "what the log is", eventlog.Formats()...)
	flags.Var(countFlag{&o.MaxHits}, "max-hits", "hits allowed in a window")
	flags.Var(windowFlag{&o.Per}, "per", "length of a window, such as 15m")
	tenantVar(flags, &o.Tenant)
	flags.StringVar(&o.TimeZone, "time-zone", "", "where a calendar window begins")
	flags.IntVar(&o.Top, "top", 10, "how many subjects and hours to name")
	outputVar(cmd, &o.Format, simulationView)
	return cmd
}

func (o *simulateOptions) check() error {
	switch {
	case o.LimitName == "" && o.Per == nil:
		return usageError("nothing says which limit: --limit-name, or --max-hits and --per", "limitctl simulate "+printable(o.Log)+" --max-hits 5 --per 15m")
	case o.LimitName == "" && o.MaxHits == nil && o.AtMost == nil:
		return usageError("nothing says how many hits: --max-hits, or --at-most to look for it", "limitctl simulate "+printable(o.Log)+" --per "+windowFlag{&o.Per}.String()+" --at-most 1%")
	case o.MaxHits != nil && o.AtMost != nil:
		return usageError("--at-most looks for --max-hits, so only one of them goes", "leave one out")
	case o.Top < 0:
		return usageError("--top cannot be negative", "--top 0 names nobody")
	case o.Per != nil && o.Per.unit != "" && o.Algorithm != string(pgclient.AlgorithmCalendar):
		return usageError("--per "+o.Per.unit+" goes with --algorithm calendar", "add --algorithm calendar")
	}
	return nil
}

func simulateRun(ctx context.Context, o *simulateOptions) error {
	log, err := o.read()
	if err != nil {
		return err
	}
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()

	limit := pgclient.SimulateParams{
		Algorithm: pgclient.Algorithm(o.Algorithm), Burst: o.Burst, Limit: cmp.Or(o.LimitName, newLimitName), MaxHits: o.MaxHits,
		Tenant: o.Tenant, TimeZone: o.TimeZone,
	}
	if o.Per != nil {
		limit.Per = &o.Per.per
	}
	replay := replayer{client: client, limit: limit, streams: o.IO, subjects: log.BySubject()}
	if o.AtMost != nil {
		if err := replay.search(ctx, *o.AtMost, len(log.Events)); err != nil {
			return err
		}
	}
	s, err := replay.report(ctx, o.Top)
	if err != nil {
		return err
	}
	s.atMost, s.skipped = o.AtMost, log.Malformed
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, simulationView, s)
}

// read reads the log, and says on ErrOut what it left out.
func (o *simulateOptions) read() (eventlog.Log, error) {
	var in io.Reader = o.IO.In
	if o.Log != "-" {
		file, err := os.Open(o.Log)
		if err != nil {
			return eventlog.Log{}, &problem{message: "cannot read the log: " + err.Error(), hint: "- reads stdin"}
		}
		defer file.Close()
		in = file
	}
	log, err := eventlog.Read(in, eventlog.Options{Format: eventlog.Format(o.LogFormat), Key: eventlog.Key(o.Key), Now: o.Now()})
	switch {
	case err != nil:
		return log, &problem{message: "cannot read the log: " + err.Error(), hint: "- reads stdin"}
	case len(log.Events) == 0:
		return log, &problem{
			message: fmt.Sprintf("no event in %s", plural(int64(log.Lines), "line")),
			hint:    "--log-format says what it is: " + strings.Join(eventlog.Formats()[1:], ", "),
		}
	case log.Malformed > 0:
		fmt.Fprintf(o.IO.ErrOut, "Left out %s, the first is line %d.\n", plural(int64(log.Malformed), "malformed line"), log.FirstBad)
	}
	return log, nil
}

// replayer plays a log, subject by subject, for those do not matter to each other.
type replayer struct {
	client   Client
	limit    pgclient.SimulateParams
	streams  *IOStreams
	subjects [][]eventlog.Event
}

// run decides all events of some subjects, and calls fn with each answer until it returns false.
func (r *replayer) run(ctx context.Context, what string, subjects [][]eventlog.Event, fn func(eventlog.Event, pgclient.Simulated) bool) error {
	total, done := 0, 0
	for _, events := range subjects {
		total += len(events)
	}
	bar := progress{streams: r.streams, what: what}
	defer bar.clear()
	for len(subjects) > 0 {
		var batch []eventlog.Event
		n := 0
		for n < len(subjects) && (n == 0 || len(batch)+len(subjects[n]) <= simulateBatch) {
			batch = append(batch, subjects[n]...)
			n++
		}
		subjects = subjects[n:]
		p := r.limit
		p.Events = make([]pgclient.Event, len(batch))
		for i, e := range batch {
			p.Events[i] = pgclient.Event{At: e.At, Cost: e.Cost, Subject: e.Key}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		answers, err := r.client.Simulate(ctx, p)
		if err != nil {
			return err
		}
		if len(answers) != len(batch) {
			return fmt.Errorf("simulate answered %d of %d events", len(answers), len(batch))
		}
		for i, a := range answers {
			if !fn(batch[i], a) {
				return nil
			}
		}
		done += len(batch)
		bar.show(done, total)
	}
	return nil
}

// search sets the least MaxHits that refuses at most a share of the events. A subject whose costs are together no more than
// it is never refused, so it is not asked about, unless a burst bounds it too.
func (r *replayer) search(ctx context.Context, share float64, events int) error {
	budget := int(math.Floor(share * float64(events)))
	sums := make([]int64, len(r.subjects))
	var most int64
	for i, subject := range r.subjects {
		for _, e := range subject {
			if sums[i] > math.MaxInt64-e.Cost {
				sums[i] = math.MaxInt64
			} else {
				sums[i] += e.Cost
			}
		}
		most = max(most, sums[i])
	}
	refuses := func(maxHits int64) (bool, error) {
		var busy [][]eventlog.Event
		for i, subject := range r.subjects {
			if sums[i] > maxHits || r.limit.Burst != nil || r.limit.Limit != newLimitName {
				busy = append(busy, subject)
			}
		}
		r.limit.MaxHits = &maxHits
		refused := 0
		err := r.run(ctx, fmt.Sprintf("trying %d", maxHits), busy, func(_ eventlog.Event, a pgclient.Simulated) bool {
			if !a.Allowed {
				refused++
			}
			return refused <= budget
		})
		return refused > budget, err
	}
	low, high := int64(0), most // low refuses too much, or is 0
	if tooMuch, err := refuses(high); err != nil {
		return err
	} else if tooMuch {
		return &problem{
			message: fmt.Sprintf("a limit of %d hits, as many as anybody made, refuses more than %s too", high, percentFlag{ptr(&share)}),
			hint:    "it is the burst that refuses: raise --burst, or leave it out",
		}
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		tooMuch, err := refuses(middle)
		switch {
		case err != nil:
			return err
		case tooMuch:
			low = middle
		default:
			high = middle
		}
	}
	r.limit.MaxHits = &high
	return nil
}

func ptr[T any](v T) *T { return &v }

// tally counts refusals of somebody, or of a time.
type tally struct {
	events, refused int
	name            string
}

// report plays the whole log.
func (r *replayer) report(ctx context.Context, top int) (simulation, error) {
	s := simulation{subject: len(r.subjects)}
	for _, events := range r.subjects {
		s.events += len(events)
		if first := events[0].At; s.from.IsZero() || first.Before(s.from) {
			s.from = first
		}
		if last := events[len(events)-1].At; last.After(s.until) {
			s.until = last
		}
	}
	unit, layout := time.Hour, "2006-01-02 15:00Z"
	if s.until.Sub(s.from) > 14*day {
		unit, layout = day, time.DateOnly
	}
	times, who := map[string]*tally{}, map[string]*tally{}
	count := func(in map[string]*tally, name string, refused bool) {
		t := in[name]
		if t == nil {
			t = &tally{name: name}
			in[name] = t
		}
		t.events++
		if refused {
			t.refused++
		}
	}
	err := r.run(ctx, "simulating", r.subjects, func(e eventlog.Event, a pgclient.Simulated) bool {
		count(times, e.At.UTC().Truncate(unit).Format(layout), !a.Allowed)
		count(who, e.Key, !a.Allowed)
		if !a.Allowed {
			s.refused++
			if s.first.IsZero() || e.At.Before(s.first) {
				s.first = e.At
			}
			if e.At.After(s.last) {
				s.last = e.At
			}
		}
		return true
	})
	for _, t := range who {
		if t.refused > 0 {
			s.touched++
		}
	}
	s.limit, s.when, s.who = r.limit, worst(times, top), worst(who, top)
	return s, err
}

// worst names those with most refusals.
func worst(in map[string]*tally, top int) []string {
	var all []*tally
	for _, t := range in {
		if t.refused > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *tally) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.name, b.name))
	})
	var lines []string
	for _, t := range all[:min(top, len(all))] {
		lines = append(lines, fmt.Sprintf("%s: %d of %d refused", t.name, t.refused, t.events))
	}
	return lines
}

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	streams *IOStreams
	what    string
	width   int // of what is shown
}

func (p *progress) show(done, total int) {
	if !p.streams.errTTY || total == 0 {
		return
	}
	const cells = 30
	full := cells * done / total
	text := fmt.Sprintf("%s [%s%s] %d%%", p.what, strings.Repeat("#", full), strings.Repeat(".", cells-full), 100*done/total)
	fmt.Fprintf(p.streams.ErrOut, "\r%-*s", p.width, text)
	p.width = len(text)
}

func (p *progress) clear() {
	if p.width > 0 {
		fmt.Fprintf(p.streams.ErrOut, "\r%*s\r", p.width, "")
	}
}
