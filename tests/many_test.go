package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// manyLimits are limits of all kinds; no window of theirs ends by itself within a test.
const manyLimits = `
	select pglimit.set_limit('window', 20, '10 hours'), pglimit.set_limit('slide', 10, '10 hours', 'sliding_window'),
		pglimit.set_limit('bucket', 10, '1000 days', 'token_bucket', 30), pglimit.set_limit('year', 15, '1 year', 'calendar'),
		pglimit.set_limit('bill', 12, '10 hours', durable => true), pglimit.set_limit('shadow', 5, '10 hours', mode => 'shadow'),
		pglimit.set_limit('off', 5, '10 hours', mode => 'off'), pglimit.set_limit('closed', 0, '10 hours')`

// TestHitManyAnswersAsHits: whatever is asked for at once is answered, and counted, as by so many hits in a
// row. A second tenant makes those.
func TestHitManyAnswersAsHits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "set pglimit.in_transaction = 'allow'")
	mustExec(t, operator, manyLimits)
	for _, tenant := range []string{"one", "many"} {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit_override('window', 's0', 40, tenant => '%s'), pglimit.set_limit_override('bucket', 's1', 0, tenant => '%[1]s')", tenant))
	}
	const columns = "allowed, reason, quota, remaining, retry_after is null, reset_at is null, on_outage, charged"
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"window", "window", "window", "slide", "bucket", "year", "bill", "shadow", "off", "closed", "own", "own"}
	for round := range 120 {
		n := random.IntN(12)
		if round%10 == 0 {
			n = 200 // of one limit, as most calls are
		}
		limits, subjects, costs := []string{}, []string{}, []int64{}
		quotas, pers := []*int64{}, []*string{}
		for range n {
			name, subject, cost := names[random.IntN(len(names))], fmt.Sprint("s", random.IntN(5)), []int64{1, 1, 1, 2, 5, 0, 100}[random.IntN(7)]
			if n == 200 {
				name, subject, cost = "window", fmt.Sprint("t", random.IntN(300)), 1
			}
			limits, subjects, costs = append(limits, name), append(subjects, subject), append(costs, cost)
			var quota *int64
			var per *string
			if name == "own" || random.IntN(5) == 0 {
				q, p := []int64{10, 10, 10, 20, 1000}[random.IntN(5)], "10 hours"
				quota, per = &q, &p
			}
			quotas, pers = append(quotas, quota), append(pers, per)
		}
		for i := range limits {
			if slices.Contains([]string{"slide", "bucket", "year"}, limits[i]) {
				quotas[i], pers[i] = nil, nil // those would be fixed windows
			}
		}
		rows, err := app.Query(t.Context(), "select row(ordinal, "+columns+")::text from pglimit.hit_many($1, $2, $3, $4, $5::text[]::interval[], 'many')", limits, subjects, costs, quotas, pers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range n {
			var answer string
			if err := app.QueryRow(t.Context(), fmt.Sprintf("select row(%d, %s)::text from pglimit.hit($1, $2, $3, $4::text::interval, $5, tenant => 'one')", i+1, columns), limits[i], subjects[i], quotas[i], pers[i], costs[i]).Scan(&answer); err != nil {
				t.Fatal(err)
			}
			want = append(want, answer)
		}
		if !slices.Equal(got, want) {
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Errorf("round %d: %s of %s costs %d: %s, want %s", round, limits[i], subjects[i], costs[i], slices.Concat(got, make([]string, n))[i], want[i])
				}
			}
			t.FailNow()
		}
		if round%30 == 29 {
			for _, table := range []string{"counters", "durable_counters"} {
				mustExec(t, db.System(), fmt.Sprintf("update pglimit.%s set reset_at = reset_at - interval '20 hours', special_reset_at = special_reset_at - interval '20 hours', window_start = window_start - interval '20 hours'", table))
			}
		}
	}
	const counts = `select string_agg(row(substr(key, length($1) + 1), used, shadow_refused, overridden, algorithm, previous)::text, e'\n' order by key)
		from (select * from pglimit.counters union all select * from pglimit.durable_counters) c
		where key like $1 || e'\x1f%' and key not like e'%\x1fbucket\x1f%'` // those hold instants
	var one, many string
	for tenant, counted := range map[string]*string{"one": &one, "many": &many} {
		if err := db.System().QueryRow(t.Context(), counts, tenant).Scan(counted); err != nil {
			t.Fatal(err)
		}
	}
	if one != many {
		t.Errorf("counted:\n%s\nwant:\n%s", many, one)
	}
}

// TestHitManyOfOpenKeysIsOneStatement: open keys of every algorithm, in the middle of their windows and buckets, are decided
// and counted as by hit, and without the way that decides one by one.
func TestHitManyOfOpenKeysIsOneStatement(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conn := db.Super()
	mustExec(t, db.Conn("pglimit_operator"), manyLimits)
	random := rand.New(rand.NewPCG(5, 6))
	var limits, subjects []string
	for i := range 40 {
		for _, name := range []string{"window", "slide", "bucket", "year"} {
			limits, subjects = append(limits, name), append(subjects, fmt.Sprint("s", i))
		}
	}
	const columns = `reason, quota, remaining, date_trunc('hour', retry_after + interval '30 min'), date_trunc('day', reset_at + interval '12 hours'), on_outage, limit_version, charged`
	reasons := map[string]int{}
	for round := range 6 {
		costs := []int64{}
		for range limits {
			costs = append(costs, []int64{1, 2, 4, 7, 9, 100}[random.IntN(6)])
		}
		switch round {
		case 0:
			for i := range costs {
				costs[i] = 3
			}
		case 2: // of a sliding window the next one, of a bucket a part that has leaked
			mustExec(t, db.System(), `update pglimit.counters set
				window_start = window_start - case when key like '%slide%' then interval '7 hours' when key like '%bucket%' then interval '99 days' else '0' end,
				special_reset_at = special_reset_at - case when key like '%slide%' then interval '7 hours' when key like '%bucket%' then interval '99 days' end`)
		case 3, 5: // some are over
			mustExec(t, db.System(), `update pglimit.counters set
				reset_at = case when key like '%window%' then clock_timestamp() - interval '1 hour' else reset_at end,
				special_reset_at = case when reset_at is null then clock_timestamp() - interval '1 hour' end
				where key ~ '[37]$'`)
		case 4:
			mustExec(t, db.System(), `update pglimit.counters set window_start = window_start - interval '2 hours', special_reset_at = special_reset_at - interval '2 hours' where key like '%slide%'`)
		}
		var want []string
		for i := range limits {
			var answer string
			if err := conn.QueryRow(t.Context(), "select row("+columns+")::text from pglimit.hit($1, $2, cost => $3, tenant => 'one')", limits[i], subjects[i], costs[i]).Scan(&answer); err != nil {
				t.Fatal(err)
			}
			want = append(want, answer)
			reasons[answer[1:strings.Index(answer, ",")]]++
		}
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, "set local track_functions = 'all'; set local pglimit.in_transaction = 'allow'")
		const specials = "select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where funcname = '_hit_special'"
		before := mustScan[int](t, tx, specials)
		rows, err := tx.Query(t.Context(), "select row("+columns+")::text from pglimit.hit_many($1, $2, $3, tenant => 'many')", limits, subjects, costs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		special := mustScan[int](t, tx, specials) - before
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("round %d: %s of %s costs %d: %s, want %s", round, limits[i], subjects[i], costs[i], got[i], want[i])
			}
		}
		if round > 0 && special > 0 {
			t.Errorf("round %d: %d of %d one by one", round, special, len(limits))
		}
	}
	if reasons["allowed"] < 100 || reasons["limit"] < 100 || reasons["never"] < 100 {
		t.Errorf("too few to tell: %v", reasons)
	}
	const counts = `select string_agg(row(substr(key, length($1) + 1), used, previous, counted_by, shadow_refused)::text, e'\n' order by key)
		from pglimit.counters where key like $1 || e'\x1f%' and key not like e'%\x1fbucket\x1f%'` // those hold instants
	var one, many string
	for tenant, counted := range map[string]*string{"one": &one, "many": &many} {
		if err := db.System().QueryRow(t.Context(), counts, tenant).Scan(counted); err != nil {
			t.Fatal(err)
		}
	}
	if one != many {
		t.Errorf("counted:\n%s\nwant:\n%s", many, one)
	}
}

// TestHitManyWaitsInOrder: a call that meets a locked row holds the keys before it and none after it, whatever their
// order in the call, and decides those that changed meanwhile by what they are then.
func TestHitManyWaitsInOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('l', 10, '10 hours')")
	first, many := db.Conn("pglimit_app"), db.Conn("pglimit_app")
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		wantHit(t, many, fmt.Sprintf("hit('l', '%s', cost => 3)", key), "allowed", 7)
	}
	for _, c := range []struct{ more, free, want string }{
		{"null, null", "c", "f allowed 5 1, e allowed 4 1, d limit 0 0, c allowed 6 1, b allowed 5 1, a allowed 6 1"},
		{"array_fill(10::bigint, array[6]), array_fill('10 hours'::interval, array[6])", "cd", "f allowed 3 1, e allowed 1 1, d limit 0 0, c allowed 5 1, b allowed 3 1, a allowed 5 1"},
	} {
		mustExec(t, first, "begin; set local pglimit.in_transaction = 'allow'")
		mustExec(t, first, "select pglimit.hit('l', 'b')")
		mustExec(t, first, "select pglimit.hit('l', 'd', cost => 7)") // is refused the second time, and locks nothing
		mustExec(t, first, "select pglimit.charge('l', 'e', 2), pglimit.hit('l', 'f')")
		got := make(chan string, 1)
		go func() {
			var answer string
			if err := many.QueryRow(context.WithoutCancel(t.Context()), "select string_agg(concat_ws(' ', substr('fedcba', ordinal, 1), reason, remaining, charged), ', ') from pglimit.hit_many(array_fill('l'::text, array[6]), '{f,e,d,c,b,a}', null, "+c.more+")").Scan(&answer); err != nil {
				answer = err.Error()
			}
			got <- answer
		}()
		waitForLock(t, db, many.PgConn().PID())
		if free := mustScan[string](t, db.System(), "select string_agg(right(f.key, 1), '' order by f.key) from (select c.key from pglimit.counters c for update skip locked) f"); free != c.free {
			t.Errorf("free while it waits for b: %s, want %s", free, c.free)
		}
		mustExec(t, first, "commit")
		if answer := <-got; answer != c.want {
			t.Errorf("got  %s\nwant %s", answer, c.want)
		}
	}
}

// TestHitManyArguments: what is wrong is named, and nothing is counted then.
func TestHitManyArguments(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for args, want := range map[string]string{
		"null, array['a']":                                                       "PGL01",
		"array['a'], null":                                                       "PGL01",
		"array['a'], array['a', 'b']":                                            "PGL01",
		"array['a'], array['s'], '{}'":                                           "PGL01",
		"array[array['a']], '{{s}}'":                                             "PGL01",
		"'[0:0]={a}', array['s']":                                                "PGL01",
		"array['a', 'a'], '{s,s}'":                                               "PGL02",
		"'{a}', '{s}'":                                                           "PGL02",
		"'{a}', '{null}'":                                                        "PGL01",
		"'{a}', '{s}', '{1}', '{3}'":                                             "PGL01",
		"'{a}', '{s}', '{-1}'":                                                   "PGL01",
		"'{a}', '{s}', '{null}'":                                                 "PGL01",
		"'{a,null}', '{s,s}', null, '{3,3}', '{1 hour,1 hour}'":                  "PGL01",
		"'{a,a}', '{s,null}', null, '{3,3}', '{1 hour,1 hour}'":                  "PGL01",
		"'{a,a}', '{s,s}', null, '{3,-3}', '{1 hour,1 hour}'":                    "PGL01",
		"'{a,a}', '{s,s}', null, '{3,3}', '{1 hour,1 month}'":                    "PGL01",
		`array['a', e'a\x1fb'], '{s,s}', null, '{3,3}', '{1 hour,1 hour}'`:       "PGL01",
		"array_fill('a'::text, array[1001]), array_fill('s'::text, array[1001])": "PGL01",
	} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit_many("+args+")"); sqlState(err) != want {
			t.Errorf("hit_many(%s): %v, want %s", args, err, want)
		}
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters"); n != 0 {
		t.Errorf("%d counters", n)
	}
	// a counter that a call's own limit made gives no limit to one without
	mustExec(t, app, "select pglimit.hit('own', 's', 9, '1 hour')")
	if _, err := app.Exec(t.Context(), "select pglimit.hit_many('{own}', '{s}')"); sqlState(err) != "PGL02" {
		t.Errorf("a counter without a row: %v, want PGL02", err)
	}
	// with a separator in a name these would be a key that is there
	mustExec(t, app, `select pglimit.hit('b', e'c\x1fs', 9, '1 hour', tenant => 'a')`)
	for _, args := range []string{`'{c}', '{s}', null, '{9}', '{1 hour}', e'a\x1fb'`, `array[e'b\x1fc'], '{s}', null, '{9}', '{1 hour}', 'a'`} {
		if _, err := app.Exec(t.Context(), "select pglimit.hit_many("+args+")"); sqlState(err) != "PGL01" {
			t.Errorf("hit_many(%s): %v, want PGL01", args, err)
		}
	}
	if n := mustScan[int](t, app, "select count(*) from pglimit.hit_many('{}', '{}')"); n != 0 {
		t.Errorf("%d answers to nothing", n)
	}
}

// TestSeveralRefusedWriteNothing: where all is refused nothing is locked or written, no number is drawn.
func TestSeveralRefusedWriteNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.set_limit('bucket', 1, '1 hour', 'token_bucket')")
	const many = "select count(*) filter (where allowed) from pglimit.hit_many('{a,a,b,bucket,c}', '{s,s,s,s,s}', '{1,1,1,1,9}', '{1,1,1,null,8}', '{1 hour,1 hour,1 hour,null,1 hour}')"
	if n := mustScan[int](t, app, many); n != 3 {
		t.Errorf("%d are allowed, want 3", n)
	}
	wants := `'[{"limit": "a", "subject": "s", "max_hits": 1, "per": "1 hour"}, {"endpoint": "e", "holder": "h", "holder_cap": 1, "endpoint_cap": 2, "lease": "1 hour"}, {"limit": "new", "subject": "s", "max_hits": 1, "per": "1 hour"}]'`
	admit := "select count(*) filter (where admitted) from pglimit.admit(" + wants + ")"
	for _, call := range []string{many, admit} {
		mustExec(t, app, "begin")
		if n := mustScan[int](t, app, call); n != 0 {
			t.Errorf("%d are allowed, want 0", n)
		}
		if mustScan[bool](t, app, "select pg_current_xact_id_if_assigned() is not null") {
			t.Errorf("something was written by %s", call)
		}
		mustExec(t, app, "commit")
	}
}

// TestAdmitAllOrNone is C-14: who is refused by one limit spends nothing of another.
func TestAdmitAllOrNone(t *testing.T) {
	t.Parallel()
	app := dbtest.New(t).Conn("pglimit_app")
	both := func(user string) (string, string) {
		t.Helper()
		var own, shared string
		if err := app.QueryRow(t.Context(), `select max(reason) filter (where ordinal = 1), max(reason) filter (where ordinal = 2)
			from pglimit.admit(jsonb_build_array(
				jsonb_build_object('limit', 'user', 'subject', $1::text, 'max_hits', 1, 'per', '1 hour'),
				jsonb_build_object('limit', 'global', 'subject', 'all', 'max_hits', 10, 'per', '1 hour')))`, user).Scan(&own, &shared); err != nil {
			t.Fatal(err)
		}
		return own, shared
	}
	for i := range 20 {
		want := [2]string{"allowed", "allowed"}
		if i > 0 {
			want = [2]string{"limit", "others"}
		}
		if own, shared := both("ann"); own != want[0] || shared != want[1] {
			t.Errorf("hit %d: %s, %s; want %v", i, own, shared, want)
		}
	}
	if own, shared := both("bob"); own != "allowed" || shared != "allowed" {
		t.Errorf("the other user: %s, %s", own, shared)
	}
	wantHit(t, app, "peek('global', 'all', 10, '1 hour')", "allowed", 8)
}

// admitRow is a row of an answer of admit, as JSON.
type admitRow struct {
	Admitted   bool    `json:"admitted"`
	Cap        *int64  `json:"cap"`
	Charged    int64   `json:"charged"`
	ExpiresAt  *string `json:"expires_at"`
	InUse      *int64  `json:"in_use"`
	PermitID   int64   `json:"permit_id"`
	Reason     string  `json:"reason"`
	Remaining  *int64  `json:"remaining"`
	RetryAfter *string `json:"retry_after"`
}

func mustAdmit(t *testing.T, db rowQuerier, wants string) (answer []admitRow) {
	t.Helper()
	var text string
	if err := db.QueryRow(t.Context(), "select coalesce(json_agg(a order by a.ordinal), '[]')::text from pglimit.admit($1::text::jsonb) a", wants).Scan(&text); err != nil {
		t.Fatalf("%s: %v", wants, err)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// wantAdmit wants these reasons; where all are of grants, that it is admitted.
func wantAdmit(t *testing.T, db rowQuerier, wants string, reasons ...string) []admitRow {
	t.Helper()
	answer := mustAdmit(t, db, wants)
	var got []string
	for _, row := range answer {
		got = append(got, row.Reason)
		switch row.Reason {
		case "allowed", "granted", "off", "shadow":
			if !row.Admitted {
				t.Errorf("%s: %s and not admitted", wants, row.Reason)
			}
		default:
			if row.Admitted || (row.RetryAfter != nil) == (row.Reason == "others" || row.Reason == "never") || row.PermitID != 0 || row.ExpiresAt != nil {
				t.Errorf("%s: contradicts itself: %+v", wants, row)
			}
		}
	}
	if !slices.Equal(got, reasons) {
		t.Errorf("%s: %v, want %v", wants, got, reasons)
	}
	return answer
}

// TestAdmit: sums, every refusal, modes, and what was admitted is held.
func TestAdmit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "set pglimit.in_transaction = 'allow'")
	mustExec(t, operator, manyLimits)
	mustExec(t, operator, `select pglimit.set_endpoint('export', holder_cap => 2, endpoint_cap => 3, time_bound => '1 hour', in_installation => false),
		pglimit.set_endpoint('trial', endpoint_cap => 1, time_bound => '1 hour', mode => 'shadow', in_installation => false),
		pglimit.set_endpoint('open', endpoint_cap => 1, time_bound => '1 hour', mode => 'off', in_installation => false),
		pglimit.set_endpoint('fair', endpoint_cap => 1, time_bound => '1 hour', fair => true, in_installation => false),
		pglimit.set_limit_override('window', 'vip', 30), pglimit.set_endpoint_override('export', 'vip', 3)`)

	wantAdmit(t, app, "[]")
	// twice the same is the sum of both
	rows := wantAdmit(t, app, `[{"endpoint": "export", "holder": "a"}, {"limit": "window", "subject": "a", "cost": 15}, {"endpoint": "export", "holder": "a"}, {"limit": "window", "subject": "a", "cost": 5}]`,
		"granted", "allowed", "granted", "allowed")
	if rows[1].Charged != 15 || rows[3].Charged != 5 || rows[0].PermitID == rows[2].PermitID || *rows[1].Remaining != 0 || *rows[3].Remaining != 0 {
		t.Errorf("got %+v", rows)
	}
	// every refusal is told, with what it waits for, and nothing is taken
	rows = wantAdmit(t, app, `[{"limit": "window", "subject": "a"}, {"limit": "slide", "subject": "a"}, {"endpoint": "export", "holder": "a"}, {"limit": "window", "subject": "b", "cost": 21}, {"endpoint": "export", "holder": "b", "weight": 2}]`,
		"limit", "others", "holder", "never", "endpoint")
	if *rows[2].Cap != 2 || *rows[2].InUse != 2 || *rows[4].Cap != 3 || *rows[4].InUse != 2 {
		t.Errorf("got %+v", rows)
	}
	wantHit(t, app, "peek('slide', 'a')", "allowed", 10)
	wantAdmit(t, app, `[{"endpoint": "export", "holder": "vip", "weight": 3}]`, "endpoint")
	wantAdmit(t, app, `[{"endpoint": "export", "holder": "b", "weight": 3}]`, "never")
	// a permit of admit is one like others
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", mustScan[int64](t, operator, "select min(permit_id) from pglimit.list_permits()")), "renewed")
	for range 2 {
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", mustScan[int64](t, operator, "select min(permit_id) from pglimit.list_permits() where state = 'live'")), "released")
	}
	wantAdmit(t, app, `[{"endpoint": "export", "holder": "vip", "weight": 3}, {"limit": "window", "subject": "vip", "cost": 30}]`, "granted", "allowed")
	wantAdmit(t, app, `[{"endpoint": "export", "holder": "b"}]`, "endpoint")

	// all algorithms, modes and durable limits at once
	wantAdmit(t, app, `[{"limit": "slide", "subject": "c", "cost": 10}, {"limit": "bucket", "subject": "c", "cost": 30}, {"limit": "year", "subject": "c", "cost": 15}, {"limit": "bill", "subject": "c", "cost": 12},
		{"limit": "shadow", "subject": "c", "cost": 6}, {"limit": "off", "subject": "c", "cost": 99}]`, "allowed", "allowed", "allowed", "allowed", "shadow", "off")
	wantAdmit(t, app, `[{"limit": "slide", "subject": "c"}, {"limit": "bucket", "subject": "c"}, {"limit": "year", "subject": "c"}, {"limit": "bill", "subject": "c"},
		{"limit": "shadow", "subject": "c"}, {"limit": "off", "subject": "c"}, {"limit": "closed", "subject": "c"}]`, "limit", "limit", "limit", "limit", "others", "others", "never")
	rows = wantAdmit(t, app, `[{"endpoint": "trial", "holder": "a"}, {"endpoint": "trial", "holder": "b"}, {"endpoint": "open", "holder": "a", "weight": 2}]`, "granted", "shadow", "off")
	wantAdmit(t, app, `[{"endpoint": "trial", "holder": "a"}, {"limit": "closed", "subject": "c"}]`, "others", "never")
	for _, row := range rows {
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", row.PermitID), "released")
	}

	// nobody overtakes who waits
	id := wantAdmit(t, app, `[{"endpoint": "fair", "holder": "a"}]`, "granted")[0].PermitID
	mustExec(t, app, "select pglimit.enqueue_permit('fair', 'b', deadline => '1 hour')")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
	wantAdmit(t, app, `[{"limit": "window", "subject": "d"}, {"endpoint": "fair", "holder": "c"}]`, "others", "queue")

	// weights over three pools, and lower caps than there are lanes
	wantAdmit(t, app, `[{"endpoint": "w", "holder": "a", "weight": 2, "holder_cap": 2, "endpoint_cap": 5, "installation_cap": 5, "lease": "1 hour", "note": {"a": 1}},
		{"endpoint": "w", "holder": "b", "weight": 3, "endpoint_cap": 5, "installation_cap": 5, "lease": "1 hour"}]`, "granted", "granted")
	wantAdmit(t, app, `[{"endpoint": "w", "holder": "a", "endpoint_cap": 2, "lease": "1 hour"}]`, "endpoint")
	wantAdmit(t, app, `[{"endpoint": "v", "holder": "a", "installation_cap": 5, "lease": "1 hour"}]`, "installation")
	if got := mustScan[string](t, operator, "select string_agg(holder || weight || coalesce(note::text, ''), ' ' order by permit_id) from pglimit.list_permits('w')"); got != `a2{"a": 1} b3` {
		t.Errorf("listed: %s", got)
	}
}

// TestAdmitBesideBlocks: a block of a new subject that is made between the look and the lock is seen, and a block at
// every limit and an admission of its subject do not wait for each other.
func TestAdmitBesideBlocks(t *testing.T) {
	t.Parallel()
	for _, block := range []string{"select pglimit.block('l', 'ann')", "select pglimit.block('*', 'ann')", "select pglimit.set_limit_override('l', 'ann', 0)"} {
		db := dbtest.New(t)
		app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
		const admit = `select pglimit.admit('[{"limit": "l", "subject": "%s", "max_hits": 3, "per": "1 hour"}]')`
		mustExec(t, app, fmt.Sprintf(admit, "bob")) // so that the next one is at its lock in a moment
		mustExec(t, operator, "begin; "+block)
		if err := behind(t, operator, app, "commit", fmt.Sprintf(admit, "ann")); err != nil {
			t.Error(err)
		}
		if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters where key like '%ann'"); n != 0 {
			t.Errorf("%s: admitted", block)
		}
	}

	db := dbtest.New(t)
	app, operator, system, ctx := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.System(), context.WithoutCancel(t.Context())
	wantHit(t, app, "hit('l', 'ann', 9, '1 hour')", "allowed", 8)
	wantHit(t, app, "hit('m', 'bob', 9, '1 hour')", "allowed", 8)
	// it has the counter of ann, and waits for that of bob; then it wants the creation locks of the pool
	mustExec(t, system, `begin; select from pglimit.counters where key like '%bob' for update`)
	admitted, blocked := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := app.Exec(ctx, `select pglimit.admit('[{"limit": "l", "subject": "ann", "max_hits": 9, "per": "1 hour"},
			{"limit": "m", "subject": "bob", "max_hits": 9, "per": "1 hour"}, {"endpoint": "e", "holder": "ann", "holder_cap": 4, "weight": 2, "lease": "1 hour"}]')`)
		admitted <- err
	}()
	time.Sleep(30 * time.Millisecond)
	go func() {
		_, err := operator.Exec(ctx, "select pglimit.block('*', 'ann')")
		blocked <- err
	}()
	time.Sleep(30 * time.Millisecond)
	mustExec(t, system, "commit")
	if err := <-admitted; err != nil {
		t.Error(err)
	}
	if err := <-blocked; err != nil {
		t.Error(err)
	}
	wantBlocked(t, app, "hit('l', 'ann', 9, '1 hour')")
}

// TestAdmitArguments: what is wrong is named.
func TestAdmitArguments(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	good := `{"limit": "a", "subject": "s", "max_hits": 1, "per": "1 hour"}`
	for wants, want := range map[string]string{
		`null`: "PGL01", `{}`: "PGL01", `[1]`: "PGL01", `[{}]`: "PGL01", `[null]`: "PGL01", `"a"`: "PGL01",
		`[{"limit": "a"}]`:                                                                      "PGL01",
		`[{"limit": "a", "endpoint": "e"}]`:                                                     "PGL01",
		`[{"limit": "a", "subject": "s", "weight": 1}]`:                                         "PGL01",
		`[{"limit": "a", "subject": "s", "cost": 0}]`:                                           "PGL01",
		`[{"limit": "a", "subject": "s", "cost": -1}]`:                                          "PGL01",
		`[{"limit": "a", "subject": "s"}]`:                                                      "PGL02",
		`[{"endpoint": "e", "holder": "h"}]`:                                                    "PGL02",
		`[{"endpoint": "e", "holder": "h", "cost": 1}]`:                                         "PGL01",
		`[{"endpoint": "e", "holder": "h", "weight": 0}]`:                                       "PGL01",
		`[{"endpoint": "e", "holder": "h", "holder_cap": 1}]`:                                   "PGL01",
		`[{"endpoint": "e", "holder": "h", "holder_cap": -1, "lease": "1 hour"}]`:               "PGL01",
		`[` + good + `, {"limit": "a", "subject": "s", "max_hits": 2, "per": "1 hour"}]`:        "PGL01",
		`[` + good + `, {"limit": "a\u001fb", "subject": "s", "max_hits": 2, "per": "1 hour"}]`: "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": "x", "per": "1 hour"}]`:                    "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": "1", "per": "1 hour"}]`:                    "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1.5, "per": "1 hour"}]`:                    "PGL01",
		`[{"limit": "a", "subject": "s", "cost": 9223372036854775808}]`:                         "PGL01",
		`[{"limit": "a", "subject": "s", "cost": 1e99}]`:                                        "PGL01",
		`[{"limit": "a", "subject": "s", "burst": [1]}]`:                                        "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1, "per": "an hour"}]`:                     "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1, "per": ""}]`:                            "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1, "per": "999999999999 days"}]`:           "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1, "per": "99999999999999999999 days"}]`:   "PGL01",
		`[{"limit": "a", "subject": "s", "max_hits": 1, "per": "999999999 hours"}]`:             "PGL01",
		`[{"endpoint": "e", "holder": "h", "weight": true}]`:                                    "PGL01",
		`[{"endpoint": "e", "holder": "h", "holder_cap": 1, "lease": "soon"}]`:                  "PGL01",
	} {
		_, err := app.Exec(t.Context(), "select pglimit.admit($1::text::jsonb)", wants)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != want || pgErr.Hint == "" {
			t.Errorf("admit(%s): %v, want %s and a hint", wants, err, want)
		}
	}
	// any way to write an interval, and null for what is not given
	for _, per := range []string{`"1 hour"`, `"3600000000 microseconds"`, `"1:00"`, `"PT1H"`, `"1 h"`, `"60 minutes"`, `"@ 1 hour"`, `null`} {
		wants := `[{"limit": "ok", "subject": "s", "max_hits": null, "cost": null, "burst": null, "per": ` + per + `}]`
		if _, err := app.Exec(t.Context(), "select pglimit.admit($1::text::jsonb)", wants); sqlState(err) != "PGL02" {
			t.Errorf("admit(%s): %v", wants, err)
		}
	}
	if _, err := app.Exec(t.Context(), "select pglimit.admit(null)"); sqlState(err) != "PGL01" {
		t.Errorf("admit(null): %v", err)
	}
	if n := mustScan[int](t, db.System(), "select count(*) from pglimit.counters"); n != 0 {
		t.Errorf("%d counters", n)
	}
}

// TestHitManyLengths: a length that hit refuses is refused by the same name where the subjects are known, and their windows
// open or over.
func TestHitManyLengths(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	for _, ended := range []bool{false, true} {
		mustHit(t, app, "hit('l', 's', 9, '1 day')")
		if ended {
			mustExec(t, db.Super(), endWindows)
		}
		for per, want := range map[string]string{
			"300000 years": "no fixed length", "-300000 years": "no fixed length", "2000000000 days": "out of range", "-2000000000 days": "out of range",
			"1 year -359 days": "no fixed length", "1 mon -29 days": "no fixed length", "0 s": "out of range",
		} {
			if !ended && strings.Contains(per, " -") {
				continue // an open window asks for its length no more, as in hit
			}
			_, err := app.Exec(t.Context(), "select pglimit.hit_many('{l}', '{s}', max_hits => '{9}', pers => array[$1::text::interval])", per)
			if sqlState(err) != "PGL01" || !strings.Contains(err.Error(), want) {
				t.Errorf("per %s, window over: %v: %v", per, ended, err)
			}
		}
	}
}

// TestManyKeysHammer is C-27: calls with many keys in any order, single hits and claims, releases, overrides and
// purge together. None deadlocks or waits for a second, and the books are right to the last hit: so no call is
// partly charged, and none is charged that was refused.
func TestManyKeysHammer(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "set pglimit.in_transaction = 'allow'")
	mustExec(t, operator, `select pglimit.set_limit('l', 300, '10 hours'), pglimit.set_limit('b', 100, '1000 days', 'token_bucket'), pglimit.set_limit('d', 300, '10 hours', durable => true),
		pglimit.set_purge_after('0 s'), pglimit.set_endpoint('e0', holder_cap => 4, endpoint_cap => 9, time_bound => '1 hour'),
		pglimit.set_endpoint('e1', endpoint_cap => 6, time_bound => '1 hour'), pglimit.set_endpoint('e2', endpoint_cap => 3, time_bound => '1 hour', mode => 'shadow')`)
	mustExec(t, operator, "select pglimit.set_installation_cap(12)")
	var mu sync.Mutex
	charged := map[string]int64{}
	charge := func(sums map[string]int64) {
		mu.Lock()
		defer mu.Unlock()
		for key, cost := range sums {
			charged[key] += cost
		}
	}
	var admitted, refused, most int
	end := time.Now().Add(hammering)
	// a busy machine takes longer for as much
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Before(end) || (admitted < 20 || refused < 20) && time.Now().Before(end.Add(20*hammering))
	}
	conns := append(appConns(t, db, 8), operator)
	together(t, conns, func(c int, conn *pgx.Conn) {
		random := rand.New(rand.NewPCG(7, uint64(c)))
		limit := func() string { return []string{"l", "l", "l", "b", "d"}[random.IntN(5)] }
		var held []int64
		for i := 0; more(); i++ {
			sums := map[string]int64{}
			var err error
			switch {
			case c == 8:
				_, err = conn.Exec(t.Context(), []string{
					"select pglimit.purge()", fmt.Sprintf("select pglimit.set_limit_override('l', 's%d', 300)", i%12),
					fmt.Sprintf("select pglimit.drop_limit_override('l', 's%d')", i%12),
				}[random.IntN(3)])
			case c%4 == 3:
				if random.IntN(2) == 0 {
					name, subject := limit(), fmt.Sprint("s", random.IntN(12))
					var allowed bool
					err = conn.QueryRow(t.Context(), "select allowed from pglimit.hit($1, $2)", name, subject).Scan(&allowed)
					if allowed {
						sums[name+" "+subject]++
					}
				} else {
					_, err = conn.Exec(t.Context(), "select pglimit.release_permit(c.permit_id) from pglimit.claim_permit($1, $2) c where c.granted", fmt.Sprint("e", random.IntN(3)), fmt.Sprint("h", random.IntN(3)))
				}
			case random.IntN(2) == 0:
				limits, subjects := []string{}, []string{}
				for range random.IntN(12) {
					limits, subjects = append(limits, limit()), append(subjects, fmt.Sprint("s", random.IntN(12)))
				}
				var rows pgx.Rows
				if rows, err = conn.Query(t.Context(), "select allowed from pglimit.hit_many($1, $2)", limits, subjects); err == nil {
					var answers []bool
					answers, err = pgx.CollectRows(rows, pgx.RowTo[bool])
					for j, allowed := range answers {
						if allowed {
							sums[limits[j]+" "+subjects[j]]++
						}
					}
				}
			default:
				wants, costs := []map[string]any{}, map[string]int64{}
				for range 1 + random.IntN(3) {
					name, subject, cost := limit(), fmt.Sprint("s", random.IntN(12)), int64(1+random.IntN(2))
					wants = append(wants, map[string]any{"limit": name, "subject": subject, "cost": cost})
					costs[name+" "+subject] += cost
				}
				for range random.IntN(4) {
					wants = append(wants, map[string]any{"endpoint": fmt.Sprint("e", random.IntN(3)), "holder": fmt.Sprint("h", random.IntN(3)), "weight": 1 + random.IntN(2)})
				}
				random.Shuffle(len(wants), func(a, b int) { wants[a], wants[b] = wants[b], wants[a] })
				text, _ := json.Marshal(wants)
				var all, any bool
				var ids []int64
				err = conn.QueryRow(t.Context(), "select bool_and(admitted), bool_or(admitted), coalesce(array_agg(permit_id) filter (where permit_id is not null), '{}') from pglimit.admit($1::text::jsonb)", string(text)).Scan(&all, &any, &ids)
				if all != any {
					t.Errorf("%s: admitted in part", text)
				}
				if all {
					maps.Copy(sums, costs)
					held = append(held, ids...)
				} else if len(ids) > 0 {
					t.Errorf("%s: refused, with permits %v", text, ids)
				}
				mu.Lock()
				if all {
					admitted++
				} else {
					refused++
				}
				mu.Unlock()
			}
			if err != nil {
				t.Errorf("%s: %v", sqlState(err), err)
				return
			}
			charge(sums)
			for len(held) > random.IntN(6) {
				mustExec(t, conn, fmt.Sprintf("select pglimit.release_permit(%d)", held[0]))
				held = held[1:]
			}
		}
		for _, id := range held {
			wantReason(t, conn, fmt.Sprintf("release_permit(%d)", id), "released")
		}
	})
	for key, cost := range charged {
		most = max(most, int(cost))
		var name, subject string
		_, _ = fmt.Sscan(key, &name, &subject)
		quota := map[string]int64{"l": 300, "b": 100, "d": 300}[name]
		var remaining int64
		if err := operator.QueryRow(t.Context(), "select remaining from pglimit.peek($1, $2)", name, subject).Scan(&remaining); err != nil || cost+remaining != quota {
			t.Errorf("%s: %d were allowed, %d remain of %d, %v", key, cost, remaining, quota, err)
		}
	}
	if left := mustStrings(t, operator, "select p::text from pglimit.list_permits() p where p.state = 'live'"); len(left) > 0 {
		t.Errorf("permits are left: %v", left)
	}
	if admitted < 20 || refused < 20 {
		t.Errorf("%d admitted, %d refused: too few to tell", admitted, refused)
	}
	t.Logf("%d admitted, %d refused, at most %d of a key", admitted, refused, most)
}
