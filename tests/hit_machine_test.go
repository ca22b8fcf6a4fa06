package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/pglimit/pglimit/tests/dbtest"
)

// TestHitMachine compares random calls of one session with a model that knows neither turns nor stamps:
// only what each subject has used, what shadow let by, and which limits, modes and overrides there are.
func TestHitMachine(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	outcomes := map[string]int{}
	app, operator := db.Conn("pglimit_app"), db.Conn("pglimit_operator")
	mustExec(t, operator, "select pglimit.set_purge_after('0 s')")
	sameSequences()
	rapid.Check(t, func(rt *rapid.T) {
		m := &hitMachine{
			ctx: t.Context(), app: app, operator: operator, system: db.System(), outcomes: outcomes,
			limits: map[string]*modelLimit{}, overrides: map[string]*modelOverride{}, counts: map[string]*modelCount{},
		}
		m.exec(rt, m.system, "delete from pglimit.counters")
		m.exec(rt, m.system, "delete from pglimit.limits")
		m.exec(rt, m.system, "delete from pglimit.limit_overrides")
		m.exec(rt, m.system, "delete from pglimit.limit_carries")
		for _, limit := range hitMachineLimits {
			m.setLimitOf(rt, limit)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"hit":           m.hit,
			"hit more":      m.hit,
			"hit and again": func(rt *rapid.T) { m.hit(rt); m.hit(rt) },
			"forget":        m.forget,
			"set limit":     m.setLimit,
			"drop limit":    m.dropLimit,
			"override":      m.setOverride,
			"drop override": m.dropOverride,
			"validity":      m.changeValidity,
			"end windows":   m.endWindows,
			"purge":         func(rt *rapid.T) { m.exec(rt, m.operator, "select pglimit.purge()") },
			"":              m.check,
		})
	})
	for _, want := range []string{"allowed", "limit", "never", "shadow", "off", "unknown", "overridden", "forgotten", "carried"} {
		if outcomes[want] == 0 {
			t.Errorf("never %s: %v", want, outcomes)
		}
	}
	t.Logf("%v", outcomes)
}

type hitMachine struct {
	ctx           context.Context
	app, operator *pgx.Conn
	system        *pgxpool.Pool
	outcomes      map[string]int

	limits    map[string]*modelLimit    // by name
	overrides map[string]*modelOverride // by name and subject
	counts    map[string]*modelCount    // likewise; of open windows
}

type modelLimit struct {
	max, version int64
	mode         string
}

type modelOverride struct {
	max, version int64
	state        string
}

type modelCount struct {
	used, shadowRefused int64
	carries             []modelCarry // of changes since the counter was begun or last carried
}

// modelCarry is a change of a limit's capacity in proportion, or to nothing.
type modelCarry struct {
	reset    bool
	from, to int64
}

// carried is what a call sees that goes by the limit's row.
func (c modelCount) carried() *modelCount {
	used := c.used
	for _, carry := range c.carries {
		if carry.reset {
			return nil
		}
		used = (used*carry.to + carry.from - 1) / carry.from
	}
	return &modelCount{used: used, shadowRefused: c.shadowRefused}
}

func (m *hitMachine) exec(rt *rapid.T, db rowQuerier, sql string, args ...any) {
	rt.Helper()
	if _, err := db.Exec(m.ctx, sql, args...); err != nil {
		rt.Fatal(sql, args, ": ", err)
	}
}

var (
	hitMachineLimits = []string{"a", "b"}

	// Ranges of numbers would be mostly their lowest: everything closed.
	hitMachineMax = rapid.SampledFrom([]int64{3, 4, 2, 1, 6, 0})
)

func hitMachineName(rt *rapid.T) string {
	return rapid.SampledFrom(hitMachineLimits).Draw(rt, "limit")
}

func hitMachineKey(rt *rapid.T) (limit, subject, key string) {
	limit, subject = hitMachineName(rt), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "subject")
	return limit, subject, limit + "/" + subject
}

func (m *hitMachine) hit(rt *rapid.T) {
	limit, subject, key := hitMachineKey(rt)
	cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 0}).Draw(rt, "cost")
	var given *int64
	if rapid.Bool().Draw(rt, "given") {
		given = ptr(hitMachineMax.Draw(rt, "max_hits"))
	}
	per := "1 hour" // needed with max_hits where there is no row
	if given == nil {
		per = ""
	}
	function := rapid.SampledFrom([]string{"hit", "hit", "hit", "peek"}).Draw(rt, "function")

	// what must come
	row, override, count := m.limits[limit], m.overrides[key], m.counts[key]
	wasOpen := count != nil
	if wasOpen && given == nil && row != nil {
		m.outcomes["carried"] += len(count.carries)
		count = count.carried()
		wasOpen = count != nil
	}
	if count == nil {
		count = &modelCount{}
	}
	reason, quota, version := "unknown", int64(0), (*int64)(nil)
	looks := max(cost, 1)
	if given != nil {
		quota = *given
	} else if row != nil {
		quota, version = row.max, &row.version
	}
	if override != nil && override.state == "valid" {
		quota, version = override.max, &override.version
	}
	remaining := max(quota-count.used, 0)
	refused := looks > quota-count.used
	records := function == "hit" && cost > 0
	switch {
	case given == nil && row == nil:
	case row != nil && row.mode == "off" && (given == nil || refused):
		reason, remaining = "off", quota
	case refused && row != nil && row.mode == "shadow":
		reason = "shadow"
		if records {
			m.counts[key] = &modelCount{count.used, count.shadowRefused + 1, count.carries}
			wasOpen = true
		}
	case refused && looks > quota:
		reason = "never"
	case refused:
		reason = "limit"
	default:
		reason = "allowed"
		if records {
			m.counts[key] = &modelCount{count.used + cost, count.shadowRefused, count.carries}
			remaining -= cost
			wasOpen = true
		}
	}

	var r hitRow
	err := m.app.QueryRow(m.ctx, "select allowed, reason, quota, remaining, retry_after, reset_at, on_outage, limit_version from pglimit."+function+"($1, $2, $3, nullif($4, '')::interval, $5)", limit, subject, given, per, cost).
		Scan(&r.Allowed, &r.Reason, &r.Quota, &r.Remaining, &r.RetryAfter, &r.ResetAt, &r.OnOutage, &r.Version)
	if sqlState(err) == "PGL02" {
		r = hitRow{Reason: "unknown"}
		quota, remaining, version = 0, 0, nil
	} else if err != nil {
		rt.Fatal(err)
	}
	open := wasOpen && reason != "off" && reason != "unknown"
	waits := refused && looks <= quota && open && reason != "allowed"
	if r.Reason != reason || r.Allowed != (reason == "allowed" || reason == "shadow" || reason == "off") || r.Quota != quota || r.Remaining != remaining ||
		(r.Version == nil) != (version == nil) || version != nil && *r.Version != *version || (r.ResetAt != nil) != open || (r.RetryAfter != nil) != waits {
		rt.Fatalf("%s of %s, cost %d, given %v: %+v, version %v; want %s, quota %d, remaining %d, version %v, open %v, waits %v; limit %+v, override %+v, count %+v",
			function, key, cost, given, r, r.Version, reason, quota, remaining, version, open, waits, row, override, count)
	}
	m.outcomes[reason]++
	if override != nil && override.state == "valid" {
		m.outcomes["overridden"]++
	}
}

func (m *hitMachine) forget(rt *rapid.T) {
	limit, subject, key := hitMachineKey(rt)
	var was bool
	if err := m.app.QueryRow(m.ctx, "select pglimit.forget($1, $2)", limit, subject).Scan(&was); err != nil {
		rt.Fatal(err)
	}
	c := m.counts[key]
	// one that was carried to nothing is open, and there is nothing to forget
	if want := c != nil && c.used+c.shadowRefused > 0; was != want {
		rt.Fatalf("forget of %s: %v, want %v", key, was, want)
	} else if want {
		m.outcomes["forgotten"]++
		delete(m.counts, key)
	}
}

func (m *hitMachine) setLimit(rt *rapid.T) { m.setLimitOf(rt, hitMachineName(rt)) }

func (m *hitMachine) setLimitOf(rt *rapid.T, limit string) {
	l := &modelLimit{max: hitMachineMax.Draw(rt, "max_hits"), mode: rapid.SampledFrom([]string{"enforce", "shadow", "enforce", "off"}).Draw(rt, "mode")}
	carry := rapid.SampledFrom([]string{"keep", "proportional", "keep", "proportional", "reset"}).Draw(rt, "carry")
	if err := m.operator.QueryRow(m.ctx, "select pglimit.set_limit($1, $2, '1 hour', mode => $3, carry => $4)", limit, l.max, l.mode, carry).Scan(&l.version); err != nil {
		rt.Fatal(err)
	}
	old := m.limits[limit]
	m.limits[limit] = l
	for key, c := range m.counts {
		o := m.overrides[key]
		switch {
		case key[:1] != limit:
		case carry == "reset":
			c.carries = append(c.carries, modelCarry{reset: true})
		case carry == "proportional" && old != nil && old.max > 0 && l.max > 0 && old.max != l.max && (o == nil || o.state != "valid"):
			c.carries = append(c.carries, modelCarry{from: old.max, to: l.max})
		}
	}
}

func (m *hitMachine) dropLimit(rt *rapid.T) {
	limit := hitMachineName(rt)
	m.exec(rt, m.operator, "select pglimit.drop_limit($1)", limit)
	delete(m.limits, limit)
}

func (m *hitMachine) setOverride(rt *rapid.T) {
	limit, subject, key := hitMachineKey(rt)
	o := &modelOverride{max: hitMachineMax.Draw(rt, "max_hits"), state: "valid"}
	if err := m.operator.QueryRow(m.ctx, "select pglimit.set_limit_override($1, $2, $3)", limit, subject, o.max).Scan(&o.version); err != nil {
		rt.Fatal(err)
	}
	m.overrides[key] = o
	m.carryCounter(limit, key)
}

// carryCounter is what comes before the override of a subject is changed.
func (m *hitMachine) carryCounter(limit, key string) {
	if c := m.counts[key]; c != nil && m.limits[limit] != nil {
		if c = c.carried(); c == nil {
			c = &modelCount{}
		}
		m.counts[key] = c
	}
}

func (m *hitMachine) dropOverride(rt *rapid.T) {
	limit, subject, key := hitMachineKey(rt)
	m.exec(rt, m.operator, "select pglimit.drop_limit_override($1, $2)", limit, subject)
	if m.overrides[key] != nil {
		m.carryCounter(limit, key)
	}
	delete(m.overrides, key)
}

// changeValidity has time pass for an override: future, valid, over. An operator sets one anew for later.
func (m *hitMachine) changeValidity(rt *rapid.T) {
	limit, subject, key := hitMachineKey(rt)
	o := m.overrides[key]
	if o == nil {
		rt.Skip("none")
	}
	if o.state == "valid" && rapid.Bool().Draw(rt, "set anew") {
		if err := m.operator.QueryRow(m.ctx, "select pglimit.set_limit_override($1, $2, $3, now() + interval '1 hour')", limit, subject, o.max).Scan(&o.version); err != nil {
			rt.Fatal(err)
		}
		o.state = "future"
		m.carryCounter(limit, key)
		return
	}
	if o.state == "over" {
		return
	}
	next := map[string]string{"future": "valid", "valid": "over", "over": "over"}[o.state]
	m.exec(rt, m.system, `update pglimit.limit_overrides set valid_from = case when $3 then valid_from else clock_timestamp() end,
		valid_until = case when $3 then clock_timestamp() end where limit_name = $1 and subject = $2`, limit, subject, next == "over")
	o.state = next
}

func (m *hitMachine) endWindows(rt *rapid.T) {
	_, _, key := hitMachineKey(rt)
	m.exec(rt, m.system, `update pglimit.counters set reset_at = case when reset_at is not null then clock_timestamp() end,
		special_reset_at = case when special_reset_at is not null then clock_timestamp() end
		where key = e'\x1f' || replace($1, '/', e'\x1f')`, key)
	delete(m.counts, key)
}

// check compares all that is kept.
func (m *hitMachine) check(rt *rapid.T) {
	rows, err := m.operator.Query(m.ctx, "select limit_name || '/' || subject, used, shadow_refused from pglimit.list_counters()")
	if err != nil {
		rt.Fatal(err)
	}
	type stored struct{ used, shadowRefused int64 }
	got := map[string]stored{}
	var key string
	var c stored
	if _, err := pgx.ForEachRow(rows, []any{&key, &c.used, &c.shadowRefused}, func() error { got[key] = c; return nil }); err != nil {
		rt.Fatal(err)
	}
	want := map[string]stored{}
	for key, c := range m.counts {
		want[key] = stored{c.used, c.shadowRefused}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Fatalf("counted %v, want %v", got, want)
	}
	for limit, l := range m.limits {
		sum := int64(0)
		for key, c := range m.counts {
			if key[:1] == limit {
				sum += c.shadowRefused
			}
		}
		var n *int64
		if err := m.operator.QueryRow(m.ctx, "select shadow_refused from pglimit.list_limits($1)", limit).Scan(&n); err != nil {
			rt.Fatal(err)
		}
		if (n != nil) != (l.mode == "shadow") || n != nil && *n != sum {
			rt.Fatalf("limit %s in mode %s says %v, want %d", limit, l.mode, n, sum)
		}
	}
	// the invariant that the straight way of hit relies on
	var bad int
	if err := m.system.QueryRow(m.ctx, `select count(*) from pglimit.counters c join pglimit.limit_overrides o
		on c.key = o.tenant || e'\x1f' || o.limit_name || e'\x1f' || o.subject
		where coalesce(o.valid_until > clock_timestamp(), true) and c.reset_at is not null`).Scan(&bad); err != nil || bad > 0 {
		rt.Fatalf("%d rows lack the stamp, %v", bad, err)
	}
}
