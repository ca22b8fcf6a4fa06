package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestHitMany(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	hit := pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(3), Per: pgclient.D(90 * time.Minute)}
	dear := hit
	dear.Cost = pgclient.N(4)
	look := hit
	look.Cost = pgclient.N(0)
	other := pgclient.HitParams{Limit: "other", Subject: `a "b" \`, MaxHits: pgclient.N(1), Per: pgclient.D(time.Microsecond * 7200e6)}
	got := must(db.app.HitMany(ctx, pgclient.HitManyParams{Hits: []pgclient.HitParams{hit, other, dear, hit, look, hit, hit}}))(t)
	reasons := []pgclient.Reason{
		pgclient.ReasonAllowed, pgclient.ReasonAllowed, pgclient.ReasonNever, pgclient.ReasonAllowed, pgclient.ReasonAllowed, pgclient.ReasonAllowed, pgclient.ReasonLimit,
	}
	want(t, "answers", len(got), len(reasons))
	for i, d := range got {
		want(t, "reason", d.Reason, reasons[i])
		want(t, "allowed", d.Allowed, reasons[i] == pgclient.ReasonAllowed)
	}
	want(t, "remaining", got[3].Remaining, 1)
	if got[6].RetryAfter <= 0 || got[6].RetryAfter > 90*time.Minute {
		t.Errorf("got retry after %v, want within the window", got[6].RetryAfter)
	}
	want(t, "peek", must(db.app.Peek(ctx, other))(t).Allowed, false)
	want(t, "nothing", len(must(db.app.HitMany(ctx, pgclient.HitManyParams{}))(t)), 0)

	for _, bad := range []pgclient.HitParams{{Subject: "s"}, {Limit: "a"}, {Limit: "a", Subject: "s\x00"}, {Limit: "api", Subject: "s", Tenant: "t"}, {Limit: "api", Subject: "s", Per: pgclient.D(-1)}} {
		if _, err := db.app.HitMany(ctx, pgclient.HitManyParams{Hits: []pgclient.HitParams{hit, bad}}); !errors.Is(err, pgclient.ErrInvalidArgument) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	p := pgclient.AdmitParams{
		Hits: []pgclient.HitParams{{Limit: "api", Subject: "u1", MaxHits: pgclient.N(2), Per: pgclient.D(time.Hour)}},
		Claims: []pgclient.ClaimPermitParams{
			{Endpoint: "export", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute), Note: json.RawMessage(`{"a": 1}`)},
			{Endpoint: "report", Holder: "u1", EndpointCap: pgclient.N(2), Lease: pgclient.D(time.Minute), Weight: pgclient.N(2)},
		},
	}
	a := must(db.app.Admit(ctx, p))(t)
	want(t, "admitted", a.Admitted, true)
	want(t, "remaining", a.Hits[0].Remaining, 1)
	want(t, "charged", a.Hits[0].Charged, 1)
	want(t, "wait", a.RetryAfter(), 0)
	want(t, "renewed", must(a.Permits[0].Renew(ctx, nil))(t).Renewed, true)

	refused := must(db.app.Admit(ctx, p))(t)
	want(t, "admitted", refused.Admitted, false)
	want(t, "reason of the hit", refused.Hits[0].Reason, pgclient.ReasonOthers)
	want(t, "reason of the first claim", refused.Permits[0].Reason, pgclient.ReasonHolder)
	want(t, "reason of the second claim", refused.Permits[1].Reason, pgclient.ReasonEndpoint)
	want(t, "granted", refused.Permits[1].Granted, false)
	if wait := refused.RetryAfter(); wait <= 0 || wait > time.Minute {
		t.Errorf("got retry after %v, want within the lease", wait)
	}
	want(t, "peek", must(db.app.Peek(ctx, p.Hits[0]))(t).Remaining, 1)
	for _, permit := range a.Permits {
		want(t, "released", must(permit.Release(ctx))(t).Released, true)
	}

	// who has gone keeps no permit, and stays counted
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := db.app.Admit(ended, p); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that of the context", err)
	}
	want(t, "peek", must(db.app.Peek(ctx, p.Hits[0]))(t).Allowed, false)
	p.Hits[0].Cost = pgclient.N(3)
	never := must(db.app.Admit(ctx, p))(t)
	want(t, "reason", never.Hits[0].Reason, pgclient.ReasonNever)
	want(t, "wait", never.RetryAfter(), 0)
	want(t, "others", never.Permits[0].Reason, pgclient.ReasonOthers)

	// windows of the calendar, and a wait that would help the other alone
	calendar := pgclient.AdmitParams{Hits: []pgclient.HitParams{}}
	for _, per := range []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, pgclient.CalendarMonth, pgclient.CalendarYear} {
		calendar.Hits = append(calendar.Hits, pgclient.HitParams{
			Limit: per.String(), Subject: "u1", Algorithm: pgclient.AlgorithmCalendar, MaxHits: pgclient.N(1), Per: pgclient.D(per),
		})
	}
	want(t, "calendar", must(db.app.Admit(ctx, calendar))(t).Admitted, true)
	if wait := must(db.app.Admit(ctx, calendar))(t).RetryAfter(); wait <= 0 || wait > 366*24*time.Hour {
		t.Errorf("got retry after %v, want within the year", wait)
	}
	must(db.operator.Block(ctx, pgclient.BlockParams{Limit: time.Hour.String(), Subject: "u1"}))(t)
	blocked := must(db.app.Admit(ctx, calendar))(t)
	want(t, "reason", blocked.Hits[0].Reason, pgclient.ReasonBlocked)
	want(t, "wait", blocked.RetryAfter(), 0)

	for _, bad := range []pgclient.AdmitParams{
		{Hits: []pgclient.HitParams{{Limit: "api", Subject: "s", Tenant: "t"}}},
		{Hits: []pgclient.HitParams{{Limit: "api"}}},
		{Claims: []pgclient.ClaimPermitParams{{Endpoint: "e", Holder: "h", Wait: pgclient.D(time.Second)}}},
		{Claims: []pgclient.ClaimPermitParams{{Endpoint: "e", Holder: "h", Note: json.RawMessage("{")}}},
	} {
		if _, err := db.app.Admit(ctx, bad); !errors.Is(err, pgclient.ErrInvalidArgument) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
