package cli

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

// parse runs a command up to the point where it would do something, and returns its options without
// the functions and streams, which are not to be compared.
func parse[O any](t *testing.T, tty bool, newCmd func(*Factory, func(context.Context, *O) error) *cobra.Command, args ...string) (*O, error) {
	t.Helper()
	b := setup(tty)
	var got *O
	cmd := newCmd(b.Factory, func(_ context.Context, o *O) error { got = o; return nil })
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(flagError)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return nil, err
	}
	v := reflect.ValueOf(got).Elem()
	for _, name := range []string{"Build", "Client", "IO", "Migrator", "Now", "Render"} {
		if f := v.FieldByName(name); f.IsValid() {
			f.SetZero()
		}
	}
	return got, nil
}

// parses is one case: what is typed and what it means, or why it means nothing.
type parses[O any] struct {
	args string
	want O
	err  string
}

func (tt parses[O]) check(t *testing.T, newCmd func(*Factory, func(context.Context, *O) error) *cobra.Command) {
	t.Helper()
	t.Run(tt.args, func(t *testing.T) {
		t.Parallel()
		var args []string
		if tt.args != "" {
			args = strings.Split(tt.args, " ")
		}
		got, err := parse(t, false, newCmd, args...)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if p := explain(err); p.code != exitUsage || p.hint == "" {
				t.Errorf("code %d, hint %q: want %d and a hint", p.code, p.hint, exitUsage)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("got %+v\nwant %+v", *got, tt.want)
		}
	})
}

func all(limit int) listOptions { return listOptions{Interval: 2 * time.Second, Limit: limit} }

func TestParsePermitList(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[permitListOptions]{
		{args: "", want: permitListOptions{listOptions: all(30)}},
		{args: "--limit 0 --endpoint export --holder u1 --include-lapsed", want: permitListOptions{Endpoint: "export", Holder: "u1", IncludeLapsed: true, listOptions: all(0)}},
		{args: "--tenant=", want: permitListOptions{Tenant: pgclient.S(""), listOptions: all(30)}},
		{args: "--held-longer-than 1h --lapses-within 30s", want: permitListOptions{HeldLongerThan: pgclient.D(time.Hour), LapsesWithin: pgclient.D(30 * time.Second), listOptions: all(30)}},
		{args: "--held-longer-than soon", err: "numbers with units"},
		{args: "-w --interval 500ms -o jsonl", want: permitListOptions{listOptions: listOptions{Format: "jsonl", Interval: 500 * time.Millisecond, Limit: 30, Watch: true}}},
		{args: "-L -1", err: "cannot be negative"},
		{args: "-L x", err: `--limit "x"`},
		{args: "-o xml", err: "one of table, wide, json, jsonl, yaml, csv, name"},
		{args: "-w -o yaml", err: "cannot be shown as yaml"},
		{args: "-w --interval 1ms", err: "too short"},
		{args: "--interval 1s", err: "goes with --watch"},
		{args: "export", err: "too many arguments"},
		{args: "--dsn x", err: "unknown flag: --dsn"},
	} {
		tt.check(t, newPermitListCmd)
	}
}

func TestParsePermitRelease(t *testing.T) {
	t.Parallel()
	yes := consent{Yes: true}
	for _, tt := range []parses[permitReleaseOptions]{
		{args: "1 2 --yes", want: permitReleaseOptions{IDs: []int64{1, 2}, consent: yes}},
		{args: "1 --holder u1 -y", want: permitReleaseOptions{IDs: []int64{1}, Holder: "u1", consent: yes}},
		{args: "--holder u1 --dry-run", want: permitReleaseOptions{Holder: "u1", consent: consent{DryRun: true}}},
		{args: "--tenant= --yes", want: permitReleaseOptions{Tenant: pgclient.S(""), consent: yes}},
		{args: "1 2 --force --why gone --yes", want: permitReleaseOptions{Force: true, IDs: []int64{1, 2}, Why: "gone", consent: yes}},
		{args: "1 --force --yes", err: "--why is missing"},
		{args: "1 --force --why= --yes", err: "--why is missing"},
		{args: "1 --why gone --yes", err: "--why goes with --force"},
		{args: "--holder u1 --force --why gone --yes", err: "--force goes with ids alone"},
		{args: "1 --holder u1 --force --why gone --yes", err: "--force goes with ids alone"},
		{args: "1 --force --why gone", err: "no terminal to ask on"},
		{args: "--yes", err: "nothing says which"},
		{args: "1 --endpoint e --yes", err: "do not go with"},
		{args: "x --yes", err: "a whole number"},
		{args: "0 --yes", err: "a whole number"},
		{args: "1", err: "no terminal to ask on"},
	} {
		tt.check(t, newPermitReleaseCmd)
	}
}

func TestParsePermitReleaseHolder(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[permitReleaseHolderOptions]{
		{args: "export u1 --why gone --tenant acme --yes", want: permitReleaseHolderOptions{Endpoint: "export", Holder: "u1", Tenant: "acme", Why: "gone", consent: consent{Yes: true}}},
		{args: "export --why gone --yes", err: "missing argument: <holder>"},
		{args: "export  --why gone --yes", err: "is empty"},
		{args: "export u1 --yes", err: "--why is missing"},
		{args: "export u1 --why gone", err: "no terminal to ask on"},
	} {
		tt.check(t, newPermitReleaseHolderCmd)
	}
}

func TestParseChangeList(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[changeListOptions]{
		{args: "", want: changeListOptions{listOptions: all(30)}},
		{args: "login --action drop_limit --tenant=", want: changeListOptions{Action: "drop_limit", Name: "login", Tenant: pgclient.S(""), listOptions: all(30)}},
		{args: "login --action drop", err: "one of set_limit, "},
		{args: "login logout", err: "at most 1 argument"},
	} {
		tt.check(t, newChangeListCmd)
	}
}

func TestParsePermitShow(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[permitShowOptions]{
		{args: "17 -o json", want: permitShowOptions{Format: "json", ID: 17}},
		{args: "", err: "missing argument: <permit-id>"},
		{args: "1 2", err: "at most 1 argument"},
	} {
		tt.check(t, newPermitShowCmd)
	}
}

func TestParseCounterList(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[counterListOptions]{
		{args: "", want: counterListOptions{listOptions: all(30)}},
		{args: "login --subject bob --include-closed", want: counterListOptions{LimitName: "login", Subject: "bob", IncludeClosed: true, listOptions: all(30)}},
		{args: "login bob", err: "at most 1 argument"},
	} {
		tt.check(t, newCounterListCmd)
	}
}

func TestParseHoldList(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[holdListOptions]{
		{args: "", want: holdListOptions{State: "open", listOptions: all(30)}},
		{args: "tokens --subject bob --state all --tenant=", want: holdListOptions{LimitName: "tokens", Subject: "bob", State: "all", Tenant: pgclient.S(""), listOptions: all(30)}},
		{args: "--state gone", err: "one of open, lapsed, settled, returned, all"},
		{args: "tokens bob", err: "at most 1 argument"},
	} {
		tt.check(t, newHoldListCmd)
	}
}

func TestParseCounterShow(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[counterShowOptions]{
		{args: "login bob --tenant acme", want: counterShowOptions{LimitName: "login", Subject: "bob", Tenant: "acme"}},
		{args: "login", err: "missing argument: <subject>"},
		{args: "login bob -o name", err: "it is one of"},
	} {
		tt.check(t, newCounterShowCmd)
	}
}

func TestParseCounterForget(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[counterForgetOptions]{
		{args: "login bob eve --yes", want: counterForgetOptions{LimitName: "login", Subjects: []string{"bob", "eve"}, consent: consent{Yes: true}}},
		{args: "login --yes", err: "missing argument: <subject>"},
		{args: "login bob", err: "no terminal to ask on"},
	} {
		tt.check(t, newCounterForgetCmd)
	}
}

func TestParseSignIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[signInShowOptions]{
		{args: "ann --source 203.0.113.7 --tenant acme", want: signInShowOptions{Account: "ann", Source: "203.0.113.7", Tenant: "acme"}},
		{args: "ann", err: "--source is missing"},
		{args: "--source 203.0.113.7", err: "missing argument: <account>"},
	} {
		tt.check(t, newSignInShowCmd)
	}
	for _, tt := range []parses[signInForgetOptions]{
		{args: "ann --yes", want: signInForgetOptions{Account: "ann", consent: consent{Yes: true}}},
		{args: "ann --source 203.0.113.7 --dry-run", want: signInForgetOptions{Account: "ann", Source: "203.0.113.7", consent: consent{DryRun: true}}},
		{args: "ann --source= --yes", err: "--source is blank"},
		{args: "ann", err: "no terminal to ask on"},
	} {
		tt.check(t, newSignInForgetCmd)
	}
}

func TestParseLimitSet(t *testing.T) {
	t.Parallel()
	durable := true
	for _, tt := range []parses[limitSetOptions]{
		{args: "login --max-hits 5 --per 15m", want: limitSetOptions{LimitName: "login", MaxHits: pgclient.N(5), Per: &window{per: 15 * time.Minute}}},
		{args: "login --max-hits 0 --burst none --on-outage refuse --mode shadow --algorithm token_bucket", want: limitSetOptions{
			LimitName: "login", MaxHits: pgclient.N(0), Burst: change[int64]{given: true}, OnOutage: "refuse", Mode: "shadow", Algorithm: "token_bucket",
		}},
		{args: "login --burst 7 --dry-run --tenant acme", want: limitSetOptions{LimitName: "login", Burst: change[int64]{true, pgclient.N(7)}, DryRun: true, Tenant: "acme"}},
		{args: "login --max-hits -5", err: "from 0 on"},
		{args: "login --durable --time-zone Europe/Berlin", want: limitSetOptions{
			LimitName: "login", Durable: &durable, TimeZone: change[string]{true, pgclient.S("Europe/Berlin")},
		}},
		{args: "login --per month --algorithm calendar", want: limitSetOptions{
			LimitName: "login", Per: &window{per: pgclient.CalendarMonth, unit: "month"}, Algorithm: "calendar",
		}},
		{args: "login --per week", want: limitSetOptions{LimitName: "login", Per: &window{per: 7 * day}}},
		{args: "login --algorithm gcra", err: "it is one of fixed_window, sliding_window, token_bucket, calendar"},
		{args: "login --per 2months", err: "no fixed length"},
		{args: "login --per 60", err: "write 60s"},
		{args: "login --on-outage panic", err: "one of allow, refuse"},
		{args: "", err: "missing argument: <limit>"},
	} {
		tt.check(t, newLimitSetCmd)
	}
}

func TestParseLimitListShowDrop(t *testing.T) {
	t.Parallel()
	parses[limitListOptions]{args: "api --tenant acme", want: limitListOptions{LimitName: "api", Tenant: pgclient.S("acme"), listOptions: all(30)}}.check(t, newLimitListCmd)
	parses[limitShowOptions]{args: "api -o yaml", want: limitShowOptions{LimitName: "api", Format: "yaml"}}.check(t, newLimitShowCmd)
	parses[dropOptions]{args: "api --yes", want: dropOptions{Name: "api", consent: consent{Yes: true}}}.check(t, newLimitDropCmd)
	parses[dropOptions]{args: "api", err: "no terminal to ask on"}.check(t, newLimitDropCmd)
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	no := false
	bound := 30 * time.Second
	parses[endpointListOptions]{args: "export", want: endpointListOptions{Endpoint: "export", listOptions: all(30)}}.check(t, newEndpointListCmd)
	parses[endpointShowOptions]{args: "export --tenant t", want: endpointShowOptions{Endpoint: "export", Tenant: "t"}}.check(t, newEndpointShowCmd)
	parses[dropOptions]{args: "export --dry-run", want: dropOptions{Name: "export", consent: consent{DryRun: true}}}.check(t, newEndpointDropCmd)
	for _, tt := range []parses[endpointSetOptions]{
		{args: "export --holder-cap 2 --endpoint-cap none --time-bound 30s --in-installation=false", want: endpointSetOptions{
			Endpoint: "export", HolderCap: change[int64]{true, pgclient.N(2)}, EndpointCap: change[int64]{given: true},
			TimeBound: change[time.Duration]{true, &bound}, InInstallation: &no,
		}},
		{args: "export --longest 30s", want: endpointSetOptions{Endpoint: "export", Longest: change[time.Duration]{true, &bound}}},
		{args: "export --longest none", want: endpointSetOptions{Endpoint: "export", Longest: change[time.Duration]{given: true}}},
		{args: "export --fair=false --queue-cap 0 --holder-queue-cap 5 --mode off", want: endpointSetOptions{
			Endpoint: "export", Fair: &no, HolderQueueCap: pgclient.N(5), Mode: "off", QueueCap: pgclient.N(0),
		}},
		{args: "export --mode maybe", err: "one of enforce, shadow, off"},
		{args: "export --queue-cap none", err: "from 0 on"},
		{args: "export --row-cap many", err: "from 0 on"},
		{args: "export --time-bound soon", err: "numbers with units"},
	} {
		tt.check(t, newEndpointSetCmd)
	}
}

func TestParseEndpointOverride(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	hour := testNow.Add(time.Hour)
	parses[endpointOverrideListOptions]{args: "export --holder u1 --tenant t", want: endpointOverrideListOptions{Endpoint: "export", Holder: "u1", Tenant: pgclient.S("t"), listOptions: all(30)}}.check(t, newEndpointOverrideListCmd)
	parses[endpointOverrideDropOptions]{args: "export u1 -y", want: endpointOverrideDropOptions{Endpoint: "export", Holder: "u1", consent: consent{Yes: true}}}.check(t, newEndpointOverrideDropCmd)
	parses[endpointOverrideDropOptions]{args: "export u1", err: "no terminal to ask on"}.check(t, newEndpointOverrideDropCmd)
	for _, tt := range []parses[endpointOverrideSetOptions]{
		{args: "export u1 --holder-cap none --share 2 --from 2026-12-01 --until 1h", want: endpointOverrideSetOptions{
			Endpoint: "export", Holder: "u1", HolderCap: change[int64]{given: true}, Share: pgclient.N(2),
			ValidFrom: change[time.Time]{true, &at}, ValidUntil: change[time.Time]{true, &hour},
		}},
		{args: "export u1 --from 2026-12-01T00:00Z", err: "such as 2030-01-31"},
		{args: "export u1 --from 2026-12-01T00:00:00Z --until none", want: endpointOverrideSetOptions{
			Endpoint: "export", Holder: "u1", ValidFrom: change[time.Time]{true, &at}, ValidUntil: change[time.Time]{given: true},
		}},
		{args: "export u1 --until tomorrow", err: "such as 2030-01-31"},
		{args: "export", err: "missing argument: <holder>"},
	} {
		tt.check(t, newEndpointOverrideSetCmd)
	}
}

func TestParseInstallation(t *testing.T) {
	t.Parallel()
	parses[installationShowOptions]{args: "-o csv", want: installationShowOptions{Format: "csv"}}.check(t, newInstallationShowCmd)
	parses[setCapOptions]{args: "25", want: setCapOptions{Cap: 25}}.check(t, newInstallationSetCapCmd)
	parses[setCapOptions]{args: "many", err: "from 0 on"}.check(t, newInstallationSetCapCmd)
	parses[setPurgeAfterOptions]{args: "1d12h", want: setPurgeAfterOptions{Idle: 36 * time.Hour}}.check(t, newInstallationSetPurgeAfterCmd)
	parses[setGraceOptions]{args: "3m", want: setGraceOptions{Grace: 3 * time.Minute}}.check(t, newInstallationSetGraceCmd)
	parses[setGraceOptions]{args: "5", err: "write 5s"}.check(t, newInstallationSetGraceCmd)
	parses[setPurgeAfterOptions]{args: "5", err: "write 5s"}.check(t, newInstallationSetPurgeAfterCmd)
	parses[raiseEpochOptions]{args: "--yes", want: raiseEpochOptions{consent: consent{Yes: true}}}.check(t, newInstallationRaiseEpochCmd)
	parses[raiseEpochOptions]{args: "", err: "no terminal to ask on"}.check(t, newInstallationRaiseEpochCmd)
}

func TestParsePurgeRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []parses[purgeRunOptions]{
		{args: "", want: purgeRunOptions{Batch: 1000}},
		{args: "--all --batch 50", want: purgeRunOptions{All: true, Batch: 50}},
		{args: "--every 10m", want: purgeRunOptions{Batch: 1000, Every: 10 * time.Minute}},
		{args: "--batch 0", err: "at least 1"},
		{args: "--every 1ms", err: "too short"},
		{args: "--every 0s", err: "too short"},
	} {
		tt.check(t, newPurgeRunCmd)
	}
}

func TestParseSchemaAndVersion(t *testing.T) {
	t.Parallel()
	parses[schemaUpOptions]{args: "--reapply --retry-for 5s", want: schemaUpOptions{Reapply: true, RetryFor: 5 * time.Second}}.check(t, newSchemaUpCmd)
	parses[schemaStatusOptions]{args: "-o json", want: schemaStatusOptions{Format: "json"}}.check(t, newSchemaStatusCmd)
	parses[schemaRenderOptions]{args: "", want: schemaRenderOptions{}}.check(t, newSchemaRenderCmd)
	parses[schemaDropOptions]{args: "--yes --keep-roles", want: schemaDropOptions{KeepRoles: true, RetryFor: 30 * time.Second, consent: consent{Yes: true}}}.check(t, newSchemaDropCmd)
	parses[schemaDropOptions]{args: "", err: "no terminal to ask on"}.check(t, newSchemaDropCmd)
	parses[versionOptions]{args: "--server", want: versionOptions{Server: true}}.check(t, newVersionCmd)
}
