package pgclient_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

func TestHoldAndSettle(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	params := pgclient.HoldParams{Limit: "tokens", Subject: "u1", Estimate: 800, TTL: time.Minute, MaxHits: pgclient.N(1000), Per: pgclient.D(time.Hour)}
	begin := db.now(t)
	h := must(db.app.Hold(ctx, params))(t)
	want(t, "held", h.Held, true)
	want(t, "reason", h.Reason, pgclient.ReasonHeld)
	want(t, "remaining", h.Remaining, 200)
	if h.ExpiresAt.Before(begin.Add(time.Minute)) || h.ExpiresAt.After(db.now(t).Add(time.Minute)) || h.ID == 0 {
		t.Errorf("got %+v", h)
	}
	refused := must(db.app.Hold(ctx, params))(t)
	if refused.RetryAfter <= 0 {
		t.Errorf("got retry after %v", refused.RetryAfter)
	}
	want(t, "refused", refused, pgclient.Hold{Reason: pgclient.ReasonLimit, Remaining: 200, RetryAfter: refused.RetryAfter})
	want(t, "settled", must(db.app.Settle(ctx, h.ID, 300))(t), pgclient.Settlement{Settled: true, Reason: pgclient.ReasonSettled, Remaining: 700})
	want(t, "again", must(db.app.Settle(ctx, h.ID, 0))(t), pgclient.Settlement{Settled: true, Reason: pgclient.ReasonAgain, Remaining: 700})
	want(t, "unknown", must(db.app.Settle(ctx, 1, 0))(t), pgclient.Settlement{Reason: pgclient.ReasonUnknown})
	params.Subject = "u2"
	h = must(db.app.Hold(ctx, params))(t)
	want(t, "debt", must(db.app.Settle(ctx, h.ID, 1500))(t), pgclient.Settlement{Settled: true, Reason: pgclient.ReasonSettled, Debt: 500})
	params.TTL = 0
	if _, err := db.app.Hold(ctx, params); !errors.Is(err, pgclient.ErrInvalidArgument) {
		t.Errorf("a hold of no time: %v", err)
	}
}

func TestChargeAndRefund(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	charge := pgclient.ChargeParams{Limit: "rows", Subject: "u1", Cost: 7, MaxDebt: pgclient.N(5), MaxHits: pgclient.N(5), Per: pgclient.D(time.Hour)}
	c := must(db.app.Charge(ctx, charge))(t)
	want(t, "charged", c, pgclient.Charge{Charged: true, Debt: 2, Reason: pgclient.ReasonCharged, ResetAt: c.ResetAt})
	c = must(db.app.Charge(ctx, charge))(t)
	want(t, "refused", c, pgclient.Charge{Debt: 2, Reason: pgclient.ReasonDebt, ResetAt: c.ResetAt})
	refund := pgclient.RefundParams{Limit: "rows", Subject: "u1", Cost: 4, MaxHits: pgclient.N(5), Per: pgclient.D(time.Hour)}
	want(t, "remaining", must(db.app.Refund(ctx, refund))(t), 2)
	up := pgclient.HitUpToParams{
		Hit:    pgclient.HitParams{Limit: "rows", Subject: "u1", MaxHits: pgclient.N(5), Per: pgclient.D(time.Hour)},
		Wanted: 10,
	}
	d := must(db.app.HitUpTo(ctx, up))(t)
	want(t, "partial", d.Charged, 2)
	want(t, "allowed", d.Allowed, true)
	d = must(db.app.HitUpTo(ctx, up))(t)
	want(t, "nothing left", d.Charged, 0)
	up.Hit.Cost = pgclient.N(1)
	if _, err := db.app.HitUpTo(ctx, up); !errors.Is(err, pgclient.ErrInvalidArgument) {
		t.Errorf("a cost and what is wanted: %v", err)
	}
	up.Hit.Cost = nil
	want(t, "reason", d.Reason, pgclient.ReasonLimit)
	refund.Cost = 100
	want(t, "all of it", must(db.app.Refund(ctx, refund))(t), 5)
	up.AtLeast = pgclient.N(6)
	want(t, "more than there can be", must(db.app.HitUpTo(ctx, up))(t).Reason, pgclient.ReasonNever)
}

// A hold of a limit that says so comes back with the purge that finds it lapsed.
func TestLapsedHoldComesBack(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "tokens", MaxHits: 10, Per: time.Hour, OnLapse: pgclient.OnLapseReturn}))(t)
	want(t, "row", must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{}))(t)[0].OnLapse, pgclient.OnLapseReturn)
	h := must(db.app.Hold(ctx, pgclient.HoldParams{Limit: "tokens", Subject: "u1", Estimate: 8, TTL: time.Microsecond}))(t)
	want(t, "settled late", must(db.app.Settle(ctx, h.ID, 8))(t), pgclient.Settlement{Reason: pgclient.ReasonLapsed, Remaining: 2})
	want(t, "returned", must(db.operator.Purge(ctx, 1000))(t).HoldsReturned, 1)
	want(t, "settled late again", must(db.app.Settle(ctx, h.ID, 8))(t), pgclient.Settlement{Reason: pgclient.ReasonLapsed, Remaining: 10})
}

// Holds are listed alike in every exec mode, page by page.
func TestListHolds(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "bill", MaxHits: 1000, Per: time.Hour, Durable: true}))(t)
	own := pgclient.HoldParams{Limit: "tokens", Subject: "u1", Estimate: 800, TTL: time.Minute, MaxHits: pgclient.N(1000), Per: pgclient.D(time.Hour), Tenant: "acme"}
	first := must(db.app.Hold(ctx, own))(t)
	second := must(db.app.Hold(ctx, pgclient.HoldParams{Limit: "bill", Subject: "u2", Estimate: 5, TTL: time.Hour}))(t)
	must(db.app.Settle(ctx, second.ID, 0))(t)
	third := must(db.app.Hold(ctx, pgclient.HoldParams{Limit: "bill", Subject: "u2", Estimate: 6, TTL: time.Microsecond}))(t)
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := must(pgxpool.ParseConfig(db.URL("pglimit_monitor")))(t)
			config.ConnConfig.DefaultQueryExecMode = mode
			pool := must(pgxpool.NewWithConfig(context.Background(), config))(t)
			t.Cleanup(pool.Close)
			monitor := must(pgclient.New(pool))(t)
			rows := must(monitor.ListHolds(ctx, pgclient.ListHoldsParams{}))(t)
			want(t, "rows", len(rows), 3)
			if r := rows[0]; r.HeldAt.Add(time.Minute) != r.ExpiresAt || !r.ExpiresAt.Equal(first.ExpiresAt) {
				t.Errorf("held at %v until %v", r.HeldAt, r.ExpiresAt)
			}
			if rows[1].Actual == nil || *rows[1].Actual != 0 {
				t.Errorf("settled at %v", rows[1].Actual)
			}
			for i, wanted := range []pgclient.HoldRow{
				{ID: first.ID, Charged: 800, Limit: "tokens", State: pgclient.HoldOpen, Subject: "u1", Tenant: "acme"},
				{ID: second.ID, Charged: 5, Durable: true, Limit: "bill", State: pgclient.HoldSettled, Subject: "u2"},
				{ID: third.ID, Charged: 6, Durable: true, Limit: "bill", State: pgclient.HoldLapsed, Subject: "u2"},
			} {
				wanted.Actual, wanted.HeldAt, wanted.ExpiresAt = rows[i].Actual, rows[i].HeldAt, rows[i].ExpiresAt
				want(t, "row", rows[i], wanted)
			}
			page := must(monitor.ListHolds(ctx, pgclient.ListHoldsParams{After: first.ID, MaxRows: 1}))(t)
			want(t, "page", len(page), 1)
			want(t, "next", page[0].ID, second.ID)
			for _, p := range []pgclient.ListHoldsParams{
				{Limit: "tokens"}, {Subject: "u1"}, {State: pgclient.HoldOpen}, {Tenant: pgclient.S("acme")},
			} {
				rows := must(monitor.ListHolds(ctx, p))(t)
				want(t, "filtered", len(rows), 1)
				want(t, "filtered", rows[0].ID, first.ID)
			}
			if _, err := monitor.ListHolds(ctx, pgclient.ListHoldsParams{State: "gone"}); !errors.Is(err, pgclient.ErrInvalidArgument) {
				t.Errorf("got %v", err)
			}
		})
	}
}
