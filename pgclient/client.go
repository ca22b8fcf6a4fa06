package pgclient

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Client calls the functions of pglimit. It is safe for concurrent use and holds nothing but its configuration: every
// decision is the database's.
type Client struct {
	options
	closeSource func() // nil for connections that are the caller's
	renewals    renewals
	source      Connections
}

// New returns a client that takes its connections from source: a *pgxpool.Pool, [FromContext], or anything else that can
// hand out a *pgxpool.Conn. It does not connect.
//
// A pool shared with the application saves connections, but an application that has used up its pool then waits for
// its limiter too, up to the time-out; [Open] makes a pool apart. Of a shared pool, set connect_timeout near the
// client's time-out, so that connection attempts made while the database hangs do not hold their place in the pool for
// long after.
func New(source Connections, opts ...Option) (*Client, error) {
	if isNil(source) {
		return nil, invalidArgument("no connections", "New needs a pool, or FromContext")
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.maxConns != 0 {
		return nil, invalidArgument("WithMaxConns together with New", "the pool given to New has its own bound; the option is for Open")
	}
	return &Client{options: o, source: source}, nil
}

// Open returns a client with a small pool of its own, made from a connection string as pgxpool.ParseConfig takes it.
// It does not connect, so that a program can start while its database is away; [Client.Version] tells whether it can.
// Where the connection string does not say otherwise, connecting is bounded by the client's time-out and the
// application's name is pglimit. [Client.Close] closes the pool.
func Open(ctx context.Context, dsn string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	config, err := poolConfig(dsn, o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailable("no pool: "+err.Error(), err)
	}
	return &Client{options: o, closeSource: pool.Close, source: pool}, nil
}

// Close closes the pool that [Open] made, and waits for the calls that still use it. It does nothing to the connections
// given to [New]. Permits are kept alive no longer; they are not released.
func (c *Client) Close() {
	c.renewals.close()
	if c.closeSource != nil {
		c.closeSource()
	}
}

func poolConfig(dsn string, o options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, badDSN(err)
	}
	// pgxpool removes its own settings while parsing, and its default cannot be told from a value given.
	conn, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, badDSN(err)
	}
	_, given := conn.RuntimeParams["pool_max_conns"]
	switch {
	case o.maxConns != 0:
		config.MaxConns = o.maxConns
	case !given:
		config.MaxConns = defaultMaxConns
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = o.timeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "pglimit"
	}
	return config, nil
}

// badDSN says what is wrong with a connection string without showing any of it. pgx masks the passwords it recognises,
// but where the string is malformed neither it nor the error it wraps (net/url quotes what it took for a port) can know.
func badDSN(err error) error {
	reason := "it cannot be parsed"
	var parseErr *pgconn.ParseConfigError
	if errors.As(err, &parseErr) {
		full := parseErr.Error()
		detail := ""
		if inner := parseErr.Unwrap(); inner != nil {
			detail = " (" + inner.Error() + ")"
			full = strings.TrimSuffix(full, detail)
		}
		reason = full[strings.LastIndex(full, "`: ")+len("`: "):]
		if !strings.HasPrefix(reason, "failed to parse as") {
			reason += detail
		}
	}
	// err is not wrapped: it holds the connection string.
	return invalidArgument("connection string: "+reason, "its text is not shown, as it may hold a password")
}
