package pgclient_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// must returns v, and ends the test when there is an error in its place: must(client.Version(ctx))(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		return v
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantKind checks that err is one of this package's and of the given kinds, and returns it.
func wantKind(t testing.TB, err error, kinds ...error) *pgclient.Error {
	t.Helper()
	var e *pgclient.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v of type %T, want a *pgclient.Error", err, err)
	}
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Fatalf("got error %q, want one that is %q", err, kind)
		}
	}
	return e
}

// unreachable is connections that nobody may ask for.
type unreachable struct{ t testing.TB }

func (u unreachable) Acquire(context.Context) (*pgxpool.Conn, error) {
	u.t.Error("a connection was asked for")
	return nil, errors.New("unreachable")
}

// broken is connections that cannot be had.
type broken struct{ err error }

func (b broken) Acquire(context.Context) (*pgxpool.Conn, error) { return nil, b.err }
