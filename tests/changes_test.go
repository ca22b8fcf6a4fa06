package tests

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestChangedWindow is C-15 for the length of the window: an open window keeps its end and its count,
// whoever names another length, and the next one has the new length. So no change can set free what
// is used up, and none can lock out for longer than was said before.
func TestChangedWindow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	lasts := func(subject string, want time.Duration) {
		t.Helper()
		got := mustScan[float64](t, db.System(), fmt.Sprintf(`select extract(epoch from c.reset_at - c.window_start)::float8
			from pglimit.counters c where c.key like '%%%s'`, "\x1f"+subject))
		if got != want.Seconds() {
			t.Errorf("%s: the window lasts %v s, want %v", subject, got, want)
		}
	}
	for _, change := range [][2]time.Duration{{time.Hour, time.Minute}, {time.Minute, 30 * 24 * time.Hour}} {
		before, after := change[0], change[1]
		given := func(per time.Duration) string {
			return fmt.Sprintf("hit('given', '%s', 2, '%d s')", before, int(per.Seconds()))
		}
		reset := *wantHit(t, app, given(before), "allowed", 1).ResetAt
		wantHit(t, app, given(after), "allowed", 0)
		for _, per := range []time.Duration{after, before} {
			if r := wantHit(t, app, given(per), "limit", 0); !r.ResetAt.Equal(reset) || *r.RetryAfter > before {
				t.Errorf("%s, then %s: resets %v after %v; want %v", before, per, r.ResetAt, *r.RetryAfter, reset)
			}
		}
		mustExec(t, db.System(), endWindows)
		wantHit(t, app, given(after), "allowed", 1)
		lasts(before.String(), after)

		set := func(per time.Duration) {
			t.Helper()
			mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('row', 2, '%d s')", int(per.Seconds())))
		}
		row := fmt.Sprintf("hit('row', 'r%s')", before)
		set(before)
		reset = *wantHit(t, app, row, "allowed", 1).ResetAt
		set(after)
		wantHit(t, app, row, "allowed", 0)
		if r := wantHit(t, app, row, "limit", 0); !r.ResetAt.Equal(reset) {
			t.Errorf("row %s, then %s: resets %v, want %v", before, after, r.ResetAt, reset)
		}
		mustExec(t, db.System(), endWindows)
		wantHit(t, app, row, "allowed", 1)
		lasts("r"+before.String(), after)
	}
}

// TestChangedLimitInUse is C-15 under load: a quota that is raised and lowered while everybody hits
// lets exactly the highest one through, and the last word decides at once.
func TestChangedLimitInUse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	set := func(quota int) {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('l', %d, '1 hour')", quota))
	}
	set(5)
	conns := appConns(t, db, 4)
	var allowed, calls atomic.Int64
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(t, conns, func(_ int, conn *pgx.Conn) {
			for !stop.Load() {
				var ok bool
				var remaining int64
				if err := conn.QueryRow(t.Context(), "select allowed, remaining from pglimit.hit('l', 's')").Scan(&ok, &remaining); err != nil {
					t.Error(err)
					return
				}
				if calls.Add(1); ok {
					allowed.Add(1)
				}
				if remaining < 0 {
					t.Errorf("%d remain", remaining)
				}
			}
		})
	}()
	reached := func(n int64) {
		t.Helper()
		before := calls.Load()
		for deadline := time.Now().Add(20 * time.Second); allowed.Load() < n || calls.Load() < before+20; {
			if time.Now().After(deadline) {
				t.Errorf("%d allowed of %d calls, want %d", allowed.Load(), calls.Load(), n)
				return
			}
			time.Sleep(time.Millisecond)
		}
		if got := allowed.Load(); got > n {
			t.Errorf("%d allowed, want %d", got, n)
		}
	}
	reached(5)
	for _, quota := range []int{8, 2, 30, 0, 31} {
		set(quota)
		reached(max(allowed.Load(), int64(quota)))
	}
	stop.Store(true)
	<-done
	if allowed.Load() != 31 {
		t.Errorf("%d allowed, want 31", allowed.Load())
	}
	wantHit(t, conns[0], "peek('l', 's')", "limit", 0)
}

// TestChangedCapsInUse is C-15 for permits: a cap that is lowered below what is live refuses at once
// and takes nothing away; raised, it gives room at once. For each of the three pools.
func TestChangedCapsInUse(t *testing.T) {
	t.Parallel()
	for _, pool := range []string{"holder", "endpoint", "installation"} {
		t.Run(pool, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			set := func(cap int) {
				switch pool {
				case "installation":
					mustExec(t, operator, "select pglimit.set_endpoint('e', time_bound => '1 hour')")
					mustExec(t, operator, fmt.Sprintf("select pglimit.set_installation_cap(%d)", cap))
				default:
					mustExec(t, operator, fmt.Sprintf("select pglimit.set_endpoint('e', %s_cap => %d, time_bound => '1 hour', in_installation => false)", pool, cap))
				}
			}
			const args = "'e', 'h'"
			set(4)
			var ids []int64
			for range 4 {
				ids = append(ids, *wantGrant(t, app, args).ID)
			}
			release := func(i int) { wantReason(t, app, fmt.Sprintf("release_permit(%d)", ids[i]), "released") }
			wantClaim(t, app, args, pool, 4, 4)
			set(2)
			wantClaim(t, app, args, pool, 2, 4)
			for _, id := range ids {
				wantReason(t, app, fmt.Sprintf("renew_permit(%d, '2 hours')", id), "renewed")
			}
			release(0) // the lowest lane: what is live lies above the cap
			wantClaim(t, app, args, pool, 2, 3)
			release(1)
			wantClaim(t, app, args, pool, 2, 2)
			set(3)
			wantGrant(t, app, args)
			wantClaim(t, app, args, pool, 3, 3)
			set(0)
			wantClaim(t, app, args, "never", 0, 3)
			set(5)
			wantGrant(t, app, args)
			wantGrant(t, app, args)
			wantClaim(t, app, args, pool, 5, 5)
		})
	}
}

// TestLoweredCapRace is C-15 step by step: of a pool whose cap was lowered below lanes that are still live, two claims at
// the same moment must not take two free lanes where there is room for one more permit.
func TestLoweredCapRace(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := db.Conn("pglimit_app"), db.Conn("pglimit_app")
	var ids []int64
	for range 4 {
		ids = append(ids, *wantGrant(t, first, "'e', 'h', 4, lease => '1 hour'").ID)
	}
	for _, id := range ids[:2] {
		wantReason(t, first, fmt.Sprintf("release_permit(%d)", id), "released")
	}
	const args = "'e', 'h', 3, lease => '1 hour'"
	wantClaim(t, second, "'e', 'h', 1, lease => '1 hour'", "holder", 1, 2) // plans, so that it is not slow to start below
	mustExec(t, first, "begin")
	wantGrant(t, first, args)
	reason := make(chan string, 1)
	go func() {
		var got string
		if err := second.QueryRow(context.WithoutCancel(t.Context()), "select reason from pglimit.claim_permit("+args+")").Scan(&got); err != nil {
			got = err.Error()
		}
		reason <- got
	}()
	time.Sleep(50 * time.Millisecond)
	mustExec(t, first, "commit")
	if got := <-reason; got != "holder" {
		t.Errorf("the second claim: %s", got)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.permits where expires_at > clock_timestamp()"); n != 3 {
		t.Errorf("%d live, the cap is 3", n)
	}
}

// TestWorstBurst is C-06: twice the quota within any span of a window's length, stated and not more.
func TestWorstBurst(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	const quota, call = 10, "hit('l', 's', 10, '1 hour')"
	wantHit(t, app, call, "allowed", quota-1)
	// 58 minutes later: the rest comes at the end of the window
	mustExec(t, db.System(), `update pglimit.counters set window_start = window_start - interval '58 minutes', reset_at = reset_at - interval '58 minutes'`)
	for i := int64(quota - 2); i >= 0; i-- {
		wantHit(t, app, call, "allowed", i)
	}
	wantHit(t, app, call, "limit", 0)
	mustExec(t, db.System(), endWindows)
	for i := int64(quota - 1); i >= 0; i-- {
		wantHit(t, app, call, "allowed", i)
	}
	if r := wantHit(t, app, call, "limit", 0); *r.RetryAfter < 59*time.Minute {
		t.Errorf("a third burst is possible after %v", *r.RetryAfter)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.ToLower(string(readme)), "worst burst") {
		t.Error("README.md does not say the worst burst")
	}
}

// TestRefusalsDoNotExtend is C-07: who tries again and again is let in when the window that was open
// at the first refusal ends, and the wait only ever gets shorter.
func TestRefusalsDoNotExtend(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	const call = "hit('l', 's', 3, '2 s')"
	reset := time.Time{}
	for i := int64(2); i >= 0; i-- {
		if r := wantHit(t, app, "hit('l', 's', 3, '1 hour')", "allowed", i); reset.IsZero() {
			reset = *r.ResetAt
		}
	}
	wait := time.Hour
	for i := range 50 {
		r := wantHit(t, app, []string{call, "hit('l', 's', 3, '1 day')", "hit('l', 's', 3, '2 s', 2)", "hit('l', 's', 3, '2 s', 0)"}[i%4], "limit", 0)
		if !r.ResetAt.Equal(reset) || *r.RetryAfter > wait {
			t.Fatalf("refusal %d moves the end from %v to %v, the wait from %v to %v", i, reset, r.ResetAt, wait, *r.RetryAfter)
		}
		wait = *r.RetryAfter
	}
	mustExec(t, db.System(), endWindows)
	wantHit(t, app, call, "allowed", 2)
}

// TestNoKeyLivesForEver is C-09: windows that end between the look and the write leave no end that is
// missing, infinite or further away than a window is long.
func TestNoKeyLivesForEver(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	end := time.Now().Add(hammering / 2)
	conns := appConns(t, db, 8)
	together(t, conns, func(i int, conn *pgx.Conn) {
		for time.Now().Before(end) {
			if _, err := conn.Exec(t.Context(), fmt.Sprintf("select pglimit.hit('l', 's%d', 3, '%d milliseconds')", i%2, 1+i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	if n := mustScan[int](t, db.System(), `select count(*) from pglimit.counters c
		where not isfinite(c.reset_at) or c.reset_at > clock_timestamp() + interval '8 milliseconds' or c.reset_at <= c.window_start`); n != 0 {
		t.Errorf("%d counts do not end in time", n)
	}
	time.Sleep(10 * time.Millisecond)
	for _, subject := range []string{"s0", "s1"} {
		wantHit(t, conns[0], fmt.Sprintf("hit('l', '%s', 3, '1 hour')", subject), "allowed", 2)
	}
}

// TestOneNameIsOneLimit is C-37: calls that name one limit with different windows share its count,
// which no other length can reset; limits of different names share nothing.
func TestOneNameIsOneLimit(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	wantHit(t, app, "hit('hourly', 'u:1', 2, '1 hour')", "allowed", 1)
	wantHit(t, app, "hit('monthly', 'u:1', 50, '30 days')", "allowed", 49)
	wantHit(t, app, "hit('hourly', 'u:1', 2, '1 hour')", "allowed", 0)
	r := wantHit(t, app, "hit('hourly', 'u:1', 2, '30 days')", "limit", 0)
	if *r.RetryAfter > time.Hour {
		t.Errorf("the other window length has the subject wait %v", *r.RetryAfter)
	}
	wantHit(t, app, "hit('hourly', 'u:1', 2, '1 microsecond')", "limit", 0)
	wantHit(t, app, "hit('monthly', 'u:1', 50, '30 days')", "allowed", 48)
}
