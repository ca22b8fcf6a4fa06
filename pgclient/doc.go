// Package pgclient calls pglimit, the rate limiter and permit leaser inside PostgreSQL, from Go.
//
// Every decision is one call of one SQL function, made by [Client.Hit] for rates and [Client.ClaimPermit] for
// concurrency. The client adds what a caller of those functions has to get right: a transaction that does not depend on
// the request's, one bound on everything, and errors that say what kind of trouble they are.
//
// # Answers and errors
//
// A refusal is a value: a [Decision] that is not Allowed, a [Permit] that is not Granted, with a nil error. An error
// means that there is no answer, and whether to go on without one is the caller's choice: going on is right for a
// lockout, stopping for a paywall. OnOutage tells what the limit's owner wishes. Errors match the sentinels of this
// package with errors.Is, and *pgconn.PgError with errors.As when the server raised them:
//
//	decision, err := client.Hit(ctx, params)
//	switch {
//	case errors.Is(err, pgclient.ErrUnavailable):
//	    // An outage: go on, or answer 503.
//	case err != nil:
//	    // A mistake in the call or the deployment: go on, and wake somebody.
//	case !decision.Allowed:
//	    // Answer 429, with Retry-After from decision.RetryAfter.
//	}
//
// # Transactions
//
// Each call runs in a transaction of its own, on a connection of its own, at READ COMMITTED, whatever the defaults of the
// role or the database. There is no way to run it inside the caller's: a count would roll back with the failed request
// it is to count, and everybody else on that key would wait for its commit.
//
// The call is detached from its context: the values flow on, to tracers and to [FromContext], but neither cancellation
// nor deadline does. A call whose context has ended is made all the same, so that a failed sign-in counts whether or not
// its client waits for the answer; and cancelling a query would close its connection. What bounds a call is the client's
// time-out, 2 seconds unless [WithTimeout] says otherwise, over the wait for a connection and the round trip together.
// (A claim whose reply was lost is made up to three times, each within that time, as long as its caller waits. One that
// waits its turn does end with its context, between two calls.)
// The server is told to give up shortly before that, so a call that waits for a lock leaves a usable connection.
//
// # Connections
//
// A call takes one network round trip on a connection that has made the same call before; the first one prepares. After
// an error the transaction is rolled back, which takes another, and pgx prepares anew. In a pool's default settings a
// connection that was idle for more than a second is pinged before it is used. The connection of a call that the client
// had to give up on, as the server did not even answer that it is too late, is closed; pgx waits up to 15 seconds for
// the server's goodbye, and the pool counts it until then.
//
// All query exec modes of pgx work. With describe_exec a call takes two round trips. PgBouncer in transaction mode works
// with cache_describe, describe_exec, exec and simple_protocol; with the default, cache_statement, it needs version 1.21
// and max_prepared_statements above 0. The mode is chosen in the connection string: default_query_exec_mode=exec.
//
// # Waiting
//
// A refused claim answers at once. With Wait in [ClaimPermitParams] it waits in the endpoint's queue instead, in turn with
// all others who wait, on whatever machine. A waiter holds no connection, only a timer: it asks when the server said it
// should, in a transaction of its own like any other.
//
// # Leases
//
// A permit lasts as long as its lease: [Permit.KeepAlive] renews it in the background, and [Permit.Lost] tells when it is
// over. A lease is not a lock, for nothing stops work that goes on after it; the permit's ID is the fencing token that
// keeps such work from doing harm.
//
// # Time
//
// The database's clock decides everything. This package does no arithmetic with the local one but for durations, of its
// calls and of leases, on the monotonic clock; and no instant that it returns need be compared with it: use the durations,
// such as RetryAfter.
package pgclient
