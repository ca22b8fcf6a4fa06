package pgclient

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

// What is wanted travels as one JSON text: arrays of numbers and intervals that may be missing are not encoded alike in
// all of pgx's query exec modes.
const (
	hitManySQL = `select d.allowed, d.reason, d.quota, d.remaining, d.retry_after, d.reset_at, d.on_outage, d.limit_version, d.charged
from (
    select pg_catalog.array_agg(h.value ->> 'limit' order by h.place) as limits,
        pg_catalog.array_agg(h.value ->> 'subject' order by h.place) as subjects,
        pg_catalog.array_agg((h.value ->> 'cost')::bigint order by h.place) as costs,
        pg_catalog.array_agg((h.value ->> 'max_hits')::bigint order by h.place) as quotas,
        pg_catalog.array_agg((h.value ->> 'per')::interval order by h.place) as pers
    from pg_catalog.jsonb_array_elements($1::text::jsonb) with ordinality h (value, place)
) a
cross join lateral pglimit.hit_many(limit_names => coalesce(a.limits, '{}'), subjects => coalesce(a.subjects, '{}'),
    costs => a.costs, max_hits => a.quotas, pers => a.pers, tenant => $2::text) d
order by d.ordinal`

	admitSQL = `select admitted, reason, quota, remaining, reset_at, permit_id, expires_at, expires_at - pg_catalog.clock_timestamp() as lease_left, cap, in_use, retry_after, time_bound, row_cap, on_outage, limit_version, charged
from pglimit.admit(wants => $1::text::jsonb, tenant => $2::text)
order by ordinal`
)

// HitManyParams are the arguments of [Client.HitMany].
type HitManyParams struct {
	// Hits are what to decide, at most 1,000. Algorithm, Burst and Tenant of each must be left out: a limit of another
	// algorithm needs a row here, and all are of one tenant.
	Hits []HitParams

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// AdmitParams are the arguments of [Client.Admit].
type AdmitParams struct {
	// Claims are the permits wanted. RequestID, Tenant and Wait of each must be left out.
	Claims []ClaimPermitParams

	// Hits are what is to be counted, with the claims at most 100. Tenant of each must be left out, and a Cost of zero is
	// not served. Hits of one subject of one limit are summed, and must say the same of that limit.
	Hits []HitParams

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// Admission is the answer to [Client.Admit].
type Admission struct {
	// Admitted says whether all of it was: every hit is counted then and every permit granted. Else none is.
	Admitted bool

	// Hits are the decisions, in the order asked for. Where something was refused, the Reason of what was not is
	// [ReasonOthers], and nothing is Allowed.
	Hits []Decision

	// Permits are the answers to the claims, likewise. Each is to be released.
	Permits []*Permit
}

// RetryAfter is the longest wait of those that were refused, after which the same may be admitted. Zero when it was, or
// when no wait helps, as one of them is [ReasonNever] or blocked for ever.
func (a *Admission) RetryAfter() time.Duration {
	var longest time.Duration
	if a.Admitted {
		return 0
	}
	for _, d := range a.Hits {
		if d.Reason != ReasonOthers && d.RetryAfter == 0 {
			return 0
		}
		longest = max(longest, d.RetryAfter)
	}
	for _, p := range a.Permits {
		if p.Reason != ReasonOthers && p.RetryAfter == 0 {
			return 0
		}
		longest = max(longest, p.RetryAfter)
	}
	return longest
}

// HitMany counts attempts and decides each for itself, as so many calls of [Client.Hit] in this order would, in one round
// trip. The answers are in the order of the hits. For observers it is refused when one of them is.
func (c *Client) HitMany(ctx context.Context, p HitManyParams) ([]Decision, error) {
	var args arguments
	wants := make([]want, 0, len(p.Hits))
	for _, hit := range p.Hits {
		if hit.Algorithm != "" || hit.Burst != nil || hit.Tenant != "" {
			args.fail(invalidArgument("a hit with Algorithm, Burst or Tenant", "HitMany takes these from the limit's row and from HitManyParams"))
		}
		w := args.wantedHit(hit)
		if w.Cost == nil {
			w.Cost = N(1)
		}
		wants = append(wants, w)
	}
	args.wants(wants)
	c.tenant(ctx, &args, p.Tenant)
	rows, err := run(ctx, c, statement[decisionRows]{
		args:    args,
		begin:   beginWrite,
		collect: func(rows pgx.Rows) (decisionRows, error) { return list[decisionRow](rows) },
		name:    nameOf(wants),
		sql:     hitManySQL,
		verb:    "hit_many",
	})
	if err != nil {
		return nil, err
	}
	decisions := make([]Decision, len(rows))
	for i, row := range rows {
		decisions[i] = row.decision()
	}
	return decisions, nil
}

// Admit counts hits and claims permits, over any mix of limits and endpoints: all of them or none. A refusal is an
// Admission that is not Admitted, and a nil error; then each that was refused says why and for how long, and nothing was
// counted or claimed.
//
// It is not made again when its reply was lost, for it may have been counted: then there may be permits that nobody
// knows of, until they lapse by themselves. When ctx has ended by the time of the answer, the permits are given back and
// the error is that of ctx; the hits stay counted.
func (c *Client) Admit(ctx context.Context, p AdmitParams) (*Admission, error) {
	var args arguments
	var sent time.Time
	wants := make([]want, 0, len(p.Hits)+len(p.Claims))
	for _, hit := range p.Hits {
		if hit.Tenant != "" {
			args.fail(invalidArgument("a hit with a Tenant", "all that is admitted together is of the tenant in AdmitParams"))
		}
		wants = append(wants, args.wantedHit(hit))
	}
	for _, claim := range p.Claims {
		if claim.RequestID != "" || claim.Tenant != "" || claim.Wait != nil {
			args.fail(invalidArgument("a claim with RequestID, Tenant or Wait", "Admit is made once, and for the tenant in AdmitParams"))
		}
		wants = append(wants, args.wantedClaim(claim))
	}
	args.wants(wants)
	c.tenant(ctx, &args, p.Tenant)
	claims := p.Claims
	rows, err := run(ctx, c, statement[admitRows]{
		args:    args,
		begin:   beginWrite,
		collect: func(rows pgx.Rows) (admitRows, error) { return list[admitRow](rows) },
		name:    nameOf(wants),
		sent:    &sent,
		settle: func(rows admitRows) error {
			if len(rows) != len(wants) {
				return &Error{Message: fmt.Sprintf("%d answers to %d wants", len(rows), len(wants)), wrapped: []error{ErrVersionMismatch}}
			}
			var first error
			for i, claim := range claims {
				if err := c.settle(ctx, rows[len(p.Hits)+i].claim(), claim.Holder); first == nil {
					first = err
				}
			}
			return first
		},
		sql:  admitSQL,
		verb: "admit",
	})
	if err != nil {
		return nil, err
	}
	a := &Admission{Admitted: !rows.refused()}
	for i, row := range rows {
		if i < len(p.Hits) {
			a.Hits = append(a.Hits, row.decision())
			continue
		}
		claim := claims[i-len(p.Hits)]
		claim.Tenant = p.Tenant
		a.Permits = append(a.Permits, c.newPermit(ctx, claim, row.claim(), sent))
	}
	return a, nil
}

// want is one of the wants of admit, or a hit of hit_many. Strings that are wanted are sent even when they are empty, for
// the server to refuse.
type want struct {
	Limit   *string `json:"limit,omitempty"`
	Subject *string `json:"subject,omitempty"`

	Cost      *int64    `json:"cost,omitempty"`
	MaxHits   *int64    `json:"max_hits,omitempty"`
	Per       string    `json:"per,omitempty"`
	Algorithm Algorithm `json:"algorithm,omitempty"`
	Burst     *int64    `json:"burst,omitempty"`

	Endpoint *string `json:"endpoint,omitempty"`
	Holder   *string `json:"holder,omitempty"`

	Weight          *int64          `json:"weight,omitempty"`
	HolderCap       *int64          `json:"holder_cap,omitempty"`
	EndpointCap     *int64          `json:"endpoint_cap,omitempty"`
	InstallationCap *int64          `json:"installation_cap,omitempty"`
	Lease           string          `json:"lease,omitempty"`
	Note            json.RawMessage `json:"note,omitempty"`
}

// nameOf is what observers are told: the first limit or endpoint.
func nameOf(wants []want) string {
	switch {
	case len(wants) == 0:
		return ""
	case wants[0].Limit != nil:
		return *wants[0].Limit
	}
	return *wants[0].Endpoint
}

func (a *arguments) wantedHit(p HitParams) want {
	a.check("limit_name", p.Limit)
	a.check("subject", p.Subject)
	a.check("algorithm", string(p.Algorithm))
	return want{
		Limit: &p.Limit, Subject: &p.Subject, Cost: p.Cost, MaxHits: p.MaxHits, Per: a.windowSpan("per", p.Per, p.Algorithm),
		Algorithm: p.Algorithm, Burst: p.Burst,
	}
}

func (a *arguments) wantedClaim(p ClaimPermitParams) want {
	a.check("endpoint", p.Endpoint)
	a.check("holder", p.Holder)
	var note arguments
	note.note(p.Note)
	if note.err != nil {
		a.fail(note.err)
		p.Note = nil
	}
	return want{
		Endpoint: &p.Endpoint, Holder: &p.Holder, Weight: p.Weight, HolderCap: p.HolderCap, EndpointCap: p.EndpointCap,
		InstallationCap: p.InstallationCap, Lease: a.span("lease", p.Lease), Note: p.Note,
	}
}

// check is text for what is sent within another value.
func (a *arguments) check(name, s string) {
	if err := checkText(name, s); err != nil {
		a.fail(err)
	}
}

// span is a duration as PostgreSQL reads it from text, empty for none.
func (a *arguments) span(name string, d *time.Duration) string {
	if d == nil {
		return ""
	}
	if *d < time.Microsecond {
		a.fail(invalidArgument(fmt.Sprintf("%s of %v", name, *d), "it must be at least a microsecond"))
	}
	return fmt.Sprintf("%d microseconds", d.Microseconds())
}

// windowSpan is the length of a window likewise, for a calendar by its name.
func (a *arguments) windowSpan(name string, d *time.Duration, algorithm Algorithm) string {
	if d != nil && algorithm == AlgorithmCalendar {
		switch *d {
		case 7 * 24 * time.Hour:
			return "1 week"
		case CalendarMonth:
			return "1 month"
		case CalendarYear:
			return "1 year"
		}
	}
	return a.span(name, d)
}

func (a *arguments) wants(wants []want) {
	text, err := json.Marshal(wants)
	if err != nil && a.err == nil {
		a.fail(invalidArgument("what is wanted is not JSON: "+err.Error(), "a note is one JSON value"))
	}
	a.add(string(text))
}

type decisionRows []decisionRow

func (r decisionRows) refused() bool {
	for _, row := range r {
		if !row.Allowed {
			return true
		}
	}
	return false
}

type admitRow struct {
	Admitted     bool                 `db:"admitted"`
	Reason       Reason               `db:"reason"`
	Quota        zeronull.Int8        `db:"quota"`
	Remaining    zeronull.Int8        `db:"remaining"`
	ResetAt      zeronull.Timestamptz `db:"reset_at"`
	PermitID     zeronull.Int8        `db:"permit_id"`
	ExpiresAt    zeronull.Timestamptz `db:"expires_at"`
	LeaseLeft    interval             `db:"lease_left"`
	Cap          zeronull.Int8        `db:"cap"`
	InUse        zeronull.Int8        `db:"in_use"`
	RetryAfter   interval             `db:"retry_after"`
	TimeBound    interval             `db:"time_bound"`
	RowCap       *int64               `db:"row_cap"`
	OnOutage     zeronull.Text        `db:"on_outage"`
	LimitVersion zeronull.Int8        `db:"limit_version"`
	Charged      zeronull.Int8        `db:"charged"`
}

type admitRows []admitRow

func (r admitRows) refused() bool { return len(r) > 0 && !r[0].Admitted }

func (r admitRow) claim() claimRow {
	return claimRow{
		Granted: r.Admitted, Reason: r.Reason, PermitID: r.PermitID, ExpiresAt: r.ExpiresAt, LeaseLeft: r.LeaseLeft,
		Cap: r.Cap, InUse: r.InUse, RetryAfter: r.RetryAfter, TimeBound: r.TimeBound, RowCap: r.RowCap,
		OnOutage: r.OnOutage, LimitVersion: r.LimitVersion,
	}
}

func (r admitRow) decision() Decision {
	return decisionRow{
		Allowed: r.Admitted, Reason: r.Reason, Quota: int64(r.Quota), Remaining: int64(r.Remaining),
		RetryAfter: r.RetryAfter, ResetAt: r.ResetAt, OnOutage: r.OnOutage, LimitVersion: r.LimitVersion,
		Charged: int64(r.Charged),
	}.decision()
}
