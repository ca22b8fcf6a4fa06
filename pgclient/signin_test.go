package pgclient_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

// visitor signs in at one database from one address.
type visitor struct {
	db      *testBundle
	address string
	headers http.Header
}

// signIn returns what the visitor is told.
func (v visitor) signIn(t *testing.T, name string, known bool) string {
	t.Helper()
	request := (&http.Request{RemoteAddr: v.address, Header: v.headers}).WithContext(t.Context())
	if err := signIn(request, v.db.app, name, func(string) bool { return known }); err != nil {
		return err.Error()
	}
	return "in"
}

const wrong = "wrong name or password"

// What is delayed is asserted where it is decided, in tests.TestCheckSignIn.
func init() { wait = func(context.Context, time.Duration) {} }

// The recipe prints what its comment says.
func TestSignInExample(t *testing.T) {
	db := setup(t)
	t.Setenv("DATABASE_URL", db.URL("pglimit_app"))
	checkPrinted(t, "example_signin_test.go", map[string]func(){"Example_signIn": Example_signIn})
}

// C-39: who guesses locks out himself alone, learns nothing from the answers, and gains nothing by signing in as himself
// now and then.
func TestSignInRecipe(t *testing.T) {
	t.Parallel()

	t.Run("VictimGetsIn", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		attacker, victim := visitor{db: db, address: "203.0.113.7:1"}, visitor{db: db, address: "198.51.100.2:1"}
		for i := range 20 {
			told := wrong
			if i >= 5 {
				told = errTooMany.Error()
			}
			want(t, "attacker is told", attacker.signIn(t, "victim", false), told)
		}
		want(t, "victim from elsewhere", victim.signIn(t, "victim", true), "in")
		want(t, "neighbour of the attacker", attacker.signIn(t, "neighbour", true), "in")
	})

	t.Run("UnknownNamesAnswerAlike", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		for i := range 30 {
			known := visitor{db: db, address: "203.0.113.7:1"}.signIn(t, "ann", false)
			unknown := visitor{db: db, address: "203.0.113.8:1"}.signIn(t, "no such account", false)
			want(t, fmt.Sprint("attempt ", i), unknown, known)
		}
	})

	t.Run("OwnAccountResetsThePairAlone", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		attacker := visitor{db: db, address: "203.0.113.7:1"}
		guesses := 0
		for i := range 60 {
			if attacker.signIn(t, fmt.Sprint("victim", i), false) == wrong {
				guesses++
			}
			if i%4 == 3 {
				attacker.signIn(t, "mallory", true)
			}
		}
		want(t, "guesses looked at", guesses, 20) // as without his own account
		for range 10 {
			attacker.signIn(t, "mallory", true)
		}
		want(t, "one more guess", attacker.signIn(t, "another", false), errTooMany.Error())
	})

	t.Run("SuccessForgetsThePair", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		ann := visitor{db: db, address: "203.0.113.7:1"}
		for range 3 {
			for range 4 {
				want(t, "a slip", ann.signIn(t, "ann", false), wrong)
			}
			want(t, "at last", ann.signIn(t, "ann", true), "in")
		}
	})

	t.Run("ManySourcesMeetTheAccountsLimit", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		looked := 0
		for i := range 120 {
			if (visitor{db: db, address: fmt.Sprintf("203.0.%d.7:1", i)}).signIn(t, "ann", false) == wrong {
				looked++
			}
		}
		want(t, "guesses looked at", looked, 100)
	})
}

// C-35: every spelling that the sign-in takes for one account has one budget; pglimit itself takes keys as they are.
func TestSignInSpellings(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for _, spellings := range [][]string{
		{"bob@x.org", "BOB@X.ORG", " bob@x.org", "bob@x.org\t", "Bob@x.org"},
		{"jos\u00e9", "jose\u0301", "JOS\u00c9", "Jose\u0301 ", "jos\u00e9"},
	} {
		guesser := visitor{db: db, address: "203.0.113.7:1"}
		for _, name := range spellings {
			want(t, name, guesser.signIn(t, name, false), wrong)
		}
		for _, name := range spellings {
			want(t, name+" again", guesser.signIn(t, name, true), errTooMany.Error())
		}
	}
}

// C-36: a missing name is no key that all who lack one share.
func TestSignInWithoutAName(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for _, name := range []string{"", " ", "\t\n"} {
		for range 6 {
			want(t, fmt.Sprintf("%q", name), (visitor{db: db, address: "203.0.113.7:1"}).signIn(t, name, true), "no name")
		}
	}
	want(t, "counted", len(must(db.operator.ListCounters(t.Context(), pgclient.ListCountersParams{}))(t)), 0)
}

// C-38: the source is the peer, whatever it says it is; and a network of IPv6 is one source.
func TestSignInSources(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, address := range map[string]func(i int) (string, http.Header){
		"Forged": func(i int) (string, http.Header) {
			return "203.0.113.7:1", http.Header{"X-Forwarded-For": {fmt.Sprintf("198.51.100.%d", i)}, "X-Real-Ip": {fmt.Sprint("198.51.100.", i)}}
		},
		"Network": func(i int) (string, http.Header) { return fmt.Sprintf("[2001:db8:0:1:%x::%x]:1", i, i), nil },
		"Ports":   func(i int) (string, http.Header) { return fmt.Sprintf("203.0.113.8:%d", 1000+i), nil },
		"Mapped": func(i int) (string, http.Header) {
			return []string{"1.2.3.4:1", "[::ffff:1.2.3.4]:1", "[::ffff:102:304]:1", "[64:ff9b::1.2.3.4]:1"}[i%4], nil
		},
		"Zones": func(i int) (string, http.Header) { return fmt.Sprintf("[fe80::1%%eth%d]:1", i), nil },
	} {
		for i := range 25 {
			v := visitor{db: db}
			v.address, v.headers = address(i)
			told := wrong
			if i >= 20 {
				told = errTooMany.Error()
			}
			want(t, fmt.Sprint(name, i), v.signIn(t, fmt.Sprint(name, i), false), told)
		}
	}
	for _, other := range []string{"203.0.113.9:1", "[2001:db8:0:2::1]:1", "[::ffff:1.2.3.5]:1", "[64:ff9b::1.2.3.6]:1"} {
		want(t, other, (visitor{db: db, address: other}).signIn(t, "somebody", true), "in")
	}
}

// Whoever helps a user sees why he is refused, and lifts it.
func TestShowAndForgetSignIn(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	attempt := pgclient.SignInParams{Account: "ann@example.com", Source: "203.0.113.7"}
	for range 5 {
		if err := db.app.SignInFailed(ctx, attempt); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "verdict", must(db.app.CheckSignIn(ctx, attempt))(t).Verdict, pgclient.SignInRefuse)
	counts := must(db.operator.ShowSignIn(ctx, attempt))(t)
	if len(counts) != 3 {
		t.Fatalf("%+v", counts)
	}
	for i, limit := range []string{"sign_in_account", "sign_in_source", "sign_in_pair"} {
		c := counts[i]
		want(t, "limit", c.Limit, limit)
		want(t, "used of "+limit, c.Used, int64(5))
		want(t, "remaining of "+limit, c.Remaining, c.Quota-5)
		want(t, "refused by "+limit, c.RetryAfter > 0, limit == "sign_in_pair")
		want(t, "known to "+limit, c.Known, false)
		want(t, "hash of "+limit, len(c.Subject), 32)
		want(t, "reset of "+limit, c.ResetAt.IsZero(), false)
	}
	want(t, "account alone", must(db.operator.ForgetSignIn(ctx, pgclient.SignInParams{Account: attempt.Account}))(t), true)
	want(t, "verdict", must(db.app.CheckSignIn(ctx, attempt))(t).Verdict, pgclient.SignInRefuse)
	want(t, "all", must(db.operator.ForgetSignIn(ctx, attempt))(t), true)
	want(t, "again", must(db.operator.ForgetSignIn(ctx, attempt))(t), false)
	want(t, "verdict", must(db.app.CheckSignIn(ctx, attempt))(t).Verdict, pgclient.SignInAllow)
	_, err := db.operator.ShowSignIn(ctx, pgclient.SignInParams{Account: "ann@example.com"})
	wantKind(t, err, pgclient.ErrInvalidArgument)
}
