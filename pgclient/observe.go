package pgclient

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Outcome is how an operation ended, for metrics.
type Outcome string

const (
	OutcomeError   Outcome = "error"   // no answer: the method returned an error
	OutcomeOK      Outcome = "ok"      // the answer was yes, or the operation decides nothing
	OutcomeRefused Outcome = "refused" // the answer was no
)

// Observation is one operation that has ended. See [WithObserver].
type Observation struct {
	// Duration is the time the operation took for its caller, waiting included.
	Duration time.Duration

	// Err is the error the method returned, nil unless Outcome is [OutcomeError].
	Err error

	// Name is the limit or the endpoint, empty for operations that name neither. Unlike subjects and holders, which are
	// not told, their number is bounded.
	Name string

	// Operation is the SQL function, without its schema: "hit", "claim_permit", ….
	Operation string

	// Outcome is how the operation ended.
	Outcome Outcome

	// Polls is how often a claim that waited asked for its turn. See the field Wait of [ClaimPermitParams].
	Polls int

	// Retries is how often a call was sent again because its reply was lost. See [Client.ClaimPermit].
	Retries int
}

// report tells logger and observer of an operation that has ended.
func (c *Client) report(ctx context.Context, o Observation) {
	level := slog.LevelDebug
	if o.Outcome == OutcomeError {
		level = slog.LevelWarn
	}
	if c.logger.Enabled(ctx, level) {
		attrs := []slog.Attr{
			slog.String("pglimit.operation", o.Operation),
			slog.String("pglimit.name", o.Name),
			slog.String("pglimit.result", string(o.Outcome)),
			slog.Duration("duration", o.Duration),
		}
		if o.Polls > 0 {
			attrs = append(attrs, slog.Int("pglimit.polls", o.Polls))
		}
		if o.Retries > 0 {
			attrs = append(attrs, slog.Int("pglimit.retries", o.Retries))
		}
		var pgErr *pgconn.PgError
		switch {
		case errors.As(o.Err, &pgErr):
			// The server's messages quote the offending value, which may be somebody's address.
			attrs = append(attrs, slog.String("error.type", pgErr.Code))
		case o.Err != nil:
			attrs = append(attrs, slog.Any("error", o.Err))
		}
		c.logger.LogAttrs(ctx, level, "pglimit call", attrs...)
	}
	if c.observer != nil {
		c.observer(ctx, o)
	}
}
