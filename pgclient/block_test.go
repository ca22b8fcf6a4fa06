package pgclient_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// Blocks, pauses, sign-ins and heartbeats reach the server and come back alike in every exec mode.
func TestBlocks(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	until := time.Date(2090, 12, 31, 23, 59, 59, 5000, time.FixedZone("", 9*3600))
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			connect := func(role string) *pgclient.Client {
				config := must(pgxpool.ParseConfig(db.URL(role)))(t)
				config.ConnConfig.DefaultQueryExecMode = mode
				config.ConnConfig.RuntimeParams["TimeZone"] = "America/New_York"
				config.ConnConfig.RuntimeParams["IntervalStyle"] = "iso_8601"
				pool := must(pgxpool.NewWithConfig(context.Background(), config))(t)
				t.Cleanup(pool.Close)
				return must(pgclient.New(pool))(t)
			}
			app, operator := connect("pglimit_app"), connect("pglimit_operator")
			limit := mode.String()
			hit := pgclient.HitParams{Limit: limit, Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour), Tenant: "t " + limit}
			blocked := func(what string, forEver bool) {
				t.Helper()
				d := must(app.Hit(ctx, hit))(t)
				if d.Allowed || d.Reason != pgclient.ReasonBlocked || (d.RetryAfter == 0) != forEver || d.ResetAt.IsZero() != forEver {
					t.Errorf("%s: %+v", what, d)
				}
			}
			want(t, "before", must(app.Hit(ctx, hit))(t).Allowed, true)
			if at := must(app.Pause(ctx, pgclient.PauseParams{Limit: limit, Subject: "u1", Until: &until, Why: "Retry-After", Tenant: hit.Tenant}))(t); !at.Equal(until) {
				t.Errorf("paused until %v", at)
			}
			if at := must(app.Pause(ctx, pgclient.PauseParams{Limit: limit, Subject: "u1", Duration: pgclient.D(time.Second), Tenant: hit.Tenant}))(t); !at.Equal(until) {
				t.Errorf("paused until %v", at)
			}
			blocked("paused", false)
			if at := must(operator.Block(ctx, pgclient.BlockParams{Limit: pgclient.AllLimits, Subject: "u1", Tenant: hit.Tenant}))(t); at != nil {
				t.Errorf("blocked until %v", at)
			}
			blocked("blocked", true)
			if at := must(operator.Block(ctx, pgclient.BlockParams{Limit: limit, Subject: "u2", Duration: pgclient.D(time.Hour), Why: "it scrapes", Tenant: hit.Tenant}))(t); at == nil {
				t.Error("blocked for ever")
			}

			page := must(operator.ListBlocks(ctx, pgclient.ListBlocksParams{MaxRows: 1, Tenant: &hit.Tenant}))(t)
			want(t, "rows", len(page), 1)
			if row := page[0]; row.Limit != "*" || row.BlockedUntil != nil || row.Why != nil || row.State != "blocked" {
				t.Errorf("%+v", row)
			}
			page = must(operator.ListBlocks(ctx, pgclient.ListBlocksParams{After: page[0].Cursor, Tenant: &hit.Tenant}))(t)
			want(t, "rows", len(page), 2)
			if row := page[0]; !row.BlockedUntil.Equal(until) || *row.Why != "Retry-After" || row.UpdatedBy == "" || row.UpdatedAt.IsZero() {
				t.Errorf("%+v", row)
			}
			for _, p := range []pgclient.UnblockParams{{Limit: pgclient.AllLimits, Subject: "u1", Tenant: hit.Tenant}, {Limit: limit, Subject: "u1", Tenant: hit.Tenant}} {
				want(t, "unblocked", must(operator.Unblock(ctx, p))(t), true)
				want(t, "again", must(operator.Unblock(ctx, p))(t), false)
			}
			want(t, "after", must(app.Hit(ctx, hit))(t).Allowed, true)

			hit.Subject = "2001:DB8::7"
			want(t, "before", must(app.Hit(ctx, hit))(t).Allowed, true)
			network := netip.MustParsePrefix("2001:db8::7/32")
			if at := must(operator.BlockRange(ctx, pgclient.BlockRangeParams{Limit: limit, Network: network, Duration: pgclient.D(time.Hour), Why: "a botnet", Tenant: hit.Tenant}))(t); at == nil {
				t.Error("blocked for ever")
			}
			blocked("in a range", false)
			if at := must(operator.BlockRange(ctx, pgclient.BlockRangeParams{Limit: pgclient.AllLimits, Network: netip.MustParsePrefix("::ffff:10.0.0.0/104"), Tenant: hit.Tenant}))(t); at != nil {
				t.Errorf("blocked until %v", at)
			}
			for _, p := range []pgclient.ListBlocksParams{{Limit: limit, Subject: hit.Subject}, {Network: network}} {
				p.Tenant = &hit.Tenant
				page = must(operator.ListBlocks(ctx, p))(t)
				want(t, "rows", len(page), 1)
				if row := page[0]; row.Network != network.Masked() || row.Subject != "" || row.BlockedUntil == nil || *row.Why != "a botnet" || row.Strikes != 0 {
					t.Errorf("%+v", row)
				}
			}
			page = must(operator.ListBlocks(ctx, pgclient.ListBlocksParams{Limit: limit, Tenant: &hit.Tenant}))(t)
			if row := page[0]; row.Network.IsValid() || row.Subject != "u2" || len(page) != 2 {
				t.Errorf("%+v", page)
			}
			page = must(operator.ListBlocks(ctx, pgclient.ListBlocksParams{After: page[1].Cursor, Tenant: &hit.Tenant}))(t)
			want(t, "rows behind the last", len(page), 0)
			page = must(operator.ListBlocks(ctx, pgclient.ListBlocksParams{Limit: pgclient.AllLimits, Tenant: &hit.Tenant}))(t)
			want(t, "network", page[0].Network.String(), "10.0.0.0/8")
			range6 := pgclient.UnblockRangeParams{Limit: limit, Network: network, Tenant: hit.Tenant}
			want(t, "unblocked", must(operator.UnblockRange(ctx, range6))(t), true)
			want(t, "again", must(operator.UnblockRange(ctx, range6))(t), false)
			want(t, "after", must(app.Hit(ctx, hit))(t).Allowed, true)
			_, err := operator.UnblockRange(ctx, pgclient.UnblockRangeParams{Limit: limit})
			if !errors.Is(err, pgclient.ErrInvalidArgument) {
				t.Error(err)
			}
			hit.Subject = "u1"

			for range 2 {
				r := must(app.Strike(ctx, pgclient.StrikeParams{Limit: limit, Subject: "u3", Tenant: hit.Tenant}))(t)
				if r.Strikes != 1 || r.RetryAfter > time.Minute || r.RetryAfter < 30*time.Second || r.BlockedUntil == nil {
					t.Errorf("%+v", r)
				}
			}
			_, err = app.Pause(ctx, pgclient.PauseParams{Limit: limit, Subject: "u1"})
			if !errors.Is(err, pgclient.ErrInvalidArgument) {
				t.Error(err)
			}

			attempt := pgclient.SignInParams{Account: "ann", Source: "203.0.113.7", Tenant: hit.Tenant}
			for i, verdict := range []pgclient.SignInVerdict{"allow", "allow", "delay", "delay", "delay", "refuse"} {
				d := must(app.CheckSignIn(ctx, attempt))(t)
				if d.Verdict != verdict || (d.Delay > 0) != (verdict == "delay") || (d.RetryAfter > 0) != (verdict == "refuse") || (i > 1) != (d.Reason == pgclient.ReasonPair) {
					t.Errorf("after %d failures: %+v", i, d)
				}
				if err := app.SignInFailed(ctx, attempt); err != nil {
					t.Fatal(err)
				}
			}
			if err := app.SignInSucceeded(ctx, attempt); err != nil {
				t.Fatal(err)
			}
			want(t, "verdict", must(app.CheckSignIn(ctx, attempt))(t).Verdict, pgclient.SignInAllow)

			want(t, "ready", must(app.HeartbeatReplica(ctx, pgclient.HeartbeatReplicaParams{Service: limit, Replica: "a"}))(t), 1)
			want(t, "ready", must(app.HeartbeatReplica(ctx, pgclient.HeartbeatReplicaParams{Service: limit, Replica: "b", TTL: pgclient.D(time.Minute)}))(t), 2)
			want(t, "ready", must(app.HeartbeatReplica(ctx, pgclient.HeartbeatReplicaParams{Service: limit, Replica: "b", TTL: pgclient.D(0)}))(t), 1)
		})
	}
}
