// Package migrations installs pglimit in a database and keeps it current.
//
// Tables move by numbered, forward-only migrations in tern's format; everything else (functions,
// policies, grants, comments) is one code package that is applied as a whole whenever its text
// differs from what is installed. [Up] does both and is made to be called at every start of every
// program: on a current database it reads a few catalog rows and is done.
//
// It needs no superuser: a login with CREATEROLE and CREATE on the database will do, and once the
// roles exist one that may use pglimit_system. All objects belong to that role. [Render] writes the
// same installation as one file for psql, [Check] tells what is installed and what was changed by
// hand since, [Drop] removes everything.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"
)

// Option changes how [Up] and [Drop] go about it.
type Option func(*options)

type options struct {
	keepRoles   bool
	lockTimeout time.Duration
	reapply     bool
	retryFor    time.Duration
	source      func() (*source, error)
}

func newOptions(opts []Option) options {
	o := options{
		lockTimeout: 200 * time.Millisecond,
		retryFor:    30 * time.Second,
		source:      embedded,
	}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// KeepRoles makes [Drop] leave the roles alone. Up ignores it.
func KeepRoles() Option { return func(o *options) { o.keepRoles = true } }

// LockTimeout bounds each wait for a lock on pglimit's tables. While the installer waits, everybody
// who comes after it waits too, so keep it well below the limiter's own patience of a second.
// Defaults to 200 ms.
func LockTimeout(d time.Duration) Option { return func(o *options) { o.lockTimeout = d } }

// Reapply applies the code even when the installed code is the same, which undoes changes made by
// hand to functions, policies and grants (not to tables). Drop ignores it.
func Reapply() Option { return func(o *options) { o.reapply = true } }

// RetryFor bounds how long the installer tries again after a lock it did not get. Defaults to 30 s.
func RetryFor(d time.Duration) Option { return func(o *options) { o.retryFor = d } }

// Result tells what [Up] did.
type Result struct {
	Applied     []string // the migrations that ran, by file name
	CodeApplied bool     // whether functions, policies and grants were applied
	CodeFrom    string   // the code version found, "" when there was none
	CodeTo      string   // the code version now
	Drift       []string // what had been changed by hand before the code was applied, see Status.Drift
	SchemaFrom  int      // the schema version found, 0 when there was none
	SchemaTo    int      // the schema version now
}

// Changed tells whether Up had anything to do.
func (r Result) Changed() bool { return r.CodeApplied || len(r.Applied) > 0 }

// Up installs pglimit, or brings an installation up to date, or finds that it is and does nothing:
// then it takes no lock that anybody could wait for and writes nothing, so any login may call it.
//
// It may be called by any number of programs at once, and while the limiter is in use. Each migration
// and the code are a transaction of their own; killed in between, the next Up goes on from there. A
// step that needs a lock somebody holds gives up after [LockTimeout] and is tried again until
// [RetryFor] or the context ends: waiting longer would hold up every hit behind it.
//
// A database that holds a newer version is left as it is, with [ErrNewerInstalled].
//
// The connection must not be in a transaction. PgBouncer in transaction mode is fine.
func Up(ctx context.Context, conn *pgx.Conn, opts ...Option) (Result, error) {
	o := newOptions(opts)
	src, err := o.source()
	if err != nil {
		return Result{}, err
	}
	up := &upgrade{conn: conn, options: o, src: src}
	err = retry(ctx, conn, o, func() error { return up.run(ctx) })
	return up.result, err
}

type upgrade struct {
	conn    *pgx.Conn
	drift   []string
	options options
	result  Result
	src     *source
}

// run does what is still to be done. What it did before a lost race stays done, and counted.
func (u *upgrade) run(ctx context.Context) error {
	st, err := look(ctx, u.conn)
	if err != nil {
		return err
	}
	if err := st.usable(u.src); err != nil {
		return err
	}
	r := &u.result
	if !r.Changed() {
		r.CodeFrom, r.CodeTo = st.seal.CodeVersion, st.seal.CodeVersion
		r.SchemaFrom, r.SchemaTo = st.seal.SchemaVersion, st.seal.SchemaVersion
	}
	current := st.current(u.src)
	// Without one of its roles (restored on another server) a current installation lacks grants.
	force := !r.CodeApplied && (u.options.reapply || current && st.missingRoles)
	if current && !force {
		return nil
	}

	if st.missingRoles {
		if err := u.createRoles(ctx); err != nil {
			return fmt.Errorf("migrations: creating the roles: %w", err)
		}
	}
	if !r.Changed() && st.seal.comparable(st.server) {
		// Before the migrations, whose changes are none by hand.
		if u.drift, err = readDrift(ctx, u.conn, st.seal); err != nil {
			return err
		}
	}
	for r.SchemaTo < u.src.head() {
		if err := u.migrateOne(ctx); err != nil {
			return err
		}
	}
	return u.applyCode(ctx, force)
}

func (u *upgrade) createRoles(ctx context.Context) error {
	tx, err := begin(ctx, u.conn, pgx.ReadWrite)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if _, err := tx.Exec(ctx, u.src.roles); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// migrateOne runs the next migration, unless another installer just ran the last one.
//
// Not by tern's Migrate: that commits with whatever role and membership the session has, while both
// must be gone before the commit here, and its lock is the session's, which PgBouncer would leave
// behind on another client's connection. Files, version table and lock are tern's.
func (u *upgrade) migrateOne(ctx context.Context) error {
	var from int
	var migration *migrate.Migration
	err := u.step(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "select version from "+versionTable).Scan(&from); err != nil {
			return err
		}
		if from >= u.src.head() {
			return nil
		}
		migration = u.src.migrations[from]
		if err := execSQL(ctx, tx, migration.Name, migration.UpSQL); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "update "+versionTable+" set version = $1", migration.Sequence)
		return err
	})
	if err != nil {
		return err
	}
	r := &u.result
	if !r.Changed() {
		r.SchemaFrom = from
	}
	r.SchemaTo = from
	if migration != nil {
		r.Applied = append(r.Applied, migration.Name)
		r.SchemaTo = int(migration.Sequence)
	}
	return nil
}

// applyCode applies the code package, unless another installer just did and it is not forced.
func (u *upgrade) applyCode(ctx context.Context, force bool) error {
	var found seal
	var applied bool
	err := u.step(ctx, func(tx pgx.Tx) error {
		st, err := look(ctx, tx) // again, under the lock
		if err != nil {
			return err
		}
		found = st.seal
		if st.current(u.src) && !force {
			return nil
		}
		if err := execSQL(ctx, tx, "install.sql", u.src.code); err != nil {
			return err
		}
		applied = true
		_, err = tx.Exec(ctx, u.src.step("seal"))
		return err
	})
	if err != nil {
		return err
	}
	u.result.CodeTo = u.src.version
	if applied {
		u.result.CodeApplied, u.result.CodeFrom, u.result.Drift = true, found.CodeVersion, u.drift
	}
	return nil
}

// step runs fn in a transaction that holds the installer's lock and acts as pglimit_system.
func (u *upgrade) step(ctx context.Context, fn func(pgx.Tx) error) error {
	tx, err := begin(ctx, u.conn, pgx.ReadWrite)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)

	if _, err := tx.Exec(ctx, lockSQL+u.src.step("enter")); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, u.src.step("guard")); err != nil {
		return err
	}
	// From here on waiting is for tables, and holds up others.
	if _, err := tx.Exec(ctx, setLockTimeout(u.options.lockTimeout)); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, u.src.step("leave")); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// lockSQL takes tern's lock for the transaction. Waiting for it holds up nobody but installers.
const lockSQL = "set local lock_timeout = 0; select pg_advisory_xact_lock(9628173550095224);\n"

// sessionSQL makes the transaction independent of what the session or its role has set: names
// resolve in pg_catalog, catalog functions print names in full and unquoted where possible, and
// tables with policies can be written.
const sessionSQL = "set local search_path = pg_catalog, pg_temp; set local quote_all_identifiers = off;" +
	" set local row_security = on; set local check_function_bodies = on"

func setLockTimeout(d time.Duration) string {
	return fmt.Sprintf("set local lock_timeout = '%dms'", max(d.Milliseconds(), 1)) // 0 would be for ever
}

func begin(ctx context.Context, conn *pgx.Conn, access pgx.TxAccessMode) (pgx.Tx, error) {
	if conn.PgConn().TxStatus() != 'I' {
		return nil, errors.New("migrations: the connection is in a transaction; commit or roll back first, or use another connection")
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: access})
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	if _, err := tx.Exec(ctx, sessionSQL); err != nil {
		rollback(ctx, tx)
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return tx, nil
}

// rollback also works when ctx has just ended, which is when it is needed most: the caller gets its
// connection back idle. After a commit it does nothing.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// execSQL runs a text of many statements; the error keeps the text, so that a caller can show the
// line (tern's ExtractErrorLine).
func execSQL(ctx context.Context, tx pgx.Tx, name, text string) error {
	_, err := tx.Exec(ctx, text)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return migrate.MigrationPgError{MigrationName: name, Sql: text, PgError: pgErr}
	}
	return err
}

// retry calls fn until it does not lose a race, and explains the error otherwise.
func retry(ctx context.Context, conn *pgx.Conn, o options, fn func() error) error {
	deadline := time.Now().Add(o.retryFor)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := fn()
		if err == nil || !lostRace(err) {
			return explain(conn, err)
		}
		// Jitter, so that the installers of many databases do not meet again.
		wait := pause/2 + rand.N(pause)
		if time.Now().Add(wait).After(deadline) {
			return locked(ctx, conn, o, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), locked(context.WithoutCancel(ctx), conn, o, err))
		}
	}
}

// locked explains that time ran out, and names who is in the way.
func locked(ctx context.Context, conn *pgx.Conn, o options, cause error) error {
	e := &Error{
		Message: fmt.Sprintf("gave up after trying for %v", o.retryFor),
		Detail:  cause.Error(),
		Hint:    "try again, or for longer",
		err:     errors.Join(ErrLocked, cause),
	}
	var pgErr *pgconn.PgError
	if errors.As(cause, &pgErr) {
		e.Code = pgErr.Code
	}
	if e.Code != "55P03" { // lock_not_available
		return e
	}
	e.Hint = "try again when the transactions that use pglimit's tables have ended"
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rows, _ := conn.Query(ctx, blockersSQL)
	if blockers, err := pgx.CollectRows(rows, pgx.RowTo[string]); err == nil && len(blockers) > 0 {
		e.Detail = "Tables of pglimit are in use by " + strings.Join(blockers, ", ")
		e.Hint = "try again when that has ended, or end it: select pg_terminate_backend(<pid>)"
	}
	return e
}

// blockersSQL lists the sessions that hold locks on pglimit's tables, the oldest transaction first.
// Who may not see other people's statistics still sees who they are.
const blockersSQL = `
select format('pid %s (%s%s%s)', a.pid, a.usename, ', ' || nullif(a.application_name, ''),
    ', in a transaction since ' || date_trunc('second', a.xact_start)::text)
from pg_catalog.pg_stat_activity a
where a.pid <> pg_catalog.pg_backend_pid()
    and exists (
        select
        from pg_catalog.pg_locks l
        join pg_catalog.pg_class c on c.oid = l.relation
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pglimit'
            and l.granted
            and l.pid = a.pid
            and l.database = (select d.oid from pg_catalog.pg_database d
                where d.datname = pg_catalog.current_database())
    )
order by a.xact_start
limit 3`
