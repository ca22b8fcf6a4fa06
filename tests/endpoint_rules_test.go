package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestEndpointModes: shadow grants what enforce would refuse, says what it would have been refused with and counts it;
// off looks at nothing. What is granted beyond the caps takes nobody's place, and is renewed, released and listed.
func TestEndpointModes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	set := func(mode string) {
		t.Helper()
		mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 1, endpoint_cap => 2, time_bound => '1 hour', mode => '"+mode+"')")
	}
	claim := func(args, reason, shadow string) (id int64) {
		t.Helper()
		var granted bool
		var got string
		var gotShadow, permit, cap, inUse *string
		if err := app.QueryRow(t.Context(), "select granted, reason, shadow_reason, permit_id::text, cap::text, in_use::text from pglimit.claim_permit("+args+")").
			Scan(&granted, &got, &gotShadow, &permit, &cap, &inUse); err != nil {
			t.Fatal(err)
		}
		if got != reason || granted != (reason == "granted" || reason == "shadow" || reason == "off") || granted != (permit != nil) ||
			(gotShadow == nil) != (shadow == "") || gotShadow != nil && *gotShadow != shadow || (cap == nil) != (reason == "granted" || reason == "off") {
			t.Errorf("claim_permit(%s): %s %v, want %s %s", args, got, gotShadow, reason, shadow)
		}
		if permit != nil {
			_, _ = fmt.Sscan(*permit, &id)
		}
		return id
	}
	refused := func(want string) {
		t.Helper()
		if got := mustScan[string](t, operator, "select coalesce(shadow_refused::text, 'none') from pglimit.list_endpoints()"); got != want {
			t.Errorf("%s would have been refused, want %s", got, want)
		}
	}
	inUse := func(want int64) {
		t.Helper()
		if got := mustScan[int64](t, operator, "select in_use from pglimit.show_installation()"); got != want {
			t.Errorf("%d of the installation's places in use, want %d", got, want)
		}
	}
	set("shadow")
	refused("none")
	claim("'e', 'a'", "granted", "")
	var beyond []int64
	for i := range 5 {
		beyond = append(beyond, claim("'e', 'a'", "shadow", "holder"))
		refused(fmt.Sprint(i + 1))
	}
	claim("'e', 'b'", "granted", "")
	beyond = append(beyond, claim("'e', 'c'", "shadow", "endpoint"), claim("'e', 'c', installation_cap => 0", "shadow", "endpoint"), claim("'e', 'c', weight => 3", "shadow", "never"))
	inUse(2)
	refused("8")
	if id := claim("'e', 'c', request_id => 'r'", "shadow", "endpoint"); claim("'e', 'c', request_id => 'r'", "granted", "") != id {
		t.Error("the same request has another permit")
	}
	refused("9")
	wantReason(t, app, fmt.Sprintf("renew_permit(%d)", beyond[0]), "renewed")
	wantReason(t, app, fmt.Sprintf("release_permit(%d, 'x')", beyond[0]), "not holder")
	for _, id := range beyond[:4] {
		wantReason(t, app, fmt.Sprintf("release_permit(%d, 'a')", id), "released")
	}
	if got := mustScan[string](t, operator, "select string_agg(state, ' ' order by permit_id) from pglimit.list_permits('e')"); got != "live beyond live beyond beyond beyond beyond" {
		t.Errorf("listed: %s", got)
	}
	if n := mustScan[int64](t, operator, "select pglimit.release_holder('e', 'a', 'test')"); n != 2 {
		t.Errorf("released %d of a, want 2", n)
	}
	refused("9")

	set("off")
	for range 3 {
		id := claim("'e', 'b'", "off", "")
		wantReason(t, app, fmt.Sprintf("release_permit(%d)", id), "released")
	}
	claim("'e', 'b', holder_cap => 0", "off", "")
	refused("9")
	inUse(1)

	set("enforce")
	claim("'e', 'b'", "holder", "")
	claim("'e', 'a'", "granted", "")

	for _, bad := range []string{"mode => null", "mode => 'on'", "fair => null", "queue_cap => -1", "queue_cap => 10001", "holder_queue_cap => null"} {
		if _, err := operator.Exec(t.Context(), "select pglimit.set_endpoint('e', 1, "+bad+")"); sqlState(err) != "PGL01" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestShadowOfTenants: the row of no tenant sums up those who have none of their own.
func TestShadowOfTenants(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	for _, tenant := range []string{"", "b"} {
		mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 0, time_bound => '1 hour', mode => 'shadow', tenant => '"+tenant+"')")
	}
	for i, tenant := range []string{"", "a", "b", "b c", "c"} {
		for range i + 1 {
			mustExec(t, app, "select pglimit.claim_permit('e', 'h', tenant => '"+tenant+"')")
			mustExec(t, app, "select pglimit.claim_permit('other', 'h', 1, lease => '1 hour', tenant => '"+tenant+"')")
		}
		mustExec(t, app, "select pglimit.enqueue_permit('e', 'h', tenant => '"+tenant+"')")
	}
	if got := strings.Join(mustStrings(t, operator, "select concat_ws(' ', tenant, waiting, shadow_refused) from pglimit.list_endpoints()"), ", "); got != " 4 12, b 1 3" {
		t.Errorf("%q", got)
	}
}

// TestEndpointOverrides: a holder's own cap beats the row's and the argument's, while it is valid, for his tenant.
func TestEndpointOverrides(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, operator, system := db.Conn("pglimit_app"), db.Conn("pglimit_operator"), db.System()
	mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour')")
	version := mustScan[int64](t, operator, "select pglimit.set_endpoint_override('e', 'a', 2)")
	special := func(want string) {
		t.Helper()
		if got := mustScan[string](t, system, "select coalesce(string_agg(tenant || ':' || special, ' ' order by tenant), '') from pglimit.endpoints"); got != want {
			t.Errorf("special: %q, want %q", got, want)
		}
	}
	special(":true")
	if got := mustScan[int64](t, app, "select limit_version from pglimit.claim_permit('e', 'a')"); got != version {
		t.Errorf("limit_version %d, want %d", got, version)
	}
	wantGrant(t, app, "'e', 'a', holder_cap => 1")
	wantClaim(t, app, "'e', 'a', holder_cap => 7", "holder", 2, 2)
	wantGrant(t, app, "'e', 'b'")
	wantClaim(t, app, "'e', 'b'", "holder", 1, 1)
	wantGrant(t, app, "'e', 'a', tenant => 't'")
	wantClaim(t, app, "'e', 'a', tenant => 't'", "holder", 1, 1)

	// validity
	mustExec(t, operator, "select pglimit.set_endpoint_override('e', 'b', 5, valid_from => now() + interval '1 hour')")
	wantClaim(t, app, "'e', 'b'", "holder", 1, 1)
	if state := mustScan[string](t, operator, "select state from pglimit.list_endpoint_overrides('e', 'b')"); state != "future" {
		t.Errorf("state %s of one that does not hold yet", state)
	}
	mustExec(t, system, "update pglimit.endpoint_overrides set valid_from = clock_timestamp() where holder = 'b'")
	wantGrant(t, app, "'e', 'b'")
	mustExec(t, system, "update pglimit.endpoint_overrides set valid_until = clock_timestamp() where holder = 'b'")
	wantClaim(t, app, "'e', 'b'", "holder", 1, 2)
	if got := strings.Join(mustStrings(t, operator, "select concat_ws(' ', holder, holder_cap, state) from pglimit.list_endpoint_overrides('e')"), ", "); got != "a 2 valid, b 5 over" {
		t.Errorf("listed: %s", got)
	}
	if got := mustStrings(t, operator, "select holder from pglimit.list_endpoint_overrides(after => (select cursor from pglimit.list_endpoint_overrides(max_rows => 1)))"); len(got) != 1 || got[0] != "b" {
		t.Errorf("the second page: %v", got)
	}

	// rows of the endpoint that are made and dropped meanwhile know of it
	mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour')")
	special(":true")
	mustExec(t, operator, "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour', tenant => 't')")
	special(":true t:false")
	mustExec(t, operator, "select pglimit.set_endpoint_override('e', 'a', 2, tenant => 't')")
	special(":true t:true")
	wantGrant(t, app, "'e', 'a', tenant => 't'")
	for _, args := range []string{"'e', 'a'", "'e', 'b'"} {
		if !mustScan[bool](t, operator, "select pglimit.drop_endpoint_override("+args+")") {
			t.Errorf("drop_endpoint_override(%s) found none", args)
		}
	}
	special(":true t:true")
	mustExec(t, operator, "select pglimit.drop_endpoint_override('e', 'a', 't')")
	special(":false t:false")
	if mustScan[bool](t, operator, "select pglimit.drop_endpoint_override('e', 'a')") {
		t.Error("dropped twice")
	}
	wantClaim(t, app, "'e', 'a'", "holder", 1, 2)

	for bad, state := range map[string]string{
		"'e', 'a', -1": "PGL01", "'e', ' '": "PGL01", "'e', 'a', share => 0": "PGL01", "'e', 'a', share => 1001": "PGL01",
		"'e', 'a', valid_until => now()": "PGL01", "'e', 'a', valid_from => 'infinity'": "PGL01", "'nowhere', 'a', 2": "PGL02",
		"'e', 'a', valid_from => now() + interval '2 h', valid_until => now() + interval '1 h'": "PGL01",
	} {
		if _, err := operator.Exec(t.Context(), "select pglimit.set_endpoint_override("+bad+")"); sqlState(err) != state {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var server *pgconn.PgError
	if _, err := operator.Exec(t.Context(), "select pglimit.set_endpoint_override('nowhere', 'a', 2)"); !errors.As(err, &server) ||
		!strings.Contains(server.Hint, "pglimit.set_endpoint('nowhere'") || strings.Contains(server.Hint, "with the call") {
		t.Errorf("an unknown endpoint: %+v", server)
	}
}

// TestOverrideAgainstNewRow steps through an override and a row of its endpoint that are made at once: the row must be
// marked, or claims would never look at the override.
func TestOverrideAgainstNewRow(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := db.Conn("pglimit_operator"), db.Conn("pglimit_operator")
	mustExec(t, first, "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour')")
	mustExec(t, first, "begin")
	mustExec(t, first, "select pglimit.set_endpoint_override('e', 'a', 2, tenant => 't')")
	done := make(chan error)
	go func() {
		_, err := second.Exec(t.Context(), "select pglimit.set_endpoint('e', holder_cap => 1, time_bound => '1 hour', tenant => 't')")
		done <- err
	}()
	waitForLock(t, db, second.PgConn().PID())
	mustExec(t, first, "commit")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	app := db.Conn("pglimit_app")
	wantGrant(t, app, "'e', 'a', tenant => 't'")
	wantGrant(t, app, "'e', 'a', tenant => 't'")
}
