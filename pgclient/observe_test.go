package pgclient_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

type contextKey struct{}

func TestFromContext(t *testing.T) {
	t.Parallel()
	lookup := pgclient.FromContext(func(ctx context.Context) pgclient.Connections {
		switch found := ctx.Value(contextKey{}).(type) {
		case *pgxpool.Pool:
			return found
		case pgclient.Connections:
			return found
		}
		return nil
	})
	client := must(pgclient.New(lookup))(t)

	t.Run("NoneIsAnError", func(t *testing.T) {
		t.Parallel()
		_, err := client.Version(t.Context())
		e := wantKind(t, err, pgclient.ErrNoConnection)
		want(t, "operation", e.Operation, "pglimit_version")
		if errors.Is(err, pgclient.ErrUnavailable) {
			t.Error("a missing connection is reported as an outage")
		}
	})
	t.Run("NilPoolIsNone", func(t *testing.T) {
		t.Parallel()
		ctx := context.WithValue(t.Context(), contextKey{}, (*pgxpool.Pool)(nil))
		_, err := client.Version(ctx)
		wantKind(t, err, pgclient.ErrNoConnection)
	})
	t.Run("ValuesFlowCancellationDoesNot", func(t *testing.T) {
		t.Parallel()
		asked := errors.New("asked")
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, broken{asked}))
		cancel()
		_, err := client.Version(ctx)
		wantKind(t, err, pgclient.ErrUnavailable, asked)
		if errors.Is(err, context.Canceled) {
			t.Error("the caller's cancellation reached the call")
		}
	})
}

func TestObserver(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var seen []pgclient.Observation
	down := errors.New("down")
	client := must(pgclient.New(broken{down},
		pgclient.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		pgclient.WithObserver(func(ctx context.Context, o pgclient.Observation) {
			want(t, "value of the caller's context", ctx.Value(contextKey{}), any("caller"))
			seen = append(seen, o)
		}),
	))(t)
	ctx := context.WithValue(t.Context(), contextKey{}, "caller")

	_, err := client.Hit(ctx, pgclient.HitParams{Limit: "api", Subject: "somebody@example.org"})
	wantKind(t, err, pgclient.ErrUnavailable, down)
	_, invalidErr := client.Hit(ctx, pgclient.HitParams{Limit: "api", Subject: "somebody@example.org", Per: pgclient.D(-time.Second)})
	wantKind(t, invalidErr, pgclient.ErrInvalidArgument)

	if len(seen) != 2 {
		t.Fatalf("got %d observations, want 2: %+v", len(seen), seen)
	}
	for i, o := range seen {
		want(t, "operation", o.Operation, "hit")
		want(t, "name", o.Name, "api")
		want(t, "outcome", o.Outcome, pgclient.OutcomeError)
		want(t, "error", o.Err, []error{err, invalidErr}[i])
		if o.Duration < 0 {
			t.Errorf("got duration %v", o.Duration)
		}
	}
	for _, part := range []string{"level=WARN", "pglimit.operation=hit", "pglimit.name=api", "pglimit.result=error", "down"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %q: %s", part, log.String())
		}
	}
	if strings.Contains(log.String(), "somebody") {
		t.Errorf("the log names the subject: %s", log.String())
	}
}
