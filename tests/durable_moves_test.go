package tests

import (
	"testing"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestNoDeadlockWhileCountsMove is C-27: a limit becomes durable while calls wait for the count of a key, one of them with the row's lock,
// another with the key's creation lock: neither may wait for the other.
func TestNoDeadlockWhileCountsMove(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]struct{ algorithm, first, second string }{
		"hit_many": {
			"token_bucket", "begin; select pglimit.hit('l', 'b')",
			"select pglimit.hit_many(array['l', 'l'], array['a', 'b'])",
		},
		"hit_many sliding": {
			"sliding_window", "begin; select pglimit.hit('l', 'b')",
			"select pglimit.hit_many(array['l', 'l'], array['a', 'b'])",
		},
		"hit of a stamped row": {
			"fixed_window", "begin; select pglimit._stamp_counter(e'\\x1fl\\x1fb', 'test')",
			"select pglimit.hit('l', 'b')",
		},
		"hit of a stamped bucket": {
			"token_bucket", "begin; select pglimit._stamp_counter(e'\\x1fl\\x1fb', 'test')",
			"select pglimit.hit('l', 'b')",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			operator, holder := db.Conn("pglimit_operator"), systemConn(t, db)
			mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour', '"+call.algorithm+"')")
			mustExec(t, db.Conn("pglimit_app"), "select pglimit.hit('l', 'a')")
			mustExec(t, db.Conn("pglimit_app"), "select pglimit.hit('l', 'b')")
			mustExec(t, holder, call.first)
			first := waiting(t, db, db.Conn("pglimit_app"), call.second)
			mustExec(t, operator, "select pglimit.set_limit('l', 10, '1 hour', '"+call.algorithm+"', durable => true)")
			second := waiting(t, db, db.Conn("pglimit_app"), "select pglimit.hit('l', 'b')")
			mustExec(t, holder, "commit")
			first()
			second()
		})
	}
}

// TestLimitBecomesDurableAgain: what is used stays used also where a limit becomes durable that was so before: its subjects have rows of
// then in the logged table, which once gave them what they had used since a second time.
func TestLimitBecomesDurableAgain(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			set := func(durable string) {
				t.Helper()
				mustExec(t, operator, "select pglimit.set_limit('l', 5, '1000 hours', '"+algorithm+"', durable => "+durable+")")
			}
			set("true")
			wantHit(t, app, "hit('l', 's')", "allowed", 4)
			set("false")
			wantHit(t, app, "hit('l', 's', cost => 4)", "allowed", 1)
			set("true")
			wantHit(t, app, "hit('l', 's', cost => 2)", "limit", 1)
			if told := mustScan[bool](t, operator, `select p.reset_at = coalesce(e.facts ->> 'reset_at', e.facts ->> 'special_reset_at')::timestamptz
				from pglimit.explain_limit('l', 's') e, pglimit.peek('l', 's') p where e.step = 'counter'`); !told {
				t.Error("explain_limit tells of the count that is over")
			}
			wantHit(t, app, "hit('l', 's')", "allowed", 0)
			wantHit(t, app, "hit('l', 's')", "limit", 0)
			wantHit(t, app, "hit('l', 's', 5, '1000 hours')", "limit", 0)
			// it has moved for good: what is given back of the logged count stays so
			set("true")
			mustExec(t, app, "select pglimit.refund('l', 's', 3)")
			wantHit(t, app, "hit('l', 's')", "allowed", 2)
		})
	}
}
