package pgclient

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file is the only one that opens transactions.

const (
	// Spelled out because a role, a database or a pooler may default to another isolation level or to read only, which a
	// deciding function refuses; and because a router sees in it that a SELECT belongs on the primary.
	beginWrite = "begin isolation level read committed read write"
	beginRead  = "begin isolation level read committed read only"

	commit   = "commit"
	rollback = "rollback"

	// One statement for all settings, and set_config in place of SET LOCAL, which takes no parameter: a text that changed
	// with the time left would be prepared anew for every call.
	settings = "select pg_catalog.set_config('statement_timeout', $1::text, true)," +
		" pg_catalog.set_config('pglimit.in_transaction', 'allow', true)"

	// The exec modes that read results as text need the styles that pgx can parse.
	settingsAndStyles = settings +
		", pg_catalog.set_config('DateStyle', 'ISO', true)" +
		", pg_catalog.set_config('IntervalStyle', 'postgres', true)"
)

// statement is a call of one function of pglimit.
type statement[T any] struct {
	args    arguments
	begin   string                     // beginWrite or beginRead
	collect func(pgx.Rows) (T, error)  // reads the whole result
	name    string                     // the limit or endpoint, for observers
	settle  func(answer T) (err error) // looks at an answer before it is handed out; nil for none
	sql     string                     // its select list names every column, so that a newer server may add some
	verb    string                     // the SQL function
}

// run carries out one operation, from the check of its arguments to its report.
func run[T any](ctx context.Context, c *Client, s statement[T]) (answer T, err error) {
	start := time.Now()
	err = s.args.err
	if err == nil {
		answer, err = systemTx(ctx, c, s)
	}
	if err == nil && s.settle != nil {
		err = s.settle(answer)
	}

	outcome := OutcomeOK
	if err != nil {
		var none T
		answer, outcome = none, OutcomeError
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Message: err.Error(), wrapped: []error{err}}
		}
		e.Operation = s.verb
		err = e
	} else if decision, ok := any(answer).(interface{ refused() bool }); ok && decision.refused() {
		outcome = OutcomeRefused
	}
	c.report(ctx, Observation{Duration: time.Since(start), Err: err, Name: s.name, Operation: s.verb, Outcome: outcome})
	return answer, err
}

// systemTx runs s in a transaction of its own, on a context that keeps the caller's values (trace ids, tenants,
// connections) but not its end: what the caller gives up on still counts, and a cancelled query would cost the
// connection. What ends it is the client's time-out, over the wait for a connection and the round trip together.
//
// begin, settings, call and commit travel as one batch: one network round trip once the connection has its statements
// prepared. An error among them makes the server skip the rest, and the transaction is rolled back.
func systemTx[T any](ctx context.Context, c *Client, s statement[T]) (answer T, err error) {
	ctx = context.WithoutCancel(ctx)
	end := newBudget(time.Now(), c.timeout)

	conn, err := acquire(ctx, c.source, end)
	if err != nil {
		return answer, err
	}
	defer conn.Release()
	pgConn := conn.Conn().PgConn()

	var batch pgx.Batch
	batch.Queue(s.begin)
	batch.Queue(settingsFor(pgConn), milliseconds(statementTimeout(time.Until(end.call))))
	var misread error
	batch.Queue(s.sql, s.args.values...).Query(func(rows pgx.Rows) error {
		answer, misread = s.collect(rows)
		return misread
	})
	batch.Queue(commit)

	callCtx, cancel := context.WithDeadline(ctx, end.call)
	defer cancel()
	err = conn.SendBatch(callCtx, &batch).Close()
	if err == nil {
		return answer, nil
	}

	if !pgConn.IsClosed() && pgConn.TxStatus() != 'I' {
		// On its own context, as the call's may be about to end. Should it fail, the pool discards the connection.
		rollbackCtx, cancel := context.WithTimeout(ctx, c.timeout/rollbackShare)
		defer cancel()
		_, _ = conn.Exec(rollbackCtx, rollback)
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr):
		return answer, serverError(pgErr, err)
	case errors.Is(err, context.DeadlineExceeded):
		return answer, unavailable(fmt.Sprintf("no answer within %v", c.timeout), err)
	case pgConn.IsClosed():
		return answer, unavailable("the connection was lost: "+err.Error(), err)
	case misread != nil:
		return answer, &Error{Message: "answer not understood: " + err.Error(), wrapped: []error{ErrVersionMismatch, err}}
	}
	return answer, &Error{Message: "not sent: " + err.Error(), wrapped: []error{err}} // pgx refuses the connection's settings
}

// budget is the time-out of one operation, cut up so that its parts, the rollback after an error included, never add up
// to more.
type budget struct {
	acquire time.Time // a connection got later would leave no time to use it, and be closed half-way
	call    time.Time // the last twentieth is the rollback's
}

const (
	acquireShare  = 10
	rollbackShare = 20
)

func newBudget(start time.Time, timeout time.Duration) budget {
	return budget{
		acquire: start.Add(timeout - timeout/acquireShare),
		call:    start.Add(timeout - timeout/rollbackShare),
	}
}

// statementTimeout lets the server give up a little before the client does: its error leaves a connection that can be
// used again, a deadline does not. It restarts with each statement, but only the call waits for anything.
func statementTimeout(left time.Duration) time.Duration {
	return max(left-left/10, time.Millisecond) // 0 would switch it off
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// settingsFor picks the settings by what the server has reported of the session, which costs nothing to ask.
func settingsFor(conn *pgconn.PgConn) string {
	if strings.HasPrefix(conn.ParameterStatus("DateStyle"), "ISO") && conn.ParameterStatus("IntervalStyle") == "postgres" {
		return settings
	}
	return settingsAndStyles
}

// acquire waits for a connection. Its errors are an Error always.
func acquire(ctx context.Context, source Connections, end budget) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, end.acquire)
	defer cancel()
	conn, err := source.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, ErrNoConnection):
		return nil, &Error{
			Hint:    "put the connections where the function given to pgclient.FromContext looks for them",
			Message: err.Error(),
			wrapped: []error{err},
		}
	case errors.As(err, &pgErr):
		return nil, serverError(pgErr, err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, unavailable("no connection became free, or could be made, within the time-out", err)
	}
	return nil, unavailable("no connection: "+err.Error(), err)
}

// one reads a result of exactly one row with the columns of T.
func one[T any](rows pgx.Rows) (T, error) {
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
}

// list reads a result of any number of rows with the columns of T.
func list[T any](rows pgx.Rows) ([]T, error) {
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// scalar reads a result of one row and one column.
func scalar[T any](rows pgx.Rows) (T, error) {
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}
