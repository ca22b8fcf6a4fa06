package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// Modes and overrides reach the server and come back alike in every exec mode, whatever the session's styles are.
func TestLimitOverrides(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	from := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 9*3600))
	far := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	until := time.Date(2999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := must(pgxpool.ParseConfig(db.URL("pglimit_operator")))(t)
			config.ConnConfig.DefaultQueryExecMode = mode
			config.ConnConfig.RuntimeParams["TimeZone"] = "America/New_York"
			config.ConnConfig.RuntimeParams["DateStyle"] = "SQL, DMY"
			pool := must(pgxpool.NewWithConfig(context.Background(), config))(t)
			defer pool.Close()
			client := must(pgclient.New(pool))(t)
			limit := mode.String()
			p := pgclient.SetLimitOverrideParams{Limit: limit, Subject: "u1", MaxHits: 3, Tenant: "t"}
			must(client.SetLimitOverride(ctx, p))(t)
			p.ValidFrom, p.ValidUntil = &from, &until
			version := must(client.SetLimitOverride(ctx, p))(t)
			must(client.SetLimitOverride(ctx, pgclient.SetLimitOverrideParams{Limit: limit, Subject: "u2", MaxHits: 0}))(t)

			page := must(client.ListLimitOverrides(ctx, pgclient.ListLimitOverridesParams{Limit: limit, MaxRows: 1}))(t)
			want(t, "first", page[0].Subject, "u2")
			if page[0].ValidFrom != nil || page[0].ValidUntil != nil {
				t.Errorf("got %+v, want one for ever", page[0])
			}
			page = must(client.ListLimitOverrides(ctx, pgclient.ListLimitOverridesParams{Limit: limit, After: page[0].Cursor}))(t)
			want(t, "rows of the second page", len(page), 1)
			row := page[0]
			if !row.ValidFrom.Equal(from) || !row.ValidUntil.Equal(until) || row.UpdatedAt.IsZero() || row.UpdatedBy == "" {
				t.Errorf("got %+v", row)
			}
			want(t, "row", pgclient.LimitOverrideRow{
				Limit: row.Limit, LimitVersion: row.LimitVersion, MaxHits: row.MaxHits, State: row.State, Subject: row.Subject, Tenant: row.Tenant,
			}, pgclient.LimitOverrideRow{Limit: limit, LimitVersion: version, MaxHits: 3, State: "valid", Subject: "u1", Tenant: "t"})

			hit := pgclient.HitParams{Limit: limit, Subject: "u1", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour), Tenant: "t"}
			d := must(db.app.Hit(ctx, hit))(t)
			want(t, "quota", d.Quota, 3)
			want(t, "version", d.LimitVersion, version)
			drop := pgclient.DropLimitOverrideParams{Limit: limit, Subject: "u1", Tenant: "t"}
			want(t, "drop", must(client.DropLimitOverride(ctx, drop))(t), true)
			want(t, "drop again", must(client.DropLimitOverride(ctx, drop))(t), false)
			want(t, "reason", must(db.app.Hit(ctx, hit))(t).Reason, pgclient.ReasonLimit)

			must(client.SetLimit(ctx, pgclient.SetLimitParams{Limit: limit, MaxHits: 1, Per: time.Hour, Mode: pgclient.ModeShadow, Tenant: "t"}))(t)
			d = must(db.app.Hit(ctx, hit))(t)
			if !d.Allowed || d.Reason != pgclient.ReasonShadow || d.RetryAfter <= 0 {
				t.Errorf("got %+v, want what the refusal would have said", d)
			}
			want(t, "of the counter", must(client.ListCounters(ctx, pgclient.ListCountersParams{Limit: limit}))(t)[0].ShadowRefused, 1)
			want(t, "of the limit", *must(client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: limit}))(t)[0].ShadowRefused, 1)
			must(client.SetLimit(ctx, pgclient.SetLimitParams{Limit: limit, MaxHits: 1, Per: time.Hour, Mode: pgclient.ModeOff, Tenant: "t"}))(t)
			want(t, "reason", must(db.app.Hit(ctx, hit))(t).Reason, pgclient.ReasonOff)
			if n := must(client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: limit}))(t)[0].ShadowRefused; n != nil {
				t.Errorf("got %d, want none of a limit that is off", *n)
			}
		})
	}

	for _, p := range []pgclient.SetLimitOverrideParams{
		{Limit: "l", Subject: "u", ValidUntil: &from},
		{Limit: "l", Subject: "u", ValidFrom: &until, ValidUntil: &from},
		{Limit: "l", Subject: "u", ValidFrom: &time.Time{}, ValidUntil: &far},
		{Limit: "l", Subject: "u", MaxHits: -1},
		{Limit: "l"},
	} {
		_, err := db.operator.SetLimitOverride(ctx, p)
		wantKind(t, err, pgclient.ErrInvalidArgument)
	}
	_, err := db.app.SetLimitOverride(ctx, pgclient.SetLimitOverrideParams{Limit: "l", Subject: "u"})
	if err == nil {
		t.Error("the app role sets overrides")
	}
}
