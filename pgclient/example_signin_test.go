package pgclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/pglimit/pglimit/pgclient"
)

// errTooMany is all that a refused sign-in may tell, whichever limit refused and whether or not there is such an account.
var errTooMany = errors.New("too many attempts, try again later")

// signIn checks a password behind three limits, from the narrowest to the widest, and stops at the first that refuses,
// so that who is refused by his own takes nothing from what he shares with others:
//
//   - account and source together: who guesses from one place has few tries, and locks out nobody but himself.
//   - source: who tries many accounts, the attempts at his own among them. A success gives none of these back.
//   - account: guesses from many places at once. It is the softest, for it is the one that strangers can use up.
//
// Attempts count before the password is looked at, for accounts that do not exist as well.
func signIn(r *http.Request, client *pgclient.Client, name string, check func(account string) bool) error {
	account, source := accountKey(name), sourceKey(r)
	if account == "" {
		return errors.New("no name") // or all who send none would share a limit
	}
	ctx := r.Context()
	pair := account + " from " + source
	for _, attempt := range []pgclient.HitParams{
		{Limit: "signin_pair", Subject: pair, MaxHits: pgclient.N(5), Per: pgclient.D(15 * time.Minute)},
		{Limit: "signin_source", Subject: source, MaxHits: pgclient.N(20), Per: pgclient.D(15 * time.Minute)},
		{Limit: "signin_account", Subject: account, MaxHits: pgclient.N(100), Per: pgclient.D(15 * time.Minute)},
	} {
		switch decision, err := client.Hit(ctx, attempt); {
		case err != nil:
			log.Printf("sign-ins are not limited: %v", err) // nobody is locked out while the database is away
		case !decision.Allowed:
			return errTooMany
		}
	}
	if !check(account) {
		return errors.New("wrong name or password")
	}
	if _, err := client.Forget(ctx, pgclient.ForgetParams{Limit: "signin_pair", Subject: pair}); err != nil {
		log.Printf("the attempts of %q are not forgotten: %v", account, err)
	}
	return nil
}

// accountKey is one key for all spellings of a name that the sign-in takes for the same: pglimit's keys are bytes.
func accountKey(name string) string {
	return strings.ToLower(norm.NFC.String(strings.TrimSpace(name)))
}

// sourceKey is the peer's address, an IPv4 one also where it is written as IPv6, and of IPv6 the network: whoever has
// one address there has 2^64. A header such as X-Forwarded-For is what the client says; behind a proxy of your own take
// the entry that this proxy added, counted from the right.
func sourceKey(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	address := peer.Addr().Unmap().WithZone("")
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(address) {
		b := address.As16()
		address = netip.AddrFrom4([4]byte(b[12:]))
	}
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
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
