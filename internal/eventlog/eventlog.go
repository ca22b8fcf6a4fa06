// Package eventlog reads recorded traffic: access logs, failed passwords of sshd, and lists of events.
package eventlog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is what the lines of a log are.
type Format string

const (
	FormatAuto   Format = "auto"   // what the first line that is an event of any format is
	FormatAccess Format = "access" // common or combined log format
	FormatCSV    Format = "csv"    // time, key, cost; a heading may name them in another order
	FormatJSONL  Format = "jsonl"  // objects with time, key and cost
	FormatSSHD   Format = "sshd"   // syslog; failed passwords are events
)

// Key is what an event is counted by.
type Key string

const (
	KeyAddress Key = "address"
	KeyUser    Key = "user"
)

// Event is what happened once.
type Event struct {
	At   time.Time
	Cost int64
	Key  string

	yearless bool // of a log without years
}

// Log is what was read.
type Log struct {
	Events    []Event // in the order of the log
	Format    Format
	Lines     int
	Malformed int // lines that the format does not know
	FirstBad  int // number of the first of them, from 1
	Other     int // lines that are no event
}

// Options say how a log is to be read.
type Options struct {
	Format Format
	Key    Key       // of sshd and access logs
	Now    time.Time // for logs without a year: they are not of the future
}

// Lines calls fn with every line that is not empty, however long and whatever bytes it holds: those that are no text come
// as question marks.
func Lines(r io.Reader, fn func(number int, line string)) error {
	reader := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := reader.ReadString('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if line != "" {
			fn(number, strings.ToValidUTF8(line, "?"))
		}
		if err == io.EOF {
			return nil
		}
	}
}

// Read reads a whole log.
func Read(r io.Reader, o Options) (Log, error) {
	log := Log{Format: o.Format}
	p := parser{key: o.Key, year: o.Now.Year()}
	err := Lines(r, func(number int, line string) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			return
		}
		log.Lines++
		event, what := p.parse(&log.Format, line)
		switch what {
		case isEvent:
			for ; log.Format == FormatSSHD && event.Cost > 1; event.Cost-- { // so many lines, which syslog made one
				one := event
				one.Cost = 1
				log.Events = append(log.Events, one)
			}
			log.Events = append(log.Events, event)
		case isOther:
			log.Other++
		default:
			if log.Malformed == 0 {
				log.FirstBad = number
			}
			log.Malformed++
		}
	})
	back := 0
	for _, e := range log.Events {
		for e.yearless && e.At.AddDate(-back, 0, -1).After(o.Now) {
			back++
		}
	}
	for i, e := range log.Events {
		if e.yearless {
			log.Events[i].At = e.At.AddDate(-back, 0, 0)
		}
	}
	return log, err
}

type kind int

const (
	isMalformed kind = iota
	isOther
	isEvent
)

// parser holds what a line says about those behind it.
type parser struct {
	columns  map[string]int // of a CSV; nil before its first line
	key      Key
	last     time.Month // of a log without years
	year     int
	yearless bool
}

func (p *parser) parse(format *Format, line string) (Event, kind) {
	switch *format {
	case FormatAccess:
		return p.access(line)
	case FormatCSV:
		return p.csv(line)
	case FormatJSONL:
		return p.jsonl(line)
	case FormatSSHD:
		return p.sshd(line)
	}
	for _, f := range []Format{FormatSSHD, FormatAccess, FormatJSONL, FormatCSV} {
		if event, what := p.parse(&f, line); what != isMalformed {
			*format = f
			return event, what
		}
		p.columns = nil
	}
	return Event{}, isMalformed
}

// Access is a request of an access log.
type Access struct{ Address, User, Time string }

// accessLine is a line in common log format: address, identity, user, [time], "request", status, size. The combined format
// adds referrer and agent; what follows the size is not read, so that a line whose agent was cut off still counts.
// Servers write a quote inside quotes with a backslash before it.
var accessLine = regexp.MustCompile(`^(\S+) \S+ (.*?) ?\[([^\]]+)\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)(?:\s|$)`)

// ParseAccess reads a line in common or combined log format. The time is not looked at.
func ParseAccess(line string) (Access, bool) {
	m := accessLine.FindStringSubmatch(line)
	if m == nil || strings.Contains(m[1], "\x00") {
		return Access{}, false
	}
	return Access{Address: m[1], User: m[2], Time: m[3]}, true
}

func (p *parser) access(line string) (Event, kind) {
	request, ok := ParseAccess(line)
	if !ok {
		return Event{}, isMalformed
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", request.Time)
	if err != nil {
		return Event{}, isMalformed
	}
	key := request.Address
	if p.key == KeyUser {
		if key = request.User; key == "-" {
			return Event{}, isOther
		}
	}
	return event(at, key, 1)
}

var (
	syslogLine = regexp.MustCompile(`^(?:([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|(\d{4}-\d\d-\d\dT\S+)) \S+ sshd(?:-session)?\[\d+\]: (.*)$`)
	repeated   = regexp.MustCompile(`^message repeated (\d+) times: \[ (.*)\]$`)

	// The user is the caller's own text; what sshd says comes behind the last " from ".
	failedPassword = regexp.MustCompile(`^Failed (?:password|keyboard-interactive/pam) for (?:invalid user )?(.*) from (\S+) port \d+(?: ssh2)?$`)
)

func (p *parser) sshd(line string) (Event, kind) {
	m := syslogLine.FindStringSubmatch(line)
	if m == nil {
		return Event{}, isMalformed
	}
	at, err := p.syslogTime(m[1], m[2])
	if err != nil {
		return Event{}, isMalformed
	}
	cost, message := int64(1), m[3]
	if r := repeated.FindStringSubmatch(message); r != nil {
		if cost, err = strconv.ParseInt(r[1], 10, 64); err != nil || cost < 1 || cost > 10000 {
			return Event{}, isMalformed
		}
		message = r[2]
	}
	f := failedPassword.FindStringSubmatch(message)
	if f == nil {
		return Event{}, isOther
	}
	key := f[2]
	if p.key == KeyUser {
		if key = f[1]; strings.TrimSpace(key) == "" {
			return Event{}, isOther
		}
	}
	e, what := event(at, key, cost)
	e.yearless = m[1] != ""
	return e, what
}

// syslogTime reads a time with a year, or without one, taken for UTC: there a January after a December is the next year's.
func (p *parser) syslogTime(short, full string) (time.Time, error) {
	if full != "" {
		return time.Parse(time.RFC3339Nano, full)
	}
	at, err := time.Parse("2006 Jan _2 15:04:05", "2000 "+short) // a leap year
	if err != nil {
		return at, err
	}
	if p.yearless && p.last == time.December && at.Month() == time.January {
		p.year++
	}
	p.yearless, p.last = true, at.Month()
	return time.Date(p.year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC), nil
}

func (p *parser) csv(line string) (Event, kind) {
	fields, err := csv.NewReader(strings.NewReader(line)).Read()
	if err != nil || len(fields) < 2 {
		return Event{}, isMalformed
	}
	if p.columns == nil {
		p.columns = map[string]int{}
		for i, name := range fields {
			p.columns[strings.ToLower(strings.TrimSpace(name))] = i
		}
		_, hasTime := p.columns["time"]
		if _, hasKey := p.columns["key"]; hasTime && hasKey {
			return Event{}, isOther
		}
		p.columns = map[string]int{"time": 0, "key": 1, "cost": 2}
	}
	field := func(name string) string {
		if i, ok := p.columns[name]; ok && i < len(fields) {
			return strings.TrimSpace(fields[i])
		}
		return ""
	}
	at, err := parseTime(field("time"))
	cost := int64(1)
	if text := field("cost"); err == nil && text != "" {
		cost, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return Event{}, isMalformed
	}
	return event(at, field("key"), cost)
}

func (p *parser) jsonl(line string) (Event, kind) {
	var object struct {
		Time json.RawMessage
		Key  *string
		Cost *int64
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&object); err != nil || object.Key == nil {
		return Event{}, isMalformed
	}
	at, err := parseTime(string(bytes.Trim(object.Time, `"`)))
	if err != nil {
		return Event{}, isMalformed
	}
	cost := int64(1)
	if object.Cost != nil {
		cost = *object.Cost
	}
	return event(at, *object.Key, cost)
}

// maxKey leaves room for a tenant and the name of a limit in what pglimit takes as a key.
const maxKey = 900

func event(at time.Time, key string, cost int64) (Event, kind) {
	year := at.UTC().Year()
	if cost < 0 || strings.TrimSpace(key) == "" || strings.Contains(key, "\x00") || len(key) > maxKey || year < 1 || year > 9999 {
		return Event{}, isMalformed
	}
	return Event{At: at, Cost: cost, Key: key}, isEvent
}

var timeLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"}

// parseTime reads a time as RFC 3339 and as PostgreSQL write it, taken for UTC where it has no zone, or in seconds since 1970.
func parseTime(s string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	seconds, err := strconv.ParseFloat(s, 64)
	if err != nil || math.Abs(seconds) > 1e11 {
		return time.Time{}, errors.New("not a time")
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))), nil
}

// Formats are the values of a flag.
func Formats() []string {
	return []string{string(FormatAuto), string(FormatSSHD), string(FormatAccess), string(FormatCSV), string(FormatJSONL)}
}

// BySubject returns the events of each key in the order of their instants, keys in the order of their first line.
func (l Log) BySubject() [][]Event {
	index := map[string]int{}
	var subjects [][]Event
	for _, e := range l.Events {
		i, ok := index[e.Key]
		if !ok {
			i = len(subjects)
			index[e.Key] = i
			subjects = append(subjects, nil)
		}
		subjects[i] = append(subjects[i], e)
	}
	for _, events := range subjects {
		slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	}
	return subjects
}

// String says what was read, for people.
func (l Log) String() string {
	text := fmt.Sprintf("%d events in %d lines (%s)", len(l.Events), l.Lines, l.Format)
	if l.Malformed > 0 {
		text += fmt.Sprintf("; %d lines are malformed, the first is line %d", l.Malformed, l.FirstBad)
	}
	return text
}
