package pgclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	repeat  string                     // what a lost reply may leave behind; "" for a call that is not sent again then
	sent    *time.Time                 // receives the moment before the answered call was sent; nil for none
	settle  func(answer T) (err error) // looks at an answer before it is handed out; nil for none
	source  Connections                // nil for the client's
	sql     string                     // its select list names every column, so that a newer server may add some
	timeout time.Duration              // 0 for the client's
	verb    string                     // the SQL function
}

// run carries out one operation that is one call, from the check of its arguments to its report.
func run[T any](ctx context.Context, c *Client, s statement[T]) (answer T, err error) {
	start := now()
	answer, retries, err := call(ctx, c, s)
	decision, decides := any(answer).(interface{ refused() bool })
	c.report(ctx, Observation{
		Duration: since(start), Err: err, Name: s.name, Operation: s.verb,
		Outcome: outcomeOf(decides && decision.refused(), err), Retries: retries,
	})
	return answer, err
}

func outcomeOf(refused bool, err error) Outcome {
	switch {
	case err != nil:
		return OutcomeError
	case refused:
		return OutcomeRefused
	}
	return OutcomeOK
}

// call makes one call, from the check of its arguments to the look at its answer. Its errors are an Error always.
func call[T any](ctx context.Context, c *Client, s statement[T]) (answer T, retries int, err error) {
	err = s.args.err
	if err == nil {
		answer, retries, err = persist(ctx, c, s)
	}
	if err == nil && s.settle != nil {
		err = s.settle(answer)
	}
	if err == nil {
		return answer, retries, nil
	}
	var none T
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Message: err.Error(), wrapped: []error{err}}
	}
	e.Operation = s.verb
	return none, retries, e
}

// pauses are those before a call is sent again, each give or take half of it. They are short: what was lost is one
// reply, and whoever waits for the database to come back is better told that it is away.
var pauses = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond}

// persist makes a call, and makes it again, on another connection, as long as nobody knows what became of it: only a
// call that can be repeated without harm, never after an answer of the server, and not for a caller who has gone.
func persist[T any](ctx context.Context, c *Client, s statement[T]) (answer T, retries int, err error) {
	lost := false
	for {
		answer, err = systemTx(ctx, c, s)
		var e *Error
		if err == nil || s.repeat == "" || !errors.As(err, &e) {
			return answer, retries, err
		}
		// No connection leaves an attempt before it as unknown as it was.
		again := e.fate == fateLost || lost && e.fate == fateUnsent
		lost = lost || again
		if !lost {
			return answer, retries, err
		}
		if again && retries < len(pauses) && pause(ctx, pauses[retries]) {
			retries++
			continue
		}
		reply := "no reply to 1 attempt"
		if retries > 0 {
			reply = fmt.Sprintf("no reply that can be used to %d attempts", retries+1)
		}
		unknown := *e
		unknown.Message = fmt.Sprintf("%s, so %s: %s", reply, s.repeat, e.Message)
		if ctx.Err() != nil {
			unknown.wrapped = append(slices.Clone(e.wrapped), contextErrors(ctx)...)
		}
		return answer, retries, &unknown
	}
}

// pause waits for about d. It is false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool { return sleep(ctx, jitter(d, 0.5)) }

// sleep waits for d. It is false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// jitter is d, up to a share of it more or less, so that those who began together do not go on together.
func jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}

// systemTx runs s in a transaction of its own, on a context that keeps the caller's values (trace ids, tenants,
// connections) but not its end: what the caller gives up on still counts, and a cancelled query would cost the
// connection. What ends it is the client's time-out, over the wait for a connection and the round trip together.
//
// begin, settings, call and commit travel as one batch: one network round trip once the connection has its statements
// prepared. An error among them makes the server skip the rest, and the transaction is rolled back.
func systemTx[T any](ctx context.Context, c *Client, s statement[T]) (answer T, err error) {
	ctx = context.WithoutCancel(ctx)
	source, timeout := s.source, s.timeout
	if source == nil {
		source = c.source
	}
	if timeout == 0 {
		timeout = c.timeout
	}
	end := newBudget(time.Now(), timeout)
	conn, err := acquire(ctx, source, end)
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
	if s.sent != nil {
		*s.sent = time.Now()
	}
	err = conn.SendBatch(callCtx, &batch).Close()
	if err == nil {
		return answer, nil
	}

	if !pgConn.IsClosed() && pgConn.TxStatus() != 'I' {
		// On its own context, as the call's may be about to end. Should it fail, the pool discards the connection.
		rollbackCtx, cancel := context.WithTimeout(ctx, timeout/rollbackShare)
		defer cancel()
		_, _ = conn.Exec(rollbackCtx, rollback)
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr):
		e := serverError(pgErr, err)
		if pgErr.SeverityUnlocalized == "FATAL" {
			e.fate = fateLost // the server ends the session, perhaps after the commit: no answer to the call
		}
		return answer, e
	case errors.Is(err, context.DeadlineExceeded):
		return answer, unavailable(fmt.Sprintf("no answer within %v", timeout), err).with(fateLost)
	case pgConn.IsClosed():
		return answer, unavailable("the connection was lost: "+err.Error(), err).with(fateLost)
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
		return nil, serverError(pgErr, err).with(fateUnsent)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, unavailable("no connection became free, or could be made, within the time-out", err).with(fateUnsent)
	}
	return nil, unavailable("no connection: "+err.Error(), err).with(fateUnsent)
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
