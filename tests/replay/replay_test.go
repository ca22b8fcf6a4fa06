package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) {
	if isReplica() { // started by a test in here
		main()
	}
	dbtest.Main(m)
}

// line is a request of an address in combined log format.
func line(address string) string {
	return address + ` - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203 "-" "Mozilla/5.0 (\"X\")"`
}

// logOf writes a log and returns its path.
func logOf(t *testing.T, lines []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReplay(t *testing.T) {
	t.Parallel()

	// 60 requests of the first address, 59 of the second, … in an order that mixes them, so that the
	// replicas meet at every address.
	var lines []string
	var allowed, refused int
	for i := range 60 {
		requests := 60 - i
		for range requests {
			lines = append(lines, line(fmt.Sprintf("2001:db8::%d", i)))
		}
		allowed += min(requests, 25)
		refused += max(requests-25, 0)
	}
	rand.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	lines = append(lines[:100:100], append([]string{"", "not a request", "\xff\x00 - - [x] \"y\" 200 1"}, lines[100:]...)...)
	path := logOf(t, lines)
	url := dbtest.New(t).SuperURL()

	// Twice: on a database that stays, one replay must not use up the next one's limits.
	for range 2 {
		var out strings.Builder
		if err := run(t.Context(), []string{"-database-url", url, "-max", "25", path}, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, want := range []string{
			`access\.log: 1830 requests of 60 addresses by 4 replica processes`,
			`malformed lines left out: 3, the first is line 101`,
			fmt.Sprintf(`all +1830 +%d +%d\n`, allowed, refused),
			`2001:db8::0 +60 +25 +35\n`,
			`2001:db8::9 +51 +25 +26\n`,
			`every address as the file says`,
		} {
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "2001:db8::10 ") {
			t.Errorf("more than the ten busiest addresses:\n%s", out.String())
		}
	}
}

func TestReplayFails(t *testing.T) {
	t.Parallel()

	url := dbtest.New(t).SuperURL()
	requests := logOf(t, []string{line("198.51.100.1"), line("198.51.100.1"), line("198.51.100.2")})
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"NoRequestInLog", []string{logOf(t, []string{"a", "b"})}, "no line of 2 is a request"},
		{"NoServer", []string{"-database-url", "postgres://127.0.0.1:1/postgres?connect_timeout=5", requests}, "127.0.0.1"},
		{"NoSuchFile", []string{"/nowhere/access.log"}, "no such file"},
		{"NoWindow", []string{"-per", "0s", requests}, "want a window longer than nothing"},
		{"NegativeLimit", []string{"-max", "-1", requests}, "want zero or more hits"},
		{"HitFails", []string{"-per", "1000000h", requests}, "replica 1: hit of 198.51.100.1: "},
		{"WindowTooShort", []string{"-per", "1ms", requests}, "longer than the window of 1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			var out strings.Builder
			err := run(t.Context(), append([]string{"-database-url", url, "-replicas", "1"}, tt.args...), &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q\n%s", err, tt.want, out.String())
			}
		})
	}
}

func TestReplayIsCancelled(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run(ctx, []string{"-database-url", dbtest.New(t).SuperURL(), logOf(t, []string{line("198.51.100.1")})}, &strings.Builder{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReportFindsDifferences(t *testing.T) {
	t.Parallel()

	entries := requests{addresses: []string{"a", "a", "a", "b", "c"}}
	o := options{max: 2, per: time.Hour, replicas: 1}
	right := map[string]count{"a": {2, 1}, "b": {1, 0}, "c": {1, 0}}
	if err := newReport(entries, right, o).check(&strings.Builder{}); err != nil {
		t.Error(err)
	}

	for name, wrong := range map[string]map[string]count{
		"OneAllowedTooMany": {"a": {3, 0}, "b": {1, 0}, "c": {1, 0}},
		"OneLost":           {"a": {2, 1}, "b": {1, 0}},
		"OneMoreAddress":    {"a": {2, 1}, "b": {1, 0}, "c": {1, 0}, "d": {1, 0}},
		"OneRefused":        {"a": {2, 1}, "b": {0, 1}, "c": {1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var out strings.Builder
			if err := newReport(entries, wrong, o).check(&out); err == nil || err.Error() != "1 address is not as the file says (above)" {
				t.Errorf("got %v\n%s", err, out.String())
			}
		})
	}
}

func TestParseLog(t *testing.T) {
	t.Parallel()

	const rest = ` [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12`
	for _, tt := range []struct{ name, line, want string }{
		{"AgentCutOff", "198.51.100.1 - -" + rest + ` "-" "Mozilla/5.0 (comp`, "198.51.100.1"},
		{"BracketInRequest", `198.51.100.1 - - [x] "GET /[a] HTTP/1.1" 200 12`, "198.51.100.1"},
		{"Combined", line("198.51.100.1"), "198.51.100.1"},
		{"Common", "host.example - frank" + rest, "host.example"},
		{"EscapedQuote", `198.51.100.1 - - [x] "GET /\"a\" HTTP/1.1" 200 12 "-" "-"`, "198.51.100.1"},
		{"NoAddress", " - -" + rest, ""},
		{"NoRequest", `198.51.100.1 - - [x] "-" 408 -`, "198.51.100.1"},
		{"NoSize", `198.51.100.1 - - [x] "GET / HTTP/1.1" 200`, ""},
		{"QuoteNotClosed", `198.51.100.1 - - [x] "GET / HTTP/1.1 200 12`, ""},
		{"UserWithBlank", "198.51.100.1 - John Doe" + rest, "198.51.100.1"},
		{"WindowsLineEnd", "198.51.100.1 - -" + rest + "\r", "198.51.100.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			entries, err := parseLog(strings.NewReader(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(entries.addresses, ","); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (entries.malformed == 1) != (tt.want == "") {
				t.Errorf("%d malformed lines", entries.malformed)
			}
		})
	}
}
