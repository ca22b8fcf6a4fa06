package migrations

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrLocked means that somebody kept tables of pglimit locked, or a role busy, for longer than
	// the installer was willing to wait. Nothing was changed in the step that failed.
	ErrLocked = errors.New("locked")

	// ErrNewerInstalled means that the database holds a newer version, which must not be undone
	// (SQLSTATE PGL04).
	ErrNewerInstalled = errors.New("a newer version is installed")

	// ErrNotPrivileged means that the login lacks a privilege the installer needs.
	ErrNotPrivileged = errors.New("not privileged")

	// ErrUnsupported means that nothing can be installed there: an old server, a standby, a schema
	// of that name that is not pglimit's, an installation made with CREATE EXTENSION.
	ErrUnsupported = errors.New("unsupported")
)

// Error is a refusal, phrased the way PostgreSQL phrases its own: what happened, why, and what to do.
type Error struct {
	Code    string // SQLSTATE
	Detail  string // why; may be empty
	Hint    string // what to type next; may be empty
	Message string // what happened

	err error // one of the sentinels, joined with the cause when there is one
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("pglimit: " + e.Message)
	if e.Code != "" {
		b.WriteString(" (SQLSTATE " + e.Code + ")")
	}
	if e.Detail != "" {
		b.WriteString("; " + strings.TrimSuffix(e.Detail, "."))
	}
	if e.Hint != "" {
		b.WriteString("; hint: " + e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.err }

// explain turns the server's errors that have a known remedy into an Error.
func explain(conn *pgx.Conn, err error) error {
	var pgErr *pgconn.PgError
	var own *Error
	if !errors.As(err, &pgErr) || errors.As(err, &own) {
		return err
	}
	switch pgErr.Code {
	case "PGL04":
		sentinel := ErrUnsupported
		if strings.HasPrefix(pgErr.Message, "a newer ") {
			sentinel = ErrNewerInstalled
		}
		return &Error{
			Code: pgErr.Code, Message: pgErr.Message, Detail: pgErr.Detail, Hint: pgErr.Hint,
			err: errors.Join(sentinel, err),
		}
	case "42501": // insufficient_privilege
		e := &Error{Code: pgErr.Code, Message: pgErr.Message, err: errors.Join(ErrNotPrivileged, err)}
		e.Detail, e.Hint = remedy(conn, pgErr.Message)
		return e
	}
	return err
}

// remedy says why the installer needs what it lacks, and how an administrator gives it.
func remedy(conn *pgx.Conn, message string) (detail, hint string) {
	login := pgx.Identifier{conn.Config().User}.Sanitize()
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	switch {
	case strings.Contains(message, "for database"):
		return "The installer creates the schema pglimit.",
			"as the owner of the database: grant create on database " + database + " to " + login
	case strings.Contains(message, "create role"):
		return "The roles pglimit_* do not exist yet, and the installer creates them.",
			"as an administrator: alter role " + login + " createrole"
	case strings.Contains(message, `role "pglimit_system"`):
		options := " with inherit false, set true"
		if major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), "."); major == "15" {
			options = ""
		}
		return "Everything of pglimit belongs to pglimit_system, and only its members can change it.",
			"as who installed pglimit first, or an administrator: grant pglimit_system to " + login + options
	case strings.HasPrefix(message, "must be owner of "):
		return "Everything of pglimit belongs to pglimit_system; somebody gave this away.",
			"as a superuser give it back: alter " + strings.TrimPrefix(message, "must be owner of ") + " owner to pglimit_system"
	}
	return "", ""
}

var ourRole = regexp.MustCompile(`^role "pglimit_(system|app|operator|monitor)" `)

// lostRace tells the errors that mean somebody else was at it at the same time, and that trying again
// is the answer. Roles and memberships are shared by all databases of a server while the installer's
// lock is one database's, so installers of different databases do meet there.
func lostRace(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "55P03", // lock_not_available: the lock_timeout of a step
		"40P01": // deadlock_detected
		return true
	case "42710", // duplicate_object: a role that was not there a moment ago
		"42704": // undefined_object: a role dropped a moment ago
		return ourRole.MatchString(pgErr.Message)
	case "23505": // unique_violation, in a shared catalog
		return pgErr.SchemaName == "pg_catalog"
	case "XX000": // internal_error, the only sign of a lost race in a shared catalog
		return strings.HasPrefix(pgErr.Message, "tuple concurrently ")
	}
	return false
}
