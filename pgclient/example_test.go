package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

func Example() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for range 4 {
		decision, err := client.Hit(ctx, pgclient.HitParams{
			Limit:   "greetings",
			Subject: "user 7",
			MaxHits: pgclient.N(3),
			Per:     pgclient.D(time.Minute),
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed, decision.Remaining)
	}
	// Prints:
	// true 2
	// true 1
	// true 0
	// false 0
}

// A sign-in is throttled fail-open: while the database is away nobody is locked out.
func ExampleClient_Hit() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	attempt := func(account string) string {
		decision, err := client.Hit(ctx, pgclient.HitParams{
			Limit:   "login_attempt",
			Subject: account,
			MaxHits: pgclient.N(1),
			Per:     pgclient.D(15 * time.Minute),
		})
		switch {
		case err != nil:
			log.Printf("sign-ins are not limited: %v", err)
		case !decision.Allowed:
			return fmt.Sprintf("try again in %v", decision.RetryAfter.Round(time.Minute))
		}
		return "check the password"
	}
	fmt.Println(attempt("ann"))
	fmt.Println(attempt("ann"))
	fmt.Println(attempt("bob"))
	// Prints:
	// check the password
	// try again in 15m0s
	// check the password
}

func ExampleClient_ClaimPermit() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	export := func(user string, work func()) error {
		permit, err := client.ClaimPermit(ctx, pgclient.ClaimPermitParams{
			Endpoint:  "audit export",
			Holder:    user,
			HolderCap: pgclient.N(1),
			Lease:     pgclient.D(5 * time.Minute),
		})
		if err != nil {
			return err
		}
		if !permit.Granted {
			return fmt.Errorf("refused by the cap of the %s: %d of %d in use", permit.Reason, permit.InUse, permit.Cap)
		}
		defer permit.Release(ctx) // works even when ctx has ended by then
		work()
		return nil
	}
	err = export("ann", func() {
		fmt.Println("exporting")
		fmt.Println(export("ann", nil))
	})
	fmt.Println(err)
	// Prints:
	// exporting
	// refused by the cap of the holder: 1 of 1 in use
	// <nil>
}

// Whoever comes while the one place is in use waits for his turn.
func ExampleClient_ClaimPermit_wait() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	build := func(user string, wait time.Duration) (*pgclient.Permit, error) {
		return client.ClaimPermit(ctx, pgclient.ClaimPermitParams{
			Endpoint:    "index build",
			Holder:      user,
			EndpointCap: pgclient.N(1),
			Lease:       pgclient.D(5 * time.Minute),
			Wait:        pgclient.D(wait),
		})
	}
	first, err := build("ann", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ann:", first.Granted)
	late, err := build("bob", 50*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("bob:", late.Granted, late.Reason)

	time.AfterFunc(50*time.Millisecond, func() { first.Release(ctx) })
	second, err := build("bob", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("bob:", second.Granted)
	// Prints:
	// ann: true
	// bob: false endpoint
	// bob: true
}

// A program that carries its pool in the context of each request has one client for all of them.
func ExampleFromContext() {
	type poolKey struct{}
	client, err := pgclient.New(pgclient.FromContext(func(ctx context.Context) pgclient.Connections {
		pool, _ := ctx.Value(poolKey{}).(*pgxpool.Pool)
		return pool
	}))
	if err != nil {
		log.Fatal(err)
	}

	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ctx := context.WithValue(context.Background(), poolKey{}, pool)

	_, err = client.Version(ctx)
	fmt.Println("with a pool:", err)
	_, err = client.Version(context.Background())
	fmt.Println("without:", errors.Is(err, pgclient.ErrNoConnection))
	// Prints:
	// with a pool: <nil>
	// without: true
}

// Metrics without a dependency: the labels are bounded, subjects and holders are not among them.
func ExampleWithObserver() {
	ctx := context.Background()
	calls := map[string]int{} // in earnest a counter vector that is safe for concurrent use
	client, err := pgclient.Open(ctx, os.Getenv("DATABASE_URL"), pgclient.WithObserver(
		func(_ context.Context, o pgclient.Observation) {
			calls[fmt.Sprintf("%s %s: %s", o.Operation, o.Name, o.Outcome)]++
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for range 5 {
		_, _ = client.Hit(ctx, pgclient.HitParams{
			Limit: "observed", Subject: "user 7", MaxHits: pgclient.N(2), Per: pgclient.D(time.Hour),
		})
	}
	fmt.Println(calls)
	// Prints:
	// map[hit observed: ok:2 hit observed: refused:3]
}

// TestExamples runs the examples, which find their database in the environment, and checks that they print what their
// comments say. (Under the name Output the comments would have go test run them without a database.)
func TestExamples(t *testing.T) {
	db := setup(t)
	t.Setenv("DATABASE_URL", db.URL("pglimit_app"))
	examples := map[string]func(){
		"Example":                        Example,
		"ExampleClient_ClaimPermit":      ExampleClient_ClaimPermit,
		"ExampleClient_ClaimPermit_wait": ExampleClient_ClaimPermit_wait,
		"ExampleClient_Hit":              ExampleClient_Hit,
		"ExampleFromContext":             ExampleFromContext,
		"ExampleWithObserver":            ExampleWithObserver,
	}
	checkPrinted(t, "example_test.go", examples)
}

// checkPrinted runs the examples of a file, all of which must be there.
func checkPrinted(t *testing.T, file string, examples map[string]func()) {
	t.Helper()
	source := must(os.ReadFile(file))(t)
	found := regexp.MustCompile(`(?s)\nfunc (Example\w*)\(\) \{\n.*?\t// Prints:\n(.*?)\}\n`).FindAllStringSubmatch(string(source), -1)
	want(t, "examples in this file", len(found), len(examples))
	for _, match := range found {
		name, prints := match[1], strings.ReplaceAll(match[2], "\t// ", "")
		want(t, name, printed(t, examples[name]), prints)
	}
}

// printed returns what do writes to the standard output, which must fit in a pipe.
func printed(t *testing.T, do func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = w
	do()
	_ = w.Close()
	return string(must(io.ReadAll(r))(t))
}
