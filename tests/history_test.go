package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
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
		limit = `{"max_hits": %d, "per": "%s", "algorithm": "fixed_window", "burst": null, "durable": false, "mode": "enforce", "on_outage": "allow"}`
		ends  = `{"holder_cap": %s, "endpoint_cap": null, "time_bound": %s, "longest": %s, "row_cap": null, "in_installation": true, "mode": "enforce", "on_outage": "%s"}`
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
		{"set_installation_cap(11)", "", "", `{"installation_cap": 10}`, `{"installation_cap": 11}`},
		{"set_purge_after('2 hours')", "", "", `{"purge_after": "1 day"}`, `{"purge_after": "02:00:00"}`},
		{"set_purge_after('0')", "", "", `{"purge_after": "02:00:00"}`, `{"purge_after": "00:00:00"}`},
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
		"drop_limit('nothing')", "drop_endpoint('nothing')", "set_limit('l', -1, '1 s')", "set_limit('l', 1, '1 month')", "set_limit('l', 1, '1 s', mode => 'x')",
		"set_endpoint('e', -1)", "set_endpoint('e', in_installation => false)", "set_installation_cap(-1)", "set_purge_after('-1 s')", "set_limit(' ', 1, '1 s')",
	} {
		_, _ = operator.Exec(t.Context(), "select pglimit."+call)
	}
	for _, call := range []string{
		"set_limit('l', 1, '1 s')", "drop_limit('l', 't7')", "set_endpoint('e', 1)", "set_installation_cap(1)", "set_purge_after('1 s')", "raise_epoch()",
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
