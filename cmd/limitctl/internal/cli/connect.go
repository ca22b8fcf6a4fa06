package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// connector connects as the flags say. Its fields are bound to the flags of the root command.
type connector struct {
	command string // "permit list", for application_name
	getenv  func(string) string
	streams *IOStreams
	timeout *time.Duration // nil: not given
	url     *string        // nil: not given
}

// prepare reads the address and fills in what it leaves open.
func (c *connector) prepare() (*pgxpool.Config, address, error) {
	where, err := findAddress(c.url, c.getenv)
	if err != nil {
		return nil, where, err
	}
	config, notes, err := where.config(c.getenv)
	if err != nil {
		return nil, where, err
	}
	for _, note := range notes {
		line(c.streams.ErrOut, "limitctl "+c.command+":", note)
	}

	conn := config.ConnConfig
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "limitctl/" + c.command
	}
	// An explicit 0, for ever, looks the same once parsed.
	if conn.ConnectTimeout == 0 && !strings.Contains(where.text, "connect_timeout") && c.getenv("PGCONNECT_TIMEOUT") == "" {
		conn.ConnectTimeout = connectTimeout
	}
	// Nothing is called often enough to be worth preparing, which PgBouncer may not take either.
	if !strings.Contains(where.text, "default_query_exec_mode") {
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	// Of several servers the primary is the one that answers: the others hold no counts and no permits.
	if several(conn) && conn.ValidateConnect == nil {
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	conn.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { c.notice(notice) }
	config.MaxConns = 1
	config.MinConns = 0
	return config, where, nil
}

// notice shows what the server says by the way, except for what PostgreSQL says about every drop.
func (c *connector) notice(n *pgconn.Notice) {
	if n.SeverityUnlocalized == "NOTICE" && n.Code == "00000" && strings.HasPrefix(n.Message, "drop cascades to ") {
		return
	}
	if n.SeverityUnlocalized != "NOTICE" && n.SeverityUnlocalized != "WARNING" {
		return
	}
	line(c.streams.ErrOut, n.Severity+":", n.Message)
	if n.Detail != "" {
		line(c.streams.ErrOut, "DETAIL:", n.Detail)
	}
	if n.Hint != "" {
		line(c.streams.ErrOut, "HINT:", n.Hint)
	}
}

// limit is the time one statement may take: the flag's, the address's, or ten seconds.
func (c *connector) limit(config *pgxpool.Config) time.Duration {
	limit := defaultTimeout
	if c.timeout != nil {
		limit = *c.timeout
	} else if d, found := statementTimeout(config.ConnConfig.RuntimeParams); found {
		limit = d
	}
	// The setting is a 32-bit number of milliseconds, so this is as good as none.
	if limit == 0 || limit > 24*day {
		limit = 24 * day
	}
	return limit
}

// client connects for the verbs that call pglimit's functions.
func (c *connector) client(ctx context.Context) (Client, error) {
	config, where, err := c.prepare()
	if err != nil {
		return nil, err
	}
	// The time-out travels with each call. As a parameter of the connection PgBouncer would refuse it.
	timeout := c.limit(config)
	delete(config.ConnConfig.RuntimeParams, "statement_timeout")

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, connectProblem(err, config.ConnConfig, where)
	}
	// Now rather than with the first call, so that a failure to connect is told apart from one of the call.
	conn, err := pool.Acquire(ctx)
	if err != nil {
		pool.Close()
		return nil, connectProblem(err, config.ConnConfig, where)
	}
	conn.Release()

	lists, err := pgclient.New(pool, pgclient.WithTimeout(timeout))
	if err != nil {
		pool.Close()
		return nil, err
	}
	calls, err := pgclient.New(pool, pgclient.WithTimeout(timeout), pgclient.WithTenantFunc(noTenant))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &poolClient{Client: calls, lists: lists, close: pool.Close}, nil
}

// migrator connects for the schema verbs. They set the time-outs they need themselves.
func (c *connector) migrator(ctx context.Context) (Migrator, error) {
	config, where, err := c.prepare()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, connectProblem(err, config.ConnConfig, where)
	}
	return &connMigrator{conn: conn, timeout: c.limit(config)}, nil
}

// noTenant has a verb about one thing mean the tenant that was typed, or the empty one, and never what
// pglimit.tenant happens to be in this session.
func noTenant(context.Context) string { return "" }

// poolClient is a pgclient.Client whose lists show all tenants unless one is asked for.
type poolClient struct {
	*pgclient.Client
	close func()
	lists *pgclient.Client
}

func (c *poolClient) ListBlocks(ctx context.Context, p pgclient.ListBlocksParams) ([]pgclient.BlockRow, error) {
	return c.lists.ListBlocks(ctx, p)
}

func (c *poolClient) ListChanges(ctx context.Context, p pgclient.ListChangesParams) ([]pgclient.ChangeRow, error) {
	return c.lists.ListChanges(ctx, p)
}

func (c *poolClient) ListCounters(ctx context.Context, p pgclient.ListCountersParams) ([]pgclient.CounterRow, error) {
	return c.lists.ListCounters(ctx, p)
}

func (c *poolClient) ListEndpointOverrides(ctx context.Context, p pgclient.ListEndpointOverridesParams) ([]pgclient.EndpointOverrideRow, error) {
	return c.lists.ListEndpointOverrides(ctx, p)
}

func (c *poolClient) ListEndpoints(ctx context.Context, p pgclient.ListEndpointsParams) ([]pgclient.EndpointRow, error) {
	return c.lists.ListEndpoints(ctx, p)
}

func (c *poolClient) ListHolds(ctx context.Context, p pgclient.ListHoldsParams) ([]pgclient.HoldRow, error) {
	return c.lists.ListHolds(ctx, p)
}

func (c *poolClient) ListLimitOverrides(ctx context.Context, p pgclient.ListLimitOverridesParams) ([]pgclient.LimitOverrideRow, error) {
	return c.lists.ListLimitOverrides(ctx, p)
}

func (c *poolClient) ListLimits(ctx context.Context, p pgclient.ListLimitsParams) ([]pgclient.LimitRow, error) {
	return c.lists.ListLimits(ctx, p)
}

func (c *poolClient) ListPermits(ctx context.Context, p pgclient.ListPermitsParams) ([]pgclient.PermitRow, error) {
	return c.lists.ListPermits(ctx, p)
}

func (c *poolClient) Close() { c.close() }

// connMigrator is package migrations over one connection.
type connMigrator struct {
	conn    *pgx.Conn
	timeout time.Duration
}

func (m *connMigrator) Check(ctx context.Context) (migrations.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	return migrations.Check(ctx, m.conn)
}

func (m *connMigrator) Drop(ctx context.Context, opts ...migrations.Option) (migrations.DropResult, error) {
	return migrations.Drop(ctx, m.conn, opts...)
}

// sessionSQL names nothing of pglimit, which may not be there.
const sessionSQL = `
select session_user::text, pg_catalog.clock_timestamp(), pg_catalog.pg_is_in_recovery(),
    (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = session_user),
    array(select r.rolname::text from pg_catalog.pg_roles r
        where r.rolname in ('pglimit_app', 'pglimit_operator', 'pglimit_monitor', 'pglimit_system', 'pg_monitor')
            and pg_catalog.pg_has_role(session_user, r.oid, 'usage')
        order by 1)`

func (m *connMigrator) Session(ctx context.Context) (s Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	err = m.conn.QueryRow(ctx, sessionSQL).Scan(&s.Login, &s.Now, &s.Standby, &s.Super, &s.Roles)
	return s, err
}

func (m *connMigrator) Up(ctx context.Context, opts ...migrations.Option) (migrations.Result, error) {
	return migrations.Up(ctx, m.conn, opts...)
}

func (m *connMigrator) Database() string {
	config := m.conn.Config()
	return config.Database
}

func (m *connMigrator) Server() string {
	config := m.conn.Config()
	return place(config.Host, config.Port)
}

func (m *connMigrator) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.conn.Close(ctx)
}

// place is host and port as people write them, or the path of a socket.
func place(host string, port uint16) string {
	network, where := pgconn.NetworkAddress(host, port)
	if network == "unix" {
		return where
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// places lists the servers an address names, once each: TLS and no TLS are two attempts at one.
func places(config *pgx.ConnConfig) []string {
	found := []string{place(config.Host, config.Port)}
	for _, other := range config.Fallbacks {
		if p := place(other.Host, other.Port); !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

func several(config *pgx.ConnConfig) bool { return len(places(config)) > 1 }

// connectProblem says who did not get where, why, and which setting led there.
func connectProblem(err error, config *pgx.ConnConfig, where address) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	p := &problem{
		code:   exitConnect,
		detail: "The address is that of " + where.from + ".",
		hint: "is the server up, and is that the one you mean? " + urlFlag + " comes first, then " + urlVariable + ", " +
			commonVariable + ", PGHOST and the like",
		cause: err,
	}
	if where.from != urlFlag && where.text == "" {
		p.detail = "No address was given, so it is that of the PG* variables, the service file and the defaults."
	}
	reasons := reasonsOf(err)
	var server *pgconn.PgError
	if errors.As(err, &server) {
		p.state = server.Code
		if server.Detail != "" {
			p.detail = server.Detail + "\n" + p.detail
		}
		switch server.Code {
		case "28000":
			p.hint = "log in as another: --database-url 'postgres://user@host/database', or PGUSER"
		case "28P01":
			p.hint = "the password comes from the address, PGPASSWORD or ~/.pgpass; limitctl never asks for it"
		case "3D000":
			p.hint = fmt.Sprintf("psql -h %s -p %d -U %s -l lists the databases of that server", config.Host, config.Port, config.User)
		case "42704": // unrecognized configuration parameter
			// In key=value pairs the name may be part of a password with a space in it.
			reasons = []string{"the server does not know a parameter of the address"}
			p.hint = "limitctl passes on what it does not know itself; look for a mistyped one"
		case "08P01": // PgBouncer: unsupported startup parameter
			p.hint = "PgBouncer takes few parameters from a client; leave out those behind the question mark, and PGOPTIONS"
		default:
			if server.Hint != "" {
				p.hint = server.Hint
			}
		}
	}
	for _, reason := range reasons {
		if strings.Contains(reason, "is in hot standby") {
			p.hint = "limitctl needs the primary; to look at a standby all the same, name that server alone"
		}
	}
	p.message = fmt.Sprintf("cannot connect to database %s at %s as %s: %s",
		quote(config.Database), strings.Join(places(config), " or "), quote(config.User), strings.Join(reasons, "; "))
	return p
}

// reasonsOf takes the reasons out of what pgx makes of them. With sslmode=prefer each comes twice.
func reasonsOf(err error) []string {
	var reasons []string
	add := func(reason string) {
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	var walk func(error)
	walk = func(err error) {
		var dns *net.DNSError
		switch e := err.(type) {
		case *pgconn.PgError:
			add(e.Message)
			return
		case *net.DNSError:
			dns = e
		case *net.OpError:
			if !errors.As(e.Err, &dns) {
				if e.Timeout() {
					add("no answer")
					return
				}
				add(lastPart(e.Err.Error()))
				return
			}
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
			return
		}
		switch inner := errors.Unwrap(err); {
		case dns != nil && dns.IsNotFound:
			add("no such host")
		case dns != nil:
			add("its host cannot be looked up")
		case inner != nil:
			walk(inner)
		case errors.Is(err, context.DeadlineExceeded):
			add("no answer")
		default:
			add(err.Error())
		}
	}
	walk(err)
	return reasons
}

// lastPart drops the system call of "connect: connection refused".
func lastPart(s string) string {
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}
