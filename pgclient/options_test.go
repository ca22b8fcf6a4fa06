package pgclient_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

func TestNewRejects(t *testing.T) {
	t.Parallel()
	var noPool *pgxpool.Pool
	source := unreachable{t}
	for name, call := range map[string]func() (*pgclient.Client, error){
		"NoConnections":   func() (*pgclient.Client, error) { return pgclient.New(nil) },
		"NilPool":         func() (*pgclient.Client, error) { return pgclient.New(noPool) },
		"NilLookup":       func() (*pgclient.Client, error) { return pgclient.New(pgclient.FromContext(nil)) },
		"MaxConns":        func() (*pgclient.Client, error) { return pgclient.New(source, pgclient.WithMaxConns(2)) },
		"ObserverNil":     func() (*pgclient.Client, error) { return pgclient.New(source, pgclient.WithObserver(nil)) },
		"TenantFuncNil":   func() (*pgclient.Client, error) { return pgclient.New(source, pgclient.WithTenantFunc(nil)) },
		"TimeoutZero":     func() (*pgclient.Client, error) { return pgclient.New(source, pgclient.WithTimeout(0)) },
		"TimeoutNegative": func() (*pgclient.Client, error) { return pgclient.New(source, pgclient.WithTimeout(-time.Second)) },
		"TimeoutTiny": func() (*pgclient.Client, error) {
			return pgclient.New(source, pgclient.WithTimeout(9*time.Millisecond))
		},
		"OpenMaxConnsZero": func() (*pgclient.Client, error) {
			return pgclient.Open(t.Context(), "host=localhost", pgclient.WithMaxConns(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := call()
			wantKind(t, err, pgclient.ErrInvalidArgument)
			if client != nil {
				t.Error("got a client beside the error")
			}
		})
	}
}

func TestNewAccepts(t *testing.T) {
	t.Parallel()
	client, err := pgclient.New(unreachable{t},
		nil,
		pgclient.WithLogger(nil),
		pgclient.WithObserver(func(context.Context, pgclient.Observation) {}),
		pgclient.WithTenantFunc(func(context.Context) string { return "" }),
		pgclient.WithTimeout(10*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	client.Close() // not ours to close: nothing happens
}

// A connection string may hold a password in any place, when it is malformed.
func TestOpenNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for _, dsn := range []string{
		"postgres://u:s3cret@h:bad/db",
		"postgres://u:s3cret/db",
		"postgres://u:s3cret",
		"postgres://u:%zzs3cret@h/db",
		"postgres://u@h/db?password=s3cret&port=bad",
		"postgres://h/db?sslmode=s3cret",
		"host=h password='s3cret",
		"host=h password = s3cret port=bad",
		"host=h password=a s3cret",
		`host=h password='a\'s3cret' port=x`,
		"user=u:s3cret@h port=x",
		"s3cret",
	} {
		client, err := pgclient.Open(t.Context(), dsn)
		if client != nil {
			t.Errorf("%s: got a client", dsn)
			client.Close()
			continue
		}
		e := wantKind(t, err, pgclient.ErrInvalidArgument)
		for _, text := range []string{e.Error(), e.Detail, e.Hint} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the error shows the password: %s", dsn, text)
			}
		}
		for _, cause := range e.Unwrap() {
			if strings.Contains(cause.Error(), secret) {
				t.Errorf("%s: the cause shows the password: %s", dsn, cause)
			}
		}
		t.Log(err)
	}
}

// Opening does not connect, and an unreachable server is an outage within the time-out, its password unseen.
func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	client := must(pgclient.Open(t.Context(),
		"postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable", pgclient.WithMaxConns(1), pgclient.WithTimeout(500*time.Millisecond)))(t)
	defer client.Close()
	_, err := client.Version(t.Context())
	e := wantKind(t, err, pgclient.ErrUnavailable)
	want(t, "operation", e.Operation, "pglimit_version")
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error shows the password: %v", err)
	}
}
