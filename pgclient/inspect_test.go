package pgclient_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	version := must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "a", MaxHits: 0, Per: 25 * time.Hour}))(t)
	rows := must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{Limit: "a"}))(t)
	if len(rows) != 1 {
		t.Fatalf("got %d rows, want 1", len(rows))
	}
	row := rows[0]
	if row.UpdatedAt.IsZero() || row.UpdatedBy == "" || row.Cursor == "" {
		t.Errorf("got %+v, want who and when, and a cursor", row)
	}
	row.Cursor, row.UpdatedAt, row.UpdatedBy = "", time.Time{}, ""
	want(t, "row", row, pgclient.LimitRow{
		Algorithm: pgclient.AlgorithmFixedWindow, Limit: "a", LimitVersion: version, Mode: pgclient.ModeEnforce,
		OnLapse: pgclient.OnLapseKeep, OnOutage: pgclient.OnOutageAllow, Per: 25 * time.Hour,
	})

	changed := must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{
		Limit: "a", MaxHits: 7, Per: 1500 * time.Millisecond, OnOutage: pgclient.OnOutageRefuse,
	}))(t)
	if changed <= version {
		t.Errorf("got version %d after %d, want a greater one", changed, version)
	}
	row = must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{Limit: "a"}))(t)[0]
	want(t, "max hits", row.MaxHits, 7)
	want(t, "per", row.Per, 1500*time.Millisecond)
	want(t, "on outage", row.OnOutage, pgclient.OnOutageRefuse)

	must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "a", MaxHits: 1, Per: time.Hour, Tenant: "t1"}))(t)
	must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "b", MaxHits: 1, Per: time.Hour}))(t)
	var names string
	for after := ""; ; {
		page := must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{After: after, MaxRows: 2}))(t)
		for _, row := range page {
			names += fmt.Sprintf("%s/%s ", row.Tenant, row.Limit)
			after = row.Cursor
		}
		if len(page) < 2 {
			break
		}
	}
	want(t, "pages of two", names, "/a /b t1/a ")

	want(t, "drop", must(db.operator.DropLimit(ctx, "a", "t1"))(t), true)
	want(t, "drop again", must(db.operator.DropLimit(ctx, "a", "t1"))(t), false)
	want(t, "rows left", len(must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{}))(t)), 2)

	_, err := db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "a", MaxHits: 1, Per: time.Hour, Mode: "maybe"})
	wantKind(t, err, pgclient.ErrInvalidArgument)
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	version := must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: "a", EndpointCap: pgclient.N(0), OutsideInstallation: true}))(t)
	rows := must(db.operator.ListEndpoints(ctx, pgclient.ListEndpointsParams{Endpoint: "a"}))(t)
	if len(rows) != 1 {
		t.Fatalf("got %d rows, want 1", len(rows))
	}
	row := rows[0]
	if row.EndpointCap == nil || *row.EndpointCap != 0 {
		t.Errorf("got endpoint cap %v, want 0", row.EndpointCap)
	}
	if row.UpdatedAt.IsZero() || row.UpdatedBy == "" || row.Cursor == "" {
		t.Errorf("got %+v, want who and when, and a cursor", row)
	}
	if row.Waiting == nil || *row.Waiting != 0 {
		t.Errorf("got waiting %v, want 0", row.Waiting)
	}
	row.Cursor, row.EndpointCap, row.UpdatedAt, row.UpdatedBy, row.Waiting = "", nil, time.Time{}, "", nil
	want(t, "row", row, pgclient.EndpointRow{
		Endpoint: "a", HolderQueueCap: 100, LimitVersion: version, Mode: pgclient.ModeEnforce, OnOutage: pgclient.OnOutageAllow,
		QueueCap: 1000,
	})

	must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{
		Endpoint: "b", HolderCap: pgclient.N(2), RowCap: pgclient.N(9), TimeBound: pgclient.D(36 * time.Hour),
		Longest: pgclient.D(48 * time.Hour),
	}))(t)
	page := must(db.operator.ListEndpoints(ctx, pgclient.ListEndpointsParams{After: rows[0].Cursor}))(t)
	if len(page) != 1 {
		t.Fatalf("got %d rows behind the first, want 1", len(page))
	}
	b := page[0]
	want(t, "in installation", b.InInstallation, true)
	if b.EndpointCap != nil || b.HolderCap == nil || *b.HolderCap != 2 || b.RowCap == nil || *b.RowCap != 9 ||
		b.TimeBound == nil || *b.TimeBound != 36*time.Hour || b.Longest == nil || *b.Longest != 48*time.Hour {
		t.Errorf("got %+v, want what was set", b)
	}

	want(t, "drop", must(db.operator.DropEndpoint(ctx, "a", ""))(t), true)
	want(t, "drop again", must(db.operator.DropEndpoint(ctx, "a", ""))(t), false)
}

func TestLists(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	t.Run("Permits", func(t *testing.T) {
		t.Parallel()
		claim := func(holder string, lease time.Duration) int64 {
			t.Helper()
			p := must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{
				Endpoint: "e", Holder: holder, EndpointCap: pgclient.N(10), Lease: pgclient.D(lease), Weight: pgclient.N(2),
			}))(t)
			want(t, "granted", p.Granted, true)
			return p.ID
		}
		first, second, third := claim("u1", time.Hour), claim("u2", time.Hour), claim("u1", time.Hour)
		lapsed := claim("u3", time.Millisecond)
		time.Sleep(5 * time.Millisecond)

		page := must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{MaxRows: 2}))(t)
		want(t, "rows of the first page", len(page), 2)
		want(t, "first", page[0].ID, first)
		want(t, "second", page[1].ID, second)
		page = must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{After: second}))(t)
		want(t, "rows of the second page", len(page), 1)
		row := page[0]
		want(t, "expiry", row.ExpiresAt.Sub(row.ClaimedAt) > 59*time.Minute, true)
		row.ClaimedAt, row.ExpiresAt = time.Time{}, time.Time{}
		if row.Note != nil {
			t.Errorf("got note %s, want none", row.Note)
		}
		row.Note = nil
		got := fmt.Sprintf("%+v", row)
		want(t, "row", got, fmt.Sprintf("%+v", pgclient.PermitRow{Endpoint: "e", Holder: "u1", ID: third, State: "live", Weight: 2}))

		want(t, "of a holder", len(must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Holder: "u1"}))(t)), 2)
		want(t, "of no endpoint", len(must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: "f"}))(t)), 0)
		page = must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{After: third, IncludeLapsed: true}))(t)
		if len(page) != 1 || page[0].ID != lapsed || page[0].State != "lapsed" {
			t.Errorf("got %+v, want the lapsed permit %d", page, lapsed)
		}
	})

	t.Run("Counters", func(t *testing.T) {
		t.Parallel()
		hit := func(subject string, per time.Duration) {
			t.Helper()
			must(db.app.Hit(ctx, pgclient.HitParams{
				Limit: "l", Subject: subject, MaxHits: pgclient.N(9), Per: pgclient.D(per), Cost: pgclient.N(3),
			}))(t)
		}
		hit("u1", time.Hour)
		hit("u2", time.Hour)
		hit("u3", time.Millisecond)
		time.Sleep(5 * time.Millisecond)

		page := must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{MaxRows: 1}))(t)
		want(t, "rows of the first page", len(page), 1)
		row := page[0]
		want(t, "window", row.ResetAt.Sub(row.WindowStart), time.Hour)
		cursor := row.Cursor
		row.Cursor, row.ResetAt, row.WindowStart = "", time.Time{}, time.Time{}
		want(t, "row", row, pgclient.CounterRow{Algorithm: pgclient.AlgorithmFixedWindow, Limit: "l", State: "open", Subject: "u1", Used: 3})
		page = must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{After: cursor}))(t)
		want(t, "rows of the second page", len(page), 1)
		want(t, "subject", page[0].Subject, "u2")
		page = must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{Subject: "u3", IncludeClosed: true}))(t)
		if len(page) != 1 || page[0].State != "closed" {
			t.Errorf("got %+v, want the closed count of u3", page)
		}
	})
}

func TestInstallation(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	show := func() pgclient.Installation {
		t.Helper()
		return must(db.operator.ShowInstallation(ctx))(t)
	}
	version := must(db.app.Version(ctx))(t)
	first := show()
	want(t, "version", first.CodeVersion, version)
	if version == "" || first.InstalledAt.IsZero() || first.InstallationCap < 1 || first.PurgeAfter != 24*time.Hour {
		t.Errorf("version %q, got %+v, want what an installation begins with", version, first)
	}

	want(t, "cap before", must(db.operator.SetInstallationCap(ctx, 5))(t), first.InstallationCap)
	want(t, "cap before, again", must(db.operator.SetInstallationCap(ctx, 0))(t), 5)
	want(t, "purge after before", must(db.operator.SetPurgeAfter(ctx, 0))(t), 24*time.Hour)
	want(t, "cap", show().InstallationCap, 0)
	want(t, "purge after", show().PurgeAfter, 0)
	_, err := db.operator.SetPurgeAfter(ctx, -time.Second)
	wantKind(t, err, pgclient.ErrInvalidArgument)
	_, err = db.operator.SetInstallationCap(ctx, -1)
	wantKind(t, err, pgclient.ErrInvalidArgument)

	claim := func() *pgclient.Permit {
		t.Helper()
		return must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{
			Endpoint: "e", Holder: "u1", InstallationCap: pgclient.N(2), Lease: pgclient.D(time.Minute),
		}))(t)
	}
	before := claim()
	epoch := must(db.operator.RaiseEpoch(ctx))(t)
	want(t, "epoch", show().Epoch, epoch)
	if after := claim(); after.ID <= before.ID {
		t.Errorf("got permit %d after %d, want a greater one", after.ID, before.ID)
	}
	refused := claim()
	want(t, "reason of a third", refused.Reason, pgclient.ReasonInstallation)
	want(t, "cap", refused.Cap, 2)
	want(t, "in use", refused.InUse, 2)
	want(t, "in use, shown", show().InUse, 2)

	for range 3 {
		must(db.app.Hit(ctx, pgclient.HitParams{
			Limit: "l", Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Millisecond),
		}))(t)
	}
	time.Sleep(5 * time.Millisecond)
	var purged pgclient.PurgeResult
	for range 10 {
		result := must(db.operator.Purge(ctx, 1000))(t)
		purged.CountersPurged += result.CountersPurged
		if !result.More {
			break
		}
	}
	want(t, "counters purged", purged.CountersPurged, 1)
	if show().LastPurgeAt.IsZero() {
		t.Error("the purge left no trace")
	}
	_, err = db.operator.Purge(ctx, 0)
	wantKind(t, err, pgclient.ErrInvalidArgument)
}
