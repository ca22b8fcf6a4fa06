package pgclient_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestClaimPermit(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	params := func(endpoint, holder string) pgclient.ClaimPermitParams {
		return pgclient.ClaimPermitParams{Endpoint: endpoint, Holder: holder, HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute)}
	}

	t.Run("GrantedAndReleased", func(t *testing.T) {
		t.Parallel()
		begin := db.now(t)
		p := must(db.app.ClaimPermit(ctx, params("granted", "u1")))(t)
		end := db.now(t)
		want(t, "granted", p.Granted, true)
		want(t, "reason", p.Reason, pgclient.ReasonGranted)
		want(t, "endpoint", p.Endpoint, "granted")
		want(t, "holder", p.Holder, "u1")
		want(t, "cap", p.Cap, 0)
		want(t, "in use", p.InUse, 0)
		want(t, "retry after", p.RetryAfter, 0)
		want(t, "time bound", p.TimeBound, 0)
		want(t, "row cap", p.RowCap, nil)
		if p.ID <= 0 {
			t.Errorf("got id %d", p.ID)
		}
		if p.ExpiresAt.Before(begin.Add(time.Minute)) || p.ExpiresAt.After(end.Add(time.Minute)) {
			t.Errorf("got expiry %v, want a minute after %v..%v", p.ExpiresAt, begin, end)
		}
		want(t, "first release", must(p.Release(ctx))(t), pgclient.ReleaseResult{Released: true, Reason: pgclient.ReasonReleased})
		again := must(p.Release(ctx))(t)
		want(t, "second release", again.Released, false)
		next := must(db.app.ClaimPermit(ctx, params("granted", "u1")))(t)
		want(t, "granted after release", next.Granted, true)
		if next.ID <= p.ID {
			t.Errorf("got id %d after %d, want a greater one", next.ID, p.ID)
		}
	})

	t.Run("RefusedByTheHoldersCap", func(t *testing.T) {
		t.Parallel()
		held := must(db.app.ClaimPermit(ctx, params("holder", "u1")))(t)
		want(t, "first", held.Granted, true)
		p := must(db.app.ClaimPermit(ctx, params("holder", "u1")))(t)
		want(t, "granted", p.Granted, false)
		want(t, "reason", p.Reason, pgclient.ReasonHolder)
		want(t, "id", p.ID, 0)
		want(t, "expiry", p.ExpiresAt, time.Time{})
		want(t, "cap", p.Cap, 1)
		want(t, "in use", p.InUse, 1)
		if p.RetryAfter <= 0 || p.RetryAfter > time.Minute {
			t.Errorf("got retry after %v, want within the lease of a minute", p.RetryAfter)
		}
		want(t, "other holder", must(db.app.ClaimPermit(ctx, params("holder", "u2")))(t).Granted, true)
	})

	t.Run("RefusedByTheEndpointsCap", func(t *testing.T) {
		t.Parallel()
		p := params("endpoint", "u1")
		p.EndpointCap = pgclient.N(1)
		want(t, "first", must(db.app.ClaimPermit(ctx, p))(t).Granted, true)
		p.Holder = "u2"
		want(t, "reason", must(db.app.ClaimPermit(ctx, p))(t).Reason, pgclient.ReasonEndpoint)
	})

	t.Run("CapOfZeroIsClosed", func(t *testing.T) {
		t.Parallel()
		p := params("closed", "u1")
		p.InstallationCap = pgclient.N(0)
		refused := must(db.app.ClaimPermit(ctx, p))(t)
		want(t, "granted", refused.Granted, false)
		want(t, "reason", refused.Reason, pgclient.ReasonNever)
	})

	t.Run("NeverWhenHeavierThanTheCap", func(t *testing.T) {
		t.Parallel()
		p := params("heavy", "u1")
		p.Weight = pgclient.N(2)
		refused := must(db.app.ClaimPermit(ctx, p))(t)
		want(t, "granted", refused.Granted, false)
		want(t, "reason", refused.Reason, pgclient.ReasonNever)
		want(t, "retry after", refused.RetryAfter, 0)
	})

	t.Run("BoundsFromTheEndpointsRow", func(t *testing.T) {
		t.Parallel()
		version := must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{
			Endpoint: "export", HolderCap: pgclient.N(2), OnOutage: pgclient.OnOutageRefuse,
			RowCap: pgclient.N(50_000), TimeBound: pgclient.D(90 * time.Second),
		}))(t)
		begin := db.now(t)
		p := must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{Endpoint: "export", Holder: "u1"}))(t)
		end := db.now(t)
		want(t, "granted", p.Granted, true)
		want(t, "limit version", p.LimitVersion, version)
		want(t, "on outage", p.OnOutage, pgclient.OnOutageRefuse)
		want(t, "time bound", p.TimeBound, 90*time.Second)
		if p.RowCap == nil || *p.RowCap != 50_000 {
			t.Errorf("got row cap %v, want 50,000", p.RowCap)
		}
		if p.ExpiresAt.Before(begin.Add(2*time.Minute)) || p.ExpiresAt.After(end.Add(2*time.Minute)) {
			t.Errorf("got expiry %v, want the time bound and 30 s after %v..%v", p.ExpiresAt, begin, end)
		}
	})

	t.Run("NoteIsKept", func(t *testing.T) {
		t.Parallel()
		p := params("note", "u1")
		p.Note = json.RawMessage(`{"job": "it's \\ \"this\" one", "n": 7}`)
		held := must(db.app.ClaimPermit(ctx, p))(t)
		rows := must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: "note"}))(t)
		if len(rows) != 1 || rows[0].ID != held.ID {
			t.Fatalf("got %+v, want permit %d", rows, held.ID)
		}
		var got struct {
			Job string
			N   int
		}
		if err := json.Unmarshal(rows[0].Note, &got); err != nil {
			t.Fatal(err)
		}
		want(t, "job", got.Job, `it's \ "this" one`)
		want(t, "n", got.N, 7)
	})

	t.Run("Renewed", func(t *testing.T) {
		t.Parallel()
		held := must(db.app.ClaimPermit(ctx, params("renew", "u1")))(t)
		begin := db.now(t)
		renewed := must(held.Renew(ctx, pgclient.D(time.Hour)))(t)
		end := db.now(t)
		want(t, "renewed", renewed.Renewed, true)
		want(t, "reason", renewed.Reason, pgclient.ReasonRenewed)
		if renewed.ExpiresAt.Before(begin.Add(time.Hour)) || renewed.ExpiresAt.After(end.Add(time.Hour)) {
			t.Errorf("got expiry %v, want an hour after %v..%v", renewed.ExpiresAt, begin, end)
		}
		must(held.Release(ctx))(t)
		gone := must(held.Renew(ctx, pgclient.D(time.Hour)))(t)
		want(t, "renewed after release", gone.Renewed, false)
		want(t, "expiry after release", gone.ExpiresAt, time.Time{})
	})

	t.Run("LapsedIsNeitherReleasedNorRenewed", func(t *testing.T) {
		t.Parallel()
		p := params("lapse", "u1")
		p.Lease = pgclient.D(time.Millisecond)
		held := must(db.app.ClaimPermit(ctx, p))(t)
		time.Sleep(5 * time.Millisecond)
		renewed := must(held.Renew(ctx, pgclient.D(time.Hour)))(t)
		want(t, "renew", renewed, pgclient.RenewResult{ExpiresAt: held.ExpiresAt, Reason: pgclient.ReasonLapsed})
		want(t, "release", must(held.Release(ctx))(t), pgclient.ReleaseResult{Reason: pgclient.ReasonLapsed})
	})

	t.Run("AnothersIsNotReleased", func(t *testing.T) {
		t.Parallel()
		held := must(db.app.ClaimPermit(ctx, params("another", "u1")))(t)
		want(t, "by u2", must(db.app.ReleasePermit(ctx, held.ID, "u2"))(t), pgclient.ReleaseResult{Reason: pgclient.ReasonNotHolder})
		want(t, "by anybody", must(db.operator.ReleasePermit(ctx, held.ID, ""))(t), pgclient.ReleaseResult{Released: true, Reason: pgclient.ReasonReleased})
	})

	t.Run("UnknownIsQuiet", func(t *testing.T) {
		t.Parallel()
		want(t, "release", must(db.app.ReleasePermit(ctx, 1<<62, ""))(t), pgclient.ReleaseResult{Reason: pgclient.ReasonUnknown})
		renewed := must(db.app.RenewPermit(ctx, 1<<62, pgclient.D(time.Minute)))(t)
		want(t, "renew", renewed, pgclient.RenewResult{Reason: pgclient.ReasonUnknown})
	})

	t.Run("MistakesAreErrors", func(t *testing.T) {
		t.Parallel()
		for name, p := range map[string]pgclient.ClaimPermitParams{
			"NoCap":       {Endpoint: "none", Holder: "u1", Lease: pgclient.D(time.Minute)},
			"NoLease":     {Endpoint: "none", Holder: "u1", HolderCap: pgclient.N(1)},
			"NoHolder":    {Endpoint: "none", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute)},
			"NegativeCap": {Endpoint: "none", Holder: "u1", HolderCap: pgclient.N(-1), Lease: pgclient.D(time.Minute)},
			"Weightless":  {Endpoint: "none", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute), Weight: pgclient.N(0)},
		} {
			kind := pgclient.ErrInvalidArgument
			if name == "NoCap" {
				kind = pgclient.ErrUnknownLimit
			}
			permit, err := db.app.ClaimPermit(ctx, p)
			e := wantKind(t, err, kind)
			if permit != nil || e.Code == "" || e.Detail == "" || e.Hint == "" {
				t.Errorf("%s: got %+v and %+v, want an SQLSTATE, a detail and a hint", name, permit, e)
			}
		}
	})
}
