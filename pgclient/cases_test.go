package pgclient_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// C-01: replicas have one budget between them, and starting again gives nobody a new one. (That they are processes of
// their own is shown in tests/replay.)
func TestReplicasShareOneBudget(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const replicas, quota = 4, 10
	replica := func() (allowed int64) {
		client := must(pgclient.Open(t.Context(), db.URL("pglimit_app")))(t)
		defer client.Close()
		for range quota {
			if must(client.Hit(t.Context(), pgclient.HitParams{Limit: "api", Subject: "k", MaxHits: pgclient.N(quota), Per: pgclient.D(time.Hour)}))(t).Allowed {
				allowed++
			}
		}
		return allowed
	}
	for i, wanted := range []int64{quota, 0} {
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range replicas {
			wg.Go(func() { allowed.Add(replica()) })
		}
		wg.Wait()
		want(t, []string{"allowed", "allowed after a restart"}[i], allowed.Load(), wanted)
	}
}

// C-24: the client does no arithmetic with the time of its own machine but for how long its calls and leases last, so
// that a clock that is wrong changes no answer.
func TestClientAsksNoClock(t *testing.T) {
	t.Parallel()
	// what measures a call or bounds it, by file and function
	measures := []string{"systemtx.go systemTx", "keepalive.go now", "keepalive.go since", "keepalive.go until"}
	files := must(filepath.Glob("*.go"))(t)
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		for _, decl := range file.Decls {
			in := ""
			if fn, ok := decl.(*ast.FuncDecl); ok {
				in = fn.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := call.X.(*ast.Ident); !ok || pkg.Name != "time" || !slices.Contains([]string{"Now", "Since", "Until"}, call.Sel.Name) {
					return true
				}
				if seen++; !slices.Contains(measures, name+" "+in) {
					t.Errorf("%s: %s asks the clock", name, in)
				}
				return true
			})
		}
	}
	if seen == 0 {
		t.Error("nothing was found: nothing is shown")
	}
}

// C-27: each call of the client is a transaction of its own, so crossing keys cannot wait for each other, on however few
// connections.
func TestClientNeverNestsTransactions(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 2 })
	client := must(pgclient.New(pool))(t)
	keys := []string{"a", "b", "c"}
	const workers, rounds = 4, 50
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			order := slices.Clone(keys)
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for range rounds {
				for _, key := range order {
					hit := pgclient.HitParams{Limit: "api", Subject: key, MaxHits: pgclient.N(1000), Per: pgclient.D(time.Hour)}
					if _, err := client.Hit(t.Context(), hit); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, row := range must(db.operator.ListCounters(t.Context(), pgclient.ListCountersParams{}))(t) {
		want(t, row.Subject, row.Used, workers*rounds)
	}
}

// C-29: what the client counts stays counted when the caller's own transaction on the same pool is rolled back, and
// nobody waits for that transaction.
func TestCountSurvivesTheCallersRollback(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := db.pool(t, func(config *pgxpool.Config) { config.MaxConns = 2 })
	client := must(pgclient.New(pool))(t)
	hit := pgclient.HitParams{Limit: "login_attempt", Subject: "u", MaxHits: pgclient.N(3), Per: pgclient.D(time.Hour)}
	look := hit
	look.Cost = pgclient.N(0)
	allowed := 0
	for range 10 {
		tx := must(pool.Begin(t.Context()))(t)
		must(tx.Exec(t.Context(), "create temporary table t () on commit drop"))(t)
		must(tx.Exec(t.Context(), "savepoint s"))(t)
		if must(client.Hit(t.Context(), hit))(t).Allowed {
			allowed++
		}
		// another session, while the caller's transaction is still open, sees it
		want(t, "remaining", must(db.app.Hit(t.Context(), look))(t).Remaining, int64(3-allowed))
		must(tx.Exec(t.Context(), "rollback to savepoint s"))(t)
		if err := tx.Rollback(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "allowed", allowed, 3)
	want(t, "still refused", must(client.Hit(t.Context(), hit))(t).Allowed, false)
}

// C-36: an empty name is a mistake of the caller's; nothing is stored and no other key is affected.
func TestEmptyNames(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	hit := pgclient.HitParams{Limit: "l", Subject: "s", MaxHits: pgclient.N(5), Per: pgclient.D(time.Hour)}
	claim := pgclient.ClaimPermitParams{Endpoint: "e", Holder: "h", HolderCap: pgclient.N(5), Lease: pgclient.D(time.Hour)}
	for _, empty := range []string{"", " ", "   "} {
		for range 6 {
			noLimit, noSubject, noEndpoint, noHolder := hit, hit, claim, claim
			noLimit.Limit, noSubject.Subject, noEndpoint.Endpoint, noHolder.Holder = empty, empty, empty, empty
			var errs []error
			for _, p := range []pgclient.HitParams{noLimit, noSubject} {
				_, err := db.app.Hit(ctx, p)
				_, peekErr := db.app.Peek(ctx, p)
				_, forgetErr := db.app.Forget(ctx, pgclient.ForgetParams{Limit: p.Limit, Subject: p.Subject})
				errs = append(errs, err, peekErr, forgetErr)
			}
			for _, p := range []pgclient.ClaimPermitParams{noEndpoint, noHolder} {
				permit, err := db.app.ClaimPermit(ctx, p)
				if permit != nil {
					t.Errorf("%q: got %+v", empty, permit)
				}
				errs = append(errs, err)
			}
			for _, err := range errs {
				if !errors.Is(err, pgclient.ErrInvalidArgument) {
					t.Errorf("%q: got %v", empty, err)
				}
			}
		}
	}
	want(t, "counters", len(must(db.operator.ListCounters(ctx, pgclient.ListCountersParams{}))(t)), 0)
	want(t, "permits", len(must(db.operator.ListPermits(ctx, pgclient.ListPermitsParams{}))(t)), 0)
	want(t, "another key", must(db.app.Hit(ctx, hit))(t).Remaining, 4)
	want(t, "another holder", must(db.app.ClaimPermit(ctx, claim))(t).Granted, true)
}
