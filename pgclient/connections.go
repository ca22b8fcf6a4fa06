package pgclient

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Connections is where a [Client] gets its connections from. A *pgxpool.Pool is one as it is.
type Connections interface {
	// Acquire returns a connection that the client releases when its transaction has ended. The context carries the
	// values of the caller's context and ends with the client's time-out, not with the caller.
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
}

// FromContext returns connections that are looked up in the context of each call, for programs that carry their pool
// there. A call for which lookup returns nil (or a nil *pgxpool.Pool) fails with [ErrNoConnection].
func FromContext(lookup func(context.Context) Connections) Connections {
	return contextConnections(lookup)
}

type contextConnections func(context.Context) Connections

func (lookup contextConnections) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	found := lookup(ctx)
	if isNil(found) {
		return nil, ErrNoConnection
	}
	return found.Acquire(ctx)
}

// isNil also sees the nil pool in a non-nil interface that `pool, _ := ctx.Value(key).(*pgxpool.Pool)` leads to.
func isNil(source Connections) bool {
	if source == nil {
		return true
	}
	switch source := source.(type) {
	case *pgxpool.Pool:
		return source == nil
	case contextConnections:
		return source == nil
	}
	return false
}
