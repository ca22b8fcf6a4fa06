package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// counted is what list_counters says of one subject; -1 where it shows nothing.
func counted(t *testing.T, db rowQuerier, subject string) (used, shadowRefused int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `select coalesce(max(used), -1), coalesce(max(shadow_refused), -1)
		from pglimit.list_counters(subject_filter => $1)`, subject).Scan(&used, &shadowRefused); err != nil {
		t.Fatal(err)
	}
	return used, shadowRefused
}

func wantCounted(t *testing.T, db rowQuerier, subject string, used, shadowRefused int64) {
	t.Helper()
	if u, s := counted(t, db, subject); u != used || s != shadowRefused {
		t.Errorf("%s: %d used and %d refused in shadow, want %d and %d", subject, u, s, used, shadowRefused)
	}
}

// TestShadow: what would be refused is allowed, charges nothing and is counted with its window, whether
// the call brings its limit or leaves it to the row; peek says the same and writes nothing.
func TestShadow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	version := mustScan[int64](t, operator, "select pglimit.set_limit('l', 3, '1 hour', mode => 'shadow', on_outage => 'refuse')")
	for i, args := range []string{"", ", 3, '1 hour'", ", 3", ", per => '1 hour'"} {
		subject := fmt.Sprint("s", i)
		hit, peek := fmt.Sprintf("hit('l', '%s'%s%%s)", subject, args), fmt.Sprintf("peek('l', '%s'%s)", subject, args)
		for left := range int64(3) {
			wantHit(t, app, peek, "allowed", 3-left)
			wantHit(t, app, fmt.Sprintf(hit, ""), "allowed", 2-left)
		}
		for i := range int64(70) { // more than the changes of one turn
			r := wantHit(t, app, fmt.Sprintf(hit, ""), "shadow", 0)
			if r.RetryAfter == nil || r.ResetAt == nil || *r.RetryAfter > time.Hour || *r.RetryAfter <= 0 || r.Quota != 3 {
				t.Fatalf("%+v", r)
			}
			if looked := args != ", 3, '1 hour'"; looked != (r.Version != nil) || looked && (*r.Version != version || *r.OnOutage != "refuse") {
				t.Errorf("%s: version %v, on_outage %v", args, r.Version, r.OnOutage)
			}
			if i%20 == 0 {
				wantCounted(t, operator, subject, 3, i+1)
				if p := wantHit(t, app, peek, "shadow", 0); !p.ResetAt.Equal(*r.ResetAt) || *p.RetryAfter > *r.RetryAfter {
					t.Errorf("peek %+v, hit %+v", p, r)
				}
				wantHit(t, app, fmt.Sprintf(hit, ", cost => 0"), "shadow", 0)
				wantCounted(t, operator, subject, 3, i+1)
			}
		}
		// a cost that can never pass
		if r := wantHit(t, app, fmt.Sprintf(hit, ", cost => 4"), "shadow", 0); r.RetryAfter != nil {
			t.Errorf("%+v", r)
		}
		wantCounted(t, operator, subject, 3, 71)
		// in turns, as under a held snapshot no row may be updated without end
		if !mustScan[bool](t, db.System(), fmt.Sprintf(`select changes < 64 and turn > date_part('epoch', window_start) * 1000000 + 1
			from pglimit.counters where key like '%%%s'`, subject)) {
			t.Error("all in one turn")
		}
	}
	if n := mustScan[int64](t, operator, "select shadow_refused from pglimit.list_limits()"); n != 4*71 {
		t.Errorf("the limit says %d, want %d", n, 4*71)
	}

	// the window ends: both counts begin anew, by a hit that is allowed and by one that is not
	mustExec(t, db.System(), endWindows)
	if n := mustScan[int64](t, operator, "select shadow_refused from pglimit.list_limits()"); n != 0 {
		t.Errorf("the limit says %d after its windows", n)
	}
	wantHit(t, app, "hit('l', 'a')", "allowed", 2)
	wantHit(t, app, "hit('l', 'a', cost => 3)", "shadow", 2)
	wantCounted(t, operator, "a", 1, 1)
	mustExec(t, db.System(), endWindows)
	wantHit(t, app, "hit('l', 'a', cost => 4)", "shadow", 3)
	wantCounted(t, operator, "a", 0, 1)
	mustExec(t, db.System(), endWindows)
	wantHit(t, app, "hit('l', 'a', 3, '1 hour')", "allowed", 2)
	wantCounted(t, operator, "a", 1, 0)

	// forgotten, also where nothing was used
	wantHit(t, app, "hit('l', 'a', cost => 3)", "shadow", 2)
	wantHit(t, app, "hit('l', 'b', cost => 4)", "shadow", 3)
	for _, subject := range []string{"a", "b"} {
		if !mustScan[bool](t, app, fmt.Sprintf("select pglimit.forget('l', '%s')", subject)) {
			t.Errorf("%s: nothing to forget", subject)
		}
		wantHit(t, app, fmt.Sprintf("hit('l', '%s')", subject), "allowed", 2)
		wantCounted(t, operator, subject, 1, 0)
	}

	// a closed limit refuses nobody, and says whom it would
	mustExec(t, operator, "select pglimit.set_limit('closed', 0, '1 hour', mode => 'shadow')")
	for i, args := range []string{"", ", 0, '1 hour'"} {
		subject := fmt.Sprint("c", i)
		if r := wantHit(t, app, fmt.Sprintf("peek('closed', '%s'%s)", subject, args), "shadow", 0); r.RetryAfter != nil || r.ResetAt != nil {
			t.Errorf("%+v", r)
		}
		wantHit(t, app, fmt.Sprintf("hit('closed', '%s'%s)", subject, args), "shadow", 0)
		wantCounted(t, operator, subject, 0, 1)
	}

	// enforced again: what was used counts, what would have been refused does not
	wantHit(t, app, "hit('l', 'z', cost => 2)", "allowed", 1)
	wantHit(t, app, "hit('l', 'z', cost => 2)", "shadow", 1)
	mustExec(t, operator, "select pglimit.set_limit('l', 3, '1 hour')")
	wantHit(t, app, "hit('l', 'z', cost => 2)", "limit", 1)
	wantHit(t, app, "hit('l', 'z', 3, '1 hour', 2)", "limit", 1)
	wantHit(t, app, "hit('l', 'z')", "allowed", 0)
	if n := mustScan[*int64](t, operator, "select shadow_refused from pglimit.list_limits('l')"); n != nil {
		t.Errorf("an enforced limit says %d", *n)
	}
}

// TestShadowOfADurableLimit: its counters are in a table of their own, and those of a time before it was durable too.
func TestShadowOfADurableLimit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 1, '1 hour', mode => 'shadow'), pglimit.set_limit('l', 1, '1 hour', mode => 'shadow', tenant => 'own')")
	for _, durable := range []bool{false, true} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l', 1, '1 hour', mode => 'shadow', durable => %v)", durable))
		for _, tenant := range []string{"", fmt.Sprint(durable), "own"} {
			mustExec(t, app, fmt.Sprintf("select pglimit.hit('l', 's', cost => 2, tenant => '%s')", tenant))
		}
	}
	for tenant, want := range map[string]int64{"": 4, "own": 2} {
		if n := mustScan[int64](t, operator, fmt.Sprintf("select shadow_refused from pglimit.list_limits('l', tenant_filter => '%s')", tenant)); n != want {
			t.Errorf("of tenant %q: %d, want %d", tenant, n, want)
		}
	}
}

// TestOff: everything is allowed and nothing recorded; with a limit of its own, from where it would be
// refused.
func TestOff(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	version := mustScan[int64](t, operator, "select pglimit.set_limit('l', 2, '1 hour', mode => 'off')")
	for _, call := range []string{"hit('l', 's')", "hit('l', 's', cost => 5)", "hit('l', 's', per => '1 s')", "peek('l', 's')", "hit('l', 's', cost => 0)"} {
		mustExec(t, app, "begin")
		if r := wantHit(t, app, call, "off", 2); r.Quota != 2 || *r.Version != version || r.RetryAfter != nil || r.ResetAt != nil {
			t.Errorf("%s: %+v", call, r)
		}
		if id := mustScan[*string](t, app, "select pg_current_xact_id_if_assigned()::text"); id != nil {
			t.Errorf("%s draws a transaction id", call)
		}
		mustExec(t, app, "commit")
	}
	wantCounted(t, operator, "s", -1, -1)
	wantHit(t, app, "hit('l', 'given', 1, '1 hour')", "allowed", 0)
	for range 2 {
		wantHit(t, app, "peek('l', 'given', 1, '1 hour')", "off", 1)
		wantHit(t, app, "hit('l', 'given', 1, '1 hour')", "off", 1)
	}
	wantHit(t, app, "hit('l', 'new', 0, '1 hour')", "off", 0)
	wantCounted(t, operator, "given", 1, 0)
	wantCounted(t, operator, "new", -1, -1)
}

// TestModeOfTenant: the tenant's own row decides about the mode too, and no other.
func TestModeOfTenant(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, `select pglimit.set_limit('l', 1, '1 hour', mode => 'shadow');
		select pglimit.set_limit('l', 1, '1 hour', tenant => 'strict');
		select pglimit.set_limit('l', 1, '1 hour', tenant => 'free', mode => 'off');
		select pglimit.set_limit('other', 1, '1 hour', mode => 'shadow', tenant => 'strict')`)
	for tenant, want := range map[string]string{"": "shadow", "t": "shadow", "strict": "limit", "free": "off"} {
		for _, args := range []string{"", ", 1, '1 hour'"} {
			subject := fmt.Sprintf("'s%d'", len(args))
			mustHit(t, app, fmt.Sprintf("hit('l', %s%s, tenant => '%s')", subject, args, tenant))
			for _, f := range []string{"peek", "hit", "hit"} {
				if r := mustHit(t, app, fmt.Sprintf("%s('l', %s%s, tenant => '%s')", f, subject, args, tenant)); r.Reason != want {
					t.Errorf("%s of tenant %q%s: %s, want %s", f, tenant, args, r.Reason, want)
				}
			}
		}
	}
	// each row's sum is of those it decides about: '' and t, with and without a limit given
	for _, c := range []struct {
		limit, tenant string
		want          *int64
	}{{"l", "", ptr(int64(8))}, {"l", "strict", nil}, {"l", "free", nil}, {"other", "strict", ptr(int64(0))}} {
		got := mustScan[*int64](t, operator, fmt.Sprintf("select shadow_refused from pglimit.list_limits('%s', tenant_filter => '%s')", c.limit, c.tenant))
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s of %q: %v, want %v", c.limit, c.tenant, got, c.want)
		}
	}
}

// TestModeFlag: a refusal of a call with its own limit looks for a mode only once a limit has had one;
// a rollback leaves the flag up, which costs a look and nothing else.
func TestModeFlag(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	const up = "select pg_sequence_last_value('pglimit.special_limits') is not null"
	mustExec(t, operator, "select pglimit.set_limit('l', 1, '1 hour')")
	mustHit(t, app, "hit('l', 's', 1, '1 hour')")
	if mustScan[bool](t, db.System(), up) {
		t.Error("the flag is up although every limit enforces")
	}
	mustExec(t, operator, "begin; select pglimit.set_limit('l', 1, '1 hour', mode => 'off')")
	if !mustScan[bool](t, db.System(), up) {
		t.Error("the flag is down before the commit")
	}
	wantHit(t, app, "hit('l', 's', 1, '1 hour')", "limit", 0)
	mustExec(t, operator, "rollback")
	for range 2 {
		wantHit(t, app, "hit('l', 's', 1, '1 hour')", "limit", 0)
		wantHit(t, app, "hit('l', 's', 1, '1 hour', 2)", "never", 0)
		wantHit(t, app, "hit('l', 'new', 0, '1 hour')", "never", 0)
		wantHit(t, app, "hit('none', 'new', 0, '1 hour')", "never", 0)
		wantHit(t, app, "hit('l', 's')", "limit", 0)
	}
}

// TestShadowRace: every hit beyond the quota is counted once, and none within it is.
func TestShadowRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 100, '1 hour', mode => 'shadow')")
	const each = 50
	conns := appConns(t, db, 8)
	together(t, conns, func(i int, conn *pgx.Conn) {
		for range each {
			call := "select reason from pglimit.hit('l', 's')"
			if i%2 == 0 {
				call = "select reason from pglimit.hit('l', 's', 100, '1 hour')"
			}
			if _, err := conn.Exec(t.Context(), call); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wantCounted(t, operator, "s", 100, int64(len(conns)*each-100))
}
