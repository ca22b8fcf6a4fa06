package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// testNow is the clock of all tests.
var testNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// testBundle is limitctl without a database and without a terminal.
type testBundle struct {
	*Factory
	client      *fakeClient
	env         map[string]string
	migrator    *fakeMigrator
	in          *bytes.Buffer
	out, errOut *bytes.Buffer
}

func setup(tty bool) *testBundle {
	streams, in, out, errOut := testIO(tty)
	b := &testBundle{
		client:   &fakeClient{},
		env:      map[string]string{},
		migrator: &fakeMigrator{},
		in:       in, out: out, errOut: errOut,
	}
	getenv := func(name string) string { return b.env[name] }
	b.Factory = &Factory{
		Build:    buildInfo{Commit: "abcdef123456", Go: "go1.25.0", Version: "0.1.0"},
		Client:   func(context.Context) (Client, error) { return b.client, b.client.connectErr },
		IO:       streams,
		Migrator: func(context.Context) (Migrator, error) { return b.migrator, nil },
		Now:      func() time.Time { return testNow },
		Render: func(w io.Writer) error {
			_, err := io.WriteString(w, "-- rendered\n")
			return err
		},
		connector: &connector{getenv: getenv, streams: streams},
		getenv:    getenv,
	}
	return b
}

// run is limitctl with arguments, without the process around it.
func (b *testBundle) run(args ...string) int {
	return run(context.Background(), b.Factory, args)
}

// want fails the test unless the last run ended like this.
func (b *testBundle) want(t *testing.T, code, wantCode int, wantOut, wantErr string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d", code, wantCode)
	}
	if got := b.out.String(); got != wantOut {
		t.Errorf("stdout:\n%s\nwant:\n%s", got, wantOut)
	}
	if got := b.errOut.String(); got != wantErr {
		t.Errorf("stderr:\n%s\nwant:\n%s", got, wantErr)
	}
}

// fakeClient answers from memory, page by page as the functions do, and notes what changes it.
type fakeClient struct {
	connectErr error
	err        error // of every call
	calls      []string
	closed     bool

	blocks            []pgclient.BlockRow
	changes           []pgclient.ChangeRow // the newest first
	counters          []pgclient.CounterRow
	decision          pgclient.Decision
	doctor            []pgclient.DoctorRow
	endpoints         []pgclient.EndpointRow
	installation      pgclient.Installation
	endpointOverrides []pgclient.EndpointOverrideRow
	explained         []pgclient.ExplainRow
	holds             []pgclient.HoldRow
	limits            []pgclient.LimitRow
	overrides         []pgclient.LimitOverrideRow
	permits           []pgclient.PermitRow
	purges            []pgclient.PurgeResult
	signIn            []pgclient.SignInCount
	released          map[int64]pgclient.Reason
}

func (c *fakeClient) did(format string, args ...any) {
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

func (c *fakeClient) Block(_ context.Context, p pgclient.BlockParams) (*time.Time, error) {
	c.did("block %s", jsonOf(p))
	if p.Duration == nil {
		return nil, c.err
	}
	until := testNow.Add(*p.Duration)
	return &until, c.err
}

func (c *fakeClient) BlockRange(_ context.Context, p pgclient.BlockRangeParams) (*time.Time, error) {
	c.did("block_range %s", jsonOf(p))
	return nil, c.err
}

func (c *fakeClient) ListBlocks(_ context.Context, p pgclient.ListBlocksParams) ([]pgclient.BlockRow, error) {
	return pageOf(c.blocks, p.MaxRows,
		func(r pgclient.BlockRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.BlockRow) bool {
			isIn := p.Subject == "" || p.Subject == r.Subject
			if address, err := netip.ParseAddr(p.Subject); err == nil {
				isIn = isIn || r.Network.Contains(address)
			}
			return (p.Limit == "" || p.Limit == r.Limit) && isIn && (!p.Network.IsValid() || p.Network == r.Network) && (p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) UnblockRange(_ context.Context, p pgclient.UnblockRangeParams) (bool, error) {
	c.did("unblock_range %s", jsonOf(p))
	return len(c.blocks) > 0, c.err
}

func (c *fakeClient) Unblock(_ context.Context, p pgclient.UnblockParams) (bool, error) {
	c.did("unblock %s %s %q", p.Limit, p.Subject, p.Tenant)
	return len(c.blocks) > 0, c.err
}

func (c *fakeClient) Close() { c.closed = true }

func (c *fakeClient) Doctor(_ context.Context, p pgclient.DoctorParams) ([]pgclient.DoctorRow, error) {
	c.did("doctor %s", jsonOf(p))
	return c.doctor, c.err
}

func (c *fakeClient) DropEndpoint(_ context.Context, endpoint, tenant string) (bool, error) {
	c.did("drop_endpoint %s %q", endpoint, tenant)
	return true, c.err
}

func (c *fakeClient) DropEndpointOverride(_ context.Context, p pgclient.DropEndpointOverrideParams) (bool, error) {
	c.did("drop_endpoint_override %s %s %q", p.Endpoint, p.Holder, p.Tenant)
	return true, c.err
}

func (c *fakeClient) DropLimit(_ context.Context, limit, tenant string) (bool, error) {
	c.did("drop_limit %s %q", limit, tenant)
	return true, c.err
}

func (c *fakeClient) ExplainLimit(_ context.Context, p pgclient.ExplainParams) ([]pgclient.ExplainRow, error) {
	c.did("explain_limit %s %s %q", p.Limit, p.Subject, p.Tenant)
	return c.explained, c.err
}

// Simulate allows each subject MaxHits in all.
func (c *fakeClient) Simulate(_ context.Context, p pgclient.SimulateParams) ([]pgclient.Simulated, error) {
	used := map[string]int64{}
	answers := make([]pgclient.Simulated, len(p.Events))
	for i, e := range p.Events {
		if answers[i].Allowed = used[e.Subject]+e.Cost <= *p.MaxHits; answers[i].Allowed {
			used[e.Subject] += e.Cost
		}
	}
	p.Events = nil
	c.did("simulate %s", jsonOf(p))
	return answers, c.err
}

func (c *fakeClient) ForceRelease(_ context.Context, id int64, why string) (pgclient.ReleaseResult, error) {
	c.did("force_release %d %q", id, why)
	reason, ok := c.released[id]
	if !ok {
		reason = pgclient.ReasonUnknown
	}
	return pgclient.ReleaseResult{Released: reason == pgclient.ReasonReleased, Reason: reason}, c.err
}

func (c *fakeClient) Forget(_ context.Context, p pgclient.ForgetParams) (bool, error) {
	c.did("forget %s %s %q", p.Limit, p.Subject, p.Tenant)
	return slices.ContainsFunc(c.counters, func(r pgclient.CounterRow) bool { return r.Subject == p.Subject }), c.err
}

func (c *fakeClient) ForgetSignIn(_ context.Context, p pgclient.SignInParams) (bool, error) {
	c.did("forget_sign_in %s", jsonOf(p))
	return slices.ContainsFunc(c.signIn, func(r pgclient.SignInCount) bool { return r.Used > 0 }), c.err
}

func (c *fakeClient) ShowSignIn(_ context.Context, p pgclient.SignInParams) ([]pgclient.SignInCount, error) {
	c.did("show_sign_in %s", jsonOf(p))
	return c.signIn, c.err
}

func (c *fakeClient) InstallReady(_ context.Context, name, tenant string) (int64, error) {
	c.did("install_ready %s %q", name, tenant)
	return 7, c.err
}

// pageOf is the keyset paging of all lists.
func pageOf[T any](rows []T, n int, behind, matches func(T) bool) []T {
	var page []T
	for _, r := range rows {
		if behind(r) && matches(r) && len(page) < n {
			page = append(page, r)
		}
	}
	return page
}

func (c *fakeClient) ListChanges(_ context.Context, p pgclient.ListChangesParams) ([]pgclient.ChangeRow, error) {
	return pageOf(c.changes, p.MaxRows,
		func(r pgclient.ChangeRow) bool { return p.After == 0 || r.Version < p.After },
		func(r pgclient.ChangeRow) bool {
			return (p.Name == "" || p.Name == r.Name) && (p.Tenant == nil || *p.Tenant == r.Tenant) && (p.Action == "" || p.Action == r.Action)
		}), c.err
}

func (c *fakeClient) ListCounters(_ context.Context, p pgclient.ListCountersParams) ([]pgclient.CounterRow, error) {
	return pageOf(c.counters, p.MaxRows,
		func(r pgclient.CounterRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.CounterRow) bool {
			return (p.Limit == "" || p.Limit == r.Limit) && (p.Subject == "" || p.Subject == r.Subject) &&
				(p.Tenant == nil || *p.Tenant == r.Tenant) && (p.IncludeClosed || r.State == "open")
		}), c.err
}

func (c *fakeClient) ListEndpointOverrides(_ context.Context, p pgclient.ListEndpointOverridesParams) ([]pgclient.EndpointOverrideRow, error) {
	return pageOf(c.endpointOverrides, p.MaxRows,
		func(r pgclient.EndpointOverrideRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.EndpointOverrideRow) bool {
			return (p.Endpoint == "" || p.Endpoint == r.Endpoint) && (p.Holder == "" || p.Holder == r.Holder) &&
				(p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) ListEndpoints(_ context.Context, p pgclient.ListEndpointsParams) ([]pgclient.EndpointRow, error) {
	return pageOf(c.endpoints, p.MaxRows,
		func(r pgclient.EndpointRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.EndpointRow) bool {
			return (p.Endpoint == "" || p.Endpoint == r.Endpoint) && (p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) DropLimitOverride(_ context.Context, p pgclient.DropLimitOverrideParams) (bool, error) {
	c.did("drop_limit_override %s %q %q", p.Limit, p.Subject, p.Tenant)
	return len(c.overrides) > 0, c.err
}

func (c *fakeClient) ListHolds(_ context.Context, p pgclient.ListHoldsParams) ([]pgclient.HoldRow, error) {
	return pageOf(c.holds, p.MaxRows,
		func(r pgclient.HoldRow) bool { return r.ID > p.After },
		func(r pgclient.HoldRow) bool {
			return (p.Limit == "" || p.Limit == r.Limit) && (p.Subject == "" || p.Subject == r.Subject) &&
				(p.State == "" || p.State == r.State) && (p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) ListLimitOverrides(_ context.Context, p pgclient.ListLimitOverridesParams) ([]pgclient.LimitOverrideRow, error) {
	return pageOf(c.overrides, p.MaxRows,
		func(r pgclient.LimitOverrideRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.LimitOverrideRow) bool {
			return (p.Limit == "" || p.Limit == r.Limit) && (p.Subject == "" || p.Subject == r.Subject) && (p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) SetLimitOverride(_ context.Context, p pgclient.SetLimitOverrideParams) (int64, error) {
	c.did("set_limit_override %s", jsonOf(p))
	return 7, c.err
}

func (c *fakeClient) ListLimits(_ context.Context, p pgclient.ListLimitsParams) ([]pgclient.LimitRow, error) {
	return pageOf(c.limits, p.MaxRows,
		func(r pgclient.LimitRow) bool { return p.After == "" || r.Cursor > p.After },
		func(r pgclient.LimitRow) bool {
			return (p.Limit == "" || p.Limit == r.Limit) && (p.Tenant == nil || *p.Tenant == r.Tenant)
		}), c.err
}

func (c *fakeClient) ListPermits(_ context.Context, p pgclient.ListPermitsParams) ([]pgclient.PermitRow, error) {
	c.did("list_permits after %d, %d rows", p.After, p.MaxRows)
	return pageOf(c.permits, p.MaxRows,
		func(r pgclient.PermitRow) bool { return r.ID > p.After },
		func(r pgclient.PermitRow) bool {
			return (p.Endpoint == "" || p.Endpoint == r.Endpoint) && (p.Holder == "" || p.Holder == r.Holder) &&
				(p.Tenant == nil || *p.Tenant == r.Tenant) && (p.IncludeLapsed || r.State != "lapsed")
		}), c.err
}

func (c *fakeClient) Peek(context.Context, pgclient.HitParams) (pgclient.Decision, error) {
	return c.decision, c.err
}

func (c *fakeClient) Purge(_ context.Context, batch int64) (r pgclient.PurgeResult, err error) {
	c.did("purge %d", batch)
	if len(c.purges) > 0 {
		r, c.purges = c.purges[0], c.purges[1:]
	}
	return r, c.err
}

func (c *fakeClient) RaiseEpoch(context.Context) (int64, error) {
	c.did("raise_epoch")
	return c.installation.Epoch + 1, c.err
}

func (c *fakeClient) ReleaseHolder(_ context.Context, p pgclient.ReleaseHolderParams) (int64, error) {
	c.did("release_holder %s %q %q %q", p.Endpoint, p.Holder, p.Tenant, p.Why)
	return int64(len(c.permits)), c.err
}

func (c *fakeClient) ReleasePermit(_ context.Context, id int64, holder string) (pgclient.ReleaseResult, error) {
	c.did("release_permit %d %q", id, holder)
	reason, ok := c.released[id]
	if !ok {
		reason = pgclient.ReasonUnknown
	}
	return pgclient.ReleaseResult{Released: reason == pgclient.ReasonReleased, Reason: reason}, c.err
}

func (c *fakeClient) SetEndpoint(_ context.Context, p pgclient.SetEndpointParams) (int64, error) {
	c.did("set_endpoint %s", jsonOf(p))
	return 7, c.err
}

func (c *fakeClient) SetGrace(_ context.Context, grace time.Duration) (time.Duration, error) {
	c.did("set_grace %s", grace)
	return c.installation.Grace, c.err
}

func (c *fakeClient) SetEndpointOverride(_ context.Context, p pgclient.SetEndpointOverrideParams) (int64, error) {
	c.did("set_endpoint_override %s", jsonOf(p))
	return 8, c.err
}

func (c *fakeClient) SetInstallationCap(_ context.Context, bound int64) (int64, error) {
	c.did("set_installation_cap %d", bound)
	return c.installation.InstallationCap, c.err
}

func (c *fakeClient) SetLimit(_ context.Context, p pgclient.SetLimitParams) (int64, error) {
	c.did("set_limit %s", jsonOf(p))
	return 7, c.err
}

func (c *fakeClient) SetPurgeAfter(_ context.Context, idle time.Duration) (time.Duration, error) {
	c.did("set_purge_after %s", idle)
	return c.installation.PurgeAfter, c.err
}

func (c *fakeClient) ShowInstallation(context.Context) (pgclient.Installation, error) {
	return c.installation, c.err
}

func (c *fakeClient) Version(context.Context) (string, error) { return "0.1.0", c.err }

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// fakeMigrator is a database in which pglimit is in some state.
type fakeMigrator struct {
	calls   []string
	drop    migrations.DropResult
	err     error
	session Session
	status  migrations.Status
	up      migrations.Result
}

func (m *fakeMigrator) Check(context.Context) (migrations.Status, error) { return m.status, m.err }
func (m *fakeMigrator) Close()                                           {}
func (m *fakeMigrator) Database() string                                 { return "app" }
func (m *fakeMigrator) Server() string                                   { return "db.example.com:5432" }

func (m *fakeMigrator) Session(context.Context) (Session, error) { return m.session, m.err }

func (m *fakeMigrator) Drop(context.Context, ...migrations.Option) (migrations.DropResult, error) {
	m.calls = append(m.calls, "drop")
	return m.drop, m.err
}

func (m *fakeMigrator) Up(context.Context, ...migrations.Option) (migrations.Result, error) {
	m.calls = append(m.calls, "up")
	return m.up, m.err
}

// permitsOf makes n live permits.
func permitsOf(n int) []pgclient.PermitRow {
	rows := make([]pgclient.PermitRow, n)
	for i := range rows {
		rows[i] = pgclient.PermitRow{
			ID: int64(i + 1), Endpoint: "export", Holder: "u" + strconv.Itoa(i+1), Weight: 1, State: "live",
			ClaimedAt: testNow.Add(-time.Minute), ExpiresAt: testNow.Add(time.Minute),
		}
	}
	return rows
}
