package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// wantVerdict is what check_sign_in says: verdict and reason, and the delay where there is one.
func wantVerdict(t *testing.T, app *pgx.Conn, account, source, verdict string) {
	t.Helper()
	var got string
	var contradiction bool
	if err := app.QueryRow(t.Context(), `select trim(verdict || ' ' || reason || case when delay > '0 s' then ' ' || delay else '' end),
			(verdict = 'refuse') <> coalesce(retry_after > '0 s', false) or (verdict = 'delay') <> (delay > '0 s')
		from pglimit.check_sign_in($1, $2)`, account, source).Scan(&got, &contradiction); err != nil {
		t.Fatal(err)
	}
	if got != verdict || contradiction {
		t.Errorf("%s from %s: %s (contradicts itself: %v), want %s", account, source, got, contradiction, verdict)
	}
}

func failed(t *testing.T, app *pgx.Conn, account, source string) {
	t.Helper()
	if _, err := app.Exec(t.Context(), "select pglimit.sign_in_failed($1, $2)", account, source); err != nil {
		t.Fatal(err)
	}
}

func succeeded(t *testing.T, app *pgx.Conn, account, source string) {
	t.Helper()
	if _, err := app.Exec(t.Context(), "select pglimit.sign_in_succeeded($1, $2)", account, source); err != nil {
		t.Fatal(err)
	}
}

// TestCheckSignIn is C-39: who guesses has delays that grow and is then refused, and locks out nobody
// but himself; known and unknown accounts answer alike; a success does not give back what the source has used.
func TestCheckSignIn(t *testing.T) {
	t.Parallel()
	t.Run("Pair", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		app := db.Conn("pglimit_app")
		for _, account := range []string{"victim", "no such account"} {
			source := "203.0.113." + fmt.Sprint(len(account))
			for _, verdict := range []string{"allow allowed", "allow allowed", "delay pair 00:00:00.25", "delay pair 00:00:00.5", "delay pair 00:00:01", "refuse pair", "refuse pair"} {
				wantVerdict(t, app, account, source, verdict)
				failed(t, app, account, source)
			}
			wantVerdict(t, app, "neighbour", source, "allow allowed")
			wantVerdict(t, app, account, "198.51.100.2", "allow allowed")
		}
		// a refusal writes nothing, not even a look's
		mustExec(t, app, "begin; select pglimit.check_sign_in('victim', '203.0.113.6')")
		if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
			t.Error("a look draws a transaction id")
		}
		mustExec(t, app, "commit")
		mustExec(t, app, "begin read only; select pglimit.check_sign_in('victim', '203.0.113.6'); commit")
	})

	t.Run("Source", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		app := db.Conn("pglimit_app")
		succeeded(t, app, "regular", "203.0.113.7")
		for i := range 20 {
			wantVerdict(t, app, fmt.Sprint("victim", i), "203.0.113.7", map[bool]string{false: "allow allowed", true: "delay source 00:00:01"}[i >= 10])
			failed(t, app, fmt.Sprint("victim", i), "203.0.113.7")
		}
		for range 2 {
			wantVerdict(t, app, "another", "203.0.113.7", "refuse source")
			wantVerdict(t, app, "regular", "203.0.113.7", "allow allowed") // who is known here
			wantVerdict(t, app, "another", "203.0.113.8", "allow allowed")
			succeeded(t, app, "mallory", "203.0.113.7") // his own account gives nothing back
		}
	})

	t.Run("Account", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		app := db.Conn("pglimit_app")
		succeeded(t, app, "victim", "198.51.100.2")
		for i := range 100 {
			source := fmt.Sprintf("203.0.%d.7", i)
			wantVerdict(t, app, "victim", source, map[bool]string{false: "allow allowed", true: "delay account 00:00:01"}[i >= 50])
			failed(t, app, "victim", source)
		}
		wantVerdict(t, app, "victim", "203.1.1.1", "refuse account")
		wantVerdict(t, app, "victim", "198.51.100.2", "allow allowed") // the owner is known
		for range 4 {
			failed(t, app, "victim", "198.51.100.2") // and mistypes
		}
		wantVerdict(t, app, "victim", "198.51.100.2", "delay pair 00:00:01")
		succeeded(t, app, "victim", "198.51.100.2")
		wantVerdict(t, app, "victim", "198.51.100.2", "allow allowed")
		wantVerdict(t, app, "victim", "203.1.1.1", "allow allowed") // the account's count is forgotten
		for range 5 {
			failed(t, app, "victim", "198.51.100.2")
		}
		wantVerdict(t, app, "victim", "198.51.100.2", "refuse pair") // known is not without a limit

		// known for 90 days; purge removes what is older
		mustExec(t, db.System(), "update pglimit.known_sign_ins set seen_at = seen_at - interval '89 days'")
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.purge()")
		succeeded(t, app, "victim", "198.51.100.2")
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit.known_sign_ins where seen_at > now() - interval '1 day'"); n != 1 {
			t.Errorf("%d pairs are known anew", n)
		}
		mustExec(t, db.System(), "update pglimit.known_sign_ins set seen_at = seen_at - interval '91 days'")
		for i := range 100 {
			failed(t, app, "victim", fmt.Sprintf("203.0.%d.8", i))
		}
		wantVerdict(t, app, "victim", "198.51.100.2", "refuse account")
		mustExec(t, db.Conn("pglimit_operator"), "select pglimit.purge()")
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit.known_sign_ins"); n != 0 {
			t.Errorf("%d pairs are left", n)
		}
	})

	t.Run("Rows", func(t *testing.T) {
		t.Parallel()
		db := dbtest.New(t)
		app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
		mustExec(t, operator, "select pglimit.set_limit('sign_in_pair', 1, '1 hour'), pglimit.set_limit('sign_in_account', 1, '1 hour', durable => true), pglimit.set_limit('sign_in_source', 1, '1 hour', mode => 'shadow')")
		failed(t, app, "ann", "203.0.113.7")
		wantVerdict(t, app, "ann", "203.0.113.7", "refuse pair")
		wantVerdict(t, app, "ann", "203.0.113.8", "refuse account")
		wantVerdict(t, app, "bob", "203.0.113.7", "delay source 00:00:01")
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit.durable_counters"); n != 1 {
			t.Errorf("%d durable counters", n)
		}
		// tenants have accounts of their own
		if got := mustScan[string](t, app, "select verdict from pglimit.check_sign_in('ann', '203.0.113.7', 't')"); got != "allow" {
			t.Error(got)
		}
	})
}

// TestSignInKeys is C-35, C-36 and C-38 for check_sign_in: spellings of an account and of an address
// are one, others are not; blank ones are refused; and what is stored tells nobody who tried.
func TestSignInKeys(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	key := func(column, account, source string) string {
		t.Helper()
		var key string
		if err := db.System().QueryRow(t.Context(), "select "+column+" from pglimit._sign_in_keys($1, $2)", account, source).Scan(&key); err != nil {
			t.Fatal(err)
		}
		return key
	}
	seen := map[string]string{}
	for _, spellings := range [][]string{
		{"bob@x.org", "BOB@X.ORG", " bob@x.org", "bob@x.org\t", "Bob@x.org\n"},
		{"jos\u00e9", "jose\u0301", "JOS\u00c9", "Jose\u0301 "},
		{"jose"},
		{"bob"},
		{"b ob"},
	} {
		for _, spelling := range spellings {
			if got := key("account_key", spelling, "203.0.113.7"); got != key("account_key", spellings[0], "198.51.100.2") {
				t.Errorf("%q is not %q", spelling, spellings[0])
			} else if other, ok := seen[got]; ok && other != spellings[0] {
				t.Errorf("%q is %q", spelling, other)
			} else if seen[got] = spellings[0]; len(got) != 32 {
				t.Errorf("key %q", got)
			}
		}
	}
	for _, spellings := range [][]string{
		{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "64:ff9b::1.2.3.4", " 1.2.3.4 ", "1.2.3.4/32"},
		{"1.2.3.5", "::FFFF:1.2.3.5"},
		{"255.255.255.255", "::ffff:255.255.255.255", "64:ff9b::ffff:ffff"},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::", "2001:DB8:0:1:0:0:0:2"},
		{"2001:db8:0:2::1"},
		{"fe80::1%eth0", "fe80::2%eth1", "fe80::3"},
		{"::1"},
	} {
		for _, spelling := range spellings {
			if got := key("source_key", "ann", spelling); got != key("source_key", "bob", spellings[0]) || key("pair", "ann", spelling) != key("pair", "Ann", spellings[0]) {
				t.Errorf("%q is not %q", spelling, spellings[0])
			} else if other, ok := seen[got]; ok && other != spellings[0] {
				t.Errorf("%q is %q", spelling, other)
			} else {
				seen[got] = spellings[0]
			}
		}
	}
	if key("pair", "ann", "1.2.3.4") == key("pair", "bob", "1.2.3.4") || key("pair", "ann", "1.2.3.4") == key("pair", "ann", "1.2.3.5") {
		t.Error("pairs meet")
	}

	for _, args := range []string{
		"null, '1.2.3.4'", "'', '1.2.3.4'", "e' \\t', '1.2.3.4'", "'ann', null", "'ann', ''", "'ann', ' '", "'ann', 'unknown'", "'ann', '1.2.3.4:4711'", "'ann', '[::1]'",
		"'ann', '10.0.0.0/8'", "'ann', '2001:db8::/64'", "'ann', '1.2.3'", "'ann', '1.2.3.4', e'a\\x1fb'",
	} {
		for function, conn := range map[string]*pgx.Conn{
			"check_sign_in": app, "sign_in_failed": app, "sign_in_succeeded": app, "show_sign_in": operator, "forget_sign_in": operator,
		} {
			if function == "forget_sign_in" && strings.HasSuffix(args, ", null") {
				continue // there it is a default
			}
			_, err := conn.Exec(t.Context(), "select pglimit."+function+"("+args+")")
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" || server.Detail == "" {
				t.Errorf("%s(%s): %v", function, args, err)
			}
		}
	}
	for function, modes := range map[string][]string{
		"sign_in_failed": {"read only", "isolation level serializable"}, "sign_in_succeeded": {"read only"}, "forget_sign_in": {"read only", "isolation level serializable"},
	} {
		for _, mode := range modes {
			conn := app
			if function == "forget_sign_in" {
				conn = operator
			}
			mustExec(t, conn, "begin "+mode)
			if _, err := conn.Exec(t.Context(), "select pglimit."+function+"('a', '1.2.3.4')"); sqlState(err) != "PGL03" {
				t.Errorf("%s, %s: %v", function, mode, err)
			}
			mustExec(t, conn, "rollback")
		}
	}
	if n := mustScan[int](t, db.System(), "select (select count(*) from pglimit.counters) + (select count(*) from pglimit.known_sign_ins)"); n != 0 {
		t.Errorf("%d rows are stored", n)
	}

	// no row names anybody
	failed(t, app, "ann@example.com", "203.0.113.7")
	succeeded(t, app, "ann@example.com", "203.0.113.7")
	if rows := mustScan[string](t, db.System(), "select string_agg(c::text, '') || (select string_agg(k::text, '') from pglimit.known_sign_ins k) from pglimit.counters c"); strings.Contains(rows, "ann") || strings.Contains(rows, "203.0.113") {
		t.Error(rows)
	}
	if n := mustScan[int](t, db.System(), "select octet_length(secret) from pglimit.installation"); n != 32 {
		t.Errorf("a secret of %d bytes", n)
	}
}

// TestShowSignIn: who helps a user sees what check_sign_in goes by, as an operator or a monitor, and
// under which subjects; nothing is counted by it.
func TestShowSignIn(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	want := func(account, source, want string) {
		t.Helper()
		for _, conn := range []*pgx.Conn{operator, monitor} {
			var got string
			if err := conn.QueryRow(t.Context(), `select string_agg(format('%s %s/%s %s %s%s%s', substr(limit_name, 9), used, quota, remaining, known,
					case when retry_after > '0 s' then ' wait' end, case when reset_at > now() then ' reset' end), ', ')
				from pglimit.show_sign_in($1, $2)`, account, source).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s from %s: %s, want %s", account, source, got, want)
			}
		}
	}
	want("ann", "203.0.113.7", "account 0/100 100 f, source 0/20 20 f, pair 0/5 5 f")
	succeeded(t, app, "ann", "203.0.113.7")
	for range 5 {
		failed(t, app, "ann", "203.0.113.7")
	}
	failed(t, app, "bob", "203.0.113.7")
	failed(t, app, "ann", "203.0.113.8")
	want(" ANN", "::ffff:203.0.113.7", "account 6/100 94 t reset, source 6/20 14 t reset, pair 5/5 0 t wait reset")
	want("ann", "203.0.113.8", "account 6/100 94 f reset, source 1/20 19 f reset, pair 1/5 4 f reset")
	if n := mustScan[int](t, operator, `select count(*) from pglimit.show_sign_in('ann', '203.0.113.7') s
		join pglimit.list_counters() c using (limit_name, subject, used)`); n != 3 {
		t.Errorf("%d of three subjects are counters", n)
	}
	mustExec(t, monitor, "begin read only; select pglimit.show_sign_in('ann', '203.0.113.7'); commit")
	mustExec(t, operator, "select pglimit.set_limit('sign_in_pair', 1, '1 hour')")
	want("ann", "203.0.113.7", "account 6/100 94 t reset, source 6/20 14 t reset, pair 1/1 0 t wait reset")
	mustExec(t, db.System(), "update pglimit.known_sign_ins set seen_at = seen_at - interval '91 days'")
	want("ann", "203.0.113.7", "account 6/100 94 f reset, source 6/20 14 f reset, pair 1/1 0 f wait reset")
}

// TestForgetSignIn is C-39: who is locked out gets in again, and what was done is recorded by hashes alone.
func TestForgetSignIn(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	forget := func(args string, want bool) {
		t.Helper()
		if got := mustScan[bool](t, operator, "select pglimit.forget_sign_in("+args+")"); got != want {
			t.Errorf("forget_sign_in(%s): %v, want %v", args, got, want)
		}
	}
	mustExec(t, operator, "select pglimit.set_limit('sign_in_account', 5, '1 hour', durable => true)")
	forget("'ann'", false)
	forget("'ann', '203.0.113.7'", false)
	for range 5 {
		failed(t, app, "ann", "203.0.113.7")
	}
	failed(t, app, "ann", "203.0.113.7") // is refused, and counts at the source alone
	wantVerdict(t, app, "ann", "198.51.100.2", "refuse account")
	forget("'ann', tenant => 't'", false)
	forget("'ann', '203.0.113.7', 't'", false)
	forget("'bob'", false)
	forget("' Ann'", true)
	wantVerdict(t, app, "ann", "198.51.100.2", "allow allowed")
	wantVerdict(t, app, "ann", "203.0.113.7", "refuse pair")
	forget("'ann'", false)
	for i := range 14 {
		failed(t, app, fmt.Sprint("u", i), "203.0.113.7")
	}
	wantVerdict(t, app, "bob", "203.0.113.7", "refuse source")
	forget("'ann', '::ffff:203.0.113.7'", true) // the pair's and the source's, nothing is left of the account
	wantVerdict(t, app, "ann", "203.0.113.7", "allow allowed")
	wantVerdict(t, app, "bob", "203.0.113.7", "allow allowed")
	forget("'ann', '203.0.113.7'", false)
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.known_sign_ins"); n != 0 {
		t.Errorf("%d pairs are known", n)
	}

	// two were something, and no row names anybody
	keys := mustScan[string](t, operator, "select string_agg(subject, ' ') from pglimit.show_sign_in('ann', '203.0.113.7')")
	account, others, _ := strings.Cut(keys, " ")
	source, pair, _ := strings.Cut(others, " ")
	if got, want := mustScan[string](t, operator, `select string_agg(concat_ws(' ', tenant, name, before->>'account', before->>'source', before->>'pair', after, why), ', ' order by version)
		from pglimit.list_changes(action_filter => 'forget_sign_in')`),
		fmt.Sprintf(" sign_in_account %s,  sign_in_account %s %s %s", account, account, source, pair); got != want {
		t.Errorf("recorded is %q, want %q", got, want)
	}
	if rows := mustScan[string](t, db.System(), "select string_agg(c::text, '') from pglimit.changes c"); strings.Contains(rows, "ann\"") || strings.Contains(rows, "203.0.113") {
		t.Error(rows)
	}

	// the setting that it needs for itself is the caller's own afterwards
	mustExec(t, operator, "begin; set local pglimit.in_transaction = 'error'")
	mustExec(t, operator, "select pglimit.forget_sign_in('ann')")
	if got := mustScan[string](t, operator, "select current_setting('pglimit.in_transaction')"); got != "error" {
		t.Errorf("pglimit.in_transaction is %q", got)
	}
	mustExec(t, operator, "rollback")
}

// TestForgetSignInRaces is C-27: it takes its locks in the order of those who count, and who have succeeded.
func TestForgetSignInRaces(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	done := make(chan error)
	calls := []string{"sign_in_failed('ann', '203.0.113.7')", "sign_in_succeeded('ann', '203.0.113.7')", "forget_sign_in('ann', '203.0.113.7')", "forget_sign_in('ann')"}
	for i := range 8 {
		conn := db.Conn(map[bool]string{true: "pglimit_app", false: "pglimit_operator"}[i%4 < 2])
		go func() {
			for range 10 {
				if _, err := conn.Exec(t.Context(), "select pglimit."+calls[i%4]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestSignInRaces: failures and successes of many at once, of the same account and sources, neither
// deadlock nor get lost.
func TestSignInRaces(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	done := make(chan error)
	for i := range 8 {
		conn := db.Conn("pglimit_app")
		go func() {
			for j := range 10 {
				call := fmt.Sprintf("select pglimit.sign_in_failed('ann', '203.0.113.%d'), pglimit.sign_in_succeeded('u%d', '203.0.113.%d')", (i+j)%8*9+j, i, j%3)
				if j%2 == 0 {
					call = fmt.Sprintf("select pglimit.sign_in_failed('ann', '203.0.113.%d')", (i+j)%8*9+j)
				}
				if _, err := conn.Exec(t.Context(), call); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if used := mustScan[int64](t, db.System(), "select max(used) from pglimit.counters where key like e'\\x1fsign_in_account%'"); used != 80 {
		t.Errorf("%d failures of 80 are counted", used)
	}
}

// TestSignInLimitsAreAnyNumber: an operator may set the limits of sign-ins to whatever there is.
func TestSignInLimitsAreAnyNumber(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, limit := range []string{"sign_in_pair", "sign_in_source", "sign_in_account"} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('%s', 9223372036854775807, '15 min')", limit))
	}
	failed(t, app, "ann", "203.0.113.7")
	wantVerdict(t, app, "ann", "203.0.113.7", "allow allowed")
	mustExec(t, operator, "select pglimit.set_limit('sign_in_account', 3, '15 min')")
	wantVerdict(t, app, "ann", "203.0.113.8", "allow allowed")
	failed(t, app, "ann", "203.0.113.9")
	wantVerdict(t, app, "ann", "203.0.113.8", "delay account 00:00:01") // one of three is left
}

// TestReadyLimits: each ready limit is set once, and is an operator's from then on.
func TestReadyLimits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	for name, want := range map[string]string{
		"login_attempt": "5 00:15:00", "password_reset_redeem": "5 01:00:00", "password_reset_request": "3 01:00:00", "upload_window": "10 01:00:00",
		"sign_in_pair": "5 00:15:00", "sign_in_source": "20 00:15:00", "sign_in_account": "100 00:15:00",
	} {
		version := mustScan[int64](t, operator, "select pglimit.install_ready('"+name+"')")
		if got := mustScan[string](t, operator, "select max_hits || ' ' || per || ' ' || on_outage || ' ' || limit_version from pglimit.list_limits('"+name+"')"); got != fmt.Sprintf("%s allow %d", want, version) {
			t.Errorf("%s: %s", name, got)
		}
		changed := mustScan[int64](t, operator, "select pglimit.set_limit('"+name+"', 1, '1 s')")
		if again := mustScan[int64](t, operator, "select pglimit.install_ready('"+name+"')"); again != changed || changed == version {
			t.Errorf("%s: version %d, set to %d, then %d", name, version, changed, again)
		}
	}
}

// TestHeartbeatReplica: replicas count while they are alive, each service for itself.
func TestHeartbeatReplica(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	beat := func(args string, want int64) {
		t.Helper()
		if got := mustScan[int64](t, app, "select pglimit.heartbeat_replica("+args+")"); got != want {
			t.Errorf("heartbeat_replica(%s) = %d, want %d", args, got, want)
		}
	}
	beat("'shop', 'a'", 1)
	beat("'shop', 'a'", 1)
	beat("'shop', 'b', '1 hour'", 2)
	beat("'stock', 'a'", 1)
	mustExec(t, db.System(), "update pglimit.replicas set ready_until = clock_timestamp() where replica_id = 'a'")
	beat("'shop', 'b'", 1)
	beat("'shop', 'a'", 2)
	beat("'shop', 'b', '0 s'", 1) // says goodbye
	beat("'shop', 'a'", 1)
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_purge_after('0 s'), pglimit.purge()")
	if rows := mustScan[string](t, db.System(), "select string_agg(service || ' ' || replica_id, ', ') from pglimit.replicas"); rows != "shop a" {
		t.Errorf("left: %s", rows)
	}
	for _, args := range []string{"null, 'a'", "'', 'a'", "'shop', null", "'shop', ' '", "'shop', 'a', null", "'shop', 'a', '-1 s'", "'shop', 'a', '1 month'"} {
		_, err := app.Exec(t.Context(), "select pglimit.heartbeat_replica("+args+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" {
			t.Errorf("heartbeat_replica(%s): %v", args, err)
		}
	}
}
