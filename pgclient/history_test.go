package pgclient_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	first := must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "a", MaxHits: 1, Per: time.Hour, Tenant: "t1"}))(t)
	second := must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "a", MaxHits: 2, Per: time.Hour, Tenant: "t1"}))(t)
	must(db.operator.DropLimit(ctx, "a", "t1"))(t)
	must(db.operator.SetInstallationCap(ctx, 5))(t)

	rows := must(db.operator.ListChanges(ctx, pgclient.ListChangesParams{Name: "a", Action: "set_limit", Tenant: pgclient.S("t1")}))(t)
	if len(rows) != 2 {
		t.Fatalf("got %d rows, want 2", len(rows))
	}
	want(t, "newest", rows[0].Version, second)
	want(t, "oldest", rows[1].Version, first)
	if rows[1].Before != nil || string(rows[0].Before) != string(rows[1].After) || rows[0].Before == nil || rows[0].After == nil {
		t.Errorf("got %s to %s, then %s to %s", rows[1].Before, rows[1].After, rows[0].Before, rows[0].After)
	}
	var after struct {
		MaxHits int64 `json:"max_hits"`
	}
	if err := json.Unmarshal(rows[0].After, &after); err != nil {
		t.Fatal(err)
	}
	want(t, "max hits", after.MaxHits, 2)
	if row := rows[0]; row.ChangedAt.IsZero() || row.ChangedBy == "" {
		t.Errorf("got %+v, want who and when", row)
	}
	row := rows[0]
	row.After, row.Before, row.ChangedAt, row.ChangedBy = nil, nil, time.Time{}, ""
	if wanted := (pgclient.ChangeRow{Action: "set_limit", Name: "a", Tenant: "t1", Version: second}); !reflect.DeepEqual(row, wanted) {
		t.Errorf("got %+v, want %+v", row, wanted)
	}

	var actions string
	for after := int64(0); ; {
		page := must(db.operator.ListChanges(ctx, pgclient.ListChangesParams{After: after, MaxRows: 3}))(t)
		for _, row := range page {
			actions += row.Action + " "
			after = row.Version
		}
		if len(page) < 3 {
			break
		}
	}
	want(t, "pages of three", actions, "set_installation_cap drop_limit set_limit set_limit ")
	_, err := db.app.ListChanges(ctx, pgclient.ListChangesParams{})
	wantKind(t, err, pgclient.ErrPermission)
}

func TestForcedRelease(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	claim := func(holder string) *pgclient.Permit {
		t.Helper()
		return must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{
			Endpoint: "e", Holder: holder, EndpointCap: pgclient.N(4), Lease: pgclient.D(time.Hour), Tenant: "t1",
		}))(t)
	}
	one, two, three, other := claim("u1"), claim("u1"), claim("u1"), claim("u2")

	want(t, "forced", must(db.operator.ForceRelease(ctx, one.ID, "gone"))(t), pgclient.ReleaseResult{Released: true, Reason: pgclient.ReasonReleased})
	want(t, "again", must(db.operator.ForceRelease(ctx, one.ID, "gone"))(t), pgclient.ReleaseResult{Reason: pgclient.ReasonUnknown})
	all := pgclient.ReleaseHolderParams{Endpoint: "e", Holder: "u1", Tenant: "t1", Why: "worker 7 is gone"}
	want(t, "of the holder", must(db.operator.ReleaseHolder(ctx, all))(t), 2)
	want(t, "of the holder, again", must(db.operator.ReleaseHolder(ctx, all))(t), 0)
	want(t, "renewed by another", must(other.Renew(ctx, nil))(t).Renewed, true)

	rows := must(db.operator.ListChanges(ctx, pgclient.ListChangesParams{Name: "e"}))(t)
	if len(rows) != 2 {
		t.Fatalf("got %d rows, want 2", len(rows))
	}
	want(t, "why", rows[0].Why, "worker 7 is gone")
	want(t, "which", strings.Contains(string(rows[0].Before), fmt.Sprintf("[%d, %d]", two.ID, three.ID)), true)
	want(t, "why of one", rows[1].Why, "gone")

	for _, why := range []string{"", " ", strings.Repeat("x", 1025), "\xff", "\x00"} {
		_, err := db.operator.ForceRelease(ctx, other.ID, why)
		wantKind(t, err, pgclient.ErrInvalidArgument)
		_, err = db.operator.ReleaseHolder(ctx, pgclient.ReleaseHolderParams{Endpoint: "e", Holder: "u2", Tenant: "t1", Why: why})
		wantKind(t, err, pgclient.ErrInvalidArgument)
	}
	_, err := db.app.ForceRelease(ctx, other.ID, "mine")
	wantKind(t, err, pgclient.ErrPermission)
	_, err = db.app.ReleaseHolder(ctx, all)
	wantKind(t, err, pgclient.ErrPermission)
}

func TestListPermitsByTime(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{
		Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Hour),
	}))(t)
	time.Sleep(2 * time.Millisecond)
	for _, tt := range []struct {
		p    pgclient.ListPermitsParams
		want int
	}{
		{pgclient.ListPermitsParams{HeldLongerThan: pgclient.D(time.Millisecond)}, 1},
		{pgclient.ListPermitsParams{HeldLongerThan: pgclient.D(time.Hour)}, 0},
		{pgclient.ListPermitsParams{LapsesWithin: pgclient.D(2 * time.Hour)}, 1},
		{pgclient.ListPermitsParams{LapsesWithin: pgclient.D(time.Minute)}, 0},
	} {
		want(t, fmt.Sprintf("%+v", tt.p), len(must(db.operator.ListPermits(ctx, tt.p))(t)), tt.want)
	}
	_, err := db.operator.ListPermits(ctx, pgclient.ListPermitsParams{LapsesWithin: pgclient.D(0)})
	wantKind(t, err, pgclient.ErrInvalidArgument)
}
