package cli

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// done fails the test unless exactly these calls changed something.
func (b *testBundle) done(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, call := range b.client.calls {
		if !strings.HasPrefix(call, "list_") {
			got = append(got, call)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestPermitRelease(t *testing.T) {
	t.Parallel()
	t.Run("AsksWithWhatIsAtStake", func(t *testing.T) {
		t.Parallel()
		b := setup(true)
		b.client.permits = permitsOf(2)
		b.client.released = map[int64]pgclient.Reason{1: pgclient.ReasonReleased}
		b.in.WriteString("y\n")
		b.want(t, b.run("permit", "release", "1"), exitOK,
			"Released permit 1 (export, held by \"u1\").\n",
			"  permit 1: export, held by \"u1\", live\nRelease 1 permit? Work that still runs is not stopped. [y/N] ")
		b.done(t, `release_permit 1 ""`)
	})
	t.Run("NoIsNo", func(t *testing.T) {
		t.Parallel()
		for _, answer := range []string{"n\n", "\n", "", "yep\n"} {
			b := setup(true)
			b.client.permits = permitsOf(1)
			b.in.WriteString(answer)
			if code := b.run("permit", "release", "1"); code != exitUsage || !strings.Contains(b.errOut.String(), "cancelled, nothing was changed") {
				t.Errorf("%q: exit code %d, %s", answer, code, b.errOut)
			}
			b.done(t)
		}
	})
	t.Run("ByHolderInAPipe", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.permits = permitsOf(3)
		b.client.permits[2].Holder = "u1"
		b.client.released = map[int64]pgclient.Reason{1: pgclient.ReasonReleased} // 3 ended meanwhile
		b.want(t, b.run("permit", "release", "--holder", "u1", "--yes"), exitOK, "1\ttrue\treleased\n3\tfalse\tunknown\n", "")
		b.done(t, `release_permit 1 "u1"`, `release_permit 3 "u1"`)
	})
	t.Run("AnIdThatIsNotThereFails", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.permits = permitsOf(1)
		b.client.released = map[int64]pgclient.Reason{1: pgclient.ReasonLapsed}
		b.want(t, b.run("permit", "release", "1", "9", "--yes", "-o", "jsonl"), exitError,
			`{"permit_id":1,"released":false,"reason":"lapsed"}`+"\n"+`{"permit_id":9,"released":false,"reason":"unknown"}`+"\n",
			"limitctl permit release: 1 permit of 2 not released\nHINT: limitctl permit list shows the live ones and their holders\n")
	})
	t.Run("DryRunChangesNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.permits = permitsOf(3)
		b.client.permits[1].State = "lapsed"
		b.want(t, b.run("permit", "release", "1", "2", "3", "9", "--holder", "u1", "--dry-run"), exitOK,
			"Would release permit 1 (export, held by \"u1\").\n",
			"Permit 2 has lapsed already.\nPermit 3 is another holder's.\nPermit 9 is not there.\n")
		b.done(t)
	})
	t.Run("NothingFound", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.want(t, b.run("permit", "release", "--holder", "nobody", "--yes"), exitOK, "", "No live permits found, nothing to release.\n")
	})
}

func TestPermitReleaseByForce(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.permits = permitsOf(2)
	b.client.released = map[int64]pgclient.Reason{1: pgclient.ReasonReleased}
	b.in.WriteString("y\n")
	b.want(t, b.run("permit", "release", "1", "--force", "--why", "it is gone"), exitOK,
		"Released permit 1 (export, held by \"u1\").\n",
		"  permit 1: export, held by \"u1\", live\nRelease 1 permit? Work that still runs is not stopped. [y/N] ")
	b.done(t, `force_release 1 "it is gone"`)
}

func TestPermitReleaseHolder(t *testing.T) {
	t.Parallel()
	args := []string{"permit", "release-holder", "export", "u1", "--why", "it is gone"}
	b := setup(true)
	b.client.permits = permitsOf(1)
	b.in.WriteString("n\n")
	if code := b.run(args...); code != exitUsage {
		t.Errorf("exit code %d after no", code)
	}
	b.done(t)

	b = setup(true)
	b.client.permits = permitsOf(1)
	b.in.WriteString("y\n")
	b.want(t, b.run(args...), exitOK, "Released 1 permit that \"u1\" held at export.\n",
		"  permit 1: export, held by \"u1\", live\nRelease 1 permit? Work that still runs is not stopped. [y/N] ")
	b.done(t, `release_holder export "u1" "" "it is gone"`)

	b = setup(false)
	b.client.permits = permitsOf(2)
	b.want(t, b.run(append(args, "--dry-run")...), exitOK, "Would release permit 1 (export, held by \"u1\").\n", "")
	b.done(t)
	b.client.permits = nil
	b.out.Reset()
	b.want(t, b.run(append(args, "--yes")...), exitOK, "", "No live permits found, nothing to release.\n")
	b.done(t)
}

func TestChangeList(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.changes = []pgclient.ChangeRow{
		{Version: 9, ChangedAt: testNow.Add(-time.Minute), ChangedBy: "ops", Action: "release_holder", Name: "export", Before: []byte(`{"permits": 2}`), Why: "it is gone"},
		{Version: 8, ChangedAt: testNow.Add(-time.Hour), ChangedBy: "ops", Action: "set_limit", Name: "api", After: []byte(`{"max_hits": 5}`)},
	}
	b.want(t, b.run("change", "list", "-o", "wide"), exitOK, `VERSION  CHANGED  BY   ACTION          NAME    BEFORE          AFTER            WHY
9        1m ago   ops  release_holder  export  {"permits": 2}                   it is gone
8        1h ago   ops  set_limit       api                     {"max_hits": 5}
`, "")
	b.out.Reset()
	b.want(t, b.run("changes", "ls", "api", "-o", "jsonl"), exitOK,
		`{"version":8,"changed_at":"2026-11-30T11:00:00.000000Z","changed_by":"ops","action":"set_limit","tenant":"","name":"api","before":null,"after":{"max_hits":5},"why":""}`+"\n", "")
}

func TestPermitShowOfNone(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.permits = permitsOf(3)
	b.want(t, b.run("permit", "show", "17"), exitError, "", "limitctl permit show: there is no permit 17\n"+
		"DETAIL: It was released, purged, lost in a crash of the database, or never granted.\nHINT: limitctl permit list --include-lapsed\n")
}

func TestCounterShow(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.decision = pgclient.Decision{Quota: 5, RetryAfter: 90 * time.Second, Reason: pgclient.ReasonLimit}
	b.client.counters = []pgclient.CounterRow{{Limit: "login", Subject: "bob", Used: 5, State: "open", WindowStart: testNow.Add(-time.Minute), ResetAt: testNow.Add(90 * time.Second)}}
	b.want(t, b.run("counter", "show", "login", "bob", "--color", "never"), exitOK, `tenant:
limit name:    login
subject:       bob
allowed:       - false
reason:        limit
used:          5
quota:         5
remaining:     0
retry after:   1m30s
window start:  2026-11-30T11:59:00Z (1m ago)
reset at:      2026-11-30T12:01:30Z (in 1m)
`, "")
}

// What is used is what the sum says, which knows of debt and of the window before; a bucket began at no time.
func TestCounterShowWeighs(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.decision = pgclient.Decision{Quota: 5, RetryAfter: 90 * time.Second, Reason: pgclient.ReasonLimit}
	b.client.counters = []pgclient.CounterRow{{Limit: "login", Subject: "bob", Used: 4, Algorithm: pgclient.AlgorithmTokenBucket, State: "open", WindowStart: testNow.Add(-time.Minute), ResetAt: testNow.Add(90 * time.Second)}}
	b.client.explained = []pgclient.ExplainRow{{Step: "counter", Facts: []byte(`{"used": 3}`)}, {Step: "arithmetic", Facts: []byte(`{"used": 7, "debt": 2}`)}}
	b.want(t, b.run("counter", "show", "login", "bob", "--color", "never"), exitOK, `tenant:
limit name:    login
subject:       bob
allowed:       - false
reason:        limit
used:          7
debt:          2
quota:         5
remaining:     0
retry after:   1m30s
window start:  none
reset at:      2026-11-30T12:01:30Z (in 1m)
`, "")
}

func TestHoldList(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.holds = []pgclient.HoldRow{
		{ID: 1, Limit: "tokens", Subject: "bob", Charged: 800, HeldAt: testNow.Add(-time.Minute), ExpiresAt: testNow.Add(time.Minute), State: pgclient.HoldOpen},
		{ID: 2, Limit: "tokens", Subject: "eve", Charged: 7, HeldAt: testNow.Add(-time.Hour), ExpiresAt: testNow.Add(-time.Minute), State: pgclient.HoldLapsed},
		{ID: 3, Limit: "rows", Subject: "bob", Charged: 5, Actual: pgclient.N(4), HeldAt: testNow.Add(-time.Hour), ExpiresAt: testNow.Add(-time.Minute), State: pgclient.HoldSettled},
	}
	b.want(t, b.run("hold", "list"), exitOK, "HOLD-ID  LIMIT   SUBJECT  CHARGED  HELD    EXPIRES  STATE\n1        tokens  bob      800      1m ago  in 1m    + open\n", "")
	b.out.Reset()
	b.want(t, b.run("hold", "list", "tokens", "--state", "all", "-o", "name"), exitOK, "1\n2\n", "")
	b.out.Reset()
	b.want(t, b.run("hold", "list", "--subject", "bob", "--state", "settled", "-o", "jsonl"), exitOK,
		`{"hold_id":3,"tenant":"","limit_name":"rows","subject":"bob","charged":5,"actual":4,"held_at":"2026-11-30T11:00:00.000000Z","expires_at":"2026-11-30T11:59:00.000000Z","state":"settled","durable":false}`+"\n", "")
	b.done(t)
}

func TestCounterForget(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.counters = []pgclient.CounterRow{{Limit: "login", Subject: "bob", Used: 5, State: "open", ResetAt: testNow}}
	b.want(t, b.run("counter", "forget", "login", "bob", "eve", "--dry-run"), exitOK, "Would forget \"bob\": 5 used, until 2026-11-30T12:00:00Z.\n", "")
	b.done(t)
	b.out.Reset()
	b.want(t, b.run("counter", "forget", "login", "bob", "eve", "--yes"), exitOK, "\tlogin\tbob\ttrue\n\tlogin\teve\tfalse\n", "")
	b.done(t, `forget login bob ""`, `forget login eve ""`)
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.signIn = []pgclient.SignInCount{
		{Limit: "sign_in_account", Subject: "a1", Used: 6, Quota: 100, Remaining: 94, ResetAt: testNow.Add(time.Minute)},
		{Limit: "sign_in_source", Subject: "50", Quota: 20, Remaining: 20},
		{Limit: "sign_in_pair", Subject: "fa", Used: 5, Quota: 5, ResetAt: testNow.Add(time.Minute), RetryAfter: time.Minute},
	}
	run := func(code int, out, errOut, args string) {
		t.Helper()
		b.out.Reset()
		b.errOut.Reset()
		b.want(t, b.run(append([]string{"sign-in"}, strings.Fields(args)...)...), code, out, errOut)
	}
	run(exitOK, "LIMIT            SUBJECT  USED  QUOTA  REMAINING  RETRY-AFTER  RESETS  KNOWN\n"+
		"sign_in_account  a1       6     100    + 94                    in 1m   false\n"+
		"sign_in_source   50       0     20     + 20                            false\n"+
		"sign_in_pair     fa       5     5      - 0        1m           in 1m   false\n", "", "show ann --source 203.0.113.7")
	run(exitOK, "Would forget sign_in_account: 6 of 100 used, until 2026-11-30T12:01:00Z.\n", "", "forget ann --dry-run")
	run(exitOK, "Would forget sign_in_account: 6 of 100 used, until 2026-11-30T12:01:00Z.\n"+
		"Would forget sign_in_pair: 5 of 5 used, until 2026-11-30T12:01:00Z.\n", "", "forget ann --source 203.0.113.7 --dry-run")
	run(exitOK, "Forgot the failures of \"ann\" and 203.0.113.7 of tenant \"acme\".\n", "", "forget ann --source 203.0.113.7 --tenant acme --yes")
	b.client.signIn = nil
	run(exitOK, "Nothing to forget: no failure of \"ann\" is counted.\n", "", "forget ann --yes")
	run(exitOK, "", "No failures are counted, nothing to forget.\n", "forget ann --dry-run")
	b.done(t, `show_sign_in {"Account":"ann","Source":"203.0.113.7","Tenant":""}`, `show_sign_in {"Account":"ann","Source":"0.0.0.0","Tenant":""}`,
		`show_sign_in {"Account":"ann","Source":"203.0.113.7","Tenant":""}`, `forget_sign_in {"Account":"ann","Source":"203.0.113.7","Tenant":"acme"}`,
		`forget_sign_in {"Account":"ann","Source":"","Tenant":""}`, `show_sign_in {"Account":"ann","Source":"0.0.0.0","Tenant":""}`)
}

func TestLimitSetKeepsWhatIsNotNamed(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.limits = []pgclient.LimitRow{{
		Limit: "api", MaxHits: 100, Per: time.Minute, Algorithm: "fixed_window", Mode: "enforce", OnOutage: "refuse",
	}}
	b.want(t, b.run("limit", "set", "api", "--max-hits", "50"), exitOK, "Changed limit api to 50 hits per 1m (was 100 per 1m). Worst burst: 100 within any 1m.\n", "")
	b.done(t, `set_limit {"Limit":"api","MaxHits":50,"Per":60000000000,"Algorithm":"fixed_window","Burst":null,"Carry":"keep","Durable":false,"Mode":"enforce","OnLapse":"","OnOutage":"refuse","Tenant":"","TimeZone":""}`)
}

// A set that changes nothing writes nothing, and spends no version.
func TestSetOfNothing(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.limits = []pgclient.LimitRow{{
		Limit: "api", MaxHits: 100, Per: time.Minute, Algorithm: "fixed_window", Mode: "enforce", OnOutage: "refuse", LimitVersion: 3,
	}}
	b.client.endpoints = []pgclient.EndpointRow{{
		Endpoint: "export", HolderCap: pgclient.N(2), HolderQueueCap: 100, Mode: "enforce", OnOutage: "allow", QueueCap: 1000,
	}}
	for _, args := range []string{"limit set api", "limit set api --max-hits 100 --per 60s", "limit set api --dry-run"} {
		b.out.Reset()
		b.want(t, b.run(strings.Fields(args)...), exitOK, "Nothing to change: limit api is 100 hits per 1m.\n", "")
	}
	b.out.Reset()
	b.want(t, b.run("endpoint", "set", "export", "--holder-cap", "2"), exitOK, "Nothing to change: endpoint export is 2 a holder.\n", "")
	b.done(t)

	b = setup(false)
	b.client.limits = []pgclient.LimitRow{{Limit: "api", MaxHits: 100, Per: time.Minute, LimitVersion: 3}}
	b.want(t, b.run("limit", "set", "api", "-o", "jsonl"), exitOK, `{"tenant":"","limit_name":"api","max_hits":100,"per":"1m","per_seconds":60,`+
		`"algorithm":"","burst":null,"mode":"","on_outage":"","on_lapse":"","limit_version":3,"dry_run":false,"durable":false,"time_zone":"","worst_burst":200,"carry":"keep"}`+"\n",
		"Nothing to change: limit api is 100 hits per 1m.\n")
	b.done(t)
}

// TestLimitSetCarry: what becomes of what is used is said, and reset alone changes something.
func TestLimitSetCarry(t *testing.T) {
	t.Parallel()
	for _, step := range []struct{ args, want string }{
		{"--max-hits 200 --carry proportional --dry-run", "Would change limit api to 200 hits per 1m (was 100 per 1m); what is used goes with it in proportion. Worst burst: 400 within any 1m.\n"},
		{"--carry reset --dry-run", "Would change limit api to 100 hits per 1m (was 100 per 1m); what is used is nothing.\n"},
		{"--carry proportional", "Nothing to change: limit api is 100 hits per 1m.\n"},
		{"--carry keep", "Nothing to change: limit api is 100 hits per 1m.\n"},
		{"--max-hits 200 --carry keep --dry-run -o jsonl", `{"tenant":"","limit_name":"api","max_hits":200,"per":"1m","per_seconds":60,"algorithm":"fixed_window","burst":null,"mode":"enforce",` +
			`"on_outage":"allow","on_lapse":"keep","limit_version":null,"dry_run":true,"durable":false,"time_zone":"","worst_burst":400,"carry":"keep"}` + "\n"},
	} {
		b := setup(true)
		b.client.limits = []pgclient.LimitRow{{
			Limit: "api", MaxHits: 100, Per: time.Minute, Algorithm: pgclient.AlgorithmFixedWindow, Mode: pgclient.ModeEnforce,
			OnLapse: pgclient.OnLapseKeep, OnOutage: pgclient.OnOutageAllow, LimitVersion: 3,
		}}
		b.want(t, b.run(append([]string{"limit", "set", "api"}, strings.Fields(step.args)...)...), exitOK, step.want, "")
		b.done(t)
	}
	b := setup(true)
	b.client.limits = []pgclient.LimitRow{{Limit: "api", MaxHits: 100, Per: time.Minute, Mode: pgclient.ModeEnforce}}
	b.want(t, b.run("limit", "set", "api", "--carry", "reset"), exitOK, "Changed limit api to 100 hits per 1m (was 100 per 1m); what is used is nothing.\n", "")
	b.done(t, `set_limit {"Limit":"api","MaxHits":100,"Per":60000000000,"Algorithm":"","Burst":null,"Carry":"reset","Durable":false,"Mode":"enforce","OnLapse":"","OnOutage":"","Tenant":"","TimeZone":""}`)
	if code := setup(true).run("limit", "set", "api", "--carry", "half"); code != exitUsage {
		t.Errorf("--carry half: exit code %d", code)
	}
}

func TestLimitSetOfANewOne(t *testing.T) {
	t.Parallel()
	b := setup(false)
	// The common row is not what a tenant's own begins with.
	b.client.limits = []pgclient.LimitRow{{Limit: "api", MaxHits: 100, Per: time.Minute}}
	b.want(t, b.run("limit", "set", "api", "--tenant", "acme", "--max-hits", "5"), exitUsage, "",
		"limitctl limit set: limit \"api\" of tenant \"acme\" is new, so it needs --max-hits and --per\nHINT: limitctl limit set api --max-hits 100 --per 1m\n")
	b.errOut.Reset()
	b.want(t, b.run("limit", "set", "api", "--tenant", "acme", "--max-hits", "5", "--per", "1h", "-o", "csv", "--dry-run"), exitOK,
		"tenant,limit_name,max_hits,per,algorithm,burst,mode,on_outage,on_lapse,limit_version,dry_run,durable,time_zone,worst_burst,carry\nacme,api,5,1h,fixed_window,,enforce,allow,keep,,true,false,,10,keep\n", "")
	b.done(t)
}

// TestLimitSetSaysTheWorstBurst is C-06: where a limit is made, its worst burst is said in numbers.
func TestLimitSetSaysTheWorstBurst(t *testing.T) {
	t.Parallel()
	b := setup(false)
	if code := b.run("limit", "set", "--help"); code != exitOK || !strings.Contains(b.out.String(), "worst burst: twice --max-hits") {
		t.Errorf("exit code %d:\n%s", code, b.out)
	}
	for _, tt := range []struct{ args, want string }{
		{"--max-hits 5 --per 1h", "Made limit new: 5 hits per 1h. Worst burst: 10 within any 1h.\n"},
		{"--max-hits 0 --per 1h", "Made limit new: 0 hits per 1h.\n"},
		{"--max-hits 5 --per 1h --algorithm sliding_window --durable", "Made limit new: 5 hits per 1h by sliding_window, durable. Worst burst: 9 within any 1h.\n"},
		{"--max-hits 5 --per 1h --algorithm token_bucket", "Made limit new: 5 hits per 1h by token_bucket. Worst burst: 10 within any 1h.\n"},
		{"--max-hits 5 --per 1h --algorithm token_bucket --burst 2", "Made limit new: 5 hits per 1h by token_bucket, burst 2. Worst burst: 7 within any 1h.\n"},
		{"--max-hits 5 --per month --algorithm calendar", "Made limit new: 5 hits per month of the calendar (UTC). Worst burst: 10 within any month.\n"},
	} {
		b = setup(true)
		b.want(t, b.run(append([]string{"limit", "set", "new"}, strings.Fields(tt.args)...)...), exitOK, tt.want, "")
	}
}

// TestLimitSetOfAnAlgorithm is C-06 too: what belongs to one alone is refused with another, and goes when the algorithm does.
func TestLimitSetOfAnAlgorithm(t *testing.T) {
	t.Parallel()
	row := pgclient.LimitRow{
		Limit: "api", MaxHits: 9, Per: time.Hour, Algorithm: pgclient.AlgorithmTokenBucket, Burst: pgclient.N(20), Mode: "enforce", OnOutage: "allow",
	}
	b := setup(true)
	b.client.limits = []pgclient.LimitRow{row}
	b.want(t, b.run("limit", "set", "api", "--algorithm", "calendar", "--time-zone", "Europe/Berlin", "--per", "month"), exitOK,
		"Changed limit api to 9 hits per month of the calendar (Europe/Berlin) (was 9 per 1h by token_bucket, burst 20). Worst burst: 18 within any month.\n", "")
	b.done(t, `set_limit {"Limit":"api","MaxHits":9,"Per":2592000000000000,"Algorithm":"calendar","Burst":null,"Carry":"keep","Durable":false,"Mode":"enforce","OnLapse":"","OnOutage":"allow","Tenant":"","TimeZone":"Europe/Berlin"}`)
	for args, want := range map[string]string{
		"--algorithm fixed_window --burst 3": "--burst goes with --algorithm token_bucket",
		"--time-zone UTC":                    "--time-zone goes with --algorithm calendar",
		"--per month":                        "--per month has no fixed length, so it goes with --algorithm calendar",
		"--algorithm calendar --per 2h":      "--per 2h is no unit of the calendar",
		"--algorithm leaky":                  `--algorithm "leaky": it is one of fixed_window, sliding_window, token_bucket, calendar`,
	} {
		b := setup(true)
		b.client.limits = []pgclient.LimitRow{row}
		if code := b.run(append([]string{"limit", "set", "api"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(b.errOut.String(), want) ||
			!strings.Contains(b.errOut.String(), "\nHINT: ") {
			t.Errorf("%s: exit code %d, %s", args, code, b.errOut)
		}
		b.done(t)
	}
}

func TestEndpointSet(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.endpoints = []pgclient.EndpointRow{{
		Endpoint: "export", HolderCap: pgclient.N(2), EndpointCap: pgclient.N(8), Longest: pgclient.D(time.Minute), Mode: "enforce", OnOutage: "allow",
		HolderQueueCap: 100, QueueCap: 1000,
	}}
	b.want(t, b.run("endpoint", "set", "export", "--endpoint-cap", "none", "--time-bound", "30s"), exitOK,
		"Changed endpoint export to 2 a holder, 30s, held 1m at the longest (was 2 a holder, 8 in all, held 1m at the longest).\n", "")
	b.out.Reset()
	b.want(t, b.run("endpoint", "set", "export", "--mode", "shadow", "--fair", "--queue-cap", "50", "--dry-run"), exitOK,
		"Would change endpoint export to 2 a holder, 8 in all, held 1m at the longest, fair, up to 50 waiting, mode shadow "+
			"(was 2 a holder, 8 in all, held 1m at the longest).\n", "")
	b.done(t, `set_endpoint {"Endpoint":"export","EndpointCap":null,"HolderCap":2,"Fair":false,"HolderQueueCap":100,"QueueCap":1000,"Longest":60000000000,"Mode":"enforce","OnOutage":"allow","OutsideInstallation":true,"RowCap":null,"TimeBound":30000000000,"Tenant":""}`)
}

func TestEndpointOverride(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	until := testNow.Add(day)
	run := func(code int, out, errOut, args string) {
		t.Helper()
		b.out.Reset()
		b.errOut.Reset()
		b.want(t, b.run(append([]string{"endpoint", "override"}, strings.Fields(args)...)...), code, out, errOut)
	}
	run(exitUsage, "", "limitctl endpoint override set: the override of \"u1\" at endpoint export is new, so it needs --holder-cap or --share\n"+
		"HINT: limitctl endpoint override set export u1 --holder-cap 5 --until 1d\n", "set export u1")
	run(exitOK, "Made the override of \"u1\" at endpoint export: 5 at once, until 2026-12-01T12:00:00.000000Z.\n", "",
		"set export u1 --holder-cap 5 --until 1d")
	run(exitError, "", "limitctl endpoint override drop: there is no override of \"u1\" at endpoint \"export\"\n"+
		"HINT: limitctl endpoint override list shows what there is\n", "drop export u1 --yes")
	b.client.endpointOverrides = []pgclient.EndpointOverrideRow{{
		Endpoint: "export", Holder: "u1", HolderCap: pgclient.N(5), LimitVersion: 8, Share: 1, State: "valid", UpdatedAt: testNow, ValidUntil: &until,
	}}
	run(exitOK, "Nothing to change: the override of \"u1\" at endpoint export is 5 at once, until 2026-12-01T12:00:00.000000Z.\n", "",
		"set export u1 --holder-cap 5")
	run(exitOK, "Would change the override of \"u1\" at endpoint export to 2 turns for one "+
		"(was 5 at once, until 2026-12-01T12:00:00.000000Z).\n", "",
		"set export u1 --holder-cap none --share 2 --until none --dry-run")
	run(exitOK, "ENDPOINT  HOLDER  HOLDER-CAP  SHARE  UNTIL   STATE    UPDATED\n"+
		"export    u1      5           1      in 24h  + valid  0s ago\n", "", "list export")
	run(exitOK, "Would drop the override of \"u1\" at endpoint export, 5 at once, until 2026-12-01T12:00:00.000000Z.\n", "",
		"drop export u1 --dry-run")
	run(exitOK, "Dropped the override of \"u1\" at endpoint export.\n", "", "drop export u1 --yes")
	b.done(t, `set_endpoint_override {"Endpoint":"export","Holder":"u1","HolderCap":5,"Share":1,"Tenant":"","ValidFrom":null,"ValidUntil":"2026-12-01T12:00:00Z"}`,
		`drop_endpoint_override export u1 ""`)
}

// A ticket is told from a permit.
func TestTicketsInPermitList(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.permits = permitsOf(2)
	b.client.permits[1].State = "waiting"
	b.want(t, b.run("permit", "list"), exitOK, "PERMIT-ID  ENDPOINT  HOLDER  WEIGHT  CLAIMED  EXPIRES  STATE\n"+
		"1          export    u1      1       1m ago   in 1m    + live\n"+
		"2          export    u2      1       1m ago   in 1m    - waiting\n", "")
	b.out.Reset()
	b.want(t, b.run("permit", "release", "--endpoint", "export", "--dry-run"), exitOK, "Would release permit 1 (export, held by \"u1\").\n"+
		"Would release ticket 2 (export, of \"u2\").\n", "")
}

func TestEndpointSetOfANewOne(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.want(t, b.run("endpoint", "set", "export"), exitUsage, "", "limitctl endpoint set: endpoint \"export\" is new, so it needs a cap: "+
		"--holder-cap, --endpoint-cap, or --in-installation for the installation's alone\n"+
		"HINT: limitctl endpoint set export --holder-cap 2 --time-bound 1m\n")
	b.done(t)
	if code := b.run("endpoint", "set", "export", "--in-installation"); code != exitOK {
		t.Errorf("exit code %d: %s", code, b.errOut)
	}
}

func TestDrop(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.env["NO_COLOR"] = "1"
	b.client.limits = []pgclient.LimitRow{{Limit: "api", Tenant: "acme", MaxHits: 1, Per: time.Hour}}
	b.want(t, b.run("limit", "drop", "api", "--yes"), exitError, "", "limitctl limit drop: there is no limit \"api\"\n"+
		"DETAIL: Tenants that have one: \"acme\"\nHINT: name the tenant: --tenant acme\n")
	b.errOut.Reset()
	b.in.WriteString("yes\n")
	b.want(t, b.run("limit", "drop", "api", "--tenant", "acme"), exitOK, "Dropped limit api of tenant \"acme\".\n",
		"Drop limit api of tenant \"acme\", 1 hit per 1h? [y/N] ")
	b.done(t, `drop_limit api "acme"`)
}

func TestInstallation(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.installation = pgclient.Installation{InstallationCap: 25, Epoch: 1000, Grace: 30 * time.Second, PurgeAfter: day}
	b.want(t, b.run("installation", "set-cap", "10"), exitOK, "Changed the cap of the installation from 25 to 10.\n", "")
	b.out.Reset()
	b.want(t, b.run("installation", "set-purge-after", "12h", "--dry-run"), exitOK, "Would change the time before a purge from 1d to 12h.\n", "")
	b.out.Reset()
	b.want(t, b.run("installation", "set-grace", "3m", "--dry-run"), exitOK, "Would change the grace time after a crash from 30s to 3m.\n", "")
	b.out.Reset()
	b.want(t, b.run("installation", "set-grace", "0s"), exitOK, "Changed the grace time after a crash from 30s to 0s.\n", "")
	b.out.Reset()
	b.in.WriteString("y\n")
	b.want(t, b.run("installation", "raise-epoch", "-o", "jsonl"), exitOK, `{"epoch":1001,"before":1000}`+"\n",
		"The epoch is 1000 since the installation. Raise it? That cannot be taken back. [y/N] ")
	b.done(t, "set_installation_cap 10", "set_grace 0s", "raise_epoch")
}

func TestPurgeRun(t *testing.T) {
	t.Parallel()
	purges := func() []pgclient.PurgeResult {
		return []pgclient.PurgeResult{{PermitsPurged: 1, CountersPurged: 9, More: true}, {CountersPurged: 3}}
	}
	t.Run("OneBatch", func(t *testing.T) {
		t.Parallel()
		b := setup(true)
		b.client.purges = purges()
		b.want(t, b.run("purge", "run", "--batch", "10"), exitOK, "Purged 1 permit and 9 counters. There may be more; --all goes on until there is none.\n", "")
		b.done(t, "purge 10")
	})
	t.Run("All", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.purges = purges()
		b.want(t, b.run("purge", "run", "--all", "-o", "jsonl"), exitOK, `{"permits_purged":1,"counters_purged":12,"holds_purged":0,"holds_returned":0,"more":false}`+"\n", "")
		b.done(t, "purge 1000", "purge 1000")
	})
	t.Run("Standby", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.err = &pgconn.PgError{Code: "0A000", Message: "cannot set transaction read-write mode during recovery"}
		b.want(t, b.run("purge", "run", "--all"), exitOK, "permits_purged\t0\ncounters_purged\t0\nholds_purged\t0\nholds_returned\t0\nmore\tfalse\n",
			"NOTICE: this is a standby: nothing to purge here\n")
	})
	t.Run("Every", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		b.client.purges = append(purges()[:1], pgclient.PurgeResult{CountersPurged: 3, HoldsPurged: 2, HoldsReturned: 1})
		ctx, cancel := context.WithCancel(t.Context())
		b.IO.Out = writerFunc(func(p []byte) (int, error) {
			defer cancel() // the first line of the log
			return b.out.Write(p)
		})
		code := run(ctx, b.Factory, []string{"purge", "run", "--every", "1h", "-o", "json"})
		b.want(t, code, exitOK, `{"at":"2026-11-30T12:00:00.000000Z","permits_purged":1,"counters_purged":12,"holds_purged":2,"holds_returned":1}`+"\n", "")
	})
}

func TestSchemaStatus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status migrations.Status
		code   int
		state  string
		errOut string
	}{
		"Current": {migrations.Status{Installed: true, SchemaVersion: 1, WantSchemaVersion: 1, CodeHash: "a", WantCodeHash: "a", CodeVersion: "0.1.0", WantCodeVersion: "0.1.0"}, exitOK, "current", ""},
		"Missing": {migrations.Status{WantSchemaVersion: 1, WantCodeHash: "a", WantCodeVersion: "0.1.0"}, exitSchema, "not installed", "HINT: limitctl schema up installs it\n"},
		"Pending": {migrations.Status{Installed: true, SchemaVersion: 1, WantSchemaVersion: 2, CodeHash: "a", WantCodeHash: "a", CodeVersion: "0.1.0", WantCodeVersion: "0.1.0"}, exitSchema, "pending", "HINT: limitctl schema up brings it up to date\n"},
		"Newer":   {migrations.Status{Installed: true, SchemaVersion: 2, WantSchemaVersion: 1, CodeHash: "b", WantCodeHash: "a", CodeVersion: "0.2.0", WantCodeVersion: "0.1.0"}, exitOK, "newer", ""},
		"Foreign": {
			migrations.Status{ForeignOwner: "bob", WantSchemaVersion: 1, WantCodeHash: "a", WantCodeVersion: "0.1.0"},
			exitSchema, "foreign",
			"limitctl schema status: schema pglimit exists and belongs to bob (SQLSTATE PGL04)\n" +
				"DETAIL: pglimit installs into a schema of that name, owned by pglimit_system.\n" +
				"HINT: rename or drop that schema; if it was made for pglimit: alter schema pglimit owner to pglimit_system\n",
		},
		"Drifted": {migrations.Status{Installed: true, SchemaVersion: 1, WantSchemaVersion: 1, CodeHash: "a", WantCodeHash: "a", CodeVersion: "0.1.0", WantCodeVersion: "0.1.0", Drift: []string{"function x differs"}}, exitSchema, "drifted", "HINT: limitctl schema up --reapply puts functions, policies and grants back; tables it leaves as they are\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(false)
			b.migrator.status = tt.status
			code := b.run("schema", "status")
			if !strings.HasPrefix(b.out.String(), "state\t"+tt.state+"\ndatabase\tapp\n") {
				t.Errorf("%s", b.out)
			}
			b.out.Reset()
			b.want(t, code, tt.code, "", tt.errOut)
		})
	}
}

func TestSchemaUp(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.migrator.up = migrations.Result{CodeApplied: true, CodeTo: "0.1.0", SchemaTo: 1, Applied: []string{"001_init.sql"}}
	b.want(t, b.run("schema", "up"), exitOK, "Installed pglimit 0.1.0 in database \"app\".\nMigrations: 001_init.sql\n", "")
	b.out.Reset()
	b.want(t, b.run("schema", "up", "--dry-run"), exitOK, "Would install pglimit  in database \"app\".\n", "")
	if len(b.migrator.calls) != 1 {
		t.Error("--dry-run installed something")
	}
}

func TestSchemaUpWarnsOfDrift(t *testing.T) {
	t.Parallel()
	const warning = "WARNING: pglimit was changed by hand\n" +
		"HINT: limitctl schema up --reapply puts functions, policies and grants back; tables it leaves as they are\n"
	for _, tty := range []bool{true, false} {
		b := setup(tty)
		b.migrator.up = migrations.Result{CodeFrom: "0.1.0", CodeTo: "0.1.0", SchemaFrom: 1, SchemaTo: 1}
		b.migrator.status = migrations.Status{Installed: true, Drift: []string{"function x differs"}}
		code := b.run("schema", "up", "-o", "jsonl")
		b.want(t, code, exitOK, `{"database":"app","changed":false,"schema_from":1,"schema_to":1,"code_from":"0.1.0","code_to":"0.1.0",`+
			`"code_applied":false,"applied":[],"drift":["function x differs"]}`+"\n", warning)
		b.out.Reset()
		b.errOut.Reset()
		if code := b.run("schema", "up", "--dry-run"); code != exitOK || b.errOut.String() != warning {
			t.Errorf("--dry-run: exit code %d, %s", code, b.errOut)
		}
	}
}

func TestSchemaUpShowsWhereAMigrationFails(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.migrator.err = migrate.MigrationPgError{
		MigrationName: "002_add.sql",
		Sql:           "select 1;\nselect nope;\n",
		PgError:       &pgconn.PgError{Severity: "ERROR", Code: "42703", Message: `column "nope" does not exist`, Position: 18},
	}
	b.want(t, b.run("schema", "up"), exitSchema, "", `limitctl schema up: 002_add.sql: column "nope" does not exist (SQLSTATE 42703)
DETAIL: LINE 2: select nope;
                 ^
HINT: limitctl schema status tells what is installed in this database, limitctl schema up installs pglimit or brings it up to date
`)
}

func TestSchemaDrop(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.migrator.status = migrations.Status{Installed: true, CodeVersion: "0.1.0"}
	b.in.WriteString("yes\n")
	b.want(t, b.run("schema", "drop"), exitUsage, "", "Drop schema pglimit (0.1.0) with everything in it from database \"app\" at db.example.com:5432? That cannot be taken back.\n"+
		"Type app to go on: \x1b[31mlimitctl schema drop:\x1b[0m cancelled, nothing was changed\n")
	b.errOut.Reset()
	b.in.WriteString("app\n")
	b.migrator.drop = migrations.DropResult{Schema: true, Roles: []string{"pglimit_app"}, Kept: []migrations.KeptRole{{Name: "pglimit_system", Reason: "2 objects in database other"}}}
	if code := b.run("schema", "drop"); code != exitOK {
		t.Errorf("exit code %d: %s", code, b.errOut)
	}
	if want := "Dropped schema pglimit from database \"app\".\nDropped roles: pglimit_app\nKept role pglimit_system: 2 objects in database other\n"; b.out.String() != want {
		t.Errorf("%s, want %s", b.out, want)
	}
}

func TestVersionAndRender(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.want(t, b.run("version"), exitOK, "limitctl 0.1.0 (abcdef123456)\n", "")
	b.out.Reset()
	b.want(t, b.run("version", "--server", "-o", "jsonl"), exitOK, `{"version":"0.1.0","commit":"abcdef123456","go_version":"go1.25.0","server_version":"0.1.0"}`+"\n", "")
	b.out.Reset()
	b.want(t, b.run("schema", "render"), exitOK, "-- rendered\n", "")
}

func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  pgconn.PgError
		code int
		want string
	}{
		"All": {
			pgconn.PgError{Code: "PGL01", Message: "cap must not be negative", Detail: "A cap is 0 or more.", Hint: "pass 0 to close it"},
			exitUsage,
			"limitctl limit list: cap must not be negative (SQLSTATE PGL01)\nDETAIL: A cap is 0 or more.\nHINT: pass 0 to close it\n",
		},
		"NotPermitted": {
			pgconn.PgError{Code: "42501", Message: "permission denied for schema pglimit"},
			exitConnect,
			"limitctl limit list: permission denied for schema pglimit (SQLSTATE 42501)\nHINT: grant the login a role of pglimit: " +
				"pglimit_monitor for list and show, pglimit_operator for the rest\n",
		},
		"Locked": {
			pgconn.PgError{Code: "55P03", Message: "canceling statement due to lock timeout"},
			exitError,
			"limitctl limit list: canceling statement due to lock timeout (SQLSTATE 55P03)\nHINT: try again; if it stays, limitctl doctor " +
				"--held-for 1s names the transaction that holds the row, and how to end it (to a member of pg_monitor)\n",
		},
		"NotInstalled": {
			pgconn.PgError{Code: "3F000", Message: `schema "pglimit" does not exist`},
			exitSchema,
			"limitctl limit list: schema \"pglimit\" does not exist (SQLSTATE 3F000)\nHINT: limitctl schema status tells what is installed in this database, " +
				"limitctl schema up installs pglimit or brings it up to date\n",
		},
		"Standby": {
			pgconn.PgError{Code: "0A000", Message: "cannot access temporary or unlogged relations during recovery"},
			exitError,
			"limitctl limit list: cannot access temporary or unlogged relations during recovery (SQLSTATE 0A000)\n" +
				"DETAIL: This server is a standby. Counters and permits are on the primary only.\n" +
				"HINT: connect to the primary; of several hosts in --database-url limitctl finds it itself\n",
		},
		"Escapes": {
			pgconn.PgError{Code: "XX000", Message: "bad \x1b[2Jname\nnext line"},
			exitError,
			"limitctl limit list: bad \\u001b[2Jname\n  next line (SQLSTATE XX000)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(false)
			b.client.err = &tt.err
			b.want(t, b.run("limit", "list", "-o", "json"), tt.code, "", tt.want)
			if !b.client.closed {
				t.Error("the connection was left open")
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.err = context.Canceled
	b.want(t, b.run("limit", "list"), exitInterrupted, "", "limitctl limit list: interrupted\n")
}

// A call that is under way does not end with its context; who presses ctrl-c does not wait for it.
func TestInterruptedInACall(t *testing.T) {
	t.Parallel()
	b := setup(false)
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	b.Factory.Client = func(context.Context) (Client, error) {
		cancel()
		<-release
		return nil, errors.New("too late")
	}
	b.want(t, run(ctx, b.Factory, []string{"limit", "list"}), exitInterrupted, "",
		"limitctl: interrupted; a change that was under way may still have been made\n")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	b := setup(false)
	b.client.limits = []pgclient.LimitRow{{Limit: "api", MaxHits: 9, Per: time.Minute}, {Limit: "login", MaxHits: 5, Per: time.Hour}}
	b.client.endpoints = []pgclient.EndpointRow{{Endpoint: "export"}, {Endpoint: "export", Tenant: "acme"}}
	b.client.permits = permitsOf(1)
	for args, want := range map[string]string{
		"limit show lo":              "login\t5 per 1h\n:4\n",
		"limit show api ":            ":4\n",
		"counter list ":              "api\t9 per 1m\nlogin\t5 per 1h\n:4\n",
		"permit list --endpoint ":    "export\n:4\n",
		"permit release ":            "1\texport, held by u1\n:4\n",
		"limit set api --on-outage ": "allow\nrefuse\n:4\n",
	} {
		b.out.Reset()
		typed := strings.Split(args, " ")
		if code := b.run(append([]string{"__complete"}, typed...)...); code != exitOK || b.out.String() != want {
			t.Errorf("%s: exit code %d\n%s, want\n%s", args, code, b.out, want)
		}
	}
}

func TestCompletionIsQuickAndQuiet(t *testing.T) {
	t.Parallel()
	b := setup(false)
	release := make(chan struct{})
	defer close(release)
	b.Factory.Client = func(context.Context) (Client, error) { <-release; return nil, errors.New("too late") }
	if code := b.run("__complete", "limit", "show", ""); code != exitOK || b.out.String() != ":4\n" {
		t.Errorf("exit code %d: %s", code, b.out)
	}
}

func TestLimitSetMode(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.limits = []pgclient.LimitRow{{
		Limit: "api", MaxHits: 100, Per: time.Minute, Algorithm: "fixed_window", Mode: "enforce", OnOutage: "allow",
	}}
	b.want(t, b.run("limit", "set", "api", "--mode", "shadow"), exitOK,
		"Changed limit api to 100 hits per 1m, mode shadow (was 100 per 1m, mode enforce).\n", "")
	b.done(t, `set_limit {"Limit":"api","MaxHits":100,"Per":60000000000,"Algorithm":"fixed_window","Burst":null,"Carry":"keep","Durable":false,"Mode":"shadow","OnLapse":"","OnOutage":"allow","Tenant":"","TimeZone":""}`)
	b.out.Reset()
	b.client.limits[0].Mode = "shadow"
	b.want(t, b.run("limit", "set", "api", "--mode", "enforce", "--dry-run"), exitOK,
		"Would change limit api to 100 hits per 1m, mode enforce (was 100 per 1m, mode shadow).\n", "")
	b = setup(false)
	b.want(t, b.run("limit", "set", "api", "--mode", "loose"), exitUsage, "",
		"limitctl limit set: --mode \"loose\": it is one of enforce, shadow, off\nHINT: limitctl limit set --help lists the flags\n")
}

func TestOverrideSet(t *testing.T) {
	t.Parallel()
	b := setup(true)
	b.client.overrides = []pgclient.LimitOverrideRow{{Limit: "api", Subject: "bob", MaxHits: 5, State: "valid"}}
	b.client.limits = []pgclient.LimitRow{{Limit: "api"}}
	b.want(t, b.run("limit", "override", "set", "api", "bob", "--max-hits", "1", "--from", "2026-12-01T00:00:00+02:00", "--until", "2d"), exitOK,
		"Gave \"bob\" 1 hit of limit api from 2026-11-30T22:00:00Z until 2026-12-02T12:00:00Z (was 5).\n", "")
	b.done(t, `set_limit_override {"Limit":"api","Subject":"bob","MaxHits":1,"ValidFrom":"2026-12-01T00:00:00+02:00","ValidUntil":"2026-12-02T12:00:00Z","Tenant":""}`)
	b.out.Reset()
	b.want(t, b.run("limit", "override", "set", "api", "bob", "--tenant", "acme", "--max-hits", "0", "--dry-run"), exitOK,
		"Would give \"bob\" 0 hits of limit api of tenant \"acme\".\n", "")
	b.out.Reset()
	b.want(t, b.run("limit", "override", "set", "apii", "bob", "--max-hits", "2", "--dry-run"), exitOK,
		"Would give \"bob\" 2 hits of limit apii.\n",
		"HINT: no row is named \"apii\", so this is for calls that bring max_hits and per; limitctl limit list shows the rows\n")
	b.errOut.Reset()
	b.out.Reset()
	b.want(t, b.run("limit", "override", "drop", "api", "bob", "--yes"), exitOK,
		"Dropped the override of \"bob\": limit api is its limit again.\n", "")
}

func TestBlock(t *testing.T) {
	t.Parallel()
	b := setup(true)
	until := testNow.Add(time.Hour)
	why := "it scrapes"
	b.client.blocks = []pgclient.BlockRow{{Limit: "api", Subject: "bob", State: "blocked", BlockedUntil: &until, Why: &why}}
	b.client.limits = []pgclient.LimitRow{{Limit: "api"}}
	run := func(code int, out, errOut, args string) {
		t.Helper()
		b.out.Reset()
		b.errOut.Reset()
		b.want(t, b.run(append([]string{"block"}, strings.Fields(args)...)...), code, out, errOut)
	}
	run(exitOK, "Blocked \"bob\" at limit api for 1d.\n", "", "set api bob --for 1d --why scrapes")
	run(exitOK, "Blocked \"bob\" at every limit of tenant \"acme\" for ever.\n", "", "set * bob --tenant acme")
	run(exitOK, "Would block \"bob\" at limit api for ever.\n", "", "set api bob --dry-run")
	run(exitOK, "Would block \"203.0.113.7/24\" at limit api for ever.\n",
		"HINT: this is the subject of that name alone; with --range it is the addresses in 203.0.113.0/24\n", "set api 203.0.113.7/24 --dry-run")
	run(exitOK, "Would block \"203.0.113.7/32\" at limit api for ever.\n", "", "set api 203.0.113.7/32 --dry-run")
	run(exitOK, "Would lift the block of \"bob\" at limit api.\n", "", "drop api bob --dry-run")
	run(exitOK, "Lifted the block of \"bob\" at limit api.\n", "", "drop api bob --yes")
	b.client.blocks = append(b.client.blocks, pgclient.BlockRow{Limit: "api", Network: netip.MustParsePrefix("203.0.113.0/24"), State: "blocked"})
	run(exitOK, "Blocked 203.0.113.0/24 at limit api for 1d.\n", "", "set api 203.0.113.9/24 --range --for 1d")
	run(exitOK, "Would block 2001:db8::1/128 at every limit for ever.\n", "", "set * 2001:db8::1 --range --dry-run")
	run(exitOK, "Lifted the block of 203.0.113.0/24 at limit api.\n", "", "drop api 203.0.113.0/24 --range --yes")
	b.done(t, `block {"Duration":86400000000000,"Limit":"api","Subject":"bob","Tenant":"","Why":"scrapes"}`,
		`block {"Duration":null,"Limit":"*","Subject":"bob","Tenant":"acme","Why":""}`, `unblock api bob ""`,
		`block_range {"Duration":86400000000000,"Limit":"api","Network":"203.0.113.0/24","Tenant":"","Why":""}`,
		`unblock_range {"Limit":"api","Network":"203.0.113.0/24","Tenant":""}`)
	b = setup(false)
	run(exitError, "", "limitctl block drop: \"bob\" is not blocked at every limit\n"+
		"HINT: limitctl block list --subject \"bob\" shows where it is; --tenant names another tenant than the empty one\n", "drop * bob --yes")
	b.client.blocks = []pgclient.BlockRow{{Limit: "api", Network: netip.MustParsePrefix("203.0.113.0/24"), State: "blocked"}}
	run(exitError, "", "limitctl block drop: 203.0.113.0/25 is not blocked at limit api\n"+
		"HINT: limitctl block list shows what is; --tenant names another tenant than the empty one\n", "drop api 203.0.113.0/25 --range --yes")
	run(exitError, "", "limitctl block drop: \"203.0.113.7\" is not blocked at limit api\n"+
		"DETAIL: The range 203.0.113.0/24, which it is in, is.\n"+
		"HINT: limitctl block list --subject \"203.0.113.7\" shows where it is; --tenant names another tenant than the empty one\n", "drop api 203.0.113.7 --yes")
	run(exitUsage, "", "limitctl block set: \"bob\" is no range of addresses\n"+
		"HINT: write it as 203.0.113.0/24 or 2001:db8::/32\n", "set api bob --range")
}
