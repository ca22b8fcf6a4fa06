package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/pglimit/pglimit/pgclient"
)

// Every mode sends and reads every type alike, whatever the session's styles and transaction defaults are.
func TestExecModes(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.operator.SetEndpoint(ctx, pgclient.SetEndpointParams{
		Endpoint: "e", HolderCap: pgclient.N(1), RowCap: pgclient.N(9), TimeBound: pgclient.D(36*time.Hour + 1500*time.Millisecond),
	}))(t)
	for _, mode := range execModes {
		for name, settings := range map[string]map[string]string{
			"": {},
			"/OtherStyles": {
				"DateStyle": "SQL, DMY", "IntervalStyle": "iso_8601", "TimeZone": "America/New_York",
				"default_transaction_isolation": "serializable", "default_transaction_read_only": "on", "search_path": "",
			},
		} {
			t.Run(mode.String()+name, func(t *testing.T) {
				t.Parallel()
				client := must(pgclient.New(db.pool(t, func(config *pgxpool.Config) {
					config.MaxConns = 1
					config.ConnConfig.DefaultQueryExecMode = mode
					for setting, value := range settings {
						config.ConnConfig.RuntimeParams[setting] = value
					}
				})))(t)
				who := fmt.Sprintf("%s' \\ %s", mode, name)
				for range 2 { // cold and warm
					begin := db.now(t)
					p := must(client.ClaimPermit(ctx, pgclient.ClaimPermitParams{
						Endpoint: "e", Holder: who, Note: json.RawMessage(`{"a": "b' \\"}`), Tenant: "t'1",
					}))(t)
					want(t, "granted", p.Granted, true)
					want(t, "time bound", p.TimeBound, 36*time.Hour+1500*time.Millisecond)
					want(t, "row cap", *p.RowCap, 9)
					lease := 36*time.Hour + 31500*time.Millisecond
					if p.ExpiresAt.Before(begin.Add(lease)) || p.ExpiresAt.After(db.now(t).Add(lease)) {
						t.Errorf("got expiry %v, want %v after %v", p.ExpiresAt, lease, begin)
					}
					renewed := must(p.Renew(ctx, pgclient.D(90*time.Minute)))(t)
					if !renewed.Renewed || renewed.ExpiresAt.Before(begin.Add(90*time.Minute)) || renewed.ExpiresAt.After(db.now(t).Add(90*time.Minute)) {
						t.Errorf("got %+v, want 90 minutes after %v", renewed, begin)
					}
					wait := pgclient.ClaimPermitParams{
						Endpoint: "e", Holder: who, Note: json.RawMessage(`{"a": "b' \\"}`), Tenant: "t'1", Wait: pgclient.D(15 * time.Millisecond),
					}
					want(t, "waits in vain", must(client.ClaimPermit(ctx, wait))(t).Reason, pgclient.ReasonHolder)
					wait.Wait = pgclient.D(time.Minute)
					ticket := must(client.EnqueuePermit(ctx, wait))(t)
					if poll := must(client.PollTicket(ctx, ticket.ID))(t); poll.PollAfter <= 0 || poll.Permit.Reason != pgclient.ReasonHolder {
						t.Errorf("got %+v, %+v", poll, poll.Permit)
					}
					want(t, "released", must(p.Release(ctx))(t).Released, true)
					p = must(client.ClaimPermit(ctx, wait))(t)
					want(t, "granted", p.Granted, true)
					want(t, "released", must(p.Release(ctx))(t).Released, true)
					must(client.ReleasePermit(ctx, ticket.ID, who))(t)

					hit := pgclient.HitParams{Limit: "api", Subject: who, MaxHits: pgclient.N(1), Per: pgclient.D(100 * time.Hour)}
					must(client.Forget(ctx, pgclient.ForgetParams{Limit: "api", Subject: who}))(t)
					want(t, "peek", must(client.Peek(ctx, hit))(t).Allowed, true)
					want(t, "hit", must(client.Hit(ctx, hit))(t).Allowed, true)
					d := must(client.Hit(ctx, hit))(t)
					if d.Allowed || d.RetryAfter < 99*time.Hour || d.RetryAfter > 100*time.Hour || d.ResetAt.Before(begin.Add(100*time.Hour)) {
						t.Errorf("got %+v, want a refusal for nearly 100 h", d)
					}
					_, err := client.Hit(ctx, pgclient.HitParams{Limit: "none", Subject: who})
					wantKind(t, err, pgclient.ErrUnknownLimit)
					must(client.Version(ctx))(t)
				}
			})
		}
	}
}

func TestExecModesOfTheOperator(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	for i, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := must(pgxpool.ParseConfig(db.URL("pglimit_operator")))(t)
			config.ConnConfig.DefaultQueryExecMode = mode
			pool := must(pgxpool.NewWithConfig(context.Background(), config))(t)
			defer pool.Close()
			client := must(pgclient.New(pool))(t)
			name := fmt.Sprint("m", i)
			must(client.SetLimit(ctx, pgclient.SetLimitParams{Limit: name, MaxHits: 2, Per: 36 * time.Hour}))(t)
			limits := must(client.ListLimits(ctx, pgclient.ListLimitsParams{Limit: name}))(t)
			want(t, "per", limits[0].Per, 36*time.Hour)
			must(client.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: name, HolderCap: pgclient.N(2), TimeBound: pgclient.D(36 * time.Hour)}))(t)
			endpoints := must(client.ListEndpoints(ctx, pgclient.ListEndpointsParams{Endpoint: name}))(t)
			want(t, "time bound", *endpoints[0].TimeBound, 36*time.Hour)
			must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{Endpoint: name, Holder: "u1", Note: json.RawMessage(`{"a":1}`)}))(t)
			permits := must(client.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: name}))(t)
			want(t, "note", string(permits[0].Note), `{"a": 1}`)
			must(db.app.Hit(ctx, pgclient.HitParams{Limit: name, Subject: "u1"}))(t)
			counters := must(client.ListCounters(ctx, pgclient.ListCountersParams{Limit: name}))(t)
			want(t, "window", counters[0].ResetAt.Sub(counters[0].WindowStart), 36*time.Hour)
			until := db.now(t).Add(time.Hour).Round(time.Microsecond)
			must(client.SetEndpointOverride(ctx, pgclient.SetEndpointOverrideParams{Endpoint: name, Holder: "u1", ValidUntil: &until}))(t)
			overrides := must(client.ListEndpointOverrides(ctx, pgclient.ListEndpointOverridesParams{Endpoint: name}))(t)
			want(t, "valid until", overrides[0].ValidUntil.Equal(until), true)
			want(t, "drop", must(client.DropEndpointOverride(ctx, pgclient.DropEndpointOverrideParams{Endpoint: name, Holder: "u1"}))(t), true)
			must(client.ShowInstallation(ctx))(t)
			must(client.SetPurgeAfter(ctx, 24*time.Hour))(t)
			must(client.Purge(ctx, 10))(t)
			must(client.Doctor(ctx, pgclient.DoctorParams{HeldFor: pgclient.D(36 * time.Hour)}))(t)
			must(client.InstallReady(ctx, pgclient.ReadyRequestInFlight, name))(t)
			want(t, "drop", must(client.DropLimit(ctx, name, ""))(t), true)
			want(t, "drop", must(client.DropEndpoint(ctx, name, ""))(t), true)
		})
	}
}

// A warm call is one network round trip; and an error costs the rollback's, but not the connection.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			var network wire
			pool := db.pool(t, func(config *pgxpool.Config) {
				config.MaxConns = 1
				config.ConnConfig.DefaultQueryExecMode = mode
				config.ConnConfig.DialFunc = network.dial
				config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
			})
			client := must(pgclient.New(pool))(t)
			warm := 1
			if mode == pgx.QueryExecModeDescribeExec {
				warm = 2
			}
			hit := pgclient.HitParams{Limit: "api", Subject: mode.String(), MaxHits: pgclient.N(2), Per: pgclient.D(time.Hour)}
			claim := pgclient.ClaimPermitParams{Endpoint: "e", Holder: mode.String(), HolderCap: pgclient.N(1), Lease: pgclient.D(time.Hour)}
			var permit *pgclient.Permit
			calls := []struct {
				name string
				do   func()
			}{
				{"hit", func() { must(client.Hit(ctx, hit))(t) }},
				{"peek", func() { must(client.Peek(ctx, hit))(t) }},
				{"claim", func() { permit = must(client.ClaimPermit(ctx, claim))(t) }},
				{"release", func() { must(permit.Release(ctx))(t) }},
			}
			for _, call := range calls {
				call.do() // prepares
			}
			for range 3 { // the last hits are refused ones
				for _, call := range calls {
					want(t, call.name, network.during(call.do), warm)
				}
			}

			unknown := func() {
				_, err := client.Hit(ctx, pgclient.HitParams{Limit: "none", Subject: "u1"})
				wantKind(t, err, pgclient.ErrUnknownLimit)
			}
			want(t, "error", network.during(unknown), warm+1)
			want(t, "connections made", pool.Stat().NewConnsCount(), 1)
			want(t, "connections idle", pool.Stat().IdleConns(), 1)
		})
	}
}

// Nothing of a call stays behind on a connection of the application.
func TestConnectionIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	state := func() (state string) {
		t.Helper()
		err := pool.QueryRow(ctx, `select concat_ws('|', current_setting('statement_timeout'), current_setting('pglimit.in_transaction', true),
			current_setting('transaction_isolation'), current_setting('transaction_read_only'))`).Scan(&state)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	client := must(pgclient.New(pool))(t)
	const clean = "0||read committed|off"
	_, err := client.Hit(ctx, pgclient.HitParams{Limit: "none", Subject: "u1"})
	wantKind(t, err, pgclient.ErrUnknownLimit)
	want(t, "after an error", state(), clean)
	must(client.Peek(ctx, pgclient.HitParams{Limit: "l", Subject: "u1", MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour)}))(t)
	want(t, "after a call", state(), clean)
	want(t, "connections made", pool.Stat().NewConnsCount(), 1)
}

// What the caller gives up on still counts (R8).
func TestEndedContextStillCounts(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	hit := pgclient.HitParams{Limit: "login_attempt", Subject: "u1", MaxHits: pgclient.N(3), Per: pgclient.D(time.Hour)}
	for left := int64(2); left >= 0; left-- {
		want(t, "remaining", must(db.app.Hit(ended, hit))(t).Remaining, left)
	}
	want(t, "peek", must(db.app.Peek(ended, hit))(t).Allowed, false)
	want(t, "forget", must(db.app.Forget(ended, pgclient.ForgetParams{Limit: "login_attempt", Subject: "u1"}))(t), true)
}

// C-25: a permit is given back with a context that has ended, and is not left to a caller who has gone.
func TestEndedContextKeepsNoPermit(t *testing.T) {
	t.Parallel()
	db := setup(t)
	params := func(endpoint string) pgclient.ClaimPermitParams {
		return pgclient.ClaimPermitParams{Endpoint: endpoint, Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Hour)}
	}
	live := func(t *testing.T, endpoint string) int {
		t.Helper()
		return len(must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: endpoint}))(t))
	}
	gone := errors.New("client gone")

	t.Run("ReleaseWorks", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		permit := must(db.app.ClaimPermit(ctx, params("release")))(t)
		cancel()
		want(t, "released", must(permit.Release(ctx))(t).Released, true)
		want(t, "live permits", live(t, "release"), 0)
	})

	t.Run("EndedBeforeTheClaim", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		permit, err := db.app.ClaimPermit(ctx, params("before"))
		e := wantKind(t, err, context.Canceled, gone)
		want(t, "operation", e.Operation, "claim_permit")
		if permit != nil || errors.Is(err, pgclient.ErrUnavailable) {
			t.Errorf("got %+v, %v", permit, err)
		}
		want(t, "live permits", live(t, "before"), 0)
	})

	t.Run("EndedDuringTheClaim", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		client := must(pgclient.New(
			connectionsFunc(func(acquireCtx context.Context) (*pgxpool.Conn, error) {
				cancel() // the claim is on its way
				return db.Pool("pglimit_app").Acquire(acquireCtx)
			}),
			pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) {
				seen = append(seen, o.Operation+" "+string(o.Outcome))
			}),
		))(t)
		_, err := client.ClaimPermit(ctx, params("during"))
		wantKind(t, err, context.Canceled)
		want(t, "live permits", live(t, "during"), 0)
		want(t, "observed", fmt.Sprint(seen), "[release_permit ok claim_permit error]")
	})

	t.Run("RefusalStaysARefusal", func(t *testing.T) {
		t.Parallel()
		must(db.app.ClaimPermit(t.Context(), params("refused")))(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, "granted", must(db.app.ClaimPermit(ctx, params("refused")))(t).Granted, false)
		want(t, "live permits", live(t, "refused"), 1)
	})

	t.Run("WhatCannotBeGivenBackIsNamed", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		down := errors.New("down")
		calls := 0
		client := must(pgclient.New(connectionsFunc(func(ctx context.Context) (*pgxpool.Conn, error) {
			if calls++; calls > 1 {
				return nil, down
			}
			return db.Pool("pglimit_app").Acquire(ctx)
		})))(t)
		_, err := client.ClaimPermit(ctx, params("named"))
		e := wantKind(t, err, context.Canceled, down, pgclient.ErrUnavailable)
		rows := must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: "named"}))(t)
		want(t, "live permits", len(rows), 1)
		var id int64
		if _, scanErr := fmt.Sscanf(e.Message, "the context ended before permit %d", &id); scanErr != nil || id != rows[0].ID {
			t.Errorf("got message %q, want one that names permit %d", e.Message, rows[0].ID)
		}
	})
}

// C-46: callers that give up lose neither the answer nor the connection, and disturb nobody who uses it next.
func TestCancelledCallers(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const callers, conns, later = 40, 4, 200
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = conns })
	client := must(pgclient.New(pool))(t)
	hit := func(ctx context.Context) {
		_, err := client.Hit(ctx, pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(1000), Per: pgclient.D(time.Hour)})
		if err != nil {
			t.Error(err)
		}
	}
	unblock := db.block(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() { hit(ctx) })
	}
	<-ctx.Done()
	time.Sleep(20 * time.Millisecond) // for whatever a cancellation might set off
	unblock()
	wg.Wait()
	for range later {
		wg.Go(func() { hit(t.Context()) })
	}
	wg.Wait()
	counts := must(db.operator.ListCounters(t.Context(), pgclient.ListCountersParams{Limit: "api"}))(t)
	want(t, "hits counted", counts[0].Used, callers+later)
	if made := pool.Stat().NewConnsCount(); made > conns {
		t.Errorf("got %d connections made, want at most %d", made, conns)
	}
}

// A call ends within the time-out whatever it waits for, and a wait for a lock leaves the connection usable.
func TestStalls(t *testing.T) {
	t.Parallel()
	const slack = 2 * time.Second // for a busy machine; what is measured is that a call ends, not when
	timed := func(t *testing.T, timeout time.Duration, call func() error) *pgclient.Error {
		t.Helper()
		start := time.Now()
		e := wantKind(t, call(), pgclient.ErrUnavailable)
		if took := time.Since(start); took > timeout+slack {
			t.Errorf("took %v, want about %v", took, timeout)
		}
		return e
	}
	hit := func(ctx context.Context, client *pgclient.Client) error {
		_, err := client.Hit(ctx, pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour)})
		return err
	}

	t.Run("StatementTimeout", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		db.exec(t, `create or replace function pglimit.pglimit_version() returns text language sql as 'select pg_sleep(60)::text'`)
		for _, mode := range execModes {
			t.Run(mode.String(), func(t *testing.T) {
				t.Parallel()
				pool := db.pool(t, func(config *pgxpool.Config) {
					config.MaxConns = 1
					config.ConnConfig.DefaultQueryExecMode = mode
				})
				client := must(pgclient.New(pool))(t)
				e := timed(t, 2*time.Second, func() error {
					_, err := client.Version(t.Context())
					return err
				})
				want(t, "code", e.Code, "57014")
				if err := hit(t.Context(), client); err != nil {
					t.Errorf("after the stall: %v", err)
				}
				want(t, "connections made", pool.Stat().NewConnsCount(), 1)
			})
		}
	})

	t.Run("LockTimeout", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
		client := must(pgclient.New(pool))(t)
		unblock := db.block(t)
		e := timed(t, 2*time.Second, func() error { return hit(t.Context(), client) })
		want(t, "code", e.Code, "55P03")
		unblock()
		if err := hit(t.Context(), client); err != nil {
			t.Errorf("after the stall: %v", err)
		}
		want(t, "connections made", pool.Stat().NewConnsCount(), 1)
	})

	db := setup(t)
	t.Run("ServerSilent", func(t *testing.T) {
		t.Parallel()
		var network wire
		pool := db.pool(t, func(config *pgxpool.Config) {
			config.MaxConns = 1
			config.ConnConfig.DialFunc = network.dial
			config.ConnConfig.ConnectTimeout = 200 * time.Millisecond
		})
		client := must(pgclient.New(pool, pgclient.WithTimeout(200*time.Millisecond)))(t)
		if err := hit(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		endSilence := network.silence()
		e := timed(t, 200*time.Millisecond, func() error { return hit(t.Context(), client) })
		want(t, "code", e.Code, "")
		timed(t, 200*time.Millisecond, func() error { return hit(t.Context(), client) }) // nor can it connect
		endSilence()
		patient := must(pgclient.New(pool))(t)
		if err := hit(t.Context(), patient); err != nil {
			t.Errorf("after the silence: %v", err)
		}
	})

	t.Run("PoolExhausted", func(t *testing.T) {
		t.Parallel()
		pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
		held := must(pool.Acquire(t.Context()))(t)
		client := must(pgclient.New(pool, pgclient.WithTimeout(100*time.Millisecond)))(t)
		e := timed(t, 100*time.Millisecond, func() error { return hit(t.Context(), client) })
		want(t, "operation", e.Operation, "hit")
		held.Release()
		patient := must(pgclient.New(pool))(t)
		if err := hit(t.Context(), patient); err != nil {
			t.Errorf("after the release: %v", err)
		}
		want(t, "connections made", pool.Stat().NewConnsCount(), 1)
	})

	t.Run("PoolClosed", func(t *testing.T) {
		t.Parallel()
		client := must(pgclient.Open(t.Context(), db.URL("pglimit_app")))(t)
		if err := hit(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		client.Close()
		client.Close()
		timed(t, 0, func() error { return hit(t.Context(), client) })
	})
}

// The pool of Open is small, and named for those who look at the server.
func TestOpen(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, tt := range map[string]struct {
		params string
		opts   []pgclient.Option
		app    string
		conns  int
	}{
		"Defaults": {app: "pglimit", conns: 4},
		"DSN":      {params: "pool_max_conns=3&application_name=shop", app: "shop", conns: 3},
		"Option":   {params: "pool_max_conns=3&application_name=small", opts: []pgclient.Option{pgclient.WithMaxConns(2)}, app: "small", conns: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := must(url.Parse(db.URL("pglimit_app")))(t)
			extra := must(url.ParseQuery(tt.params))(t)
			query := dsn.Query()
			query.Del("application_name")
			for key := range extra {
				query.Set(key, extra.Get(key))
			}
			limit := name
			dsn.RawQuery = query.Encode()
			client := must(pgclient.Open(t.Context(), dsn.String(), tt.opts...))(t)
			defer client.Close()
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					_, err := client.Hit(t.Context(), pgclient.HitParams{Limit: limit, Subject: fmt.Sprint(i), MaxHits: pgclient.N(1), Per: pgclient.D(time.Hour)})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			var conns int
			err := db.Super().QueryRow(t.Context(), `select count(*) from pg_stat_activity
				where datname = current_database() and application_name = $1`, tt.app).Scan(&conns)
			if err != nil {
				t.Fatal(err)
			}
			if conns < 1 || conns > tt.conns {
				t.Errorf("got %d connections of %s, want 1 to %d", conns, tt.app, tt.conns)
			}
		})
	}
}

// Not parallel, so that the goroutines of other tests are not counted.
func TestNoGoroutineIsLeft(t *testing.T) {
	db := setup(t)
	db.block(t)() // opens the pool it uses
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	client := must(pgclient.Open(context.Background(), db.URL("pglimit_app"), pgclient.WithTimeout(200*time.Millisecond)))(t)
	defer client.Close()
	hit := func(ctx context.Context, limit string) error {
		_, err := client.Hit(ctx, pgclient.HitParams{Limit: limit, Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour)})
		return err
	}
	if err := hit(t.Context(), "api"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, hit(t.Context(), " "), pgclient.ErrInvalidArgument)
	unblock := db.block(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	wantKind(t, hit(ctx, "api"), pgclient.ErrUnavailable)
	unblock()
}
