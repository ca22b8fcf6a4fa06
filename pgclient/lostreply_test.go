package pgclient_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// C-25: a claim whose reply was lost is made again and has the permit of the first attempt. (tests/lostreply does it
// five hundred times, through a proxy.)
func TestLostReply(t *testing.T) {
	t.Parallel()
	db := setup(t)
	claim := func(endpoint string) pgclient.ClaimPermitParams {
		return pgclient.ClaimPermitParams{Endpoint: endpoint, Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Hour)}
	}
	client := func(t *testing.T, network *cutter) (*pgclient.Client, *pgclient.Observation) {
		t.Helper()
		seen := new(pgclient.Observation)
		pool := db.pool(t, func(config *pgxpool.Config) { config.ConnConfig.DialFunc = network.dial })
		return must(pgclient.New(pool, pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) { *seen = o })))(t), seen
	}
	live := func(t *testing.T, endpoint string) []pgclient.PermitRow {
		t.Helper()
		return must(db.operator.ListPermits(t.Context(), pgclient.ListPermitsParams{Endpoint: endpoint}))(t)
	}

	for cuts, name := range []string{"None", "Once", "Twice"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, seen := client(t, &cutter{cuts: cuts})
			permit := must(client.ClaimPermit(t.Context(), claim(name)))(t)
			want(t, "granted", permit.Granted, true)
			want(t, "retries", seen.Retries, cuts)
			rows := live(t, name)
			want(t, "live permits", len(rows), 1)
			want(t, "id", permit.ID, rows[0].ID)
			want(t, "refused by a cap of 1", must(client.ClaimPermit(t.Context(), claim(name)))(t).Granted, false)
		})
	}

	t.Run("ThreeTimes", func(t *testing.T) {
		t.Parallel()
		client, seen := client(t, &cutter{cuts: 3})
		permit, err := client.ClaimPermit(t.Context(), claim("three"))
		e := wantKind(t, err, pgclient.ErrUnavailable)
		if permit != nil || !strings.Contains(e.Message, "3 attempts") || !strings.Contains(e.Message, "lapses by itself") {
			t.Errorf("got %+v, %q", permit, e.Message)
		}
		want(t, "retries", seen.Retries, 2)
		want(t, "outcome", seen.Outcome, pgclient.OutcomeError)
		want(t, "live permits", len(live(t, "three")), 1)
	})

	t.Run("NotAfterAnAnswer", func(t *testing.T) {
		t.Parallel()
		client, seen := client(t, &cutter{})
		_, err := client.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{Endpoint: "none", Holder: "u1"})
		wantKind(t, err, pgclient.ErrUnknownLimit)
		want(t, "retries", seen.Retries, 0)
	})

	t.Run("NotForACallerWhoHasGone", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		client, seen := client(t, &cutter{cuts: 1, cut: cancel})
		_, err := client.ClaimPermit(ctx, claim("gone"))
		e := wantKind(t, err, context.Canceled, pgclient.ErrUnavailable)
		if !strings.Contains(e.Message, "1 attempt") {
			t.Errorf("got %q", e.Message)
		}
		want(t, "retries", seen.Retries, 0)
	})

	// Nobody can tell whether it counted, and a second time might be one too many.
	t.Run("NotForAHit", func(t *testing.T) {
		t.Parallel()
		client, seen := client(t, &cutter{cuts: 1})
		_, err := client.Hit(t.Context(), pgclient.HitParams{Limit: "l", Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour)})
		wantKind(t, err, pgclient.ErrUnavailable)
		want(t, "retries", seen.Retries, 0)
	})

	// The server's last words are no answer to the call: it may say them after the commit.
	t.Run("SessionEnded", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		var seen pgclient.Observation
		client := must(pgclient.New(db.Pool("pglimit_app"), pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) { seen = o })))(t)
		tx := must(db.Super().Begin(t.Context()))(t)
		defer tx.Rollback(context.Background())
		must(tx.Exec(t.Context(), "lock table pglimit.permits in access exclusive mode"))(t)
		done := make(chan *pgclient.Permit)
		go func() {
			permit, err := client.ClaimPermit(t.Context(), claim("ended"))
			if err != nil {
				t.Error(err)
			}
			done <- permit
		}()
		for ended := 0; ended == 0; time.Sleep(time.Millisecond) {
			err := db.Super().QueryRow(t.Context(), `select count(pg_terminate_backend(pid)) from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock'`).Scan(&ended)
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = tx.Rollback(t.Context())
		if permit := <-done; permit == nil || !permit.Granted {
			t.Errorf("got %+v", permit)
		}
		want(t, "retries", seen.Retries, 1)
	})
}

// A request that is made again has its permit as long as that lives.
func TestRequestID(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	params := pgclient.ClaimPermitParams{
		Endpoint: "e", Holder: "u1", HolderCap: pgclient.N(2), Lease: pgclient.D(time.Hour), RequestID: "order/17",
	}
	first := must(db.app.ClaimPermit(ctx, params))(t)
	again := must(db.app.ClaimPermit(ctx, params))(t)
	want(t, "id", again.ID, first.ID)
	want(t, "expiry", again.ExpiresAt.Equal(first.ExpiresAt), true)
	must(again.Release(ctx))(t)
	if next := must(db.app.ClaimPermit(ctx, params))(t); next.ID <= first.ID {
		t.Errorf("got permit %d after %d, which was released", next.ID, first.ID)
	}

	// Without one, each call is a claim of its own.
	params.Holder, params.RequestID = "u2", ""
	one, other := must(db.app.ClaimPermit(ctx, params))(t), must(db.app.ClaimPermit(ctx, params))(t)
	if one.ID == other.ID || !other.Granted {
		t.Errorf("got permits %d and %d", one.ID, other.ID)
	}
	for _, id := range []string{"two words", "é", strings.Repeat("x", 201)} {
		params.RequestID = id
		_, err := db.app.ClaimPermit(ctx, params)
		wantKind(t, err, pgclient.ErrInvalidArgument)
	}
}

// cutter is a network that loses replies that tell of a commit, and the connection with each.
type cutter struct {
	mu   sync.Mutex
	cut  func() // told of the first that is lost; nil for none
	cuts int    // that are to come
	dies bool   // with the first that is lost
	pass int    // that come through before
	turn func() // told of the last that comes through before; nil for none
}

// dial is for pgconn's DialFunc.
func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	dead := c.dies && c.cuts == 0
	c.mu.Unlock()
	if dead {
		return nil, net.ErrClosed
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	return cutConn{Conn: conn, cutter: c}, err
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !bytes.Contains(b[:n], []byte("COMMIT\x00")) {
		return n, err
	}
	c.cutter.mu.Lock()
	defer c.cutter.mu.Unlock()
	if c.cutter.pass > 0 {
		if c.cutter.pass--; c.cutter.pass == 0 && c.cutter.turn != nil {
			c.cutter.turn()
		}
		return n, err
	}
	if c.cutter.cuts == 0 {
		return n, err
	}
	c.cutter.cuts--
	if c.cutter.cut != nil {
		c.cutter.cut()
		c.cutter.cut = nil
	}
	_ = c.Conn.Close()
	return 0, net.ErrClosed
}
