package pgclient_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// TestReplicaShares: each has the whole divided by those that are ready, rounded up; the database is asked every five
// seconds at most, however many want to know.
func TestReplicaShares(t *testing.T) {
	t.Parallel()
	var beats atomic.Int64
	db := setup(t, pgclient.WithObserver(func(_ context.Context, o pgclient.Observation) {
		if o.Operation == "heartbeat_replica" {
			beats.Add(1)
		}
	}))
	ctx := t.Context()
	replica := func(name string, ttl *time.Duration) *pgclient.Replica {
		return db.app.Replica(pgclient.HeartbeatReplicaParams{Service: "shop", Replica: name, TTL: ttl})
	}
	wantShare := func(r *pgclient.Replica, rate, share int64) {
		t.Helper()
		want(t, "share", must(r.Share(ctx, rate))(t), share)
	}
	a := replica("a", nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if share, err := a.Share(ctx, 99); share != 99 || err != nil {
				t.Errorf("got %d, %v", share, err)
			}
		})
	}
	all.Wait()
	want(t, "heartbeats", beats.Load(), 1)

	b := replica("b", pgclient.D(0)) // as if it were not given
	for rate, share := range map[int64]int64{99: 50, 100: 50, 1: 1, 2: 1, 3: 2, 0: 0, math.MaxInt64: math.MaxInt64/2 + 1} {
		wantShare(b, rate, share)
	}
	wantShare(a, 99, 99)
	a.Age(4 * time.Second)
	wantShare(a, 99, 99)
	want(t, "heartbeats", beats.Load(), 2)
	a.Age(time.Second)
	wantShare(a, 99, 50)
	want(t, "ready", must(a.Ready(ctx))(t), 2)
	want(t, "heartbeats", beats.Load(), 3)

	c := replica("c", pgclient.D(6*time.Second))
	wantShare(c, 99, 33)
	c.Age(2 * time.Second) // a third of its time
	wantShare(c, 99, 33)
	want(t, "heartbeats", beats.Load(), 5)

	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	a.Age(5 * time.Second)
	wantShare(a, 99, 50)
	wantShare(b, 99, 33) // is back
	want(t, "service for itself", must(db.app.Replica(pgclient.HeartbeatReplicaParams{Service: "stock", Replica: "a"}).Ready(ctx))(t), 1)
}

// switched is a pool that can be away.
type switched struct {
	*pgxpool.Pool
	away  atomic.Bool
	calls atomic.Int64
}

func (s *switched) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	s.calls.Add(1)
	if s.away.Load() {
		return nil, errors.New("the network is gone")
	}
	return s.Pool.Acquire(ctx)
}

// TestReplicaWithoutDatabase: the share is by what was known, and the error says so until there is an answer; an outage is
// not asked about by every call.
func TestReplicaWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	source := &switched{Pool: db.Pool("pglimit_app")}
	client := must(pgclient.New(source))(t)
	params := pgclient.HeartbeatReplicaParams{Service: "shop", Replica: "a"}
	replica := client.Replica(params)
	wantOutage := func(share int64, calls int64) {
		t.Helper()
		for range 3 {
			got, err := replica.Share(ctx, 99)
			wantKind(t, err, pgclient.ErrUnavailable)
			want(t, "share", got, share)
		}
		want(t, "calls", source.calls.Load(), calls)
	}
	source.away.Store(true)
	wantOutage(99, 1)
	source.away.Store(false)
	wantOutage(99, 1)
	replica.Age(5 * time.Second)
	for _, name := range []string{"b", "c"} {
		must(db.app.HeartbeatReplica(ctx, pgclient.HeartbeatReplicaParams{Service: "shop", Replica: name}))(t)
	}
	want(t, "share", must(replica.Share(ctx, 99))(t), 33)
	source.away.Store(true)
	want(t, "share", must(replica.Share(ctx, 99))(t), 33)
	replica.Age(5 * time.Second)
	wantOutage(33, 3)
	if err := replica.Leave(ctx); !errors.Is(err, pgclient.ErrUnavailable) {
		t.Errorf("left: %v", err)
	}
	bad := client.Replica(pgclient.HeartbeatReplicaParams{Service: "shop", Replica: "a", TTL: pgclient.D(-time.Second)})
	if share, err := bad.Share(ctx, 9); share != 9 || !errors.Is(err, pgclient.ErrInvalidArgument) {
		t.Errorf("got %d, %v", share, err)
	}
}
