package pgclient_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
	"github.com/pglimit/pglimit/tests/dbtest"
)

// testBundle is an installed database and a client for each role that calls it.
type testBundle struct {
	*dbtest.DB
	app, operator *pgclient.Client
}

func setup(t *testing.T, opts ...pgclient.Option) *testBundle {
	t.Helper()
	db := dbtest.New(t)
	return &testBundle{
		DB:       db,
		app:      must(pgclient.New(db.Pool("pglimit_app"), opts...))(t),
		operator: must(pgclient.New(db.Pool("pglimit_operator"), opts...))(t),
	}
}

// pool returns a pool of the app's login with a configuration of its own.
func (b *testBundle) pool(t *testing.T, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := must(pgxpool.ParseConfig(b.URL("pglimit_app")))(t)
	configure(config)
	pool := must(pgxpool.NewWithConfig(context.Background(), config))(t)
	t.Cleanup(pool.Close)
	return pool
}

func (b *testBundle) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := b.Super().Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// now is the database's clock.
func (b *testBundle) now(t *testing.T) (now time.Time) {
	t.Helper()
	if err := b.Super().QueryRow(t.Context(), "select clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

// block has every hit wait until the returned function is called.
func (b *testBundle) block(t *testing.T) (unblock func()) {
	t.Helper()
	tx := must(b.Super().Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), "lock table pglimit.counters in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	unblock = func() { once.Do(func() { _ = tx.Rollback(context.Background()) }) }
	t.Cleanup(unblock)
	return unblock
}

// execModes are all of pgx's.
var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

// wire is a network between client and server that counts round trips, and can fall silent.
type wire struct {
	mu     sync.Mutex
	asked  bool
	held   []func() // writes made during the silence
	silent bool
	turns  int
}

// dial is for pgconn's DialFunc.
func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	return wireConn{Conn: conn, wire: w}, err
}

// during returns the round trips that do takes.
func (w *wire) during(do func()) int {
	w.mu.Lock()
	before := w.turns
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns - before
}

// silence keeps what is written from the server until the returned function is called, as a stopped server would.
func (w *wire) silence() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.silent = false
		for _, write := range w.held {
			write()
		}
		w.held = nil
	}
}

type wireConn struct {
	net.Conn
	wire *wire
}

// Read counts a round trip when it brings the first bytes since the last write.
func (c wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if n > 0 && c.wire.asked {
		c.wire.asked = false
		c.wire.turns++
	}
	return n, err
}

func (c wireConn) Write(b []byte) (int, error) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.asked = true
	if c.wire.silent {
		b := slices.Clone(b)
		c.wire.held = append(c.wire.held, func() { _, _ = c.Conn.Write(b) })
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// connectionsFunc is connections from a function.
type connectionsFunc func(context.Context) (*pgxpool.Conn, error)

func (f connectionsFunc) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return f(ctx) }
