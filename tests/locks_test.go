package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// systemConn is a connection that acts as pglimit_system.
func systemConn(t *testing.T, db *dbtest.DB) *pgx.Conn {
	t.Helper()
	conn := db.Conn("pglimit_system")
	mustExec(t, conn, "set role pglimit_system")
	return conn
}

// TestCrossingKeys is C-27 for callers as they should be: each call a transaction of its own. Then no
// order of keys, and none of endpoints and holders, is one too many.
func TestCrossingKeys(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	keys := []string{"a", "b", "c"}
	conns := appConns(t, db, 4)
	const crossings = 100
	together(t, conns, func(i int, conn *pgx.Conn) {
		order := slices.Clone(keys)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for range crossings {
			for _, key := range order {
				var ok bool
				if err := conn.QueryRow(t.Context(), "select allowed from pglimit.hit('l', $1, 1000000, '1 hour')", key).Scan(&ok); err != nil || !ok {
					t.Error("hit: ", ok, err)
					return
				}
				var id int64
				if err := conn.QueryRow(t.Context(), "select permit_id from pglimit.claim_permit($1, $2, 100, 100, 1000, '1 hour')", key, order[0]).Scan(&id); err != nil {
					t.Error("claim: ", err)
					return
				}
				if err := conn.QueryRow(t.Context(), "select released from pglimit.release_permit($1)", id).Scan(&ok); err != nil || !ok {
					t.Error("release: ", ok, err)
					return
				}
			}
		}
	})
	for _, key := range keys {
		wantHit(t, conns[0], fmt.Sprintf("peek('l', '%s', 1000000, '1 hour')", key), "allowed", 1000000-int64(len(conns)*crossings))
	}
}

// TestCrossingKeysInTransactions is C-27 for callers as they should not be: two transactions that hit
// two keys in opposite orders. That is documented as unsafe; it ends all the same, within the second
// that a lock is waited for, with an error for at least one of them, and every count is that of what
// was committed.
func TestCrossingKeysInTransactions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	const quota = 1000
	hit := func(conn *pgx.Conn, key string) error {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("select pglimit.hit('l', '%s', %d, '1 hour')", key, quota))
		return err
	}
	for _, fresh := range []bool{true, false} { // locks of creation, locks of rows
		s1, s2, other := db.Conn("pglimit_app"), db.Conn("pglimit_app"), db.Conn("pglimit_app")
		before := map[string]int64{}
		for _, key := range []string{"a", "b"} {
			before[key] = mustHit(t, other, fmt.Sprintf("peek('l', '%s', %d, '1 hour')", key, quota)).Remaining
			if fresh != (before[key] == quota) {
				t.Fatalf("%s has %d left", key, before[key])
			}
		}
		mustExec(t, s1, "begin; set local pglimit.in_transaction = 'allow'")
		mustExec(t, s2, "begin; set local pglimit.in_transaction = 'allow'")
		if err := errors.Join(hit(s1, "a"), hit(s2, "b")); err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { first <- hit(s1, "b") }()
		err2 := hit(s2, "a")
		end := func(conn *pgx.Conn, err error) (committed int64) {
			if err == nil {
				committed = 1
			} else if state := sqlState(err); state != "40P01" && state != "55P03" {
				t.Error(err)
			}
			mustExec(t, conn, "commit") // a rollback after an error
			return committed
		}
		committed := end(s2, err2)
		err1 := <-first
		committed += end(s1, err1)
		if err1 == nil && err2 == nil {
			t.Error("neither waited for the other: nothing is shown")
		}
		for key, remaining := range before {
			wantHit(t, other, fmt.Sprintf("hit('l', '%s', %d, '1 hour')", key, quota), "allowed", remaining-committed-1)
		}
	}
}

// TestPreparedTransaction is C-31: a prepared transaction that everybody has forgotten holds a key for
// ever. Who wants that key, or the only slot, gets an error within the second and no other key is
// affected; the operator's lists go on; when it is rolled back nothing of it is left.
func TestPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := privateServer(t, "max_prepared_transactions", "4")
	db := dbtest.NewOn(t, server.DSN("postgres"))
	const hit, claim = "hit('l', 'k', 9, '1 hour')", "'e', 'h', 1, lease => '1 hour'"
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	wantHit(t, app, hit, "allowed", 8)
	id := *wantGrant(t, app, claim).ID
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")

	forgotten := db.Conn("pglimit_app")
	for _, sql := range []string{
		"begin", "set local pglimit.in_transaction = 'allow'", "select pglimit." + hit, "select pglimit.claim_permit(" + claim + ")", "prepare transaction 'forgotten'",
	} {
		mustExec(t, forgotten, sql)
	}
	if err := forgotten.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{hit, "claim_permit(" + claim + ")"} {
		if _, err := app.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "55P03" {
			t.Errorf("%s behind the prepared transaction: %v", call, err)
		}
	}
	wantHit(t, app, "hit('l', 'other', 9, '1 hour')", "allowed", 8)
	wantHit(t, app, "peek('l', 'k', 9, '1 hour')", "allowed", 8)
	wantGrant(t, app, "'e', 'other', 1, lease => '1 hour'")
	if n := mustScan[int64](t, operator, "select used from pglimit.list_counters(subject_filter => 'k')"); n != 1 {
		t.Errorf("%d used are listed", n)
	}
	mustExec(t, operator, "select pglimit.list_permits(), pglimit.purge()")

	mustExec(t, db.Super(), "rollback prepared 'forgotten'")
	wantHit(t, app, hit, "allowed", 7)
	if next := *wantGrant(t, app, claim).ID; next <= id {
		t.Errorf("%d follows %d", next, id)
	}
}

// TestNoSubtransactions is C-31: no call writes in a subtransaction, of which a transaction with more than
// 64 slows the whole server down. What a subtransaction writes bears a number of its own; without one it
// does no harm.
func TestNoSubtransactions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, app, "begin; set local pglimit.in_transaction = 'allow'")
	for i := range 70 {
		mustExec(t, app, fmt.Sprintf("select pglimit.hit('l', 's%d', 9, '1 hour'), pglimit.hit('l', 'same', 100, '1 hour')", i))
		mustExec(t, app, fmt.Sprintf("select pglimit.renew_permit(permit_id) from pglimit.claim_permit('e', 'h%d', 1, 100, 1000, '1 hour')", i))
	}
	mine := mustScan[string](t, app, "select pg_current_xact_id()::xid::text")
	mustExec(t, app, "commit")
	for _, table := range []string{"counters", "permits"} {
		if got := mustStrings(t, systemConn(t, db), "select distinct xmin::text from pglimit."+table); !slices.Equal(got, []string{mine}) {
			t.Errorf("%s: rows of %d transactions, want of one", table, len(got))
		}
	}
}

// TestAdvisoryLocks is C-26: pglimit takes no advisory lock, so an application that locks numbers for
// purposes of its own, or a stranger who reads pg_locks, is in nobody's way. And if two keys should
// meet in one creation lock, the second waits for a second at most and for creation only, and no
// answer is wrong.
func TestAdvisoryLocks(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, stranger := db.Conn("pglimit_app"), db.Conn("")
	keys := []string{"\x1fl\x1fs", "\x1fe\x1fh", "\x1fe\x1f", "\x1f\x1f", "l", "s", "e", "h", "ls", "pglimit"}
	for _, key := range keys {
		for _, lock := range []string{
			"pg_advisory_lock(hashtext($1))", "pg_advisory_lock(hashtextextended($1, 0))", "pg_advisory_lock(0, hashtext($1))",
			"pg_advisory_lock(hashtext('pglimit'), hashtext($1))", "pg_advisory_lock(('x' || left(md5($1), 16))::bit(64)::bigint)",
		} {
			if _, err := stranger.Exec(t.Context(), "select "+lock, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 100 {
		mustExec(t, stranger, fmt.Sprintf("select pg_advisory_lock(%d), pg_advisory_lock(0, %d)", n, n))
	}
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 2)
	wantGrant(t, app, "'e', 'h', 1, 2, 3, '1 hour', 1")
	wantGrant(t, app, "'e', 'h', 9, 9, 9, '1 hour', 3")

	// A stranger sees none to hold, also while a pool's and a key's lock is held.
	holding := db.Conn("pglimit_app")
	mustExec(t, holding, "begin; select pglimit.claim_permit('e2', 'h', 4, lease => '1 hour', weight => 2); select pglimit.hit('l', 'other', 3, '1 hour')")
	if n := mustScan[int](t, stranger, "select count(*) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()"); n != 0 {
		t.Errorf("%d advisory locks are seen", n)
	}
	mustExec(t, holding, "rollback")

	// The very lock of a key, as if another key met it.
	other := systemConn(t, db)
	mustExec(t, other, "begin")
	for _, key := range []string{"\x1fl\x1fs", "\x1fl\x1fnew"} {
		if _, err := other.Exec(t.Context(), "select pglimit._lock_creation(0, $1)", key); err != nil {
			t.Fatal(err)
		}
	}
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 1)
	wantHit(t, app, "hit('l', 'unmet', 3, '1 hour')", "allowed", 2)
	wantHit(t, app, "peek('l', 'new', 3, '1 hour')", "allowed", 3)
	if _, err := app.Exec(t.Context(), "select pglimit.hit('l', 'new', 3, '1 hour')"); sqlState(err) != "55P03" {
		t.Errorf("a new key whose number is locked: %v", err)
	}
	mustExec(t, other, "rollback")
	wantHit(t, app, "hit('l', 'new', 3, '1 hour')", "allowed", 2)
}

// TestPurgeAtSize is C-28 at full size: 100,000 lapsed counts and 10,000 lapsed pools, two purgers at
// once under a statement_timeout, while others hit and claim, old keys and new. No call fails or
// removes more than its batch and the rest of a block, and nothing lapsed is left.
func TestPurgeAtSize(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	const counters, pools, batch = 100_000, 10_000, 1000
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_purge_after('30 minutes')")
	mustExec(t, db.System(), fmt.Sprintf(`
		insert into pglimit.counters (key, turn, changes, used, window_start, reset_at)
		select e'\x1fl\x1f' || i, 1, 0, 1, now() - interval '2 h', now() - interval '1 h' from generate_series(1, %d) i;
		insert into pglimit.permits (pool, lane, turn, permit_id, expires_at, row_count)
		select e'\x1fe\x1f' || i, 1, 1, 0, '-infinity', 0 from generate_series(1, %d) i;
		insert into pglimit.creation_locks select distinct 16384 + (hashtextextended(pool, 0) & 16383)::integer from pglimit.permits`, counters, pools))
	const left = `select
		(select count(*) from pglimit.counters where reset_at < now() - interval '30 minutes')
		+ (select count(*) from pglimit.permits where turn = 1)`

	var purged, calls atomic.Int64
	var gone atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(t, appConns(t, db, 4), func(i int, conn *pgx.Conn) {
			for n := i; !gone.Load(); n += 4 {
				old := 1 + n*7919%counters
				for _, sql := range []string{
					fmt.Sprintf("select pglimit.hit('l', '%d', 1000, '1 hour')", old),
					fmt.Sprintf("select pglimit.hit('l', 'new%d', 1000, '1 hour')", n%50),
					fmt.Sprintf("select pglimit.release_permit(permit_id) from pglimit.claim_permit('e', '%d', 1, lease => '1 hour')", 1+old%pools),
				} {
					if _, err := conn.Exec(t.Context(), sql); err != nil {
						t.Errorf("%s: %v", sql, err)
						return
					}
				}
				calls.Add(1)
			}
		})
	}()
	operators := make([]*pgx.Conn, 2)
	for i := range operators {
		operators[i] = db.Conn("pglimit_operator")
		mustExec(t, operators[i], "set statement_timeout = '5s'")
	}
	system := db.System()
	together(t, operators, func(_ int, conn *pgx.Conn) {
		for range 5000 {
			var p, c int64
			var more bool
			if err := conn.QueryRow(t.Context(), fmt.Sprintf("select permits_purged, counters_purged, more from pglimit.purge(%d)", batch)).Scan(&p, &c, &more); err != nil {
				t.Error("purge: ", err)
				return
			}
			if p > batch+200 || c > batch+200 { // it ends with the block that reaches the batch
				t.Errorf("one call removed %d and %d rows", p, c)
			}
			purged.Add(p + c)
			if more || p+c > 0 {
				continue
			}
			var n int
			if err := system.QueryRow(t.Context(), left).Scan(&n); err != nil {
				t.Error(err)
				return
			} else if n == 0 {
				return
			}
		}
	})
	gone.Store(true)
	<-done
	if n := mustScan[int](t, system, left); n != 0 {
		t.Errorf("%d lapsed rows are left", n)
	}
	if purged.Load() < counters/2 || calls.Load() < 20 {
		t.Errorf("only %d purged, %d rounds of calls meanwhile", purged.Load(), calls.Load())
	}
	t.Logf("purged %d, %d rounds of calls meanwhile", purged.Load(), calls.Load())
}

// TestNoInstantFromCallers is C-24: no function takes an instant, or a date, from its caller as the
// present one. When an override holds or a pause ends is for them to say; whether it does now is not. An operator's simulate
// decides at the instants of a log, and keeps nothing: see TestSimulateLeavesNothing.
func TestNoInstantFromCallers(t *testing.T) {
	t.Parallel()
	if bad := mustStrings(t, dbtest.New(t).Conn(""), `
		select p.oid::regprocedure::text
		from pg_proc p
		cross join unnest(p.proargtypes) a (type)
		join pg_type y on y.oid = a.type
		where p.pronamespace = 'pglimit'::regnamespace and p.proname !~ '^_' and p.proname !~ '^(set_.*_override|pause)$' and p.proname <> 'simulate' and y.typcategory = 'D'`); len(bad) > 0 {
		t.Errorf("take an instant: %s", strings.Join(bad, ", "))
	}
}

// TestClockOfTheCaller is C-24: whatever a session believes about time, all go by the server's clock.
func TestClockOfTheCaller(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for i, zone := range []string{"UTC", "Pacific/Kiritimati", "Etc/GMT+12", "<+25>-25"} {
		conn := db.Conn("pglimit_app")
		mustExec(t, conn, fmt.Sprintf("set timezone = '%s'; set datestyle = 'SQL, DMY'", zone))
		mustExec(t, conn, "begin; select now()") // an old transaction's now() stands still
		time.Sleep(5 * time.Millisecond)
		wantHit(t, conn, "hit('l', 's', 4, '1 hour')", "allowed", int64(3-i))
		wantGrant(t, conn, "'e', 'h', 4, lease => '1 hour'")
		mustExec(t, conn, "commit")
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters"); n != 1 {
		t.Errorf("%d windows for one subject", n)
	}
	mustExec(t, db.System(), endWindows)
	mustExec(t, db.System(), lapse)
	wantHit(t, db.Conn("pglimit_app"), "hit('l', 's', 4, '1 hour')", "allowed", 3)
	wantGrant(t, db.Conn("pglimit_app"), "'e', 'h', 4, lease => '1 hour'")
}
