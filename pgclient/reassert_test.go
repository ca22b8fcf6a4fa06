package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/pgclient"
	"github.com/pglimit/pglimit/tests/dbtest"
)

// lose leaves of the unlogged tables what a crash does. TestCrash loses them in earnest.
const lose = "truncate pglimit.permits, pglimit.counters, pglimit.sentinel, pglimit.creation_locks, pglimit.purge_progress"

// afterCrash makes a client for permits that a crash is to lose, and the crash, which nobody has noticed then. Before
// the nth connection since is taken from the pool, take is called; nil for nothing.
func afterCrash(t *testing.T, db *testBundle, pool *pgxpool.Pool, take func(n int) error) (client *pgclient.Client, crash func()) {
	t.Helper()
	must(db.operator.SetGrace(t.Context(), time.Hour))(t)
	n, crashed := 0, false
	client = must(pgclient.New(connectionsFunc(func(ctx context.Context) (*pgxpool.Conn, error) {
		if crashed && take != nil {
			n++
			if err := take(n); err != nil {
				return nil, err
			}
		}
		return pool.Acquire(ctx)
	})))(t)
	return client, func() {
		db.exec(t, lose)
		crashed = true
	}
}

func TestReassertPermit(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: "e", EndpointCap: pgclient.N(9), TimeBound: pgclient.D(time.Minute)}))(t)
	want(t, "grace before", must(db.operator.SetGrace(ctx, time.Hour))(t), 30*time.Second)
	params := pgclient.ClaimPermitParams{
		Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(2), InstallationCap: pgclient.N(5), Lease: pgclient.D(time.Hour),
		Note: json.RawMessage(`{"a": 1}`), Tenant: "t7", Weight: pgclient.N(2),
	}
	permit := must(db.app.ClaimPermit(ctx, params))(t)
	reason := func(id int64, p pgclient.ClaimPermitParams) pgclient.Reason {
		t.Helper()
		r := must(db.app.ReassertPermit(ctx, id, p))(t)
		want(t, "held", r.Renewed, r.Reason == pgclient.ReasonReasserted || r.Reason == pgclient.ReasonRenewed)
		want(t, "has an end", !r.ExpiresAt.IsZero(), r.Renewed)
		return r.Reason
	}
	want(t, "live", reason(permit.ID, params), pgclient.ReasonRenewed)
	want(t, "nothing was lost", reason(1, params), pgclient.ReasonLate)
	must(db.operator.Purge(ctx, 1000))(t)
	db.exec(t, lose)

	show := func() pgclient.Installation { t.Helper(); return must(db.operator.ShowInstallation(ctx))(t) }
	i := show()
	want(t, "losses, before anybody has claimed", i.Losses, 1)
	want(t, "live known", i.LiveKnown, 2)
	want(t, "grace", i.Grace, time.Hour)
	want(t, "lost at", i.LostAt.IsZero(), true)
	must(db.app.ClaimPermit(ctx, leased("other", time.Hour)))(t)
	i = show()
	want(t, "losses", i.Losses, 1)
	want(t, "reserved", i.Reserved, 2)
	want(t, "in use", i.InUse, 2)
	want(t, "lost at", i.LostAt.IsZero(), false)

	want(t, "reasserted", reason(permit.ID, params), pgclient.ReasonReasserted)
	want(t, "again", reason(permit.ID, params), pgclient.ReasonRenewed)
	other := params
	other.Holder = "u2"
	want(t, "another holder", reason(permit.ID, other), pgclient.ReasonNotHolder)
	want(t, "no room", reason(permit.ID-1, params), pgclient.ReasonHolder)
	want(t, "reserved", show().Reserved, 0)
	rows := must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: "e"}))(t)
	if len(rows) != 1 || rows[0].ID != permit.ID || rows[0].Weight != 2 || rows[0].Tenant != "t7" || string(rows[0].Note) != `{"a": 1}` ||
		rows[0].ReassertedAt == nil || !rows[0].ReassertedAt.Equal(rows[0].ClaimedAt) {
		t.Errorf("got %+v", rows)
	}
	rows = must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: "other"}))(t)
	if len(rows) != 1 || rows[0].ReassertedAt != nil {
		t.Errorf("got %+v, want a permit that was claimed", rows)
	}

	_, err := db.app.ReassertPermit(ctx, permit.ID, pgclient.ClaimPermitParams{Endpoint: "none", Holder: "u1"})
	wantKind(t, err, pgclient.ErrUnknownLimit)
	_, err = db.app.ReassertPermit(ctx, permit.ID, pgclient.ClaimPermitParams{Endpoint: "e", Holder: "\xff"})
	wantKind(t, err, pgclient.ErrInvalidArgument)
	_, err = db.operator.SetGrace(ctx, 25*time.Hour)
	wantKind(t, err, pgclient.ErrInvalidArgument)
}

// A renewal that is answered unknown reasserts the permit with what its claim asked for, in every mode.
func TestRenewReasserts(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			must(db.operator.SetGrace(t.Context(), time.Hour))(t)
			pool := db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			client := must(pgclient.New(pool, pgclient.WithTenantFunc(func(ctx context.Context) string {
				return ctx.Value(tenantKey{}).(string)
			})))(t)
			ctx := context.WithValue(t.Context(), tenantKey{}, "t7")
			params := pgclient.ClaimPermitParams{
				Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute), Note: json.RawMessage(`{"a": "b'"}`),
			}
			permit := must(client.ClaimPermit(ctx, params))(t)
			*params.HolderCap, params.Note[2] = 0, 'z' // the caller's own
			db.exec(t, lose)
			r := must(permit.Renew(context.WithValue(ctx, tenantKey{}, "t8"), pgclient.D(time.Hour)))(t)
			want(t, "reason", r.Reason, pgclient.ReasonReasserted)
			rows := must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: "e"}))(t)
			if len(rows) != 1 || rows[0].ID != permit.ID || rows[0].Tenant != "t7" || string(rows[0].Note) != `{"a": "b'"}` ||
				rows[0].ExpiresAt.Sub(rows[0].ClaimedAt) != time.Hour || !rows[0].ExpiresAt.Equal(r.ExpiresAt) {
				t.Errorf("got %+v", rows)
			}
			want(t, "lost", isLost(permit), false)
			want(t, "renewed", must(permit.Renew(ctx, nil))(t).Reason, pgclient.ReasonRenewed)
			want(t, "released", must(permit.Release(ctx))(t).Released, true)
		})
	}
}

type tenantKey struct{}

// What became of a permit while it was reasserted.
func TestReassertGoesWrong(t *testing.T) {
	t.Parallel()
	live := func(t *testing.T, db *testBundle) int {
		t.Helper()
		return len(must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: "e"}))(t))
	}

	t.Run("NoRoom", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		client, crash := afterCrash(t, db, db.Pool("pglimit_app"), nil)
		permit := must(client.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		crash()
		must(db.app.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		r := must(permit.Renew(t.Context(), nil))(t)
		want(t, "renewed", r.Renewed, false)
		want(t, "reason", r.Reason, pgclient.ReasonHolder)
		want(t, "lost", isLost(permit), true)
	})

	// Whoever has released it, or was told that it is lost, does not get it back.
	t.Run("ReleasedMeanwhile", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		var permit *pgclient.Permit
		client, crash := afterCrash(t, db, db.Pool("pglimit_app"), func(n int) error {
			if n == 2 { // the first is the renewal's
				want(t, "reason", must(permit.Release(t.Context()))(t).Reason, pgclient.ReasonUnknown)
			}
			return nil
		})
		permit = must(client.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		crash()
		want(t, "reason", must(permit.Renew(t.Context(), nil))(t).Reason, pgclient.ReasonUnknown)
		want(t, "live permits", live(t, db), 0)
	})

	t.Run("ReleasedBefore", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		client, crash := afterCrash(t, db, db.Pool("pglimit_app"), nil)
		permit := must(client.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		crash()
		want(t, "reason", must(permit.Release(t.Context()))(t).Reason, pgclient.ReasonUnknown)
		want(t, "reason", must(permit.Renew(t.Context(), nil))(t).Reason, pgclient.ReasonUnknown)
		want(t, "live permits", live(t, db), 0)
	})

	// An outage is no answer: the permit is not lost yet, and the next renewal tries again.
	t.Run("Outage", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		client, crash := afterCrash(t, db, db.Pool("pglimit_app"), func(n int) error {
			if n == 2 {
				return errors.New("down")
			}
			return nil
		})
		permit := must(client.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		crash()
		_, err := permit.Renew(t.Context(), nil)
		wantKind(t, err, pgclient.ErrUnavailable)
		want(t, "lost", isLost(permit), false)
		want(t, "reason", must(permit.Renew(t.Context(), nil))(t).Reason, pgclient.ReasonReasserted)
	})

	// Nor is a lost reply, after which the next renewal finds what was done.
	t.Run("LostReply", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		network := &cutter{}
		pool := db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DialFunc = network.dial })
		client, crash := afterCrash(t, db, pool, func(n int) error {
			if n == 2 {
				network.mu.Lock()
				defer network.mu.Unlock()
				network.cuts = 1
			}
			return nil
		})
		permit := must(client.ClaimPermit(t.Context(), leased("e", time.Hour)))(t)
		crash()
		_, err := permit.Renew(t.Context(), nil)
		wantKind(t, err, pgclient.ErrUnavailable)
		want(t, "lost", isLost(permit), false)
		want(t, "live permits", live(t, db), 1)
		want(t, "reason", must(permit.Renew(t.Context(), nil))(t).Reason, pgclient.ReasonRenewed)
	})

	// A mistake of the call is none of the database's: the permit is as lost as the renewal says.
	t.Run("EndpointDropped", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		must(db.operator.SetEndpoint(t.Context(), pgclient.SetEndpointParams{Endpoint: "e", HolderCap: pgclient.N(1), TimeBound: pgclient.D(time.Minute)}))(t)
		client, crash := afterCrash(t, db, db.Pool("pglimit_app"), nil)
		permit := must(client.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{Endpoint: "e", Holder: "u1"}))(t)
		must(db.operator.DropEndpoint(t.Context(), "e", ""))(t)
		crash()
		want(t, "reason", must(permit.Renew(t.Context(), nil))(t).Reason, pgclient.ReasonUnknown)
		want(t, "lost", isLost(permit), true)
	})
}

// C-49: the server is killed and comes back. Who keeps a permit alive has it again, without a word; after the grace
// time he is told that it is lost.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := must(localpg.Start(t.Context(), localpg.Options{Settings: dbtest.Settings()}))(t)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	own := dbtest.NewOn(t, server.DSN("postgres"))
	open := func(role string) *pgclient.Client {
		t.Helper()
		client := must(pgclient.Open(t.Context(), own.URL(role)))(t)
		t.Cleanup(client.Close)
		return client
	}
	app, operator := open("pglimit_app"), open("pglimit_operator")
	must(operator.SetGrace(t.Context(), time.Hour))(t)
	kept := must(app.ClaimPermit(t.Context(), leased("kept", 12*time.Second)))(t)
	byHand := must(app.ClaimPermit(t.Context(), leased("by hand", time.Hour)))(t)
	kept.KeepAlive(t.Context())
	crash := func() {
		t.Helper()
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	crash()
	waitFor(t, "the permit to be reasserted", func() bool {
		rows, err := operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: "kept"})
		return err == nil && len(rows) == 1 && rows[0].ID == kept.ID && rows[0].ReassertedAt != nil || isLost(kept)
	})
	want(t, "lost", isLost(kept), false)
	eventually := func(what string, got func() (pgclient.Reason, error), wanted pgclient.Reason) {
		t.Helper()
		waitFor(t, what, func() bool { // connections of before are broken
			reason, err := got()
			return err == nil && reason == wanted
		})
	}
	eventually("reasserted by hand", func() (pgclient.Reason, error) {
		r, err := byHand.Renew(t.Context(), nil)
		return r.Reason, err
	}, pgclient.ReasonReasserted)
	want(t, "lost", isLost(byHand), false)
	want(t, "losses", must(operator.ShowInstallation(t.Context()))(t).Losses, 1)
	want(t, "released", must(kept.Release(t.Context()))(t).Released, true)

	must(operator.SetGrace(t.Context(), 0))(t)
	crash()
	eventually("too late", func() (pgclient.Reason, error) {
		r, err := byHand.Renew(t.Context(), nil)
		return r.Reason, err
	}, pgclient.ReasonLate)
	want(t, "lost", isLost(byHand), true)
	eventually("a release of what is gone", func() (pgclient.Reason, error) {
		r, err := byHand.Release(t.Context())
		return r.Reason, err
	}, pgclient.ReasonUnknown)
	if next := must(app.ClaimPermit(t.Context(), leased("by hand", time.Hour)))(t); next.ID <= byHand.ID {
		t.Errorf("got permit %d after %d", next.ID, byHand.ID)
	}
}
