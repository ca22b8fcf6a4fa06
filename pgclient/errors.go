package pgclient

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What kind of failure an error is, for errors.Is. A refusal is none of them: it is an answer, with a nil error.
//
// ErrInvalidArgument, ErrUnknownLimit and ErrWrongTransaction are mistakes of the call; ErrNotInstalled, ErrPermission
// and ErrVersionMismatch are mistakes of the deployment, which no retry mends and somebody should be woken for;
// ErrUnavailable is an outage, after which the same call may succeed; ErrNoConnection is a call that had nowhere to go.
// An error that matches none of them is a fault of pglimit, or of what lies between it and the client.
var (
	// ErrInvalidArgument: an argument breaks a rule of the function (PGL01, class 22), or this client refused it before
	// anything was sent.
	ErrInvalidArgument = errors.New("invalid argument")

	// ErrNoConnection: the context of the call carries no connections. See [FromContext].
	ErrNoConnection = errors.New("no connection in the context")

	// ErrNotInstalled: the database, the schema pglimit, or the function called does not exist there (3D000, 3F000,
	// 42883, 42P01).
	ErrNotInstalled = errors.New("not installed")

	// ErrPermission: the login failed, or its role may not call the function (28000, 28P01, 42501).
	ErrPermission = errors.New("not permitted")

	// ErrUnavailable: no answer, for a reason that may pass: no connection within the time-out, a connection lost, a lock
	// not granted in time, a server that starts, stops, is out of connections, or is a standby. Whether the call took
	// effect is not known when the connection was lost after it was sent; [Client.ClaimPermit] then asks again.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownLimit: there is neither a row nor an argument that says what the limit or the endpoint is (PGL02).
	ErrUnknownLimit = errors.New("unknown limit")

	// ErrVersionMismatch: the installed functions are not those this client was written for (PGL04, 42703), or their
	// answer was not understood.
	ErrVersionMismatch = errors.New("version mismatch")

	// ErrWrongTransaction: the function refused the transaction it ran in (PGL03). This client's own transactions are
	// right, so this speaks of a proxy that rewrites them. A standby is ErrUnavailable.
	ErrWrongTransaction = errors.New("wrong transaction")
)

// Error is the error of every method of [Client] and [Permit]. It matches the sentinels above with errors.Is, and
// unwraps to the *pgconn.PgError when the server raised it.
type Error struct {
	// Code is the SQLSTATE, empty when the error is not the server's.
	Code string

	// Detail says which rule was broken, Hint what to do about it. Both may be empty.
	Detail, Hint string

	// Message says what happened.
	Message string

	// Operation is the SQL function that was called, without its schema. Empty for an error of [New] and [Open].
	Operation string

	fate    fate
	wrapped []error
}

// fate is what is known of a call that has no answer.
type fate int

const (
	fateKnown  fate = iota // the server did not do it, and said so; or it was not asked
	fateLost               // it may have been done: the connection broke, or fell silent, after the call may have been sent
	fateUnsent             // there was no connection to send it on
)

func (e *Error) with(f fate) *Error {
	e.fate = f
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("pglimit")
	if e.Operation != "" {
		b.WriteByte(' ')
		b.WriteString(e.Operation)
	}
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Code != "" {
		b.WriteString(" (SQLSTATE ")
		b.WriteString(e.Code)
		b.WriteByte(')')
	}
	if e.Detail != "" {
		b.WriteString("; detail: ")
		b.WriteString(e.Detail)
	}
	if e.Hint != "" {
		b.WriteString("; hint: ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// Unwrap returns the sentinel of the error's kind, if it has one, and its cause, if there is one.
func (e *Error) Unwrap() []error { return e.wrapped }

func invalidArgument(message, detail string) *Error {
	return &Error{Message: message, Detail: detail, wrapped: []error{ErrInvalidArgument}}
}

// serverError makes an Error of what the server raised.
func serverError(pgErr *pgconn.PgError, cause error) *Error {
	e := &Error{
		Code:    pgErr.Code,
		Detail:  pgErr.Detail,
		Hint:    pgErr.Hint,
		Message: pgErr.Message,
		wrapped: []error{cause},
	}
	if kind := kindOf(pgErr); kind != nil {
		e.wrapped = []error{kind, cause}
	}
	if hint := hintOf(pgErr); hint != "" {
		e.Hint = hint
	}
	return e
}

// kindOf is the one table from SQLSTATE to sentinel; nil for a state that stands for none of them.
func kindOf(pgErr *pgconn.PgError) error {
	if isStandby(pgErr) {
		return ErrUnavailable
	}
	switch pgErr.Code {
	case "PGL01":
		return ErrInvalidArgument
	case "PGL02":
		return ErrUnknownLimit
	case "PGL03":
		return ErrWrongTransaction
	case "PGL04", // the installer's
		"42703": // undefined column: the select lists name what this client reads
		return ErrVersionMismatch
	case "3D000", "3F000", "42883", "42P01": // undefined database, schema, function, table
		return ErrNotInstalled
	case "28000", "28P01", "42501": // no such login, wrong password, no privilege
		return ErrPermission
	case "0A000", // what a standby says to "read write", in whatever language; also a plan outdated by an upgrade
		"25006",          // a write in a read-only transaction: a standby or a read-only route
		"25P03", "25P04", // the server's time-outs for transactions
		"40001", "40P01", // serialization failure, deadlock
		"55P03": // lock not available within the function's lock_timeout
		return ErrUnavailable
	}
	switch {
	case strings.HasPrefix(pgErr.Code, "22"): // data exceptions that a cast raises before the function can look
		return ErrInvalidArgument
	case strings.HasPrefix(pgErr.Code, "08"), // connection (PgBouncer's own errors too)
		strings.HasPrefix(pgErr.Code, "53"), // out of connections, memory, disk
		strings.HasPrefix(pgErr.Code, "57"), // cancelled (57014: our own statement_timeout), shut down, starting up
		strings.HasPrefix(pgErr.Code, "58"): // system error
		return ErrUnavailable
	}
	return nil
}

// isStandby tells that the call met a standby: the right transaction, the wrong server. The server says so under several
// states ("during recovery"), and pglimit under one that it also has for transactions.
func isStandby(pgErr *pgconn.PgError) bool {
	return pgErr.Code == "PGL03" && strings.Contains(pgErr.Message, "on a standby") ||
		strings.Contains(pgErr.Message, "during recovery")
}

// hintOf is the hint for errors that PostgreSQL itself raises and whose own hint, if any, does not lead to the cause.
func hintOf(pgErr *pgconn.PgError) string {
	switch pgErr.Code {
	case "26000", "42P05": // a prepared statement that is not there, or is there already
		return "a pooler between client and server gives each transaction another server connection: " +
			"use default_query_exec_mode=exec or cache_describe, or a PgBouncer with max_prepared_statements"
	case "42501":
		return "grant the login a role of pglimit: pglimit_app to a service, pglimit_operator to who changes limits, " +
			"pglimit_monitor to who only looks"
	case "3F000", "42883", "42P01":
		return "install pglimit in this database, or bring it up to date: limitctl schema up"
	}
	if isStandby(pgErr) {
		return "connect to the primary: target_session_attrs=read-write"
	}
	return ""
}

// unavailable is an outage that the server did not report itself.
func unavailable(message string, cause error) *Error {
	return &Error{Message: message, wrapped: []error{ErrUnavailable, cause}}
}

// contextEnded is the error of a claim that was granted to a caller whose context had ended.
func contextEnded(ctx context.Context, message string, others ...error) *Error {
	return &Error{Message: message, wrapped: append(contextErrors(ctx), others...)}
}

// contextErrors are why a context has ended.
func contextErrors(ctx context.Context) []error {
	errs := []error{ctx.Err()}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		errs = append(errs, cause)
	}
	return errs
}
