package pgclient

import (
	"context"
	"time"
)

const (
	heartbeatReplicaSQL = `select pglimit.heartbeat_replica(service => $1::text, replica_id => $2::text, ttl => $3::interval)`

	defaultReplicaTTL = 15 * time.Second // the function's own
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
