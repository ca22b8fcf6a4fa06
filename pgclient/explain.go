package pgclient

import (
	"context"
	"encoding/json"
	"time"
)

const (
	explainLimitSQL = `select step, says, facts from pglimit.explain_limit(limit_name => $1::text, subject => $2::text, tenant => $3::text)`

	// Instants go as microseconds: whole numbers, which every exec mode sends alike.
	simulateSQL = `select event, allowed, reason, quota, remaining, retry_after
from pglimit.simulate(limit_name => $1::text,
    subjects => (select coalesce(pg_catalog.array_agg(e.value order by e.n), '{}')
        from pg_catalog.json_array_elements_text($2::json) with ordinality e (value, n)),
    instants => (select coalesce(pg_catalog.array_agg('epoch'::timestamptz + e.value::bigint * interval '1 microsecond' order by e.n), '{}')
        from pg_catalog.json_array_elements_text($3::json) with ordinality e (value, n)),
    costs => (select coalesce(pg_catalog.array_agg(e.value::bigint order by e.n), '{}')
        from pg_catalog.json_array_elements_text($4::json) with ordinality e (value, n)),
    max_hits => $5::bigint, per => $6::interval, algorithm => $7::text, burst => $8::bigint, tenant => $9::text,
    time_zone => $10::text)
order by event`
)

// ExplainParams are the arguments of [Client.ExplainLimit].
type ExplainParams struct {
	// Limit and Subject name the count. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// ExplainRow is one step of a decision.
type ExplainRow struct {
	// Step is "rule", "override", "block", "counter", "holds", "arithmetic" or "answer".
	Step string `db:"step"`

	// Says is what there is to say about it, Facts the row behind it; nil for none.
	Says  string          `db:"says"`
	Facts json.RawMessage `db:"facts"`
}

// Event is what happened once, for [Client.Simulate].
type Event struct {
	At      time.Time
	Cost    int64 // zero looks
	Subject string
}

// SimulateParams are the arguments of [Client.Simulate].
type SimulateParams struct {
	// Limit is the name of a limit. Required; where it has no row, MaxHits and Per are too.
	Limit string

	// Events are what happened, in any order: they are decided in the order of their instants. All events of a subject
	// belong into one call, which takes up to a million.
	Events []Event

	// Algorithm, Burst, MaxHits, Per and TimeZone default to those of the limit's row.
	Algorithm Algorithm
	Burst     *int64
	MaxHits   *int64
	Per       *time.Duration
	TimeZone  string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// Simulated is what an event would have been answered. The fields mean what those of [Decision] do.
type Simulated struct {
	Allowed    bool
	Quota      int64
	Reason     Reason
	Remaining  int64
	RetryAfter time.Duration
}

// ExplainLimit says how the next hit of a subject is decided, step by step: by which row, with which override and block, from
// which count and the holds in it, by which sum.
func (c *Client) ExplainLimit(ctx context.Context, p ExplainParams) ([]ExplainRow, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[[]ExplainRow]{
		args:    args,
		begin:   beginRead,
		collect: list[ExplainRow],
		name:    p.Limit,
		sql:     explainLimitSQL,
		verb:    "explain_limit",
	})
}

// Simulate says what a limit would have answered to each event, by the code that decides hits and at the events' own
// instants. Nothing of it stays.
func (c *Client) Simulate(ctx context.Context, p SimulateParams) ([]Simulated, error) {
	var args arguments
	subjects, instants, costs := make([]string, len(p.Events)), make([]int64, len(p.Events)), make([]int64, len(p.Events))
	for i, e := range p.Events {
		if err := checkText("subject", e.Subject); err != nil {
			args.fail(err)
		}
		subjects[i], instants[i], costs[i] = e.Subject, e.At.UnixMicro(), e.Cost
	}
	args.text("limit_name", p.Limit)
	args.json(subjects)
	args.json(instants)
	args.json(costs)
	args.optionalNumber(p.MaxHits)
	args.optionalWindow("per", p.Per, p.Algorithm)
	args.optionalText("algorithm", string(p.Algorithm))
	args.optionalNumber(p.Burst)
	c.tenant(ctx, &args, p.Tenant)
	args.optionalText("time_zone", p.TimeZone)
	rows, err := run(ctx, c, statement[[]simulatedRow]{
		args:    args,
		begin:   beginWrite,
		collect: list[simulatedRow],
		name:    p.Limit,
		sql:     simulateSQL,
		verb:    "simulate",
	})
	answers := make([]Simulated, len(rows))
	for i, r := range rows {
		answers[i] = Simulated{
			Allowed: r.Allowed, Quota: r.Quota, Reason: r.Reason, Remaining: r.Remaining, RetryAfter: time.Duration(r.RetryAfter),
		}
	}
	return answers, err
}

type simulatedRow struct {
	Event      int64    `db:"event"`
	Allowed    bool     `db:"allowed"`
	Reason     Reason   `db:"reason"`
	Quota      int64    `db:"quota"`
	Remaining  int64    `db:"remaining"`
	RetryAfter interval `db:"retry_after"`
}
