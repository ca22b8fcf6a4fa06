package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// simulated is what simulate(args) says of each event, in order: "1 allowed 2", its number, the reason and what remains.
func simulated(t *testing.T, conn *pgx.Conn, args string) []string {
	t.Helper()
	return mustStrings(t, conn, "select event || ' ' || reason || ' ' || remaining || coalesce(' ' || retry_after, '') from pglimit.simulate("+args+")")
}

// TestSimulate: events are decided in the order of their instants, each algorithm as by hit, by the row or by what is given.
func TestSimulate(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator := db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_limit('l', 2, '1 hour', mode => 'off', durable => true), pglimit.set_limit('l', 1, '1 hour', tenant => 't')")
	const events = `'{a,a,b,a,a}', '{2015-05-17 10:00Z,2015-05-17 10:10Z,2015-05-17 10:05Z,2015-05-17 10:30Z,2015-05-17 11:00Z}'`
	for args, want := range map[string]string{
		"'l', " + events:                                        "1 allowed 1, 3 allowed 1, 2 allowed 0, 4 limit 0 00:30:00, 5 allowed 1", // whatever the mode
		"'l', " + events + ", tenant => 't'":                    "1 allowed 0, 3 allowed 0, 2 limit 0 00:50:00, 4 limit 0 00:30:00, 5 allowed 0",
		"'l', " + events + ", max_hits => 1":                    "1 allowed 0, 3 allowed 0, 2 limit 0 00:50:00, 4 limit 0 00:30:00, 5 allowed 0",
		"'l', " + events + ", '{1,3,0,1,1}'":                    "1 allowed 1, 3 allowed 2, 2 never 1, 4 allowed 0, 5 allowed 1",
		"'l', " + events + ", algorithm => 'sliding_window'":    "1 allowed 1, 3 allowed 1, 2 allowed 0, 4 limit 0 00:40:00, 5 limit 0 00:10:00",
		"'l', " + events + ", algorithm => 'token_bucket'":      "1 allowed 1, 3 allowed 1, 2 allowed 0, 4 allowed 0, 5 allowed 0",
		"'new', " + events + ", max_hits => 9, per => '1 day'":  "1 allowed 8, 3 allowed 8, 2 allowed 7, 4 allowed 6, 5 allowed 5",
		"'new', '{a}', '{2015-05-17 10:00Z}', null, 0, '1 min'": "1 never 0",
		"'new', '{a,a}', '{2015-05-17 21:00Z,2015-05-17 22:30Z}', null, 1, '1 day', 'calendar', time_zone => 'Europe/Berlin'": "1 allowed 0, 2 allowed 0",
		"'new', '{}', '{}', null, 0, '1 min'": "",
	} {
		if got := strings.Join(simulated(t, operator, args), ", "); got != want {
			t.Errorf("simulate(%s):\n%s, want\n%s", args, got, want)
		}
	}
	for args, state := range map[string]string{
		"'none', '{a}', '{2015-05-17 10:00Z}'":                "PGL02",
		"'none', '{a}', '{2015-05-17 10:00Z}', max_hits => 1": "PGL01",
		"'l', '{a}', '{}'":                                    "PGL01", "'l', '{a}', null": "PGL01", "'l', null, null": "PGL01", "'l', '{a}', '{infinity}'": "PGL01",
		"'l', '{a}', '{null}'": "PGL01", "'l', '{null}', '{now}'": "PGL01", "'l', '{\" \"}', '{now}'": "PGL01", "'l', '{a}', '{now}', '{1,1}'": "PGL01",
		"'l', '{a}', '{now}', '{-1}'": "PGL01", "'l', '{a}', '{now}', algorithm => 'leaky'": "PGL01", "'l', '{a}', '{now}', burst => 3": "PGL01",
		"'l', '{a}', '{now}', per => '1 day', algorithm => 'calendar', time_zone => 'Nowhere/Land'": "PGL01",
	} {
		if _, err := operator.Exec(t.Context(), "select from pglimit.simulate("+args+")"); sqlState(err) != state {
			t.Errorf("simulate(%s): %v, want %s", args, err, state)
		}
	}
	if _, err := operator.Exec(t.Context(), "begin read only; select from pglimit.simulate('l', '{a}', '{now}')"); sqlState(err) != "PGL03" {
		t.Errorf("read-only: %v", err)
	}
}

// TestSimulateLeavesNothing: what simulate counts is seen by nobody, not by its own transaction either, and no hit waits for
// it. So that it takes instants is no way around C-24.
func TestSimulateLeavesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, app := db.Conn("pglimit_operator"), db.Conn("pglimit_app")
	mustExec(t, operator, "select pglimit.set_limit('l', 1, '1 hour')")
	wantHit(t, app, "hit('l', 'a')", "allowed", 0)
	state := func() string {
		return mustScan[string](t, db.System(), `select concat(
			(select string_agg(to_jsonb(c)::text, ' ' order by c.key) from pglimit.counters c), (select count(*) from pglimit.durable_counters),
			(select string_agg(to_jsonb(l)::text, ' ') from pglimit.limits l), (select count(*) from pglimit.changes), (select count(*) from pglimit.creation_locks))`)
	}
	before := state()
	mustExec(t, operator, "begin")
	if got := simulated(t, operator, "'l', '{a,a,b}', array_fill(clock_timestamp(), '{3}')"); !slices.Equal([]string{got[0], got[2]}, []string{"1 allowed 0", "3 allowed 0"}) {
		t.Errorf("got %q: present counts and other subjects play no part", got)
	}
	// Its transaction is open, and sees nothing of it, as nobody does.
	if after := state(); after != before {
		t.Errorf("another session sees\n%s\nafter\n%s", after, before)
	}
	if n := mustScan[int](t, operator, "select count(*) from pglimit.list_counters(include_closed => true)"); n != 1 {
		t.Errorf("%d counters within the simulation's transaction", n)
	}
	wantHit(t, app, "hit('l', 'b')", "allowed", 0) // and it holds no lock that the first hit of its subject needs
	mustExec(t, operator, "commit")
}

// TestSimulateIsHit is the same log through hit and simulate: one decision code.
func TestSimulateIsHit(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	operator, system := db.Conn("pglimit_operator"), db.Conn("pglimit_system")
	mustExec(t, system, "set role pglimit_system")
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		mustExec(t, operator, "select pglimit.set_limit('l', 5, '10 minutes', '"+algorithm+"')")
		var subjects, instants, want []string
		for i := range 300 {
			at := time.Date(2026, 1, 1, 0, 0, i*7+(i*i)%5, 0, time.UTC).Format(time.RFC3339)
			subject := fmt.Sprint(algorithm, (i*i)%7%3)
			subjects, instants = append(subjects, subject), append(instants, at)
			want = append(want, mustScan[string](t, system, fmt.Sprintf(
				`select concat_ws(' ', %d, reason, remaining, retry_after) from pglimit._hit_special('l', '%s', null, null, 1, null, null, '', at => '%s')`, i+1, subject, at)))
		}
		got := simulated(t, operator, fmt.Sprintf("'l', '{%s}', '{%s}'", strings.Join(subjects, ","), strings.Join(instants, ",")))
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q\nwant %q", algorithm, got, want)
		}
		if n := strings.Count(strings.Join(got, "\n"), "limit"); n < 50 || n > 290 {
			t.Errorf("%d of 300 are refused: little is shown", n)
		}
	}
}
