package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

// errTooMany is all that a refused sign-in may tell, whichever limit refused and whether or not there is such an account.
var errTooMany = errors.New("too many attempts, try again later")

// wait is how a sign-in is delayed.
var wait = func(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// signIn checks a password between a question and a note. What is counted, and by which keys, is pglimit's: the account
// in all its spellings, the address (of IPv6 the network), and both together; stored are hashes. A header such as
// X-Forwarded-For is what the client says; behind a proxy of your own take the entry that this proxy added, counted from
// the right.
func signIn(r *http.Request, client *pgclient.Client, name string, check func(name string) bool) error {
	ctx := r.Context()
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return err
	}
	attempt := pgclient.SignInParams{Account: name, Source: peer.Addr().String()}
	decision, err := client.CheckSignIn(ctx, attempt)
	switch {
	case errors.Is(err, pgclient.ErrInvalidArgument):
		return errors.New("no name") // or all who send none would share a limit
	case err != nil:
		log.Printf("sign-ins are not limited: %v", err) // nobody is locked out while the database is away
	case decision.Verdict == pgclient.SignInRefuse:
		return errTooMany
	case decision.Verdict == pgclient.SignInDelay:
		wait(ctx, decision.Delay)
	}
	if !check(name) {
		if err := client.SignInFailed(ctx, attempt); err != nil {
			log.Printf("a failed sign-in is not counted: %v", err)
		}
		return errors.New("wrong name or password") // the same for a name that does not exist
	}
	if err := client.SignInSucceeded(ctx, attempt); err != nil {
		log.Printf("failed sign-ins are not forgotten: %v", err)
	}
	return nil
}

// A sign-in that neither lets a password be guessed nor lets strangers lock its owner out.
func Example_signIn() {
	client, err := pgclient.Open(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	attempt := func(from, name, password string) {
		request := &http.Request{RemoteAddr: from}
		fmt.Println(signIn(request, client, name, func(string) bool { return password == "correct" }))
	}
	for range 5 {
		attempt("203.0.113.7:4711", "ann@example.com", "guess")
	}
	attempt("203.0.113.7:4711", " Ann@Example.com", "correct")
	attempt("198.51.100.2:4711", "ann@example.com", "correct")
	// Prints:
	// wrong name or password
	// wrong name or password
	// wrong name or password
	// wrong name or password
	// wrong name or password
	// too many attempts, try again later
	// <nil>
}
