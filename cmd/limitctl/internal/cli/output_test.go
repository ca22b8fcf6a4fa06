package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pglimit/pglimit/pgclient"
)

// somePermits are what an operator may find: a note, a tenant, and a holder that was made to deceive.
func somePermits() []pgclient.PermitRow {
	reasserted := testNow.Add(-5 * time.Second)
	return []pgclient.PermitRow{
		{
			ID: 101, Endpoint: "export", Holder: "alice", Weight: 1, State: "live",
			ClaimedAt: testNow.Add(-3 * time.Minute), ExpiresAt: testNow.Add(25 * time.Second),
			Note: json.RawMessage(`{"rows": 5}`),
		},
		{
			ID: 102, Tenant: "acme", Endpoint: "export", Holder: "bob\n103\texport\x1b[2J\u202e", Weight: 10, State: "live",
			ClaimedAt: testNow.Add(-5 * time.Second), ExpiresAt: testNow.Add(2 * time.Hour),
			ReassertedAt: &reasserted,
		},
	}
}

func TestPermitListOnATerminal(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.permits = somePermits()
	b.want(t, b.run("permit", "list"), exitOK, ""+
		"PERMIT-ID  TENANT  ENDPOINT  HOLDER             WEIGHT  CLAIMED  EXPIRES  STATE\n"+
		"101                export    alice              1       3m ago   in 25s   + live\n"+
		"102        acme    export    bob\\n103\\texpo...  10      5s ago   in 2h    + live\n", "")
}

func TestPermitListInFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"": "" +
			"101\t\texport\talice\t1\t2026-11-30T11:57:00.000000Z\t2026-11-30T12:00:25.000000Z\tlive\n" +
			"102\tacme\texport\tbob\\n103\\texport\\u001b[2J\\u202e\t10\t2026-11-30T11:59:55.000000Z\t2026-11-30T14:00:00.000000Z\tlive\n",
		"table": "" +
			"PERMIT-ID  TENANT  ENDPOINT  HOLDER                           WEIGHT  CLAIMED                      EXPIRES                      STATE\n" +
			"101                export    alice                            1       2026-11-30T11:57:00.000000Z  2026-11-30T12:00:25.000000Z  + live\n" +
			"102        acme    export    bob\\n103\\texport\\u001b[2J\\u202e  10      2026-11-30T11:59:55.000000Z  2026-11-30T14:00:00.000000Z  + live\n",
		"json": "[\n" +
			`{"permit_id":101,"tenant":"","endpoint":"export","holder":"alice","weight":1,"claimed_at":"2026-11-30T11:57:00.000000Z","expires_at":"2026-11-30T12:00:25.000000Z","state":"live","note":{"rows":5},"reasserted_at":null},` + "\n" +
			`{"permit_id":102,"tenant":"acme","endpoint":"export","holder":"bob\n103\texport\u001b[2J\u202e","weight":10,"claimed_at":"2026-11-30T11:59:55.000000Z","expires_at":"2026-11-30T14:00:00.000000Z","state":"live","note":null,"reasserted_at":"2026-11-30T11:59:55.000000Z"}` + "\n]\n",
		"jsonl": "" +
			`{"permit_id":101,"tenant":"","endpoint":"export","holder":"alice","weight":1,"claimed_at":"2026-11-30T11:57:00.000000Z","expires_at":"2026-11-30T12:00:25.000000Z","state":"live","note":{"rows":5},"reasserted_at":null}` + "\n" +
			`{"permit_id":102,"tenant":"acme","endpoint":"export","holder":"bob\n103\texport\u001b[2J\u202e","weight":10,"claimed_at":"2026-11-30T11:59:55.000000Z","expires_at":"2026-11-30T14:00:00.000000Z","state":"live","note":null,"reasserted_at":"2026-11-30T11:59:55.000000Z"}` + "\n",
		"csv": "" +
			"permit_id,tenant,endpoint,holder,weight,claimed_at,expires_at,state,note,reasserted_at\n" +
			"101,,export,alice,1,2026-11-30T11:57:00.000000Z,2026-11-30T12:00:25.000000Z,live,\"{\"\"rows\"\": 5}\",\n" +
			"102,acme,export,\"bob\n103\texport\x1b[2J\u202e\",10,2026-11-30T11:59:55.000000Z,2026-11-30T14:00:00.000000Z,live,,2026-11-30T11:59:55.000000Z\n",
		"name": "101\n102\n",
		"yaml": `- permit_id: 101
  tenant: ""
  endpoint: export
  holder: alice
  weight: 1
  claimed_at: "2026-11-30T11:57:00.000000Z"
  expires_at: "2026-11-30T12:00:25.000000Z"
  state: live
  note:
    rows: 5
  reasserted_at: null
- permit_id: 102
  tenant: acme
  endpoint: export
  holder: "bob\n103\texport\e[2J\u202e"
  weight: 10
  claimed_at: "2026-11-30T11:59:55.000000Z"
  expires_at: "2026-11-30T14:00:00.000000Z"
  state: live
  note: null
  reasserted_at: "2026-11-30T11:59:55.000000Z"
`,
	} {
		t.Run("As"+format, func(t *testing.T) {
			t.Parallel()
			b := setup(false)
			b.client.permits = somePermits()
			args := []string{"permit", "list"}
			if format != "" {
				args = append(args, "-o", format)
			}
			b.want(t, b.run(args...), exitOK, want, "")
		})
	}
}

// What programs read must be what was written: every format that carries types is parsed back.
func TestFormatsCarryTheSame(t *testing.T) {
	t.Parallel()
	want := somePermits()[1].Holder
	for _, format := range []string{"json", "yaml"} {
		b := setup(false)
		b.client.permits = somePermits()
		b.run("permit", "list", "-o", format)
		var rows []map[string]any
		if err := yaml.Unmarshal(b.out.Bytes(), &rows); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if got := rows[1]["holder"]; got != want {
			t.Errorf("%s: holder %q, want %q", format, got, want)
		}
	}
}

func TestEmptyLists(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]struct{ out, errOut string }{
		"":      {"", "No permits found.\n"},
		"table": {"", "No permits found.\n"},
		"jsonl": {"", "No permits found.\n"},
		"name":  {"", "No permits found.\n"},
		"json":  {"[]\n", ""},
		"yaml":  {"[]\n", ""},
		"csv":   {"permit_id,tenant,endpoint,holder,weight,claimed_at,expires_at,state,note,reasserted_at\n", ""},
	} {
		b := setup(false)
		args := []string{"permit", "list"}
		if format != "" {
			args = append(args, "-o", format)
		}
		b.want(t, b.run(args...), exitOK, want.out, want.errOut)
	}
}

func TestColoredColumnsLineUp(t *testing.T) {
	t.Parallel()
	b := setup(true)
	rows := permitsOf(2)
	rows[1].State = "lapsed"
	b.client.permits = rows
	b.run("permit", "list", "--include-lapsed", "-o", "wide")
	if !strings.Contains(b.out.String(), "\x1b["+green+"m+ live") || !strings.Contains(b.out.String(), "\x1b["+yellow+"m- lapsed") {
		t.Errorf("no colours: %q", b.out)
	}
	uncolored := setup(true)
	uncolored.client.permits = rows
	uncolored.run("permit", "list", "--include-lapsed", "-o", "wide", "--color", "never")
	strip := strings.NewReplacer("\x1b["+green+"m", "", "\x1b["+yellow+"m", "", "\x1b["+plain+"m", "", "\x1b[0m", "")
	if got, want := strip.Replace(b.out.String()), uncolored.out.String(); got != want {
		t.Errorf("coloured:\n%s\nplain:\n%s", got, want)
	}
}

func TestLongTextIsCutOnATerminalOnly(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for _, tt := range []struct {
		tty  bool
		args string
		cut  bool
	}{{true, "", true}, {true, "-o table", true}, {true, "-o wide", false}, {false, "", false}, {false, "-o table", false}} {
		b := setup(tt.tty)
		b.client.permits = permitsOf(1)
		b.client.permits[0].Holder = long
		b.run(append([]string{"permit", "list", "--color", "never"}, strings.Fields(tt.args)...)...)
		if got := !strings.Contains(b.out.String(), long); got != tt.cut {
			t.Errorf("terminal %v %q: cut %v, want %v", tt.tty, tt.args, got, tt.cut)
		}
		for l := range strings.Lines(b.out.String()) {
			if tt.cut && len(l) > 81 {
				t.Errorf("a line of %d on a terminal of 80", len(l))
			}
		}
	}
}

func TestListsPageByKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		there, limit, want int
		calls              []string
		note               string
	}{
		{there: 40, limit: 30, want: 30, calls: []string{"list_permits after 0, 31 rows"}, note: "These are the first 30 permits; --limit 0 shows all.\n"},
		{there: 30, limit: 30, want: 30, calls: []string{"list_permits after 0, 31 rows"}},
		{there: 3, limit: 30, want: 3, calls: []string{"list_permits after 0, 31 rows"}},
		{there: 1200, limit: 0, want: 1200, calls: []string{"list_permits after 0, 500 rows", "list_permits after 500, 500 rows", "list_permits after 1000, 500 rows"}},
		{there: 1000, limit: 0, want: 1000, calls: []string{"list_permits after 0, 500 rows", "list_permits after 500, 500 rows", "list_permits after 1000, 500 rows"}},
		{there: 900, limit: 500, want: 500, calls: []string{"list_permits after 0, 500 rows", "list_permits after 500, 1 rows"}, note: "These are the first 500 permits; --limit 0 shows all.\n"},
	} {
		b := setup(false)
		b.client.permits = permitsOf(tt.there)
		if code := b.run("permit", "list", "-o", "name", "--limit", fmt.Sprint(tt.limit)); code != exitOK {
			t.Errorf("%+v: exit code %d", tt, code)
		}
		if got := strings.Count(b.out.String(), "\n"); got != tt.want {
			t.Errorf("%d of %d rows, want %d", got, tt.there, tt.want)
		}
		if b.errOut.String() != tt.note {
			t.Errorf("%d of %d: it says %q, want %q", tt.limit, tt.there, b.errOut, tt.note)
		}
		if fmt.Sprint(b.client.calls) != fmt.Sprint(tt.calls) {
			t.Errorf("%d of %d: calls %q, want %q", tt.limit, tt.there, b.client.calls, tt.calls)
		}
	}
}

// A reader that has seen enough is no error, and the connection is closed all the same.
func TestClosedPipeIsQuiet(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"", "json", "jsonl", "csv", "yaml", "name", "table"} {
		b := setup(false)
		b.IO.Out = closedPipe{}
		b.client.permits = permitsOf(100)
		args := []string{"permit", "list", "--limit", "0"}
		if format != "" {
			args = append(args, "-o", format)
		}
		if code := b.run(args...); code != exitOK || b.errOut.Len() > 0 || !b.client.closed {
			t.Errorf("%s: exit code %d, %q, closed %v", format, code, b.errOut, b.client.closed)
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, fmt.Errorf("write |1: %w", syscall.EPIPE) }

func TestShowOnATerminalAndInFormats(t *testing.T) {
	t.Parallel()
	limit := pgclient.LimitRow{
		Limit: "api", MaxHits: 100, Per: 90 * time.Second, Algorithm: "fixed_window", Mode: "enforce", OnOutage: "allow", OnLapse: "keep",
		LimitVersion: 3, UpdatedAt: testNow.Add(-time.Hour), UpdatedBy: "ops",
	}
	for _, tt := range []struct {
		tty        bool
		args, want string
	}{
		{true, "", `limit name:     api
max hits:       100
per:            1m30s
algorithm:      fixed_window
durable:        false
mode:           enforce
on outage:      allow
on lapse:       keep
limit version:  3
updated at:     2026-11-30T11:00:00Z (1h ago)
updated by:     ops
worst burst:    200
`},
		{false, "", "tenant\t\nlimit_name\tapi\nmax_hits\t100\nper\t1m30s\nalgorithm\tfixed_window\nburst\t\ndurable\tfalse\nmode\tenforce\n" +
			"on_outage\tallow\non_lapse\tkeep\nlimit_version\t3\nupdated_at\t2026-11-30T11:00:00.000000Z\nupdated_by\tops\nshadow_refused\t\ntime_zone\t\nworst_burst\t200\n"},
		{false, "-o json", `{
  "tenant": "",
  "limit_name": "api",
  "max_hits": 100,
  "per": "1m30s",
  "per_seconds": 90,
  "algorithm": "fixed_window",
  "burst": null,
  "durable": false,
  "mode": "enforce",
  "on_outage": "allow",
  "on_lapse": "keep",
  "limit_version": 3,
  "updated_at": "2026-11-30T11:00:00.000000Z",
  "updated_by": "ops",
  "shadow_refused": null,
  "time_zone": "",
  "worst_burst": 200
}
`},
		{false, "-o name", "api\n"},
	} {
		b := setup(tt.tty)
		b.env["NO_COLOR"] = "1"
		b.client.limits = []pgclient.LimitRow{limit}
		b.want(t, b.run(append([]string{"limit", "show", "api"}, strings.Fields(tt.args)...)...), exitOK, tt.want, "")
	}
}

func TestWatchRedrawsOnATerminal(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.permits = permitsOf(60)
	ctx, cancel := context.WithCancel(t.Context())
	frames := 0
	b.IO.Out = writerFunc(func(p []byte) (int, error) {
		frames++
		if frames == 2 {
			cancel()
		}
		return b.out.Write(p)
	})
	if code := run(ctx, b.Factory, []string{"permit", "list", "--watch", "--interval", "100ms", "--limit", "0", "--color", "never"}); code != exitOK {
		t.Errorf("exit code %d: %s", code, b.errOut)
	}
	shown := strings.SplitAfter(b.out.String(), "\x1b[J")[0]
	if !strings.HasPrefix(shown, "\x1b[Hlimitctl permit list, every 100ms, 12:00:00\x1b[K\n\x1b[K\nPERMIT-ID") ||
		!strings.HasSuffix(shown, "\n(41 more lines)\x1b[K\n\x1b[J") || strings.Count(shown, "\n") != 23 {
		t.Errorf("frame:\n%q", shown)
	}
}

func TestWatchAppendsLinesInAPipe(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.permits = permitsOf(1)
	ctx, cancel := context.WithCancel(t.Context())
	b.IO.Out = writerFunc(func(p []byte) (int, error) {
		defer cancel()
		return b.out.Write(p)
	})
	if code := run(ctx, b.Factory, []string{"permit", "list", "-w", "--interval", "100ms"}); code != exitOK {
		t.Errorf("exit code %d: %s", code, b.errOut)
	}
	if !strings.HasPrefix(b.out.String(), `{"observed_at":"2026-11-30T12:00:00.000000Z","permit_id":1,`) {
		t.Errorf("%s", b.out)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
