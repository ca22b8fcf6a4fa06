// Package dbtest gives every test a database of its own with pglimit installed, and logins to use it
// with.
//
// The databases are clones of a template that migrations.Up installed once, as the kind of login a
// managed service hands out (CREATEROLE, CREATEDB, no superuser). They are on the server that
// PGLIMIT_TEST_DATABASE_URL names (a superuser's URL; the database of a failed test stays for a look),
// else on a private server per test binary. Use [Main] as TestMain to have that one removed at the
// end; without, it ends with the process all the same and its folder goes with the next run.
package dbtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", which pgtestdb uses
	"github.com/peterldowns/pgtestdb"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/migrations"
)

// Installer is the login that installed the template and owns every database. See [DB.URL].
const Installer = "installer"

// Settings are those of the private servers: cheap where only a crash of the machine would tell the
// difference, and many connections. Everything else is PostgreSQL's default.
func Settings() map[string]string {
	return map[string]string{
		"fsync":            "off",
		"full_page_writes": "off",
		"max_connections":  "300",
		"shared_buffers":   "64MB",
	}
}

// DB is a test's database. Its methods end the test on failure and clean up after it.
type DB struct {
	Name string // of the database on its server

	server *server
	tb     testing.TB

	mu    sync.Mutex
	pools map[string]*pgxpool.Pool
}

// New returns a database of the test's own with pglimit installed.
func New(tb testing.TB) *DB {
	tb.Helper()
	return shared(tb).newDB(tb, migrator{})
}

// NewEmpty returns a database of the test's own without pglimit. The roles may exist all the same:
// they are the server's.
func NewEmpty(tb testing.TB) *DB {
	tb.Helper()
	return shared(tb).newDB(tb, pgtestdb.NoopMigrator{})
}

// NewOn is New on a server of the test's own, given by its superuser's URL: for tests that kill or
// reconfigure the server. NewEmptyOn is the same without pglimit.
func NewOn(tb testing.TB, superuserURL string) *DB {
	tb.Helper()
	return open(tb, superuserURL).newDB(tb, migrator{})
}

// NewEmptyOn is [NewEmpty] on a server of the test's own.
func NewEmptyOn(tb testing.TB, superuserURL string) *DB {
	tb.Helper()
	return open(tb, superuserURL).newDB(tb, pgtestdb.NoopMigrator{})
}

// Main runs the tests of a package and removes the private server afterwards:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if local != nil {
		if err := local.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// URL returns the connection string of a login that is a member of exactly this role: pglimit_app,
// pglimit_operator, pglimit_monitor, pglimit_system, pg_read_all_data, …; of none with "". With
// [Installer] it is the login that installed pglimit. The search_path is empty, so that a name
// without its schema fails here and not at somebody who has no public schema.
func (db *DB) URL(role string) string {
	db.tb.Helper()
	if role == Installer {
		return db.server.url(installerLogin, db.server.password, db.Name)
	}
	login, err := db.server.login(context.Background(), role)
	if err != nil {
		db.tb.Fatalf("dbtest: cannot create a login for role %q: %v", role, err)
	}
	return db.server.url(login, db.server.password, db.Name)
}

// SuperURL returns the connection string of the superuser.
func (db *DB) SuperURL() string {
	return db.server.url(db.server.superuser, db.server.superuserPassword, db.Name)
}

// Conn opens a connection as in [DB.URL], closed when the test ends.
func (db *DB) Conn(role string) *pgx.Conn {
	db.tb.Helper()
	conn, err := pgx.Connect(db.tb.Context(), db.URL(role))
	if err != nil {
		db.tb.Fatal("dbtest: ", err)
	}
	db.tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Pool returns the test's pool of connections as in [DB.URL], closed when the test ends.
func (db *DB) Pool(role string) *pgxpool.Pool {
	db.tb.Helper()
	return db.pool("role "+role, db.URL(role), nil)
}

// System returns a pool whose connections act as pglimit_system, which may do everything in the
// schema.
func (db *DB) System() *pgxpool.Pool {
	db.tb.Helper()
	return db.pool("system", db.URL("pglimit_system"), map[string]string{"role": "pglimit_system"})
}

// Super returns a pool of superuser connections.
func (db *DB) Super() *pgxpool.Pool {
	db.tb.Helper()
	return db.pool("super", db.SuperURL(), nil)
}

func (db *DB) pool(key, url string, params map[string]string) *pgxpool.Pool {
	db.tb.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	if pool := db.pools[key]; pool != nil {
		return pool
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		db.tb.Fatal("dbtest: ", err)
	}
	for name, value := range params {
		config.ConnConfig.RuntimeParams[name] = value
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(db.tb.Context(), config)
	if err != nil {
		db.tb.Fatal("dbtest: ", err)
	}
	db.tb.Cleanup(func() {
		closed := make(chan struct{})
		go func() { pool.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			// Close would wait for ever; the database goes with all its connections anyway.
			db.tb.Errorf("dbtest: the test left a connection of %s checked out", key)
		}
	})
	if db.pools == nil {
		db.pools = map[string]*pgxpool.Pool{}
	}
	db.pools[key] = pool
	return pool
}

// migrator installs pglimit in pgtestdb's template.
type migrator struct{}

// Hash covers all the SQL that Up runs, however deep it is included: tern's own adapter hashes the
// numbered files alone, and would go on using yesterday's functions.
func (migrator) Hash() (string, error) {
	const revision = 1 // raise it when Migrate does something else with the same SQL
	hash := sha256.New()
	fmt.Fprintln(hash, revision)
	if err := migrations.Render(hash); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func (migrator) Migrate(ctx context.Context, _ *sql.DB, config pgtestdb.Config) error {
	conn, err := pgx.Connect(ctx, config.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = migrations.Up(ctx, conn)
	return err
}

// installerLogin is what an administrator is on a managed service.
const installerLogin = "pglimit_test_installer"

// server is where the databases are.
type server struct {
	base              *url.URL
	superuser         string
	superuserPassword string

	// password is that of all test logins, one of which may create roles: nobody must be able to
	// guess it, and all test binaries that share the server must agree on it.
	password string

	mu     sync.Mutex
	logins map[string]string // role → login
}

// local is the private server, nil as long as there is none.
var local *localpg.Server

var sharedServer = sync.OnceValues(func() (*server, error) {
	dsn := os.Getenv("PGLIMIT_TEST_DATABASE_URL")
	if dsn == "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var err error
		if local, err = localpg.Start(ctx, localpg.Options{Settings: Settings()}); err != nil {
			return nil, err
		}
		dsn = local.DSN("postgres")
	}
	return newServer(dsn)
})

func shared(tb testing.TB) *server {
	tb.Helper()
	s, err := sharedServer()
	if err != nil {
		tb.Fatal("dbtest: ", err)
	}
	return s
}

func open(tb testing.TB, dsn string) *server {
	tb.Helper()
	s, err := newServer(dsn)
	if err != nil {
		tb.Fatal("dbtest: ", err)
	}
	return s
}

func newServer(dsn string) (*server, error) {
	base, err := url.Parse(dsn)
	if err != nil || !strings.HasPrefix(base.Scheme, "postgres") {
		return nil, errors.New("PGLIMIT_TEST_DATABASE_URL is no URL: want postgres://superuser:password@host:port/postgres")
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte("pglimit tests " + dsn))
	s := &server{
		base:              base,
		superuser:         config.User,
		superuserPassword: config.Password,
		password:          hex.EncodeToString(sum[:16]),
		logins:            map[string]string{},
	}
	return s, s.asSuperuser(context.Background(), func(conn *pgx.Conn) error {
		var super bool
		if err := conn.QueryRow(context.Background(), "select usesuper from pg_user where usename = current_user").
			Scan(&super); err != nil || !super {
			return errors.Join(err, fmt.Errorf("%s is no superuser, which PGLIMIT_TEST_DATABASE_URL must name: "+
				"tests create databases and logins", s.superuser))
		}
		return s.createLogin(conn, installerLogin, "createrole createdb")
	})
}

func (s *server) newDB(tb testing.TB, m pgtestdb.Migrator) *DB {
	tb.Helper()
	instance := pgtestdb.Custom(tb, s.config(), m)
	return &DB{Name: instance.Database, server: s, tb: tb}
}

// config tells pgtestdb about the server. It pastes the parts into a URL as they are.
func (s *server) config() pgtestdb.Config {
	return pgtestdb.Config{
		DriverName: "pgx",
		Host:       s.base.Hostname(),
		Port:       s.base.Port(),
		User:       url.QueryEscape(s.superuser),
		Password:   url.QueryEscape(s.superuserPassword),
		Database:   strings.TrimPrefix(s.base.Path, "/"),
		Options:    s.base.RawQuery,
		TestRole: &pgtestdb.Role{
			Username:     installerLogin,
			Password:     s.password,
			Capabilities: "NOSUPERUSER CREATEDB CREATEROLE",
		},
		// Tests that cut connections or are killed themselves leave some behind.
		ForceTerminateConnections: true,
	}
}

func (s *server) url(user, password, database string) string {
	u := *s.base
	u.User = url.UserPassword(user, password)
	u.Path = "/" + database
	query := u.Query()
	query.Set("search_path", "")
	u.RawQuery = query.Encode()
	return u.String()
}

// login returns the login for a role, which it creates when it is not there yet.
func (s *server) login(ctx context.Context, role string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if login := s.logins[role]; login != "" {
		return login, nil
	}
	login := "pglimit_test_" + strings.TrimPrefix(role, "pglimit_")
	err := s.asSuperuser(ctx, func(conn *pgx.Conn) error {
		if err := s.createLogin(conn, login, ""); err != nil || role == "" {
			return err
		}
		_, err := conn.Exec(ctx, "grant "+pgx.Identifier{role}.Sanitize()+" to "+pgx.Identifier{login}.Sanitize())
		return err
	})
	if err == nil {
		s.logins[role] = login
	}
	return login, err
}

func (s *server) createLogin(conn *pgx.Conn, login, attributes string) error {
	verb := "create"
	var exists bool
	err := conn.QueryRow(context.Background(), "select exists (select from pg_roles where rolname = $1)", login).Scan(&exists)
	if err != nil {
		return err
	}
	if exists {
		verb = "alter"
	}
	_, err = conn.Exec(context.Background(), fmt.Sprintf("%s role %s login password '%s' %s",
		verb, pgx.Identifier{login}.Sanitize(), s.password, attributes))
	return err
}

// asSuperuser runs fn while no other test binary does on the same server.
func (s *server) asSuperuser(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.base.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('pglimit tests'))"); err != nil {
		return err
	}
	return fn(conn) // the lock goes with the connection
}
