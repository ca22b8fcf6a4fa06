package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
	"github.com/pglimit/pglimit/tests/dbtest"
)

var sentinels = []error{
	pgclient.ErrInvalidArgument,
	pgclient.ErrNoConnection,
	pgclient.ErrNotInstalled,
	pgclient.ErrPermission,
	pgclient.ErrUnavailable,
	pgclient.ErrUnknownLimit,
	pgclient.ErrVersionMismatch,
	pgclient.ErrWrongTransaction,
}

// kindsOf returns all sentinels that err is, by name.
func kindsOf(err error) string {
	var kinds []string
	for _, kind := range sentinels {
		if errors.Is(err, kind) {
			kinds = append(kinds, kind.Error())
		}
	}
	return strings.Join(kinds, ", ")
}

// Every state that the server can raise is of one kind at most, and the connection survives it.
func TestErrorKinds(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	client := must(pgclient.New(pool))(t)
	raise := func(t *testing.T, state, message string) *pgclient.Error {
		t.Helper()
		db.exec(t, fmt.Sprintf(`create or replace function pglimit.pglimit_version() returns text language plpgsql as
			$$ begin raise exception using errcode = '%s', message = '%s', detail = 'the detail', hint = 'the hint'; end $$`, state, message))
		_, err := client.Version(ctx)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != state {
			t.Fatalf("%s: got %v", state, err)
		}
		e := wantKind(t, err)
		want(t, state+": operation", e.Operation, "pglimit_version")
		want(t, state+": message", e.Message, message)
		want(t, state+": detail", e.Detail, "the detail")
		return e
	}
	for kind, states := range map[error][]string{
		pgclient.ErrInvalidArgument:  {"PGL01", "22003", "22021", "22P02", "22P05"},
		pgclient.ErrUnknownLimit:     {"PGL02"},
		pgclient.ErrWrongTransaction: {"PGL03"},
		pgclient.ErrVersionMismatch:  {"PGL04", "42703"},
		pgclient.ErrNotInstalled:     {"3D000", "3F000", "42883", "42P01"},
		pgclient.ErrPermission:       {"28000", "28P01", "42501"},
		pgclient.ErrUnavailable: {
			"08000", "08006", "08P01", "0A000", "25006", "25P03", "25P04", "40001", "40P01", "53100", "53200", "53300",
			"55P03", "57014", "57P01", "57P02", "57P03", "57P05", "58000", "58030",
		},
		nil: {"PGL05", "23505", "26000", "42P05", "P0001", "XX000", "55000"},
	} {
		wantKinds := ""
		if kind != nil {
			wantKinds = kind.Error()
		}
		for _, state := range states {
			e := raise(t, state, "the message")
			want(t, state+": kinds", kindsOf(e), wantKinds)
			want(t, state+": has a hint", e.Hint != "", true)
			if slices.Contains([]string{"26000", "42P05"}, state) && !strings.Contains(e.Hint, "default_query_exec_mode") {
				t.Errorf("%s: got hint %q, want one that names the exec mode", state, e.Hint)
			}
		}
	}
	want(t, "a standby's own", kindsOf(raise(t, "55000", "cannot do this during recovery")), pgclient.ErrUnavailable.Error())
	want(t, "pglimit's of a standby", kindsOf(raise(t, "PGL03", "peek was called on a standby")), pgclient.ErrUnavailable.Error())
	source := must(fs.ReadFile(migrations.FS(), "functions/internal/check_transaction.sql"))(t)
	want(t, "the functions say so", strings.Contains(string(source), "was called on a standby"), true)
	want(t, "connections made", pool.Stat().NewConnsCount(), 1)
}

// C-45: a limiter that can never work says so on each call, and apart from an outage.
func TestPermanentFaults(t *testing.T) {
	t.Parallel()
	hit := pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(9), Per: pgclient.D(time.Hour)}

	db := setup(t)

	t.Run("RoleWithoutPrivilege", func(t *testing.T) {
		t.Parallel()
		nobody := must(pgclient.New(db.Pool("")))(t)
		_, err := nobody.Hit(t.Context(), hit)
		want(t, "kinds of a hit", kindsOf(err), pgclient.ErrPermission.Error())
		want(t, "the hint names the role", strings.Contains(err.Error(), "hint: grant the login a role of pglimit: pglimit_app"), true)
		_, err = db.app.SetLimit(t.Context(), pgclient.SetLimitParams{Limit: "api", MaxHits: 1, Per: time.Hour})
		want(t, "kinds of a set limit", kindsOf(err), pgclient.ErrPermission.Error())
		_, err = db.operator.ClaimPermit(t.Context(), pgclient.ClaimPermitParams{Endpoint: "e", Holder: "h", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Hour)})
		want(t, "kinds of a claim", kindsOf(err), pgclient.ErrPermission.Error())
	})

	t.Run("PgxRefusesTheSettings", func(t *testing.T) {
		t.Parallel()
		pool := db.pool(t, func(config *pgxpool.Config) {
			config.MaxConns = 1
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			config.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off"
		})
		client := must(pgclient.New(pool))(t)
		for range 2 {
			_, err := client.Hit(t.Context(), hit)
			want(t, "kinds", kindsOf(wantKind(t, err)), "")
			want(t, "says why", strings.Contains(err.Error(), "standard_conforming_strings"), true)
		}
		want(t, "connections made", pool.Stat().NewConnsCount(), 1)
	})

	t.Run("FunctionGone", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		must(db.app.Hit(t.Context(), hit))(t) // prepared, then gone
		db.exec(t, "drop function pglimit.hit")
		for range 20 {
			_, err := db.app.Hit(t.Context(), hit)
			e := wantKind(t, err, pgclient.ErrNotInstalled)
			want(t, "kinds", kindsOf(err), pgclient.ErrNotInstalled.Error())
			want(t, "hint", strings.Contains(e.Hint, "limitctl schema up"), true)
		}
	})

	t.Run("NeverInstalled", func(t *testing.T) {
		t.Parallel()
		client := must(pgclient.New(dbtest.NewEmpty(t).Pool("pglimit_app")))(t)
		_, err := client.Hit(t.Context(), hit)
		want(t, "kinds", kindsOf(err), pgclient.ErrNotInstalled.Error())
	})

	t.Run("NoSuchDatabase", func(t *testing.T) {
		t.Parallel()
		dsn := must(url.Parse(db.URL("pglimit_app")))(t)
		dsn.Path = "/nowhere"
		client := must(pgclient.Open(t.Context(), dsn.String()))(t)
		defer client.Close()
		_, err := client.Hit(t.Context(), hit)
		want(t, "kinds", kindsOf(err), pgclient.ErrNotInstalled.Error())
	})

	t.Run("NoSuchLogin", func(t *testing.T) {
		t.Parallel()
		dsn := must(url.Parse(db.URL("pglimit_app")))(t)
		dsn.User = url.UserPassword("no_such_login", "s3cret")
		client := must(pgclient.Open(t.Context(), dsn.String()))(t)
		defer client.Close()
		_, err := client.Hit(t.Context(), hit)
		want(t, "kinds", kindsOf(err), pgclient.ErrPermission.Error())
		want(t, "shows the password", strings.Contains(err.Error(), "s3cret"), false)
	})

	// An older server lacks a column this client reads, a newer one has some it does not.
	t.Run("OtherColumns", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		define := func(columns, row string) {
			t.Helper()
			db.exec(t, "drop function pglimit.release_permit")
			db.exec(t, fmt.Sprintf(`create function pglimit.release_permit(permit_id bigint, holder text default null)
				returns table (%s) language sql as $$ %s $$`, columns, row))
		}
		define("released bool", "select true")
		_, err := db.app.ReleasePermit(t.Context(), 1, "")
		want(t, "kinds with a column less", kindsOf(err), pgclient.ErrVersionMismatch.Error())
		define("released bool, news text, reason text", "select true, 'x', 'released'")
		released := must(db.app.ReleasePermit(t.Context(), 1, ""))(t)
		want(t, "with a column more", released, pgclient.ReleaseResult{Released: true, Reason: pgclient.ReasonReleased})
		define("released bool, reason text", "select true, 'a' union all select true, 'b'")
		_, err = db.app.ReleasePermit(t.Context(), 1, "")
		want(t, "kinds with a row more", kindsOf(err), pgclient.ErrVersionMismatch.Error())
		define("released bool, reason text", "select null::bool, 'a'")
		_, err = db.app.ReleasePermit(t.Context(), 1, "")
		want(t, "kinds with a null", kindsOf(err), pgclient.ErrVersionMismatch.Error())
		want(t, "connections made", db.Pool("pglimit_app").Stat().NewConnsCount(), 1)
	})
}

// A connection that the server ends is an outage for the call that meets it, and for no other.
func TestConnectionEnded(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := db.pool(t, func(config *pgxpool.Config) {
		config.MaxConns = 1
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	client := must(pgclient.New(pool))(t)
	must(client.Version(t.Context()))(t)
	var pid uint32
	if err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
		pid = conn.Conn().PgConn().PID()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	db.exec(t, fmt.Sprintf("select pg_terminate_backend(%d, 5000)", pid))
	_, err := client.Version(t.Context())
	want(t, "kinds", kindsOf(err), pgclient.ErrUnavailable.Error())
	must(client.Version(t.Context()))(t)
}
