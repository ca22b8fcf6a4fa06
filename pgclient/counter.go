package pgclient

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	decisionColumns = `select allowed, reason, quota, remaining, retry_after, reset_at, on_outage, limit_version, charged
from pglimit.`

	hitArguments = `(limit_name => $1::text, subject => $2::text, max_hits => $3::bigint, per => $4::interval,
    cost => $5::bigint, algorithm => $6::text, burst => $7::bigint, tenant => $8::text)`

	forgetSQL = `select pglimit.forget(limit_name => $1::text, subject => $2::text, tenant => $3::text)`
	hitSQL    = decisionColumns + "hit" + hitArguments
	peekSQL   = decisionColumns + "peek" + hitArguments
)

// Decision is the answer to a hit or a peek.
type Decision struct {
	// Allowed says whether the attempt may go on.
	Allowed bool

	// Charged is how much was counted: the cost, or zero for a refusal, a look and a limit that is off.
	Charged int64

	// LimitVersion is the version of the limit's row, or of the subject's override where one decided; zero without one.
	LimitVersion int64

	// OnOutage is what the limit's row wishes while the database cannot be reached, empty without one.
	OnOutage OnOutage

	// Quota is the hits the limit allows, Remaining what is left of them after this one; never negative.
	Quota, Remaining int64

	// Reason is [ReasonAllowed] or [ReasonLimit]; or [ReasonNever] for a cost above the quota, and for a quota of zero; or
	// [ReasonBlocked] for a subject that is blocked or paused. Of a limit that is not enforced it is [ReasonShadow] for what
	// would have been refused, or [ReasonOff]. Of [Client.Admit] it may be [ReasonOthers].
	Reason Reason

	// ResetAt is when the whole quota is there again, on the database's clock. Zero while nothing is counted.
	ResetAt time.Time

	// RetryAfter is how long to wait until the same hit can be allowed. Zero when allowed, never, or blocked for ever; with
	// [ReasonShadow] it is what the refusal would have said.
	RetryAfter time.Duration
}

// ForgetParams are the arguments of [Client.Forget].
type ForgetParams struct {
	// Limit and Subject name the count. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// HitParams are the arguments of [Client.Hit] and [Client.Peek].
type HitParams struct {
	// Limit is the name of the limit, Subject whom it counts. Both are required. The subject is compared byte by byte:
	// fold case and Unicode forms before, where two spellings are one subject.
	Limit, Subject string

	// Algorithm, Burst, MaxHits and Per say what the limit is. Each defaults to the limit's row; MaxHits and Per are
	// needed where there is none. A MaxHits of zero is closed. Who gives both MaxHits and Per gives the Algorithm too, or
	// means [AlgorithmFixedWindow].
	Algorithm Algorithm
	Burst     *int64
	MaxHits   *int64
	Per       *time.Duration

	// Cost is how many hits this one counts for; zero looks and counts nothing. Defaults to 1.
	Cost *int64

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// Forget clears the count of a subject. It reports whether there was one to clear.
func (c *Client) Forget(ctx context.Context, p ForgetParams) (bool, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    p.Limit,
		sql:     forgetSQL,
		verb:    "forget",
	})
}

// Hit counts an attempt and decides about it. A refusal is a Decision that is not Allowed, and a nil error; it counts
// nothing. An error means that there is no decision: whether to go on is the caller's choice.
//
// The hit is counted whatever becomes of ctx, even if it had ended before the call: a failed sign-in whose request is
// cancelled is a failed sign-in.
func (c *Client) Hit(ctx context.Context, p HitParams) (Decision, error) {
	return c.decide(ctx, "hit", beginWrite, hitSQL, p)
}

// Peek decides as [Client.Hit] would, and counts nothing.
func (c *Client) Peek(ctx context.Context, p HitParams) (Decision, error) {
	return c.decide(ctx, "peek", beginRead, peekSQL, p)
}

func (c *Client) decide(ctx context.Context, verb, begin, sql string, p HitParams) (Decision, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.optionalNumber(p.MaxHits)
	args.optionalWindow("per", p.Per, p.Algorithm)
	args.numberOr(p.Cost, 1)
	args.optionalText("algorithm", string(p.Algorithm))
	args.optionalNumber(p.Burst)
	c.tenant(ctx, &args, p.Tenant)
	row, err := run(ctx, c, statement[decisionRow]{
		args:    args,
		begin:   begin,
		collect: one[decisionRow],
		name:    p.Limit,
		sql:     sql,
		verb:    verb,
	})
	return row.decision(), err
}

type decisionRow struct {
	Allowed      bool                 `db:"allowed"`
	Reason       Reason               `db:"reason"`
	Quota        int64                `db:"quota"`
	Remaining    int64                `db:"remaining"`
	RetryAfter   interval             `db:"retry_after"`
	ResetAt      zeronull.Timestamptz `db:"reset_at"`
	OnOutage     zeronull.Text        `db:"on_outage"`
	LimitVersion zeronull.Int8        `db:"limit_version"`
	Charged      int64                `db:"charged"`
}

func (r decisionRow) decision() Decision {
	return Decision{
		Allowed:      r.Allowed,
		Charged:      r.Charged,
		LimitVersion: int64(r.LimitVersion),
		OnOutage:     OnOutage(r.OnOutage),
		Quota:        r.Quota,
		Remaining:    r.Remaining,
		Reason:       r.Reason,
		ResetAt:      time.Time(r.ResetAt),
		RetryAfter:   time.Duration(r.RetryAfter),
	}
}

func (r decisionRow) refused() bool { return !r.Allowed }
