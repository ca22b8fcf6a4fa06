package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// Exit codes, as every --help lists them. 3 is reserved for "refused", the answer of verbs to come.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitConnect     = 4
	exitSchema      = 8
	exitInterrupted = 130
)

// problem is an error as a person needs it: what happened, why, and what to type next.
type problem struct {
	code    int    // exit code; 0 stands for exitError
	detail  string // why; may be empty
	hint    string // what to type next; may be empty
	message string // what happened
	state   string // SQLSTATE; may be empty

	cause error
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.cause }

// usageError is a mistake in what was typed.
func usageError(message, hint string) *problem {
	return &problem{code: exitUsage, message: message, hint: hint}
}

// silent ends with a code when everything has been said already.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit code %d", int(s)) }

// errCancelled is the answer no.
var errCancelled = &problem{code: exitUsage, message: "cancelled, nothing was changed"}

// report says what went wrong, on ErrOut, and returns the exit code.
func report(streams *IOStreams, command string, err error) int {
	var quiet silent
	switch {
	case err == nil, isClosedPipe(err):
		return exitOK // who reads has seen enough; that is not our error
	case errors.As(err, &quiet):
		return int(quiet)
	}
	p := explain(err)
	writeProblem(streams, command, p)
	if p.code == 0 {
		return exitError
	}
	return p.code
}

func writeProblem(streams *IOStreams, command string, p *problem) {
	message := p.message
	if p.state != "" {
		message += " (SQLSTATE " + p.state + ")"
	}
	line(streams.ErrOut, streams.paintErr(red, command+":"), message)
	if p.detail != "" {
		line(streams.ErrOut, "DETAIL:", p.detail)
	}
	if p.hint != "" {
		line(streams.ErrOut, "HINT:", p.hint)
	}
}

// line writes text behind a label. Whatever it is, nothing that looks like a password gets out, and
// nothing but line breaks moves the cursor.
func line(w io.Writer, label, text string) {
	lines := strings.Split(strings.TrimSpace(redact(text)), "\n")
	for i, l := range lines {
		lines[i] = escapeInvisible(l)
	}
	fmt.Fprintln(w, label, strings.Join(lines, "\n  "))
}

// escapeInvisible is printable for whole sentences, which may show backslashes and tabs as they are.
func escapeInvisible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if invisible(r) && r != '\t' {
			b.WriteString(escapeRune(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// paintErr is paint for ErrOut, which may be a file while Out is a terminal.
func (s *IOStreams) paintErr(color, text string) string {
	if !s.errTTY {
		return text
	}
	return s.paint(color, text)
}

var (
	anyURL    = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'` + "`" + `]*`)
	keySecret = regexp.MustCompile(`(?i)\b(\w*passw(?:or)?d\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&"` + "`" + `]+)`)
)

// redact is the last line of defence. Messages are made without connection strings, but what is typed
// in the wrong place (a URL as an argument) is quoted back by whoever did not expect it.
func redact(s string) string {
	s = anyURL.ReplaceAllStringFunc(s, func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		// Wherever the password ends: a colon before an @ begins one.
		if at := strings.LastIndexByte(rest, '@'); at >= 0 && strings.Contains(rest[:at], ":") {
			return scheme + "://***"
		}
		return url
	})
	return keySecret.ReplaceAllString(s, "${1}***")
}

// explain puts any error into the shape of a problem.
func explain(err error) *problem {
	var (
		own       *problem
		migration migrate.MigrationPgError
		installer *migrations.Error
		client    *pgclient.Error
		server    *pgconn.PgError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &installer):
		p := &problem{detail: installer.Detail, hint: installer.Hint, message: installer.Message, state: installer.Code, cause: err}
		if errors.Is(err, migrations.ErrNotPrivileged) {
			p.code = exitConnect
		}
		if errors.As(err, &migration) && p.detail == "" {
			p.detail = migrationLine(migration)
		}
		return p
	case errors.As(err, &migration):
		p := fromServer(migration.PgError)
		p.message = migration.MigrationName + ": " + p.message
		p.detail = strings.TrimSpace(p.detail + "\n" + migrationLine(migration))
		return p
	case errors.As(err, &client):
		return fromClient(client)
	case errors.As(err, &server):
		return fromServer(server)
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{message: "no answer within the time-out", hint: "--timeout 1m waits longer", cause: err}
	case errors.Is(err, context.Canceled):
		return &problem{code: exitInterrupted, message: "interrupted", cause: err}
	}
	return &problem{message: err.Error(), cause: err}
}

// migrationLine shows where in a migration the error is, as psql does.
func migrationLine(e migrate.MigrationPgError) string {
	if e.PgError == nil || e.Position == 0 {
		return ""
	}
	found, err := migrate.ExtractErrorLine(e.Sql, int(e.Position))
	if err != nil {
		return ""
	}
	label := fmt.Sprintf("LINE %d: ", found.LineNum)
	return label + found.Text + "\n" + strings.Repeat(" ", len(label)+max(found.ColumnNum-1, 0)) + "^"
}

func fromClient(e *pgclient.Error) *problem {
	p := &problem{detail: e.Detail, hint: e.Hint, message: e.Message, state: e.Code, cause: e}
	var server *pgconn.PgError
	if errors.As(e, &server) {
		known := fromServer(server)
		p.code = known.code
		if p.hint == "" || server.Code == "42501" { // the client's own names the roles of services too
			p.hint = known.hint
		}
		return p
	}
	switch {
	case errors.Is(e, pgclient.ErrInvalidArgument):
		p.code = exitUsage
	case errors.Is(e, pgclient.ErrVersionMismatch):
		p.code, p.hint = exitSchema, "limitctl schema status tells which version is installed"
	case errors.Is(e, pgclient.ErrUnavailable) && errors.Is(e, context.DeadlineExceeded):
		p.hint = "--timeout 1m waits longer"
	case errors.Is(e, pgclient.ErrUnavailable):
		p.code = exitConnect
	}
	return p
}

// fromServer adds what the server does not know: which of our commands helps.
func fromServer(e *pgconn.PgError) *problem {
	p := &problem{detail: e.Detail, hint: e.Hint, message: e.Message, state: e.Code, cause: e}
	hint := ""
	switch e.Code {
	case "3F000", "42883", "42P01", "42703", "42704": // no such schema, function, table, column, type
		p.code = exitSchema
		p.hint = "limitctl schema status tells what is installed in this database, limitctl schema up installs pglimit or brings it up to date"
	case "42501": // insufficient privilege
		p.code = exitConnect
		hint = "grant the login a role of pglimit: pglimit_monitor for list and show, pglimit_operator for the rest"
	case "28000", "28P01", "3D000":
		p.code = exitConnect
	case "25006", "PGL03":
		hint = "is this a standby? " + primaryHint
	case "55P03":
		hint = "try again; if it stays, limitctl doctor --held-for 1s names the transaction that holds the row, and how to end it " +
			"(to a member of pg_monitor)"
	case "40P01":
		hint = "somebody else works on the same rows; try again"
	case "57014":
		hint = "--timeout 1m waits longer"
	case "PGL01":
		p.code = exitUsage
	case "PGL04":
		p.code, hint = exitSchema, "limitctl schema status tells which version is installed"
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "22": // a value that is none of its type
		p.code = exitUsage
	case "08", "53": // connection lost, out of connections, memory or disk
		p.code = exitConnect
	case "57":
		if e.Code != "57014" { // shutting down, starting up
			p.code = exitConnect
		}
	}
	if strings.Contains(e.Message, "during recovery") {
		if p.detail == "" {
			p.detail = "This server is a standby. Counters and permits are on the primary only."
		}
		hint = primaryHint
	}
	if p.hint == "" {
		p.hint = hint
	}
	return p
}

const primaryHint = "connect to the primary; of several hosts in --database-url limitctl finds it itself"
