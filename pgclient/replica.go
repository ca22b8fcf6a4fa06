package pgclient

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	heartbeatReplicaSQL = `select pglimit.heartbeat_replica(service => $1::text, replica_id => $2::text, ttl => $3::interval)`

	defaultReplicaTTL = 15 * time.Second // the function's own

	// beatEvery is how often a Replica says that it is ready, unless a third of its TTL is less.
	beatEvery = 5 * time.Second
)

// HeartbeatReplicaParams are the arguments of [Client.HeartbeatReplica].
type HeartbeatReplicaParams struct {
	// Replica is the name of this process, such as its host name; Service is what all of them are. Both are required.
	Replica, Service string

	// TTL is for how long the replica counts as ready without another heartbeat; zero is no more. Defaults to 15 seconds.
	TTL *time.Duration
}

// HeartbeatReplica says that a replica is ready, and returns how many are, this one included. Call it every five seconds
// or so, and let each replica have its share of what all of them may do: the whole divided by the number, rounded up.
// [Client.Replica] does that.
func (c *Client) HeartbeatReplica(ctx context.Context, p HeartbeatReplicaParams) (int64, error) {
	var args arguments
	args.text("service", p.Service)
	args.text("replica_id", p.Replica)
	switch {
	case p.TTL == nil:
		args.interval(defaultReplicaTTL)
	case *p.TTL == 0:
		args.interval(0)
	default:
		args.duration("ttl", *p.TTL)
	}
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Service,
		sql:     heartbeatReplicaSQL,
		verb:    "heartbeat_replica",
	})
}

// Replica is this process among the replicas of its service that are ready. It is made by [Client.Replica], and its methods
// may be called by several goroutines at once.
type Replica struct {
	client *Client
	every  time.Duration
	params HeartbeatReplicaParams

	asking sync.Mutex
	last   atomic.Pointer[readiness]
}

// readiness is what the last heartbeat answered.
type readiness struct {
	at    time.Time
	err   error // of the heartbeat; ready is then of the one before
	ready int64
}

// Replica returns this process as one of the replicas that share a rate. It is ready from the first call of
// [Replica.Share] or [Replica.Ready] on, as long as one of them is called again before its TTL is over: so one that has
// nothing to do leaves its share to the others. Where it is to keep it, call Ready from a ticker.
//
//	replica := client.Replica(pgclient.HeartbeatReplicaParams{Service: "shop", Replica: hostname})
//	share, err := replica.Share(ctx, 100) // a second, of all replicas together
//	if err != nil {
//	    log.Print(err) // and go on by what was known before
//	}
//	decision, err := client.Hit(ctx, pgclient.HitParams{
//	    Limit: "node", Subject: "node-7 from " + hostname, MaxHits: &share, Per: pgclient.D(time.Second),
//	})
func (c *Client) Replica(p HeartbeatReplicaParams) *Replica {
	if p.TTL == nil || *p.TTL == 0 { // zero would be to take leave each time
		p.TTL = D(defaultReplicaTTL)
	}
	return &Replica{client: c, every: min(beatEvery, *p.TTL/3), params: p}
}

// Leave says that this replica is ready no more, so that the others have its share at once. The next [Replica.Share] or
// [Replica.Ready] would have it back.
func (r *Replica) Leave(ctx context.Context) error {
	r.asking.Lock()
	defer r.asking.Unlock()
	p := r.params
	p.TTL = D(0)
	_, err := r.client.HeartbeatReplica(ctx, p)
	r.last.Store(nil)
	return err
}

// Ready returns how many replicas are ready, this one included. It asks the database, and tells it that this one is ready,
// every five seconds at most, or as often as a third of the TTL, and answers from memory in between. While one goroutine
// asks, the others have the answer before, if there is one. With an error, which stays until the database answers, the
// number is the last that was known, at first 1.
func (r *Replica) Ready(ctx context.Context) (int64, error) {
	last := r.last.Load()
	switch {
	case last == nil:
		r.asking.Lock()
	case since(last.at) < r.every || !r.asking.TryLock():
		return last.ready, last.err
	}
	defer r.asking.Unlock()
	if newer := r.last.Load(); newer != last && newer != nil { // somebody else has asked meanwhile
		return newer.ready, newer.err
	}
	next := readiness{at: now()}
	ready, err := r.client.HeartbeatReplica(ctx, r.params)
	switch {
	case err == nil:
		next.ready = ready
	case last != nil:
		next.err, next.ready = err, last.ready
	default:
		next.err, next.ready = err, 1
	}
	r.last.Store(&next)
	return next.ready, next.err
}

// Share returns what this replica may have of a rate that all replicas share: the whole divided by the number of those that
// are ready, rounded up, so at least 1 of a rate that is not 0. It asks as [Replica.Ready] does, and has its errors; the
// share is good all the same.
func (r *Replica) Share(ctx context.Context, rate int64) (int64, error) {
	ready, err := r.Ready(ctx)
	share := rate / ready
	if rate%ready > 0 {
		share++
	}
	return share, err
}
