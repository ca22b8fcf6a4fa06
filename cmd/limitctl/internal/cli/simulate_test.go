package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestParseSimulate(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[simulateOptions]{
		{args: "log --max-hits 5 --per 15m", want: simulateOptions{
			Log: "log", MaxHits: pgclient.N(5), Per: &window{per: 15 * time.Minute}, Key: "address", LogFormat: "auto", Top: 10,
		}},
		{args: "- --limit-name api --at-most 0.5% --log-format csv --key user --top 0 --tenant acme --algorithm token_bucket --burst 3", want: simulateOptions{
			Log: "-", LimitName: "api", AtMost: ptr(0.005), Key: "user", LogFormat: "csv", Tenant: "acme", Algorithm: "token_bucket", Burst: pgclient.N(3),
		}},
		{args: "log --per month --algorithm calendar --time-zone UTC --max-hits 1", want: simulateOptions{
			Log: "log", MaxHits: pgclient.N(1), Per: &window{per: pgclient.CalendarMonth, unit: "month"}, Algorithm: "calendar", TimeZone: "UTC",
			Key: "address", LogFormat: "auto", Top: 10,
		}},
		{args: "log", err: "nothing says which limit"},
		{args: "log --per 1m", err: "nothing says how many hits"},
		{args: "log --per 1m --max-hits 1 --at-most 1%", err: "only one of them"},
		{args: "log --per 1m --at-most x", err: "a percentage"},
		{args: "log --per 1m --max-hits 1 --top -1", err: "cannot be negative"},
		{args: "log --per 1m --max-hits 1 --log-format xml", err: "one of auto, sshd, access, csv, jsonl"},
		{args: "", err: "missing argument: <log>"},
	} {
		tt.check(t, newSimulateCmd)
	}
}

// TestSimulateSearches: with a limit that refuses what is above it, the least that refuses at most so much is known; each
// subject is sent whole, few at a time, and on a terminal a bar says how far it is.
func TestSimulateSearches(t *testing.T) {
	t.Parallel()
	// A subject makes 1 hit, the next 2, … up to 100: 5,050 in all; m allows of each as many as m.
	var log strings.Builder
	for subject := range 100 {
		for range subject + 1 {
			fmt.Fprintf(&log, "2015-05-17T10:00:00Z,s%d\n", subject)
		}
	}
	refusedBy := func(m int) (n int) {
		for made := 1; made <= 100; made++ {
			n += max(made-m, 0)
		}
		return n
	}
	for _, percent := range []int{0, 1, 10, 50, 98, 100} {
		want := 0
		for want = 1; refusedBy(want)*100 > percent*5050; want++ {
		}
		b := setup(true)
		b.in.WriteString(log.String())
		code := b.run("simulate", "-", "--per", "1h", "--at-most", fmt.Sprintf("%d%%", percent), "-o", "jsonl")
		for _, part := range []string{fmt.Sprintf(`"max_hits":%d,`, want), `"events":5050,`, `"subjects":100,`, fmt.Sprintf(`"refused":%d,`, refusedBy(want))} {
			if code != exitOK || !strings.Contains(b.out.String(), part) {
				t.Errorf("at most %d%%: exit code %d, no %s in %s%s", percent, code, part, b.out, b.errOut)
			}
		}
		if bar := b.errOut.String(); !strings.Contains(bar, "\rsimulating [##############################] 100%") || !strings.HasSuffix(bar, " \r") {
			t.Errorf("no bar in %q", bar)
		}
	}

	b := setup(false)
	b.in.WriteString(log.String())
	b.run("simulate", "-", "--per", "1h", "--max-hits", "99", "--top", "1")
	if got := b.out.String(); !strings.Contains(got, "refused\t1\n") || !strings.Contains(got, "who\ts99: 1 of 100 refused\n") || b.errOut.Len() > 0 {
		t.Errorf("got %s%s", got, b.errOut)
	}
	if n := len(b.client.calls); n < 3 || n > 6 {
		t.Errorf("%d calls for 5,050 events", n)
	}
}

func TestLimitExplain(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.explained = []pgclient.ExplainRow{{Step: "rule", Says: "5 hits per 1m"}, {Step: "answer", Says: "allowed", Facts: []byte(`{"remaining":5}`)}}
	b.want(t, b.run("limit", "explain", "login", "bob", "--tenant", "t"), exitOK, "STEP    SAYS\nrule    5 hits per 1m\nanswer  allowed\n", "")
	b.done(t, `explain_limit login bob "t"`)
}
