package pgclient

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"
)

const (
	defaultMaxConns = 4
	defaultTimeout  = 2 * time.Second
	minTimeout      = 10 * time.Millisecond
)

// Option configures a [Client]. A wrong value is reported by [New] or [Open].
type Option func(*options) error

type options struct {
	logger     *slog.Logger
	maxConns   int32 // 0: not given
	observer   func(context.Context, Observation)
	tenantFunc func(context.Context) string
	timeout    time.Duration
}

func newOptions(opts []Option) (options, error) {
	o := options{logger: slog.New(slog.DiscardHandler), timeout: defaultTimeout}
	for _, opt := range opts {
		if opt == nil {
			continue
		}
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// WithLogger sets where calls are logged: each at level Debug, those that failed at level Warn. Limits and endpoints are
// named, subjects and holders are not. Defaults to no logging.
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) error {
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		o.logger = logger
		return nil
	}
}

// WithMaxConns bounds the connections of the pool that [Open] makes; [New] rejects it, as its caller's pool has a bound
// of its own. Defaults to pool_max_conns of the connection string, or else to 4.
func WithMaxConns(n int) Option {
	return func(o *options) error {
		if n < 1 || n > math.MaxInt32 {
			return invalidArgument(fmt.Sprintf("WithMaxConns(%d)", n), "a pool has at least one connection")
		}
		o.maxConns = int32(n)
		return nil
	}
}

// WithObserver sets a function that is told of every operation once it has ended, refused ones and those with invalid
// arguments included. It is called on the caller's goroutine with the caller's context, or for a renewal on that of
// [Permit.KeepAlive], concurrently, and should return at once. Defaults to none.
func WithObserver(observer func(context.Context, Observation)) Option {
	return func(o *options) error {
		if observer == nil {
			return invalidArgument("WithObserver(nil)", "an observer is a function; leave the option out for none")
		}
		o.observer = observer
		return nil
	}
}

// WithTenantFunc sets the tenant of every call that names none itself: tenant is asked with the caller's context, and
// its answer is sent as it is, the empty string (the tenant of programs without tenants) included. Lists show that
// tenant alone. Defaults to sending no tenant, so that the server's setting pglimit.tenant decides and lists show all
// tenants.
func WithTenantFunc(tenant func(context.Context) string) Option {
	return func(o *options) error {
		if tenant == nil {
			return invalidArgument("WithTenantFunc(nil)", "a tenant func is a function; leave the option out for none")
		}
		o.tenantFunc = tenant
		return nil
	}
}

// WithTimeout sets how long one operation may take, the wait for a connection included; at least 10 ms. The server
// cancels a call shortly before that, so that the connection outlives it. Defaults to 2 seconds.
func WithTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		if timeout < minTimeout {
			return invalidArgument(fmt.Sprintf("WithTimeout(%v)", timeout), fmt.Sprintf("a time-out is at least %v", minTimeout))
		}
		o.timeout = timeout
		return nil
	}
}
