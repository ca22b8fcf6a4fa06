package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/pgclient"
)

func TestHit(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	params := func(subject string) pgclient.HitParams {
		return pgclient.HitParams{Limit: "api", Subject: subject, MaxHits: pgclient.N(3), Per: pgclient.D(90 * time.Minute)}
	}

	t.Run("AllowedThenRefused", func(t *testing.T) {
		t.Parallel()
		begin := db.now(t)
		for left := int64(2); left >= 0; left-- {
			d := must(db.app.Hit(ctx, params("u1")))(t)
			want(t, "allowed", d.Allowed, true)
			want(t, "reason", d.Reason, pgclient.ReasonAllowed)
			want(t, "quota", d.Quota, 3)
			want(t, "remaining", d.Remaining, left)
			want(t, "retry after", d.RetryAfter, 0)
			if d.ResetAt.Before(begin.Add(90*time.Minute)) || d.ResetAt.After(db.now(t).Add(90*time.Minute)) {
				t.Errorf("got reset at %v, want 90 minutes after %v", d.ResetAt, begin)
			}
		}
		d := must(db.app.Hit(ctx, params("u1")))(t)
		want(t, "allowed", d.Allowed, false)
		want(t, "reason", d.Reason, pgclient.ReasonLimit)
		want(t, "remaining", d.Remaining, 0)
		if d.RetryAfter <= 0 || d.RetryAfter > 90*time.Minute {
			t.Errorf("got retry after %v, want within the window", d.RetryAfter)
		}
		want(t, "other subject", must(db.app.Hit(ctx, params("u2")))(t).Allowed, true)
	})

	t.Run("CostOfZeroLooks", func(t *testing.T) {
		t.Parallel()
		p := params("look")
		p.Cost = pgclient.N(0)
		for range 5 {
			want(t, "remaining", must(db.app.Hit(ctx, p))(t).Remaining, 3)
		}
	})

	t.Run("CostCounts", func(t *testing.T) {
		t.Parallel()
		p := params("cost")
		p.Cost = pgclient.N(2)
		want(t, "remaining", must(db.app.Hit(ctx, p))(t).Remaining, 1)
		want(t, "second", must(db.app.Hit(ctx, p))(t).Allowed, false)
	})

	t.Run("NeverWhenDearerThanTheQuota", func(t *testing.T) {
		t.Parallel()
		p := params("never")
		p.Cost = pgclient.N(4)
		d := must(db.app.Hit(ctx, p))(t)
		want(t, "allowed", d.Allowed, false)
		want(t, "reason", d.Reason, pgclient.ReasonNever)
		want(t, "retry after", d.RetryAfter, 0)
	})

	t.Run("QuotaOfZeroIsClosed", func(t *testing.T) {
		t.Parallel()
		p := params("closed")
		p.MaxHits = pgclient.N(0)
		d := must(db.app.Hit(ctx, p))(t)
		want(t, "closed", d, pgclient.Decision{Reason: pgclient.ReasonNever})
	})

	t.Run("PeekCountsNothing", func(t *testing.T) {
		t.Parallel()
		want(t, "unknown subject", must(db.app.Peek(ctx, params("peek")))(t).Allowed, true)
		must(db.app.Hit(ctx, params("peek")))(t)
		for range 5 {
			d := must(db.app.Peek(ctx, params("peek")))(t)
			want(t, "allowed", d.Allowed, true)
		}
		want(t, "remaining", must(db.app.Hit(ctx, params("peek")))(t).Remaining, 1)
	})

	t.Run("ForgetClears", func(t *testing.T) {
		t.Parallel()
		who := pgclient.ForgetParams{Limit: "api", Subject: "forget"}
		want(t, "nothing to forget", must(db.app.Forget(ctx, who))(t), false)
		must(db.app.Hit(ctx, params("forget")))(t)
		want(t, "forgotten", must(db.app.Forget(ctx, who))(t), true)
		want(t, "remaining", must(db.app.Hit(ctx, params("forget")))(t).Remaining, 2)
	})

	t.Run("LimitFromItsRow", func(t *testing.T) {
		t.Parallel()
		version := must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{
			Limit: "row", MaxHits: 1, Per: 26 * time.Hour, OnOutage: pgclient.OnOutageRefuse,
		}))(t)
		p := pgclient.HitParams{Limit: "row", Subject: "u1"}
		d := must(db.app.Hit(ctx, p))(t)
		want(t, "allowed", d.Allowed, true)
		want(t, "quota", d.Quota, 1)
		want(t, "on outage", d.OnOutage, pgclient.OnOutageRefuse)
		want(t, "limit version", d.LimitVersion, version)
		d = must(db.app.Hit(ctx, p))(t)
		want(t, "second", d.Allowed, false)
		if d.RetryAfter < 25*time.Hour || d.RetryAfter > 26*time.Hour {
			t.Errorf("got retry after %v, want nearly 26 h", d.RetryAfter)
		}
	})

	t.Run("Carry", func(t *testing.T) {
		t.Parallel()
		set := pgclient.SetLimitParams{Limit: "carry", MaxHits: 10, Per: time.Hour}
		must(db.operator.SetLimit(ctx, set))(t)
		p := pgclient.HitParams{Limit: "carry", Subject: "u1", Cost: pgclient.N(4)}
		must(db.app.Hit(ctx, p))(t)
		for _, change := range []struct {
			carry            pgclient.Carry
			quota, remaining int64
		}{{"", 11, 7}, {pgclient.CarryKeep, 10, 6}, {pgclient.CarryProportional, 20, 12}, {pgclient.CarryReset, 20, 20}} {
			set.Carry, set.MaxHits = change.carry, change.quota
			must(db.operator.SetLimit(ctx, set))(t)
			want(t, "remaining after carry "+string(change.carry), must(db.app.Peek(ctx, p))(t).Remaining, change.remaining)
		}
		set.Carry = "half"
		if _, err := db.operator.SetLimit(ctx, set); !errors.Is(err, pgclient.ErrInvalidArgument) {
			t.Errorf("carry half: %v", err)
		}
	})

	t.Run("Algorithms", func(t *testing.T) {
		t.Parallel()
		for _, set := range []pgclient.SetLimitParams{
			{Algorithm: pgclient.AlgorithmSlidingWindow, Per: time.Hour},
			{Algorithm: pgclient.AlgorithmTokenBucket, Per: time.Hour, Burst: pgclient.N(2), Durable: true},
			{Algorithm: pgclient.AlgorithmCalendar, Per: time.Hour},
			{Algorithm: pgclient.AlgorithmCalendar, Per: 24 * time.Hour},
			{Algorithm: pgclient.AlgorithmCalendar, Per: 7 * 24 * time.Hour},
			{Algorithm: pgclient.AlgorithmCalendar, Per: pgclient.CalendarMonth, TimeZone: "Europe/Berlin"},
			{Algorithm: pgclient.AlgorithmCalendar, Per: pgclient.CalendarYear},
		} {
			set.Limit, set.MaxHits, set.Mode, set.OnOutage = fmt.Sprint(set.Algorithm, set.Per), 2, pgclient.ModeEnforce, pgclient.OnOutageAllow
			must(db.operator.SetLimit(ctx, set))(t)
			row := must(db.operator.ListLimits(ctx, pgclient.ListLimitsParams{Limit: set.Limit}))(t)[0]
			if set.Burst != nil && row.Burst != nil && *row.Burst == *set.Burst {
				row.Burst = set.Burst // which is compared by its address
			}
			want(t, "row", row, pgclient.LimitRow{
				Algorithm: set.Algorithm, Burst: set.Burst, Cursor: row.Cursor, Durable: set.Durable, Limit: set.Limit,
				LimitVersion: row.LimitVersion, MaxHits: 2, Mode: set.Mode, OnLapse: pgclient.OnLapseKeep, OnOutage: set.OnOutage, Per: set.Per,
				TimeZone: set.TimeZone, UpdatedAt: row.UpdatedAt, UpdatedBy: row.UpdatedBy,
			})
			p := pgclient.HitParams{Limit: set.Limit, Subject: "u1", Cost: pgclient.N(2)}
			want(t, "charged", must(db.app.Hit(ctx, p))(t).Charged, 2)
			want(t, "charged when refused", must(db.app.Hit(ctx, p))(t).Charged, 0)
			p.Subject, p.MaxHits, p.Per, p.Algorithm, p.Burst = "u2", pgclient.N(3), &set.Per, set.Algorithm, set.Burst
			want(t, "allowed by the call's own", must(db.app.Hit(ctx, p))(t).Allowed, true)
			if counter := must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{Limit: set.Limit, Subject: "u1"}))(t)[0]; counter.Durable != set.Durable ||
				counter.Used != 2 || set.Algorithm != pgclient.AlgorithmCalendar && counter.Algorithm != set.Algorithm {
				t.Errorf("%s: counter %+v", set.Limit, counter)
			}
		}
	})

	t.Run("SubjectsAreSentAsTheyAre", func(t *testing.T) {
		t.Parallel()
		for _, subject := range []string{"O'Brien", `back\slash`, `"quoted"`, "$1", "żółć 😀", "%s {{ x }}", "-- ; drop", "\t\n"[:1] + "x"} {
			want(t, subject, must(db.app.Hit(ctx, params(subject)))(t).Remaining, 2)
			rows := must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{Limit: "api", Subject: subject}))(t)
			if len(rows) != 1 || rows[0].Subject != subject {
				t.Errorf("got %+v, want the one count of %q", rows, subject)
			}
		}
	})

	t.Run("MistakesAreErrors", func(t *testing.T) {
		t.Parallel()
		for name, tt := range map[string]struct {
			p    pgclient.HitParams
			kind error
			code string
		}{
			"Unknown":      {pgclient.HitParams{Limit: "none", Subject: "u1"}, pgclient.ErrUnknownLimit, "PGL02"},
			"Negative":     {pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(-1), Per: pgclient.D(time.Hour)}, pgclient.ErrInvalidArgument, "PGL01"},
			"NegativeCost": {pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour), Cost: pgclient.N(-1)}, pgclient.ErrInvalidArgument, "PGL01"},
			"BlankSubject": {pgclient.HitParams{Limit: "api", Subject: " ", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour)}, pgclient.ErrInvalidArgument, "PGL01"},
			"NoSubject":    {pgclient.HitParams{Limit: "api", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour)}, pgclient.ErrInvalidArgument, "PGL01"},
			"LongSubject":  {pgclient.HitParams{Limit: "api", Subject: strings.Repeat("x", 2000), MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour)}, pgclient.ErrInvalidArgument, "PGL01"},
			"NoSuchAlgorithm": {
				pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour), Algorithm: "dice"},
				pgclient.ErrInvalidArgument, "PGL01",
			},
		} {
			for verb, call := range map[string]func() (pgclient.Decision, error){
				"hit":  func() (pgclient.Decision, error) { return db.app.Hit(ctx, tt.p) },
				"peek": func() (pgclient.Decision, error) { return db.app.Peek(ctx, tt.p) },
			} {
				d, err := call()
				want(t, name+": decision beside the error", d, pgclient.Decision{})
				e := wantKind(t, err, tt.kind)
				want(t, name+": operation", e.Operation, verb)
				want(t, name+": code", e.Code, tt.code)
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) {
					t.Fatalf("%s: the server's error is not within %v", name, err)
				}
				for _, part := range []string{verb, pgErr.Message, pgErr.Detail, pgErr.Hint, tt.code} {
					if part == "" || !strings.Contains(err.Error(), part) {
						t.Errorf("%s: the message lacks %q: %v", name, part, err)
					}
				}
			}
		}
	})
}

func TestTenants(t *testing.T) {
	t.Parallel()
	tenant := "t1"
	db := setup(t, pgclient.WithTenantFunc(func(ctx context.Context) string { return tenant }))
	ctx := t.Context()
	hit := func(own string) int64 {
		t.Helper()
		return must(db.app.Hit(ctx, pgclient.HitParams{
			Limit: "api", Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour), Tenant: own,
		}))(t).Remaining
	}
	want(t, "the tenant func's", hit(""), 8)
	want(t, "the tenant func's, by name", hit("t1"), 7)
	want(t, "the call's own", hit("t2"), 8)
	tenant = ""
	want(t, "the empty one", hit(""), 8)

	tenant = "t1"
	list := func(filter *string) (tenants string) {
		t.Helper()
		for _, row := range must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{Tenant: filter}))(t) {
			tenants += "[" + row.Tenant + "]"
		}
		return tenants
	}
	want(t, "list of the tenant func's", list(nil), "[t1]")
	want(t, "list of another", list(pgclient.S("t2")), "[t2]")
	want(t, "list of the empty one", list(pgclient.S("")), "[]")

	all := must(pgclient.New(db.Pool("pglimit_operator")))(t)
	rows := must(all.ListCounters(ctx, pgclient.ListCountersParams{}))(t)
	want(t, "rows without a tenant func", len(rows), 3)

	claim := must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{
		Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute),
	}))(t)
	want(t, "claim", claim.Granted, true)
	permits := must(all.ListPermits(ctx, pgclient.ListPermitsParams{Tenant: pgclient.S("t1")}))(t)
	want(t, "permits of t1", len(permits), 1)
}
