package tests

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// stamped counts the rows of counters that are and are not stamped.
func stamped(t *testing.T, db *dbtest.DB) (is, isNot int) {
	t.Helper()
	if err := db.System().QueryRow(t.Context(), `select count(*) filter (where reset_at is null and special_reset_at is not null),
		count(*) filter (where reset_at is not null and special_reset_at is null) from pglimit.counters`).Scan(&is, &isNot); err != nil {
		t.Fatal(err)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters"); n != is+isNot {
		t.Errorf("%d rows, %d stamped and %d not", n, is, isNot)
	}
	return is, isNot
}

func wantStamped(t *testing.T, db *dbtest.DB, is, isNot int) {
	t.Helper()
	if a, b := stamped(t, db); a != is || b != isNot {
		t.Errorf("%d rows are stamped and %d are not, want %d and %d", a, b, is, isNot)
	}
}

// Instants of an override as an operator could not say them: in the past, in the future.
const (
	overrideIsOver   = "update pglimit.limit_overrides set valid_from = null, valid_until = clock_timestamp()"
	overrideHolds    = "update pglimit.limit_overrides set valid_from = clock_timestamp(), valid_until = 'infinity'"
	overrideIsFuture = "update pglimit.limit_overrides set valid_from = clock_timestamp() + interval '1 hour', valid_until = null"
)

// TestOverride: the subject's own quota decides from the next call on, up and down, before and after
// its first hit, with a limit given or looked up; others are not touched.
func TestOverride(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{"Given": ", 3, '1 hour'", "LookedUp": "", "Mixed": ", per => '1 hour'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			if args != ", 3, '1 hour'" {
				mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour')")
			}
			call := func(f, subject, more string) string { return f + "('l', '" + subject + "'" + args + more + ")" }
			set := func(subject, more string) int64 {
				return mustScan[int64](t, operator, "select pglimit.set_limit_override('l', '"+subject+"', "+more+")")
			}
			versionIs := func(r hitRow, want int64) {
				t.Helper()
				if r.Version == nil || *r.Version != want {
					t.Errorf("version %v, want that of the override, %d", r.Version, want)
				}
			}

			version := set("new", "5")
			versionIs(wantHit(t, app, call("peek", "new", ""), "allowed", 5), version)
			versionIs(wantHit(t, app, call("hit", "new", ", cost => 0"), "allowed", 5), version)
			for i := range int64(5) {
				versionIs(wantHit(t, app, call("hit", "new", ""), "allowed", 4-i), version)
			}
			wantHit(t, app, call("hit", "other", ", cost => 3"), "allowed", 0)
			wantStamped(t, db, 1, 1)
			for range 2 {
				mustExec(t, app, "begin")
				r := wantHit(t, app, call("hit", "new", ""), "limit", 0)
				if versionIs(r, version); r.Quota != 5 {
					t.Errorf("%+v", r)
				}
				if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
					t.Error("a refusal draws a transaction id")
				}
				mustExec(t, app, "commit")
				wantHit(t, app, call("hit", "other", ""), "limit", 0)
				wantHit(t, app, call("peek", "new", ""), "limit", 0)
				wantHit(t, app, call("hit", "new", ", cost => 6"), "never", 0)
			}
			// raised and lowered while a window is open; what is used stays used
			for _, c := range []struct {
				quota, remaining int64
				reason           string
			}{{7, 1, "allowed"}, {2, 0, "limit"}, {0, 0, "never"}, {7, 0, "allowed"}, {7, 0, "limit"}, {100, 92, "allowed"}} {
				version = set("new", fmt.Sprint(c.quota))
				versionIs(wantHit(t, app, call("hit", "new", ""), c.reason, c.remaining), version)
			}
			// more hits than one turn has changes
			for i := range int64(80) {
				wantHit(t, app, call("hit", "new", ""), "allowed", 91-i)
			}
			wantStamped(t, db, 1, 1)

			// a window that ends begins anew with the same quota
			mustExec(t, db.System(), "update pglimit.counters set special_reset_at = clock_timestamp() where reset_at is null")
			wantHit(t, app, call("hit", "new", ", cost => 99"), "allowed", 1)
			wantHit(t, app, call("hit", "new", ", cost => 2"), "limit", 1)

			// dropped: the limit again, and the next change takes the stamp off
			if !mustScan[bool](t, operator, "select pglimit.drop_limit_override('l', 'new')") || mustScan[bool](t, operator, "select pglimit.drop_limit_override('l', 'new')") {
				t.Error("an override is dropped once")
			}
			if r := wantHit(t, app, call("hit", "new", ""), "limit", 0); r.Quota != 3 {
				t.Errorf("%+v", r)
			}
			wantStamped(t, db, 1, 1)
			mustExec(t, db.System(), "update pglimit.counters set special_reset_at = clock_timestamp() where reset_at is null")
			wantHit(t, app, call("hit", "new", ""), "allowed", 2)
			wantStamped(t, db, 0, 2)
			wantHit(t, app, call("hit", "new", ""), "allowed", 1)

			// set on a row that is there, which is stamped at once
			version = set("new", "1")
			wantStamped(t, db, 1, 1)
			versionIs(wantHit(t, app, call("hit", "new", ""), "limit", 0), version)
		})
	}
}

// TestOverrideValidity: it holds from the one instant to the other, by the server's clock at the call.
func TestOverrideValidity(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	state := func(want string) {
		t.Helper()
		if got := mustScan[string](t, operator, "select state from pglimit.list_limit_overrides('l', 's')"); got != want {
			t.Errorf("listed as %s, want %s", got, want)
		}
	}
	own := mustScan[int64](t, operator, "select pglimit.set_limit('l', 3, '1 hour')")
	for _, subject := range []string{"s", "first"} {
		mustExec(t, operator, "select pglimit.set_limit_override('l', '"+subject+"', 9, now() + interval '1 hour', now() + interval '2 hours')")
	}
	state("future")
	wantHit(t, app, "peek('l', 's')", "allowed", 3)
	if r := wantHit(t, app, "hit('l', 's', cost => 3)", "allowed", 0); *r.Version != own {
		t.Errorf("%+v", r)
	}
	wantHit(t, app, "hit('l', 's')", "limit", 0)
	wantStamped(t, db, 1, 0)
	mustExec(t, db.System(), overrideHolds)
	state("valid")
	wantHit(t, app, "peek('l', 's')", "allowed", 6)
	wantHit(t, app, "hit('l', 's')", "allowed", 5)
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 4)
	mustExec(t, db.System(), overrideIsOver)
	state("over")
	wantHit(t, app, "peek('l', 's')", "limit", 0)
	wantHit(t, app, "hit('l', 's')", "limit", 0)
	wantHit(t, app, "hit('l', 's', 6, '1 hour')", "allowed", 0)
	wantStamped(t, db, 0, 1)
	// over before its subject came: the row is plain from the start
	wantHit(t, app, "hit('l', 'first')", "allowed", 2)
	wantStamped(t, db, 0, 2)
	// set anew by who may not reach into the table
	mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 7, now() - interval '1 day', now() + interval '1 day')")
	wantHit(t, app, "hit('l', 's')", "allowed", 0)
	mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 8, '-infinity', 'infinity')")
	wantHit(t, app, "hit('l', 's')", "allowed", 0)
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_limit_overrides('l', 's') where num_nulls(valid_from, valid_until) = 2"); n != 1 {
		t.Error("for ever is not null")
	}

	for _, args := range []string{
		"null, 's', 1", "'', 's', 1", "'é', 's', 1", "'l', null, 1", "'l', ' ', 1", "'l', 's', null", "'l', 's', -1", "'l', 's', 1, tenant => e'a\\x1fb'",
		"'l', 's', 1, now(), now()", "'l', 's', 1, now() + interval '2 h', now() + interval '1 h'", "'l', 's', 1, valid_until => now() - interval '1 s'",
		"'l', 's', 1, valid_until => '-infinity'", "'l', 's', 1, 'infinity'", "'l', repeat('x', 1100), 1",
	} {
		_, err := operator.Exec(t.Context(), "select pglimit.set_limit_override("+args+")")
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "PGL01" || server.Hint == "" || server.Detail == "" {
			t.Errorf("set_limit_override(%s): %v", args, err)
		}
	}
	for _, mode := range []string{"isolation level repeatable read", "isolation level serializable", "read only"} {
		mustExec(t, operator, "begin "+mode)
		if _, err := operator.Exec(t.Context(), "select pglimit.set_limit_override('l', 's', 1)"); sqlState(err) != "PGL03" {
			t.Errorf("%s: %v", mode, err)
		}
		mustExec(t, operator, "rollback")
	}
	mustExec(t, operator, "begin read only")
	if _, err := operator.Exec(t.Context(), "select pglimit.drop_limit_override('l', 's')"); sqlState(err) != "PGL03" {
		t.Error(err)
	}
	mustExec(t, operator, "rollback")
	wantHit(t, app, "peek('l', 's')", "limit", 0)
}

// TestOverrideIsExact: no other tenant, limit or subject, not even one that looks alike; and a limit
// that is closed is open for who has an override.
func TestOverrideIsExact(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, `select pglimit.set_limit('l', 0, '1 hour'); select pglimit.set_limit('m', 0, '1 hour');
		select pglimit.set_limit_override('l', 's', 2, tenant => 't');
		select pglimit.set_limit_override('l', e'x\x1fy', 2)`)
	for _, c := range []struct {
		args, reason string
		remaining    int64
	}{
		{"'l', 's', tenant => 't'", "allowed", 1},
		{"'l', 's', 0, '1 hour', tenant => 't'", "allowed", 0},
		{"'l', 's', 0, '1 hour', tenant => 't'", "limit", 0},
		{"'l', 's'", "never", 0},
		{"'l', 's', tenant => 'u'", "never", 0},
		{"'l', 'S', tenant => 't'", "never", 0},
		{"'m', 's', tenant => 't'", "never", 0},
		{"'l', e'x\\x1fy'", "allowed", 1},
		{"'l', 'x'", "never", 0},
		{"'l', 'y'", "never", 0},
	} {
		wantHit(t, app, "hit("+c.args+")", c.reason, c.remaining)
	}
	mustExec(t, app, "set pglimit.tenant = 't'")
	wantHit(t, app, "peek('l', 's')", "limit", 0)
	mustExec(t, operator, "set pglimit.tenant = 't'")
	if !mustScan[bool](t, operator, "select pglimit.drop_limit_override('l', 's')") {
		t.Error("the tenant of the setting has no override")
	}
	wantHit(t, app, "peek('l', 's')", "never", 0)
}

// TestOverrideAndMode: the quota is the override's, what comes of a refusal is the mode's.
func TestOverrideAndMode(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 9, '1 hour', mode => 'shadow'); select pglimit.set_limit_override('l', 's', 1)")
	wantHit(t, app, "hit('l', 's')", "allowed", 0)
	for i, args := range []string{"", ", 9, '1 hour'"} {
		if r := wantHit(t, app, "peek('l', 's'"+args+")", "shadow", 0); r.Quota != 1 {
			t.Errorf("%+v", r)
		}
		wantHit(t, app, "hit('l', 's'"+args+")", "shadow", 0)
		wantCounted(t, operator, "s", 1, int64(i+1))
	}
	wantStamped(t, db, 1, 0)
	if n := mustScan[int64](t, operator, "select shadow_refused from pglimit.list_limits()"); n != 2 {
		t.Errorf("the limit says %d, want 2", n)
	}
	mustExec(t, operator, "select pglimit.set_limit('l', 9, '1 hour', mode => 'off')")
	for _, f := range []string{"peek", "hit"} {
		wantHit(t, app, f+"('l', 's')", "off", 1)
		wantHit(t, app, f+"('l', 's', 9, '1 hour')", "off", 1)
	}
	wantCounted(t, operator, "s", 1, 2)
}

// TestStampedRows: what else reads or changes counters understands them.
func TestStampedRows(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 2)
	mustExec(t, operator, "select pglimit.set_limit_override('l', 's', 9)")
	r := wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 7)
	wantStamped(t, db, 1, 0)
	list := func(args string) (state string, reset *time.Time) {
		t.Helper()
		if err := operator.QueryRow(t.Context(), "select coalesce(max(state), ''), max(reset_at) from pglimit.list_counters("+args+")").Scan(&state, &reset); err != nil {
			t.Fatal(err)
		}
		return state, reset
	}
	if state, reset := list(""); state != "open" || !reset.Equal(*r.ResetAt) {
		t.Errorf("listed as %s until %v, hit says %v", state, reset, r.ResetAt)
	}
	if p := wantHit(t, app, "peek('l', 's', 3, '1 hour')", "allowed", 7); !p.ResetAt.Equal(*r.ResetAt) {
		t.Errorf("%+v", p)
	}
	if !mustScan[bool](t, app, "select pglimit.forget('l', 's')") || mustScan[bool](t, app, "select pglimit.forget('l', 's')") {
		t.Error("an open count is forgotten once")
	}
	wantStamped(t, db, 1, 0)
	if state, _ := list(""); state != "" {
		t.Errorf("a forgotten count is %s", state)
	}
	if state, reset := list("include_closed => true"); state != "closed" || reset == nil {
		t.Errorf("a forgotten count is %s until %v", state, reset)
	}
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 8)

	// purged like any other, and stamped again when it comes back
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	if n := mustScan[int](t, operator, "select counters_purged from pglimit.purge()"); n != 0 {
		t.Errorf("purged %d open counters", n)
	}
	mustExec(t, db.System(), "update pglimit.counters set special_reset_at = clock_timestamp() - interval '1 s'")
	if n := mustScan[int](t, operator, "select counters_purged from pglimit.purge()"); n != 1 {
		t.Errorf("purged %d, want 1", n)
	}
	wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 8)
	wantStamped(t, db, 1, 0)
}

// behind runs sql while conn is in a transaction that is in its way, and ends that once it waits.
func behind(t *testing.T, conn, blocked *pgx.Conn, end, sql string) (err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := blocked.Exec(context.WithoutCancel(t.Context()), sql)
		done <- err
	}()
	waits := fmt.Sprintf("select cardinality(pg_blocking_pids(%d)) > 0 from pg_sleep(0.001)", blocked.PgConn().PID())
	for !mustScan[bool](t, conn, waits) {
		select {
		case err := <-done:
			t.Errorf("%s did not wait", sql)
			mustExec(t, conn, end)
			return err
		default:
		}
	}
	mustExec(t, conn, end)
	return <-done
}

// TestOverrideSteps: what can come between a hit and the override of its subject, step by step. Whatever
// ends first, the next hit goes by the override.
func TestOverrideSteps(t *testing.T) {
	t.Parallel()
	const hit, set = "select pglimit.hit('l', 's', 3, '1 hour')", "select pglimit.set_limit_override('l', 's', 9)"
	next := func(t *testing.T, db *dbtest.DB, remaining int64) {
		t.Helper()
		wantHit(t, db.Conn("pglimit_app"), "hit('l', 's', 3, '1 hour')", "allowed", remaining)
		wantStamped(t, db, 1, 0)
	}
	for name, step := range map[string]func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn){
		// the maker holds the creation lock: the override waits, and stamps the row
		"CreationFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, operator, "commit", set); err != nil {
				t.Error(err)
			}
			next(t, db, 7)
		},
		"CreationRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, operator, "rollback", set); err != nil {
				t.Error(err)
			}
			next(t, db, 8)
		},
		// the override holds it: the maker waits, and makes a stamped row
		"OverrideFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, "begin; "+set)
			if err := behind(t, operator, app, "commit", hit); err != nil {
				t.Error(err)
			}
			next(t, db, 7)
		},
		// a hit of a row holds it: the override waits, and stamps what the hit has left
		"HitFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, operator, "commit", set); err != nil {
				t.Error(err)
			}
			next(t, db, 6)
		},
		// the straight update waits for the stamp, and then finds no row
		"StampFirst": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, operator, "begin; "+set)
			if err := behind(t, operator, app, "commit", hit); err != nil {
				t.Error(err)
			}
			next(t, db, 6)
		},
		// so does the loop, which locks the row for a window that has ended or a turn that is used up
		"StampBeforeLoop": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, db.System(), "update pglimit.counters set changes = 64")
			mustExec(t, operator, "begin; "+set)
			if err := behind(t, operator, app, "commit", hit); err != nil {
				t.Error(err)
			}
			next(t, db, 6)
		},
		"StampBeforeNewWindow": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, db.System(), endWindows)
			mustExec(t, operator, "begin; "+set)
			if err := behind(t, operator, app, "commit", hit); err != nil {
				t.Error(err)
			}
			next(t, db, 7)
		},
		"OverrideRolledBack": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, operator, "begin; "+set)
			if err := behind(t, operator, app, "rollback", hit); err != nil {
				t.Error(err)
			}
			wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", 0)
			wantStamped(t, db, 0, 1)
		},
		// a hit that is about to take the stamp of an override that is over away: the row is stamped
		// when the new override looks, and not when the hit has ended
		"StampTakenOffMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, set)
			mustExec(t, app, hit)
			mustExec(t, db.System(), overrideIsOver)
			mustExec(t, app, "begin; "+hit)
			if err := behind(t, app, operator, "commit", set); err != nil {
				t.Error(err)
			}
			next(t, db, 6)
		},
		// a hit that waits for a row that is stamped anew decides by the new override, not by none
		"SetAgainMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, operator, set)
			mustExec(t, app, hit)
			mustExec(t, operator, "select pglimit.drop_limit_override('l', 's'); begin; "+set)
			if err := behind(t, operator, app, "commit", hit); err != nil {
				t.Error(err)
			}
			next(t, db, 6)
		},
		// purged between the look and the stamp: the next hit makes a stamped row
		"PurgedMeanwhile": func(t *testing.T, db *dbtest.DB, app, operator *pgx.Conn) {
			mustExec(t, app, hit)
			mustExec(t, db.System(), "update pglimit.counters set reset_at = clock_timestamp() - interval '2 days'")
			purge := db.Conn("pglimit_operator")
			mustExec(t, purge, "begin; select pglimit.purge()")
			if err := behind(t, purge, operator, "commit", set); err != nil {
				t.Error(err)
			}
			wantStamped(t, db, 0, 0)
			next(t, db, 8)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			step(t, db, db.Conn("pglimit_app"), db.Conn("pglimit_operator"))
		})
	}
}

// TestOverrideRace: overrides come and go while everybody hits, also as the key is made. No more are
// allowed than the larger quota, and exactly that is reached once the override stays.
func TestOverrideRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 6)
	for round := range 12 {
		subject := fmt.Sprint("s", round)
		var allowed atomic.Int64
		operator := db.Conn("pglimit_operator")
		together(t, append([]*pgx.Conn{operator}, conns...), func(i int, conn *pgx.Conn) {
			if i == 0 {
				for n := range round % 4 {
					if _, err := conn.Exec(t.Context(), "select pglimit.set_limit_override('race', $1, $2)", subject, 10+10*(n%2)); err != nil {
						t.Error(err)
					}
					if _, err := conn.Exec(t.Context(), "select pglimit.drop_limit_override('race', $1)", subject); err != nil {
						t.Error(err)
					}
				}
				if _, err := conn.Exec(t.Context(), "select pglimit.set_limit_override('race', $1, 30)", subject); err != nil {
					t.Error(err)
				}
				return
			}
			for range 20 {
				var ok bool
				if err := conn.QueryRow(t.Context(), "select allowed from pglimit.hit('race', $1, 15, '1 hour')", subject).Scan(&ok); err != nil {
					t.Error(err)
				} else if ok {
					allowed.Add(1)
				}
			}
		})
		before := allowed.Load()
		if before > 30 {
			t.Errorf("round %d: %d allowed, the largest quota was 30", round, before)
		}
		if _, not := stamped(t, db); not > 0 {
			t.Errorf("round %d: an override holds, and %d rows are not stamped", round, not)
		}
		for left := 30 - before; left > 0; left-- {
			wantHit(t, conns[0], fmt.Sprintf("hit('race', '%s', 15, '1 hour')", subject), "allowed", left-1)
		}
		wantHit(t, conns[0], fmt.Sprintf("hit('race', '%s', 15, '1 hour')", subject), "limit", 0)
	}
}

// TestListLimitOverrides pages by key, whatever is in a subject, and filters.
func TestListLimitOverrides(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, monitor := db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	login := mustScan[string](t, operator, "select session_user::text")
	mustExec(t, operator, `
		select pglimit.set_limit_override(l, s, 1, tenant => t)
		from unnest(array['b', 'a']) l, unnest(array['y', 'x', e'x\x1fz', 'é']) s, unnest(array['t', '']) t;
		select pglimit.set_limit_override('b', 'y', 2, now() + interval '1 h', now() + interval '2 h', 't')`)
	var keys []string
	after := "null"
	for range 6 {
		page := mustStrings(t, monitor, "select cursor from pglimit.list_limit_overrides(max_rows => 3, after => "+after+")")
		keys = append(keys, page...)
		if len(page) == 0 {
			break
		}
		after = "'" + page[len(page)-1] + "'"
	}
	want := mustStrings(t, systemConn(t, db), `select tenant || e'\x1f' || limit_name || e'\x1f' || subject from pglimit.limit_overrides order by tenant, limit_name, subject`)
	if len(want) != 16 || fmt.Sprintf("%q", keys) != fmt.Sprintf("%q", want) {
		t.Errorf("got  %q\nwant %q", keys, want)
	}
	for filter, n := range map[string]int{
		"limit_filter => 'a'": 8, "subject_filter => 'x'": 4, "tenant_filter => 't'": 8, "tenant_filter => ''": 8,
		"'a', 'x', tenant_filter => 't'": 1, "'c'": 0,
	} {
		if got := mustScan[int](t, monitor, "select count(*) from pglimit.list_limit_overrides("+filter+")"); got != n {
			t.Errorf("%s: %d, want %d", filter, got, n)
		}
	}
	row := mustScan[string](t, monitor, `select format('%s %s %s %s %s %s %s', tenant, limit_name, subject, max_hits, state, updated_by, valid_until - valid_from)
		from pglimit.list_limit_overrides('b', 'y', tenant_filter => 't')`)
	if want := "t b y 2 future " + login + " 01:00:00"; row != want {
		t.Errorf("got %s, want %s", row, want)
	}
	if _, err := monitor.Exec(t.Context(), "select pglimit.list_limit_overrides(max_rows => 0)"); sqlState(err) != "PGL01" {
		t.Error(err)
	}
}
