package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// change is a row of list_changes.
type change struct {
	Version                  int64
	At                       time.Time
	By, Action, Tenant, Name string
	Before, After            string // "" for null
	Why                      *string
}

// changes lists what list_changes(args) shows.
func changes(t *testing.T, db *pgx.Conn, args string) []change {
	t.Helper()
	rows, err := db.Query(t.Context(), `select version, changed_at, changed_by, action, tenant, name,
		coalesce(before::text, ''), coalesce(after::text, ''), why from pglimit.list_changes(`+args+")")
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[change])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wantJSON fails unless got is the same JSON; both may be "".
func wantJSON(t *testing.T, what, got, want string) {
	t.Helper()
	decode := func(text string) (v any) {
		if text == "" {
			return nil
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(what, ": ", err)
		}
		return v
	}
	if !reflect.DeepEqual(decode(got), decode(want)) {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestHistory: each change is recorded once, with who, when, from what and to what, whatever the
// session's styles are; what changes nothing is not recorded.
func TestHistory(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "set intervalstyle = 'iso_8601'; set datestyle = 'SQL, DMY'; set timezone = 'Asia/Tokyo'")
	login := mustScan[string](t, operator, "select session_user::text")
	ten := mustScan[int64](t, operator, "select pglimit.set_installation_cap(10)")
	epoch := mustScan[int64](t, operator, "select epoch from pglimit.show_installation()")
	const (
		limit = `{"max_hits": %d, "per": "%s", "algorithm": "fixed_window", "burst": null, "durable": false, "mode": "enforce", "on_outage": "allow", "time_zone": null, "on_lapse": "keep"}`
		ends  = `{"holder_cap": %s, "endpoint_cap": null, "time_bound": %s, "longest": %s, "row_cap": null, "in_installation": true, "mode": "enforce", "on_outage": "%s", "fair": false, "queue_cap": 1000, "holder_queue_cap": 100}`
	)
	last := int64(0)
	if list := changes(t, operator, "max_rows => 1"); len(list) != 1 || list[0].Action != "set_installation_cap" {
		t.Fatalf("%+v", list)
	} else {
		wantJSON(t, "first before", list[0].Before, fmt.Sprintf(`{"installation_cap": %d}`, ten))
		wantJSON(t, "first after", list[0].After, `{"installation_cap": 10}`)
		last = list[0].Version
	}
	for _, step := range []struct{ call, tenant, name, before, after string }{
		{"set_limit('l', 3, '90 minutes')", "", "l", "", fmt.Sprintf(limit, 3, "01:30:00")},
		{"set_limit('l', 4, '2 days')", "", "l", fmt.Sprintf(limit, 3, "01:30:00"), fmt.Sprintf(limit, 4, "48:00:00")},
		{"set_limit('l', 4, '2 days')", "", "l", fmt.Sprintf(limit, 4, "48:00:00"), fmt.Sprintf(limit, 4, "48:00:00")},
		{"set_limit('l', 5, '1 s', tenant => 't7')", "t7", "l", "", fmt.Sprintf(limit, 5, "00:00:01")},
		{"drop_limit('l')", "", "l", fmt.Sprintf(limit, 4, "48:00:00"), ""},
		{"set_endpoint('l', 2, time_bound => '1 minute')", "", "l", "", fmt.Sprintf(ends, "2", `"00:01:00"`, "null", "allow")},
		{"set_endpoint('l', on_outage => 'refuse', longest => '1 hour')", "", "l", fmt.Sprintf(ends, "2", `"00:01:00"`, "null", "allow"), fmt.Sprintf(ends, "null", "null", `"01:00:00"`, "refuse")},
		{"drop_endpoint('l')", "", "l", fmt.Sprintf(ends, "null", "null", `"01:00:00"`, "refuse"), ""},
		{"set_limit_override('l', 'bob', 9)", "", "l", "", `{"subject": "bob", "max_hits": 9, "valid_from": null, "valid_until": null}`},
		{"set_limit_override('l', 'bob', 8, '2026-01-02 03:04:05+09', '2999-01-01 00:00:00Z')", "", "l", `{"subject": "bob", "max_hits": 9, "valid_from": null, "valid_until": null}`, `{"subject": "bob", "max_hits": 8, "valid_from": "2026-01-01T18:04:05+00:00", "valid_until": "2999-01-01T00:00:00+00:00"}`},
		{"set_limit_override('l', 'bob', 8, tenant => 't7')", "t7", "l", "", `{"subject": "bob", "max_hits": 8, "valid_from": null, "valid_until": null}`},
		{"drop_limit_override('l', 'bob', 't7')", "t7", "l", `{"subject": "bob", "max_hits": 8, "valid_from": null, "valid_until": null}`, ""},
		{"set_limit('m', 5, '1 s', mode => 'shadow')", "", "m", "", strings.Replace(fmt.Sprintf(limit, 5, "00:00:01"), "enforce", "shadow", 1)},
		{"set_installation_cap(11)", "", "", `{"installation_cap": 10}`, `{"installation_cap": 11}`},
		{"set_purge_after('2 hours')", "", "", `{"purge_after": "1 day"}`, `{"purge_after": "02:00:00"}`},
		{"set_purge_after('0')", "", "", `{"purge_after": "02:00:00"}`, `{"purge_after": "00:00:00"}`},
		{"set_grace('1 hour')", "", "", `{"grace": "00:00:30"}`, `{"grace": "01:00:00"}`},
		{"set_grace('0')", "", "", `{"grace": "01:00:00"}`, `{"grace": "00:00:00"}`},
		{"raise_epoch()", "", "", fmt.Sprintf(`{"epoch": %d}`, epoch), "epoch"},
	} {
		before := mustScan[time.Time](t, operator, "select clock_timestamp()")
		got := mustScan[string](t, operator, "select pglimit."+step.call+"::text")
		list := changes(t, operator, "max_rows => 2")
		c := list[0]
		action, _, _ := strings.Cut(step.call, "(")
		if c.Version <= last || list[1].Version != last || c.Action != action || c.By != login || c.Tenant != step.tenant || c.Name != step.name || c.Why != nil {
			t.Errorf("%s: %+v after version %d", step.call, list, last)
		}
		if c.At.Before(before) || c.At.Sub(before) > time.Minute {
			t.Errorf("%s: changed at %v, called at %v", step.call, c.At, before)
		}
		switch last = c.Version; {
		case action == "raise_epoch":
			step.after = `{"epoch": ` + got + "}"
		case strings.HasPrefix(action, "set_l"), strings.HasPrefix(action, "set_e"):
			if got != fmt.Sprint(c.Version) {
				t.Errorf("%s: limit_version %s, version %d", step.call, got, c.Version)
			}
		}
		wantJSON(t, step.call+" before", c.Before, step.before)
		wantJSON(t, step.call+" after", c.After, step.after)
	}

	// What changes nothing, is refused or is rolled back leaves no row.
	n := mustScan[int](t, db.System(), "select count(*) from pglimit.changes")
	for _, call := range []string{
		"drop_limit('nothing')", "drop_endpoint('nothing')", "drop_limit_override('l', 'nobody')", "set_limit_override('l', 's', -1)", "set_limit('l', -1, '1 s')", "set_limit('l', 1, '1 month')", "set_limit('l', 1, '1 s', mode => 'x')",
		"set_endpoint('e', -1)", "set_endpoint('e', in_installation => false)", "set_installation_cap(-1)", "set_purge_after('-1 s')", "set_grace('-1 s')", "set_limit(' ', 1, '1 s')",
	} {
		_, _ = operator.Exec(t.Context(), "select pglimit."+call)
	}
	for _, call := range []string{
		"set_limit('l', 1, '1 s')", "drop_limit('l', 't7')", "set_limit_override('l', 's', 1)", "drop_limit_override('l', 'bob')", "set_endpoint('e', 1)", "set_installation_cap(1)", "set_purge_after('1 s')", "set_grace('1 s')", "raise_epoch()",
	} {
		mustExec(t, operator, "begin")
		mustExec(t, operator, "select pglimit."+call)
		if got := len(changes(t, operator, "")); got != n+1 {
			t.Errorf("%s: %d changes within the transaction, want %d", call, got, n+1)
		}
		mustExec(t, operator, "rollback")
	}
	if got := mustScan[int](t, db.System(), "select count(*) from pglimit.changes"); got != n {
		t.Errorf("%d changes, want %d", got, n)
	}
}

// TestHistoryOfHits: nobody but an operator leaves a trace.
func TestHistoryOfHits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app := db.Conn("pglimit_app")
	wantHit(t, app, "hit('l', 's', 9, '1 hour')", "allowed", 8)
	id := *wantGrant(t, app, "'e', 'h', 9, lease => '1 hour'").ID
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "renewed")
	wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
	mustExec(t, app, "select pglimit.forget('l', 's')")
	mustExec(t, db.Conn("pglimit_operator"), "select pglimit.purge()")
	if list := changes(t, db.Conn("pglimit_monitor"), ""); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestHistoryOfRace: of two who make one limit at the same moment, the second replaces what the first
// made, and the history says so; the version of a limit only grows.
func TestHistoryOfRace(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"limit", "endpoint"} {
		for _, there := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, there), func(t *testing.T) {
				t.Parallel()
				db := dbtest.New(t)
				first, second := db.Conn("pglimit_operator"), db.Conn("pglimit_operator")
				set := map[string]string{"limit": "select pglimit.set_limit('x', %d, '1 hour')", "endpoint": "select pglimit.set_endpoint('x', %d)"}[kind]
				if there {
					mustExec(t, first, fmt.Sprintf(set, 0))
				}
				mustExec(t, first, "begin")
				one := mustScan[int64](t, first, fmt.Sprintf(set, 1))
				got := make(chan int64)
				go func() {
					var version int64
					if err := second.QueryRow(t.Context(), fmt.Sprintf(set, 2)).Scan(&version); err != nil {
						t.Error(err)
					}
					got <- version
				}()
				waitForLock(t, db, second.PgConn().PID())
				mustExec(t, first, "commit")
				two := <-got
				list := changes(t, first, "max_rows => 2")
				if one >= two || len(list) != 2 || list[0].Version != two || list[1].Version != one || list[0].Before == "" || list[0].Before != list[1].After {
					t.Errorf("versions %d, then %d; %+v", one, two, list)
				}
				stored := mustScan[int64](t, first, fmt.Sprintf("select limit_version from pglimit.list_%ss()", kind))
				if stored != two {
					t.Errorf("the row has version %d, want %d", stored, two)
				}
			})
		}
	}
}

// TestListChanges pages from the newest to the oldest, and filters.
func TestListChanges(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, monitor := db.Conn("pglimit_operator"), db.Conn("pglimit_monitor")
	for i := range 3 {
		mustExec(t, operator, fmt.Sprintf("select pglimit.set_limit('a', %d, '1 hour'), pglimit.set_limit('b', %[1]d, '1 hour', tenant => 't'), pglimit.set_endpoint('a', %[1]d)", i))
	}
	mustExec(t, operator, "select pglimit.drop_limit('a'), pglimit.set_installation_cap(7)")
	for args, want := range map[string]int{
		"": 11, "'a'": 7, "'b'": 3, "'nothing'": 0, "'a', action_filter => 'set_limit'": 3, "action_filter => 'drop_limit'": 1,
		"tenant_filter => 't'": 3, "tenant_filter => ''": 8, "name_filter => ''": 1, "max_rows => 4": 4, "after => 1": 0, "after => 0": 0,
	} {
		if got := len(changes(t, monitor, args)); got != want {
			t.Errorf("list_changes(%s): %d rows, want %d", args, got, want)
		}
	}
	var seen []int64
	for after := "null"; ; {
		page := changes(t, monitor, "after => "+after+", max_rows => 4")
		for _, c := range page {
			seen = append(seen, c.Version)
		}
		if len(page) < 4 {
			break
		}
		after = fmt.Sprint(seen[len(seen)-1])
	}
	if len(seen) != 11 {
		t.Errorf("%d rows page by page: %v", len(seen), seen)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] >= seen[i-1] {
			t.Errorf("%d comes after %d", seen[i], seen[i-1])
		}
	}
	for _, rows := range []string{"0", "10001", "null", "-1"} {
		if _, err := monitor.Exec(t.Context(), "select from pglimit.list_changes(max_rows => "+rows+")"); sqlState(err) != "PGL01" {
			t.Errorf("max_rows => %s: %v", rows, err)
		}
	}
}

// TestForcedRelease: an operator releases a permit of any shape, or all of a holder; slots are free at
// once, and the history says who, why and what. What is not live is not recorded.
func TestForcedRelease(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	login := mustScan[string](t, operator, "select session_user::text")
	const holder = "h\x1fx" // holders may hold the separator
	for shape, caps := range map[string]string{
		"holder": "2", "endpoint": "null, 2", "installation": "null, null, 2", "all": "2, 2, 3", "two slots": "4, 4, weight => 2",
	} {
		args := fmt.Sprintf("'e', e'h\\x1fx', %s, tenant => 't', lease => '1 hour'", caps)
		first, second := *wantGrant(t, app, args).ID, *wantGrant(t, app, args).ID
		wantReason(t, operator, fmt.Sprintf("force_release(%d, 'gone')", first), "released")
		c := changes(t, operator, "max_rows => 1")[0]
		if c.Action != "force_release" || c.By != login || c.Tenant != "t" || c.Name != "e" || c.After != "" || c.Why == nil || *c.Why != "gone" {
			t.Errorf("%s: %+v", shape, c)
		}
		var before struct {
			ID        int64     `json:"permit_id"`
			Holder    string    `json:"holder"`
			Weight    int       `json:"weight"`
			ClaimedAt time.Time `json:"claimed_at"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal([]byte(c.Before), &before); err != nil {
			t.Fatal(err)
		}
		if before.ID != first || before.Holder != holder || before.Weight < 1 || before.ExpiresAt.Sub(before.ClaimedAt) != time.Hour {
			t.Errorf("%s: before %s", shape, c.Before)
		}
		wantReason(t, operator, fmt.Sprintf("force_release(%d, 'again')", first), "unknown")
		wantReason(t, operator, fmt.Sprintf("release_permit(%d)", first), "unknown")
		wantReason(t, app, fmt.Sprintf("renew_permit(%d)", second), "renewed")

		third := *wantGrant(t, app, args).ID
		other := strings.Replace(strings.Replace(args, `h\x1fx`, "other", 1), "'e'", "'f'", 1)
		if shape != "installation" { // one for all: it has no room
			wantGrant(t, app, other)
		}
		if n := mustScan[int64](t, operator, `select pglimit.release_holder('e', e'h\x1fx', 'worker 7 is gone', tenant => 't')`); n != 2 {
			t.Errorf("%s: %d released, want 2", shape, n)
		}
		c = changes(t, operator, "max_rows => 1")[0]
		if c.Action != "release_holder" || c.By != login || c.Tenant != "t" || c.Name != "e" || c.After != "" || c.Why == nil || *c.Why != "worker 7 is gone" {
			t.Errorf("%s: %+v", shape, c)
		}
		wantJSON(t, shape, c.Before, fmt.Sprintf(`{"holder": "h\u001fx", "permits": 2, "permit_ids": [%d, %d]}`, second, third))
		if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits(endpoint_filter => 'f')"); n != 1 && shape != "installation" {
			t.Errorf("%s: %d permits of another are left, want 1", shape, n)
		}
		if n := mustScan[int64](t, operator, `select pglimit.release_holder('e', e'h\x1fx', 'again', tenant => 't')`); n != 0 {
			t.Errorf("%s: %d released again", shape, n)
		}
		for range 2 {
			wantGrant(t, app, args)
		}
		mustExec(t, db.System(), lapse)
		if n := mustScan[int64](t, operator, `select pglimit.release_holder('e', e'h\x1fx', 'again', tenant => 't')`); n != 0 {
			t.Errorf("%s: %d lapsed ones released", shape, n)
		}
	}
	n := mustScan[int](t, db.System(), "select count(*) from pglimit.changes")
	if n != 10 {
		t.Errorf("%d changes, want 10", n)
	}

	// bad input, a transaction that is none for it and a rollback leave all as it was
	id := *wantGrant(t, app, "'e', 'h', 9, lease => '1 hour'").ID
	long := strings.Repeat("é", 512)
	for _, why := range []string{"null", "''", "' '", "e'\\t\\n'", "'" + long + "x'"} {
		for _, call := range []string{fmt.Sprintf("force_release(%d, %s)", id, why), fmt.Sprintf("release_holder('e', 'h', %s)", why)} {
			if _, err := operator.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "PGL01" {
				t.Errorf("%s: %v", call, err)
			}
		}
	}
	for _, call := range []string{"force_release(null, 'w')", "release_holder(null, 'h', 'w')", "release_holder('e', ' ', 'w')", "release_holder('e', null, 'w')", "release_holder('é', 'h', 'w')", "release_holder('e', 'h', 'w', e'\\x1f')"} {
		if _, err := operator.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, call := range []string{fmt.Sprintf("force_release(%d, 'w')", id), "release_holder('e', 'h', 'w')"} {
		for _, mode := range []string{"read only", "isolation level repeatable read", "isolation level serializable"} {
			mustExec(t, operator, "begin "+mode)
			if _, err := operator.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "PGL03" {
				t.Errorf("%s, %s: %v", mode, call, err)
			}
			mustExec(t, operator, "rollback")
		}
		mustExec(t, operator, "begin; select pglimit."+call+"; rollback")
	}
	wantReason(t, operator, "force_release(0, 'w')", "unknown")
	wantReason(t, operator, "force_release(-1, 'w')", "unknown")
	if got := mustScan[int](t, db.System(), "select count(*) from pglimit.changes"); got != n {
		t.Errorf("%d changes, want %d", got, n)
	}
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", id), "renewed")
	wantReason(t, operator, fmt.Sprintf("force_release(%d, '%s')", id, long), "released")
}

// TestForcedReleaseRaces steps a release by force into a renewal, a claim and another release.
func TestForcedReleaseRaces(t *testing.T) {
	t.Parallel()
	for _, caps := range []string{"3", "3, 3, 3"} {
		for _, call := range []string{"force", "holder"} {
			for _, end := range []string{"commit", "rollback"} {
				t.Run(caps+" "+call+" "+end, func(t *testing.T) {
					t.Parallel()
					db := dbtest.New(t)
					app, operator, other := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.Conn("pglimit_operator")
					args := "'e', 'h', " + caps + ", lease => '1 hour'"
					var ids []int64
					claim := func() {
						ids = nil
						for range 3 {
							ids = append(ids, *wantGrant(t, app, args).ID)
						}
					}
					claim()
					release := func() string {
						if call == "force" {
							return fmt.Sprintf("select released::int from pglimit.force_release(%d, 'w')", ids[1])
						}
						return "select pglimit.release_holder('e', 'h', 'w')"
					}
					n := map[string]int64{"force": 1, "holder": 3}[call]
					// later runs sql on conn, and returns its answer when first has ended its transaction
					later := func(conn, first *pgx.Conn, sql string) (answer string) {
						t.Helper()
						got := make(chan string)
						go func() {
							var text string
							if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
								text = err.Error()
							}
							got <- text
						}()
						waitForLock(t, db, conn.PgConn().PID())
						mustExec(t, first, end)
						return <-got
					}

					// the renewal first: it is waited for, and the permit released
					mustExec(t, app, "begin")
					wantReason(t, app, fmt.Sprintf("renew_permit(%d)", ids[1]), "renewed")
					if got := later(operator, app, "select ("+release()+")::text"); got != fmt.Sprint(n) {
						t.Errorf("behind a renewal: %s released, want %d", got, n)
					}
					if live := mustScan[int64](t, operator, "select count(*) from pglimit.list_permits()"); live != 3-n {
						t.Errorf("behind a renewal: %d live, want %d", live, 3-n)
					}

					// the release first: nobody has its slots before it commits, and a renewal waits for it
					mustExec(t, operator, "select pglimit.release_holder('e', 'h', 'w')")
					claim()
					mustExec(t, operator, "begin")
					if got := mustScan[int64](t, operator, release()); got != n {
						t.Errorf("%d released, want %d", got, n)
					}
					wantClaim(t, app, args, "holder", 3, 3)
					want := map[string]string{"commit": "unknown", "rollback": "renewed"}[end]
					if got := later(app, operator, fmt.Sprintf("select reason from pglimit.renew_permit(%d)", ids[1])); got != want {
						t.Errorf("a renewal behind the release: %s, want %s", got, want)
					}

					// two at once: each permit is released once, and recorded once
					mustExec(t, operator, "select pglimit.release_holder('e', 'h', 'w')")
					claim()
					before := mustScan[int](t, db.System(), "select count(*) from pglimit.changes")
					mustExec(t, operator, "begin")
					mustScan[int64](t, operator, release())
					got := later(other, operator, "select pglimit.release_holder('e', 'h', 'w')::text")
					wantLater, recorded := fmt.Sprint(3-n), 1
					if end == "rollback" {
						wantLater = "3"
					} else if n < 3 {
						recorded = 2
					}
					if got != wantLater {
						t.Errorf("a second release: %s, want %s", got, wantLater)
					}
					if after := mustScan[int](t, db.System(), "select count(*) from pglimit.changes"); after != before+recorded {
						t.Errorf("%d changes recorded, want %d", after-before, recorded)
					}
					claim()
				})
			}
		}
	}
}

// TestReleaseHolderDoesNotWaitForever: who holds a permit's row for longer than a second has the whole
// release end with 55P03, with nothing released and nothing recorded.
func TestReleaseHolderDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	var ids []int64
	for range 3 {
		ids = append(ids, *wantGrant(t, app, "'e', 'h', 3, lease => '1 hour'").ID)
	}
	mustExec(t, app, "begin")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", ids[2]), "renewed")
	for _, call := range []string{"release_holder('e', 'h', 'w')", fmt.Sprintf("force_release(%d, 'w')", ids[2])} {
		if _, err := operator.Exec(t.Context(), "select pglimit."+call); sqlState(err) != "55P03" {
			t.Errorf("%s: %v, want 55P03", call, err)
		}
	}
	mustExec(t, app, "commit")
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits()"); n != 3 {
		t.Errorf("%d live, want 3", n)
	}
	if list := changes(t, operator, ""); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestReleaseHolderUnderLoad: claims, renewals and releases of permits of every shape go on beside
// releases of their holders. Each permit is given back once, by whom the answer says.
func TestReleaseHolderUnderLoad(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conns := appConns(t, db, 4)
	for range 2 {
		conns = append(conns, db.Conn("pglimit_operator"))
	}
	var granted, released atomic.Int64
	end := time.Now().Add(hammering)
	together(t, conns, func(i int, conn *pgx.Conn) {
		for n := 0; time.Now().Before(end); n++ {
			if i >= 4 {
				var k int64
				if err := conn.QueryRow(t.Context(), fmt.Sprintf("select pglimit.release_holder('e', 'h%d', 'w')", n%2)).Scan(&k); err != nil {
					t.Error(err)
					return
				}
				released.Add(k)
				continue
			}
			var id *int64
			if err := conn.QueryRow(t.Context(), fmt.Sprintf("select permit_id from pglimit.claim_permit('e', 'h%d', 4, 6, 6, lease => '1 hour', weight => %d)", n%2, 1+n%3/2)).Scan(&id); err != nil {
				t.Error(err)
				return
			}
			if id == nil {
				continue
			}
			granted.Add(1)
			var reason string
			var ok bool
			if err := conn.QueryRow(t.Context(), "select reason from pglimit.renew_permit($1)", *id).Scan(&reason); err != nil {
				t.Error(err)
				return
			}
			if n%2 == 0 {
				continue
			}
			if err := conn.QueryRow(t.Context(), "select released from pglimit.release_permit($1)", *id).Scan(&ok); err != nil {
				t.Error(err)
				return
			}
			if ok {
				released.Add(1)
			}
		}
	})
	live := mustScan[int64](t, db.Conn("pglimit_operator"), "select count(*) from pglimit.list_permits()")
	if granted.Load() != released.Load()+live || released.Load() < 10 {
		t.Errorf("%d granted, %d released, %d live", granted.Load(), released.Load(), live)
	}
	t.Logf("%d granted, %d released, %d live", granted.Load(), released.Load(), live)
}

// TestListPermitsByTime: permits held for a while, and those that lapse soon, page by page.
func TestListPermitsByTime(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, monitor := db.Conn("pglimit_app"), db.Conn("pglimit_monitor")
	for i := range 6 {
		id := *wantGrant(t, app, fmt.Sprintf("'e%d', 'h', 9, 9, lease => '1 hour'", i%2)).ID
		mustExec(t, db.System(), fmt.Sprintf(`update pglimit.permits set claimed_at = claimed_at - interval '%d minutes',
			expires_at = expires_at - interval '%[1]d minutes' where permit_id = %d`, 15*i, id)) // the last two have lapsed
	}
	for args, want := range map[string]int{
		"": 4, "include_lapsed => true": 6, "held_longer_than => '14 minutes'": 3, "held_longer_than => '44 minutes'": 1,
		"held_longer_than => '1 day'": 0, "lapses_within => '1 second'": 0, "lapses_within => '16 minutes'": 1, "lapses_within => '1 day'": 4,
		"lapses_within => '1 second', include_lapsed => true": 2, "'e1', held_longer_than => '14 minutes'": 2,
		"holder_filter => 'x', held_longer_than => '1 s'": 0, "held_longer_than => '14 minutes', lapses_within => '31 minutes'": 2,
	} {
		if got := mustScan[int](t, monitor, "select count(*) from pglimit.list_permits("+args+")"); got != want {
			t.Errorf("list_permits(%s): %d rows, want %d", args, got, want)
		}
	}
	var after int64
	for n := range 3 {
		after = mustScan[int64](t, monitor, fmt.Sprintf("select permit_id from pglimit.list_permits(after => %d, max_rows => 1, held_longer_than => '14 minutes')", after))
		if n == 2 {
			if rest := mustScan[int](t, monitor, fmt.Sprintf("select count(*) from pglimit.list_permits(after => %d, held_longer_than => '14 minutes')", after)); rest != 0 {
				t.Errorf("%d rows behind the last", rest)
			}
		}
	}
	for _, filter := range []string{"held_longer_than", "lapses_within"} {
		for _, value := range []string{"0 s", "-1 s", "1 month", "40000 days"} {
			if _, err := monitor.Exec(t.Context(), fmt.Sprintf("select from pglimit.list_permits(%s => '%s')", filter, value)); sqlState(err) != "PGL01" {
				t.Errorf("%s => %s: %v", filter, value, err)
			}
		}
	}
}

// TestReleaseHolderCountsItsOwn: a permit that its holder gives back while the release waits for it is
// not counted, and one that lapsed and is being claimed by somebody else is neither waited for nor
// touched.
func TestReleaseHolderCountsItsOwn(t *testing.T) {
	t.Parallel()
	for _, caps := range []string{"null, 3", "3, 3, 3"} {
		t.Run(caps, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
			var ids []int64
			for range 3 {
				ids = append(ids, *wantGrant(t, app, "'e', 'h', "+caps+", lease => '1 hour'").ID)
			}
			mustExec(t, app, "begin")
			wantReason(t, app, fmt.Sprintf("release_permit(%d)", ids[1]), "released")
			got := make(chan int64)
			go func() {
				var n int64
				if err := operator.QueryRow(t.Context(), "select pglimit.release_holder('e', 'h', 'w')").Scan(&n); err != nil {
					t.Error(err)
				}
				got <- n
			}()
			waitForLock(t, db, operator.PgConn().PID())
			mustExec(t, app, "commit")
			if n := <-got; n != 2 {
				t.Errorf("%d released, want 2", n)
			}
			wantJSON(t, "released", changes(t, operator, "")[0].Before, fmt.Sprintf(`{"holder": "h", "permits": 2, "permit_ids": [%d, %d]}`, ids[0], ids[2]))

			for i := range 3 {
				ids[i] = *wantGrant(t, app, "'e', 'h', "+caps+", lease => '1 hour'").ID
			}
			mustExec(t, db.System(), fmt.Sprintf("update pglimit.permits set expires_at = clock_timestamp() where permit_id = %d", ids[0]))
			mustExec(t, app, "begin")
			other := *wantGrant(t, app, "'e', 'other', "+caps+", lease => '1 hour'").ID
			if n := mustScan[int64](t, operator, "select pglimit.release_holder('e', 'h', 'w')"); n != 2 {
				t.Errorf("beside a claim: %d released, want 2", n)
			}
			mustExec(t, app, "commit")
			wantReason(t, app, fmt.Sprintf("renew_permit(%d)", other), "renewed")
			if n := mustScan[int](t, operator, "select count(*) from pglimit.list_permits()"); n != 1 {
				t.Errorf("%d live, want 1", n)
			}

			// a lane that has a new permit of the same holder when the lock is had; meanwhile another
			// release, of another holder, has to wait, or the two could wait in a circle
			second := db.Conn("pglimit_operator")
			mustExec(t, operator, "select pglimit.release_holder('e', 'other', 'w')")
			for i := range 3 {
				ids[i] = *wantGrant(t, app, "'e', 'h', "+caps+", lease => '1 hour'").ID
			}
			mustExec(t, app, "set pglimit.in_transaction = 'allow'; begin")
			wantReason(t, app, fmt.Sprintf("release_permit(%d)", ids[0]), "released")
			fresh := *wantGrant(t, app, "'e', 'h', "+caps+", lease => '1 hour'").ID
			others := make(chan int64)
			release := func(conn *pgx.Conn, holder string, got chan int64) {
				go func() {
					var n int64
					if err := conn.QueryRow(t.Context(), "select pglimit.release_holder('e', $1, 'w')", holder).Scan(&n); err != nil {
						t.Error(err)
					}
					got <- n
				}()
				waitForLock(t, db, conn.PgConn().PID())
			}
			release(operator, "h", got)
			release(second, "other", others)
			mustExec(t, app, "commit")
			if n, m := <-got, <-others; n != 2 || m != 0 {
				t.Errorf("%d and %d released, want 2 and 0", n, m)
			}
			wantReason(t, app, fmt.Sprintf("renew_permit(%d)", fresh), "renewed")
		})
	}
}
