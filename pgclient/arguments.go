package pgclient

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

// D returns a pointer to a duration, for arguments that may be left out: Per: pgclient.D(time.Minute).
func D(d time.Duration) *time.Duration { return &d }

// N returns a pointer to a number, for arguments that may be left out: MaxHits: pgclient.N(5). Left out and zero differ:
// a limit or a cap of zero is closed.
func N[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32](n T) *int64 {
	v := int64(n)
	return &v
}

// S returns a pointer to a string, for arguments whose empty value means something: Tenant: pgclient.S("").
func S(s string) *string { return &s }

// arguments collects what is sent with a statement, in the order of its parameters, and checks what the server cannot
// refuse well: strings that break the protocol, and durations that must not be taken for "not given". Every other rule
// is the function's, so that there is one place for it. The first fault is kept.
//
// Only types that pgx encodes alike in all its query exec modes are sent: strings, integers, bools and pgtype.Interval,
// each cast in the statement to the type of the parameter.
type arguments struct {
	err    error
	values []any
}

func (a *arguments) add(value any) { a.values = append(a.values, value) }

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// duration adds a duration that must be given.
func (a *arguments) duration(name string, d time.Duration) {
	if d < time.Microsecond {
		a.fail(invalidArgument(fmt.Sprintf("%s of %v", name, d), "it must be at least a microsecond"))
	}
	a.interval(d)
}

func (a *arguments) interval(d time.Duration) {
	a.add(pgtype.Interval{Microseconds: d.Microseconds(), Valid: true})
}

// window adds the length of a window, for a calendar by its name: '1 month' is not '30 days' there.
func (a *arguments) window(name string, d time.Duration, algorithm Algorithm) {
	if algorithm == AlgorithmCalendar {
		switch d {
		case 7 * 24 * time.Hour:
			a.add(pgtype.Interval{Days: 7, Valid: true})
			return
		case CalendarMonth:
			a.add(pgtype.Interval{Months: 1, Valid: true})
			return
		case CalendarYear:
			a.add(pgtype.Interval{Months: 12, Valid: true})
			return
		}
	}
	a.duration(name, d)
}

func (a *arguments) optionalWindow(name string, d *time.Duration, algorithm Algorithm) {
	if d == nil {
		a.add(nil)
		return
	}
	a.window(name, *d, algorithm)
}

func (a *arguments) optionalDuration(name string, d *time.Duration) {
	if d == nil {
		a.add(nil)
		return
	}
	a.duration(name, *d)
}

// optionalTime sends an instant as text, which every exec mode does alike and no session's style or zone changes.
func (a *arguments) optionalTime(name string, t *time.Time) {
	if t == nil {
		a.add(nil)
		return
	}
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		a.fail(invalidArgument(fmt.Sprintf("%s in the year %d", name, y), "it must be in the years 1 to 9999; leave it nil for no bound"))
	}
	a.add(t.UTC().Format(time.RFC3339Nano))
}

// network sends a network as text: without knowing the parameter's type some exec modes could not.
func (a *arguments) network(name string, p netip.Prefix) {
	if !p.IsValid() {
		a.fail(invalidArgument(name+" is no network", `netip.ParsePrefix("203.0.113.0/24") makes one`))
	}
	a.add(p.String())
}

func (a *arguments) optionalNumber(n *int64) {
	if n == nil {
		a.add(nil)
		return
	}
	a.add(*n)
}

// numberOr adds n, or what the function's own default is.
func (a *arguments) numberOr(n *int64, otherwise int64) {
	if n == nil {
		n = &otherwise
	}
	a.add(*n)
}

// optionalText adds text that, left empty, is not given.
func (a *arguments) optionalText(name, s string) {
	if s == "" {
		a.add(nil)
		return
	}
	a.text(name, s)
}

// rows adds the size of a page.
func (a *arguments) rows(n int) {
	if n == 0 {
		n = defaultMaxRows
	}
	if n < 1 || n > math.MaxInt32 {
		a.fail(invalidArgument(fmt.Sprintf("MaxRows of %d", n), "a page has at least one row"))
	}
	a.add(int32(n))
}

func (a *arguments) text(name, s string) {
	if err := checkText(name, s); err != nil {
		a.fail(err)
	}
	a.add(s)
}

// textOr adds s, or when it is empty what the function's own default is.
func (a *arguments) textOr(name, s, otherwise string) {
	if s == "" {
		s = otherwise
	}
	a.text(name, s)
}

// note adds a JSON value as text: pgx would take its bytes for a bytea where it does not know the parameter's type.
func (a *arguments) note(note json.RawMessage) {
	if note == nil {
		a.add(nil)
		return
	}
	if err := checkText("note", string(note)); err != nil {
		a.fail(err)
	} else if !json.Valid(note) {
		a.fail(invalidArgument("note is not JSON", "a note is one JSON value"))
	}
	a.add(string(note))
}

// json adds a list as one text, for lists too are encoded differently by different exec modes.
func (a *arguments) json(list any) {
	text, err := json.Marshal(list)
	if err != nil {
		a.fail(err)
	}
	a.add(string(text))
}

// checkText refuses what the server would answer with a protocol error, or only after the transaction has begun.
func checkText(name, s string) error {
	switch {
	case !utf8.ValidString(s):
		return invalidArgument(name+" is not valid UTF-8", "text must be valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return invalidArgument(name+" contains a NUL byte", "PostgreSQL's text cannot hold one")
	}
	return nil
}

// interval scans an interval as a duration; NULL is zero. Days count 24 hours, as everywhere in pglimit; months, which
// have no length, are refused by every function that takes an interval.
type interval time.Duration

// ScanInterval implements pgtype.IntervalScanner.
func (i *interval) ScanInterval(v pgtype.Interval) error {
	if v.Months != 0 {
		return fmt.Errorf("interval of %d months has no fixed length", v.Months)
	}
	*i = interval(time.Duration(v.Days)*24*time.Hour + time.Duration(v.Microseconds)*time.Microsecond)
	return nil
}

// tenant adds the tenant of a call: its own, else the tenant func's, else none.
func (c *Client) tenant(ctx context.Context, args *arguments, own string) {
	if own != "" {
		c.tenantFilter(ctx, args, &own)
		return
	}
	c.tenantFilter(ctx, args, nil)
}

// tenantOf is the tenant of a call, for one that is made again in another context; nil for the server's setting.
func (c *Client) tenantOf(ctx context.Context, own string) *string {
	switch {
	case own != "":
		return &own
	case c.tenantFunc != nil:
		return S(c.tenantFunc(ctx))
	}
	return nil
}

// tenantFilter is tenant for a list, where the empty tenant differs from none.
func (c *Client) tenantFilter(ctx context.Context, args *arguments, own *string) {
	switch {
	case own != nil:
		args.text("tenant", *own)
	case c.tenantFunc != nil:
		args.text("tenant", c.tenantFunc(ctx))
	default:
		args.add(nil)
	}
}
