package cli

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

var limitView = view[pgclient.LimitRow]{
	noun: "limit",
	columns: []column[pgclient.LimitRow]{
		{name: "tenant", value: func(r pgclient.LimitRow) any { return r.Tenant }, show: ifAny},
		{name: "limit_name", head: "LIMIT", value: func(r pgclient.LimitRow) any { return r.Limit }},
		{name: "max_hits", value: func(r pgclient.LimitRow) any { return r.MaxHits }},
		{name: "per", value: func(r pgclient.LimitRow) any { return windowOf(r.Per, r.Algorithm) }},
		{name: "algorithm", value: func(r pgclient.LimitRow) any { return string(r.Algorithm) }},
		{name: "burst", value: func(r pgclient.LimitRow) any { return r.Burst }, show: ifAny},
		{name: "durable", value: func(r pgclient.LimitRow) any { return r.Durable }, show: wide},
		{name: "mode", value: func(r pgclient.LimitRow) any { return string(r.Mode) }},
		{name: "on_outage", value: func(r pgclient.LimitRow) any { return string(r.OnOutage) }},
		{name: "on_lapse", value: func(r pgclient.LimitRow) any { return string(r.OnLapse) }, show: wide},
		{name: "limit_version", head: "VERSION", value: func(r pgclient.LimitRow) any { return r.LimitVersion }, show: wide},
		{name: "updated_at", head: "UPDATED", value: func(r pgclient.LimitRow) any { return r.UpdatedAt }},
		{name: "updated_by", value: func(r pgclient.LimitRow) any { return r.UpdatedBy }, show: wide},
		{name: "shadow_refused", value: func(r pgclient.LimitRow) any { return r.ShadowRefused }, show: ifAny},
		{name: "time_zone", value: func(r pgclient.LimitRow) any { return r.TimeZone }, show: ifAny},
		{name: "worst_burst", value: func(r pgclient.LimitRow) any { return worstBurst(r.Algorithm, r.MaxHits, r.Burst) }},
	},
	name: func(r pgclient.LimitRow) string { return printable(r.Limit) },
}

// The words that set_limit and set_endpoint take.
const (
	modeHelp     = "what its refusals do"
	onLapseHelp  = "what becomes of holds that nobody settles (default keep: they stay charged)"
	onOutageHelp = "what callers should do while the database is away (default allow)"
)

func newLimitCmd(f *Factory) *cobra.Command {
	cmd := nounCmd("limit", "Show and change limits", `
A limit says how many hits each subject has in a window. A row of the empty tenant is for every tenant
that has no row of its own. Changes take effect with the next hit.`)
	cmd.AddCommand(newLimitListCmd(f, nil), newLimitShowCmd(f, nil), newLimitSetCmd(f, nil), newLimitDropCmd(f, nil), newLimitExplainCmd(f, nil), newLimitInstallCmd(f, nil), newOverrideCmd(f))
	return cmd
}

type limitListOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	LimitName string
	Tenant    *string
	listOptions
}

func newLimitListCmd(f *Factory, runF func(context.Context, *limitListOptions) error) *cobra.Command {
	o := &limitListOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:     "list [<limit>] [flags]",
		Aliases: []string{"ls"},
		Short:   "List limits, or the rows that tenants have for one",
		Long:    "List limits. With a name, list the rows of that limit: the common one, and those of tenants.",
		Example: `  limitctl limit list

  # Keep a copy of all limits
  limitctl limit list --limit 0 -o yaml > limits.yaml`,
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
			return limitListRun(cmd.Context(), o)
		},
	}
	tenantFilterVar(cmd.Flags(), &o.Tenant)
	listFlags(cmd, &o.listOptions, limitView)
	return cmd
}

func limitListRun(ctx context.Context, o *limitListOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return lister[pgclient.LimitRow]{
		command: "limit list",
		fetch: func(ctx context.Context, last *pgclient.LimitRow, n int) ([]pgclient.LimitRow, error) {
			p := pgclient.ListLimitsParams{Limit: o.LimitName, MaxRows: n, Tenant: o.Tenant}
			if last != nil {
				p.After = last.Cursor
			}
			return client.ListLimits(ctx, p)
		},
		now:     o.Now,
		options: o.listOptions,
		streams: o.IO,
		view:    limitView,
	}.run(ctx)
}

type limitShowOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format    string
	LimitName string
	Tenant    string
}

func newLimitShowCmd(f *Factory, runF func(context.Context, *limitShowOptions) error) *cobra.Command {
	o := &limitShowOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "show <limit> [flags]",
		Short: "Show one limit",
		Long:  "Show the row of a limit: the common one, or with --tenant the tenant's own.",
		Example: `  limitctl limit show login_attempt

  limitctl limit show api --tenant acme -o json`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitShowRun(cmd.Context(), o)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	outputVar(cmd, &o.Format, limitView)
	return cmd
}

func limitShowRun(ctx context.Context, o *limitShowOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findLimit(ctx, client, o.LimitName, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noLimit(ctx, client, o.LimitName, o.Tenant)
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, limitView, *row)
}

// findLimit returns nil when the tenant has no such row.
func findLimit(ctx context.Context, client Client, name, tenant string) (*pgclient.LimitRow, error) {
	if name == "" {
		return nil, blankName() // as a filter it would mean any
	}
	rows, err := client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: name, MaxRows: 1, Tenant: &tenant})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

func blankName() error {
	return usageError("the name is empty", "is a variable not set? A name is printable ASCII")
}

// hintNoRow tells who gave a limit a block or an override that no row has its name, as when it is mistyped. It is no
// refusal, for callers may bring the limit; and what was done is done, so trouble with the look is not told.
func hintNoRow(ctx context.Context, client Client, streams *IOStreams, name, tenant string) {
	for _, t := range []string{tenant, ""} {
		if row, err := findLimit(ctx, client, name, t); err != nil || row != nil {
			return
		}
	}
	line(streams.ErrOut, "HINT:", "no row is named "+quote(name)+", so this is for calls that bring max_hits and per; limitctl limit list shows the rows")
}

// noLimit says that there is no such row, and which tenants have one.
func noLimit(ctx context.Context, client Client, name, tenant string) error {
	p := &problem{
		message: "there is no limit " + quote(name) + ofTenant(tenant),
		hint:    "limitctl limit list shows what there is, limitctl limit set " + name + " --max-hits 100 --per 1m makes it",
	}
	rows, err := client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: name, MaxRows: 5})
	if err != nil || len(rows) == 0 {
		return p
	}
	tenants := make([]string, 0, len(rows))
	for _, r := range rows {
		tenants = append(tenants, quote(r.Tenant))
	}
	p.detail = "Tenants that have one: " + strings.Join(tenants, ", ")
	p.hint = "name the tenant: --tenant " + rows[0].Tenant
	if rows[0].Tenant == "" {
		p.hint = "leave --tenant out for the common one"
	}
	return p
}

func ofTenant(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " of tenant " + quote(tenant)
}

type limitSetOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Algorithm string // "" for the words: as it is
	Burst     change[int64]
	Carry     string // "" for keep
	Durable   *bool
	DryRun    bool
	Format    string
	LimitName string
	MaxHits   *int64
	Mode      string
	OnLapse   string
	OnOutage  string
	Per       *window
	Tenant    string
	TimeZone  change[string]
}

// limitSet is the answer of set_limit.
type limitSet struct {
	before  *pgclient.LimitRow // nil: it is new
	dryRun  bool
	limit   pgclient.SetLimitParams
	same    bool   // as before, so nothing was written
	version *int64 // the new one, or that of before; nil for --dry-run
}

var limitSetView = view[limitSet]{
	noun: "limit",
	columns: []column[limitSet]{
		{name: "tenant", value: func(r limitSet) any { return r.limit.Tenant }},
		{name: "limit_name", value: func(r limitSet) any { return r.limit.Limit }},
		{name: "max_hits", value: func(r limitSet) any { return r.limit.MaxHits }},
		{name: "per", value: func(r limitSet) any { return windowOf(r.limit.Per, r.limit.Algorithm) }},
		{name: "algorithm", value: func(r limitSet) any { return string(r.limit.Algorithm) }},
		{name: "burst", value: func(r limitSet) any { return r.limit.Burst }},
		{name: "mode", value: func(r limitSet) any { return string(r.limit.Mode) }},
		{name: "on_outage", value: func(r limitSet) any { return string(r.limit.OnOutage) }},
		{name: "on_lapse", value: func(r limitSet) any { return string(r.limit.OnLapse) }},
		{name: "limit_version", value: func(r limitSet) any { return r.version }},
		{name: "dry_run", value: func(r limitSet) any { return r.dryRun }},
		{name: "durable", value: func(r limitSet) any { return r.limit.Durable }},
		{name: "time_zone", value: func(r limitSet) any { return r.limit.TimeZone }},
		{name: "worst_burst", value: func(r limitSet) any { return worstBurst(r.limit.Algorithm, r.limit.MaxHits, r.limit.Burst) }},
		{name: "carry", value: func(r limitSet) any { return string(r.limit.Carry) }},
	},
	name: func(r limitSet) string { return printable(r.limit.Limit) },
	sentence: func(r limitSet) string {
		what := fmt.Sprintf("limit %s%s", printable(r.limit.Limit), ofTenant(r.limit.Tenant))
		is := plural(r.limit.MaxHits, "hit") + " per " + formatWindow(r.limit.Per, r.limit.Algorithm) + counting(r.limit)
		mode := func(m pgclient.Mode) string {
			if m == "" || m == pgclient.ModeEnforce && (r.before == nil || r.before.Mode == m) {
				return ""
			}
			return ", mode " + string(m)
		}
		is += mode(r.limit.Mode)
		var text string
		switch {
		case r.same:
			return "Nothing to change: " + what + " is " + is + "."
		case r.dryRun && r.before == nil:
			text = "Would make " + what + ": " + is
		case r.dryRun:
			text = "Would change " + what + " to " + is
		case r.before == nil:
			text = "Made " + what + ": " + is
		default:
			text = "Changed " + what + " to " + is
		}
		if r.before != nil {
			was := ""
			if r.before.Mode != r.limit.Mode {
				was = ", mode " + string(r.before.Mode)
			}
			text += fmt.Sprintf(" (was %d per %s%s)", r.before.MaxHits, formatWindow(r.before.Per, r.before.Algorithm), counting(limitOf(*r.before))+was)
		}
		switch {
		case r.before == nil:
		case r.limit.Carry == pgclient.CarryReset:
			text += "; what is used is nothing"
		case r.limit.Carry == pgclient.CarryProportional:
			text += "; what is used goes with it in proportion"
		}
		return text + "." + sentenceOfBurst(r)
	},
}

// counting says how a limit counts, where that is not in the usual way.
func counting(l pgclient.SetLimitParams) (text string) {
	switch l.Algorithm {
	case pgclient.AlgorithmFixedWindow, "":
	case pgclient.AlgorithmCalendar:
		zone := l.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		text = " of the calendar (" + printable(zone) + ")"
	default:
		text = " by " + printable(string(l.Algorithm))
	}
	if l.Burst != nil {
		text += fmt.Sprintf(", burst %d", *l.Burst)
	}
	if l.Durable {
		text += ", durable"
	}
	return text
}

// worstBurst is how many hits a limit can allow within any span as long as its window: see the table in docs/sql.md.
func worstBurst(algorithm pgclient.Algorithm, maxHits int64, burst *int64) int64 {
	more := maxHits
	switch {
	case maxHits == 0:
		return 0
	case algorithm == pgclient.AlgorithmTokenBucket && burst != nil:
		more = *burst
	case algorithm == pgclient.AlgorithmSlidingWindow:
		more-- // less than twice as many
	}
	if maxHits > math.MaxInt64-more {
		return math.MaxInt64
	}
	return maxHits + more
}

// sentenceOfBurst is empty where it is nothing, or as it was.
func sentenceOfBurst(r limitSet) string {
	sentence := func(l pgclient.SetLimitParams) string {
		if l.MaxHits == 0 {
			return ""
		}
		return fmt.Sprintf(" Worst burst: %d within any %s.", worstBurst(l.Algorithm, l.MaxHits, l.Burst), formatWindow(l.Per, l.Algorithm))
	}
	now := sentence(r.limit)
	if r.before != nil && sentence(limitOf(*r.before)) == now {
		return ""
	}
	return now
}

// window is the length of a window that is a duration for all but the calendar, whose month has none.
type window struct {
	per  time.Duration
	unit string // "month" or "year"; "" for a duration
}

// windowOf is a value of a column: a duration, or the name of a month or a year.
func windowOf(per time.Duration, algorithm pgclient.Algorithm) any {
	if w := calendarUnit(per, algorithm); w != "" {
		return w
	}
	return per
}

func calendarUnit(per time.Duration, algorithm pgclient.Algorithm) string {
	switch {
	case algorithm != pgclient.AlgorithmCalendar:
	case per == pgclient.CalendarMonth:
		return "month"
	case per == pgclient.CalendarYear:
		return "year"
	}
	return ""
}

func formatWindow(per time.Duration, algorithm pgclient.Algorithm) string {
	if unit := calendarUnit(per, algorithm); unit != "" {
		return unit
	}
	return formatDuration(per)
}

// parseWindow reads a duration, and what a window of the calendar is called.
func parseWindow(s string) (window, error) {
	switch word := strings.ToLower(strings.TrimSpace(s)); strings.TrimSpace(strings.TrimPrefix(word, "1")) {
	case "hour":
		return window{per: time.Hour}, nil
	case "day":
		return window{per: day}, nil
	case "week":
		return window{per: 7 * day}, nil
	case "month", "mon", "mo":
		return window{per: pgclient.CalendarMonth, unit: "month"}, nil
	case "year":
		return window{per: pgclient.CalendarYear, unit: "year"}, nil
	}
	d, err := parseDuration(s)
	return window{per: d}, err
}

// windowFlag is --per. A month goes with the calendar alone, which the flags say in any order.
type windowFlag struct{ w **window }

func (f windowFlag) Set(s string) error {
	w, err := parseWindow(s)
	if err == nil {
		*f.w = &w
	}
	return err
}

func (f windowFlag) String() string {
	if f.w == nil || *f.w == nil {
		return ""
	}
	if (*f.w).unit != "" {
		return (*f.w).unit
	}
	return formatDuration((*f.w).per)
}
func (f windowFlag) Type() string { return "duration" }

// algorithms are what --algorithm may be.
var algorithms = []string{
	string(pgclient.AlgorithmFixedWindow), string(pgclient.AlgorithmSlidingWindow),
	string(pgclient.AlgorithmTokenBucket), string(pgclient.AlgorithmCalendar),
}

func newLimitSetCmd(f *Factory, runF func(context.Context, *limitSetOptions) error) *cobra.Command {
	o := &limitSetOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	var zone string
	var durable bool
	cmd := &cobra.Command{
		Use:   "set <limit> [flags]",
		Short: "Make a limit, or change what the flags name",
		Long: `Make a limit, or change what the flags name and keep the rest; where that changes nothing, nothing is
written. A new one needs --max-hits and --per.

--max-hits 0 is closed: every hit is refused. What is counted already stays counted under another --per or
--algorithm. How it counts, and its worst burst:
  fixed_window    in windows that begin with a subject's first hit; worst burst: twice --max-hits within
                  any --per, around the end of a window
  sliding_window  in such windows, and of the one before what is still within --per; at once --max-hits,
                  within any --per less than twice as many
  token_bucket    what a bucket of --burst lacks (default --max-hits), filled by --max-hits in --per; at
                  once --burst, within any --per --burst and --max-hits
  calendar        in hours, days, weeks, months or years of --time-zone (--per month); worst burst:
                  twice --max-hits, around the end of one
A --durable limit's counts survive a crash of the server, and each hit waits for the disk.

--mode shadow allows what would be refused and counts it, to try a limit out: limit show adds it up,
counter list says whose it is. --mode off allows everything and counts nothing.`,
		Example: `  # Five failed sign-ins in a quarter of an hour
  limitctl limit set login_attempt --max-hits 5 --per 15m

  # More for one tenant; look at it first
  limitctl limit set api --tenant acme --max-hits 5000 --per 1m --dry-run

  # 100 a second, 500 at once
  limitctl limit set api --max-hits 100 --per 1s --algorithm token_bucket --burst 500

  # What a customer has paid for, by his calendar
  limitctl limit set rows --max-hits 90000 --per month --algorithm calendar --time-zone Europe/Berlin --durable

  # Twice as much; who has used half of it has used half of it
  limitctl limit set api --max-hits 200 --carry proportional

  # Everybody begins anew
  limitctl limit set api --carry reset

  # Whom would this refuse?
  limitctl limit set api --max-hits 50 --mode shadow`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.LimitName = args[0]
			if cmd.Flags().Changed("durable") {
				o.Durable = &durable
			}
			if cmd.Flags().Changed("time-zone") {
				o.TimeZone = change[string]{given: true}
				if zone != "none" && zone != "" {
					o.TimeZone.value = &zone
				}
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitSetRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.Var(countFlag{&o.MaxHits}, "max-hits", "hits allowed in a window; 0 refuses all")
	flags.Var(windowFlag{&o.Per}, "per", "length of a window, such as 1m or 1d12h; of the calendar month and year too")
	enumVar(cmd, flags, &o.Algorithm, "algorithm", "", "", "how it counts (default fixed_window)", algorithms...)
	numberOrNoneVar(flags, &o.Burst, "burst", "what a token_bucket holds (default --max-hits)")
	flags.BoolVar(&durable, "durable", false, "counts survive a crash of the server; hits wait for the disk")
	flags.StringVar(&zone, "time-zone", "", "where a calendar window begins, such as Europe/Berlin (default UTC)")
	enumVar(cmd, flags, &o.Carry, "carry", "", "", "what becomes of what is used (default keep)", "keep", "proportional", "reset")
	enumVar(cmd, flags, &o.Mode, "mode", "", "", modeHelp+" (default enforce)", "enforce", "shadow", "off")
	enumVar(cmd, flags, &o.OnLapse, "on-lapse", "", "", onLapseHelp, "keep", "return")
	enumVar(cmd, flags, &o.OnOutage, "on-outage", "", "", onOutageHelp, "allow", "refuse")
	tenantVar(flags, &o.Tenant)
	flags.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	outputVar(cmd, &o.Format, limitSetView)
	return cmd
}

func limitSetRun(ctx context.Context, o *limitSetOptions) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	before, err := findLimit(ctx, client, o.LimitName, o.Tenant)
	if err != nil {
		return err
	}
	set := pgclient.SetLimitParams{Limit: o.LimitName, Tenant: o.Tenant, Algorithm: pgclient.AlgorithmFixedWindow, Mode: pgclient.ModeEnforce, OnOutage: pgclient.OnOutageAllow, OnLapse: pgclient.OnLapseKeep}
	if before != nil {
		set = limitOf(*before)
	} else if o.MaxHits == nil || o.Per == nil {
		return usageError("limit "+quote(o.LimitName)+ofTenant(o.Tenant)+" is new, so it needs --max-hits and --per",
			"limitctl limit set "+o.LimitName+" --max-hits 100 --per 1m")
	}
	was := set
	if o.MaxHits != nil {
		set.MaxHits = *o.MaxHits
	}
	if o.Per != nil {
		set.Per = o.Per.per
	}
	if o.Algorithm != "" && o.Algorithm != string(set.Algorithm) {
		// what belongs to the old one alone goes with it
		set.Algorithm, set.Burst, set.TimeZone = pgclient.Algorithm(o.Algorithm), nil, ""
	}
	set.Burst = o.Burst.or(set.Burst)
	if o.TimeZone.given {
		set.TimeZone = ""
		if o.TimeZone.value != nil {
			set.TimeZone = *o.TimeZone.value
		}
	}
	if o.Durable != nil {
		set.Durable = *o.Durable
	}
	if err := checkCounting(set, o.Per); err != nil {
		return err
	}
	if o.Mode != "" {
		set.Mode = pgclient.Mode(o.Mode)
	}
	if o.OnLapse != "" {
		set.OnLapse = pgclient.OnLapse(o.OnLapse)
	}
	if o.OnOutage != "" {
		set.OnOutage = pgclient.OnOutage(o.OnOutage)
	}

	same := before != nil && reflect.DeepEqual(set, was) && o.Carry != string(pgclient.CarryReset)
	set.Carry = pgclient.CarryKeep
	if o.Carry != "" {
		set.Carry = pgclient.Carry(o.Carry)
	}
	result := limitSet{before: before, dryRun: o.DryRun, limit: set, same: same}
	switch {
	case result.same:
		result.version = &before.LimitVersion
	case !o.DryRun:
		version, err := client.SetLimit(ctx, set)
		if err != nil {
			return err
		}
		result.version = &version
	}
	p := printer{format: o.Format, now: o.Now(), streams: o.IO}
	if result.same {
		sayNothing(p, limitSetView.sentence(result))
	}
	return record(p, limitSetView, result)
}

// limitOf is what writes a limit as it is.
func limitOf(r pgclient.LimitRow) pgclient.SetLimitParams {
	return pgclient.SetLimitParams{
		Limit: r.Limit, MaxHits: r.MaxHits, Per: r.Per, Algorithm: r.Algorithm, Burst: r.Burst, Durable: r.Durable,
		Mode: r.Mode, OnLapse: r.OnLapse, OnOutage: r.OnOutage, Tenant: r.Tenant, TimeZone: r.TimeZone,
	}
}

// checkCounting says which flags do not go together. per is what was typed, nil for nothing.
func checkCounting(l pgclient.SetLimitParams, per *window) error {
	calendar := l.Algorithm == pgclient.AlgorithmCalendar
	switch {
	case l.Burst != nil && l.Algorithm != pgclient.AlgorithmTokenBucket:
		return usageError("--burst goes with --algorithm token_bucket", "leave --burst out, or add --algorithm token_bucket")
	case l.TimeZone != "" && !calendar:
		return usageError("--time-zone goes with --algorithm calendar", "leave --time-zone out, or add --algorithm calendar")
	case per != nil && per.unit != "" && !calendar:
		return usageError("--per "+per.unit+" has no fixed length, so it goes with --algorithm calendar",
			"add --algorithm calendar, or write days: --per 30d")
	case calendar && l.Per != time.Hour && l.Per != day && l.Per != 7*day && l.Per != pgclient.CalendarMonth && l.Per != pgclient.CalendarYear:
		return usageError("--per "+formatDuration(l.Per)+" is no unit of the calendar", "--per is hour, day, week, month or year with --algorithm calendar")
	}
	return nil
}

type dropOptions struct {
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	Name   string
	Tenant string
	consent
}

// dropped is the answer of drop_limit and drop_endpoint.
type dropped struct {
	dropped bool
	name    string
	tenant  string
}

func dropView(noun, column1 string) view[dropped] {
	return view[dropped]{
		noun: noun,
		columns: []column[dropped]{
			{name: "tenant", value: func(r dropped) any { return r.tenant }},
			{name: column1, value: func(r dropped) any { return r.name }},
			{name: "dropped", value: func(r dropped) any { return r.dropped }},
		},
		name: func(r dropped) string { return printable(r.name) },
		sentence: func(r dropped) string {
			return fmt.Sprintf("Dropped %s %s%s.", noun, printable(r.name), ofTenant(r.tenant))
		},
	}
}

func newLimitDropCmd(f *Factory, runF func(context.Context, *dropOptions) error) *cobra.Command {
	o := &dropOptions{Client: f.Client, IO: f.IO, Now: f.Now}
	v := dropView("limit", "limit_name")
	cmd := &cobra.Command{
		Use:   "drop <limit> [flags]",
		Short: "Drop the row of a limit",
		Long: `Drop the row of a limit: the common one, or with --tenant the tenant's own, who then has the common one
again. Calls that give no limit themselves fail when no row is left.`,
		Example: `  # Back to the common limit
  limitctl limit drop api --tenant acme

  limitctl limit drop old_api --yes`,
		Args:              exactArgs("<limit>"),
		ValidArgsFunction: completeArgs(f, 1, limitNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.consent.check(o.IO); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return limitDropRun(cmd.Context(), o, v)
		},
	}
	tenantVar(cmd.Flags(), &o.Tenant)
	o.consent.flags(cmd.Flags())
	outputVar(cmd, &o.Format, v)
	return cmd
}

func limitDropRun(ctx context.Context, o *dropOptions, v view[dropped]) error {
	client, err := o.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	row, err := findLimit(ctx, client, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if row == nil {
		return noLimit(ctx, client, o.Name, o.Tenant)
	}
	what := fmt.Sprintf("limit %s%s, %s per %s", printable(o.Name), ofTenant(o.Tenant), plural(row.MaxHits, "hit"), formatWindow(row.Per, row.Algorithm))
	if o.DryRun {
		fmt.Fprintf(o.IO.Out, "Would drop %s.\n", what)
		return nil
	}
	if err := o.ask(o.IO, "Drop "+what+"?"); err != nil {
		return err
	}
	was, err := client.DropLimit(ctx, o.Name, o.Tenant)
	if err != nil {
		return err
	}
	if !was {
		return noLimit(ctx, client, o.Name, o.Tenant) // somebody else was faster
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, v, dropped{dropped: was, name: o.Name, tenant: o.Tenant})
}
