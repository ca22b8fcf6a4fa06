package pgclient

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	chargeSQL = `select charged, reason, remaining, debt, reset_at
from pglimit.charge(limit_name => $1::text, subject => $2::text, cost => $3::bigint, max_debt => $4::bigint, tenant => $5::text,
    max_hits => $6::bigint, per => $7::interval, algorithm => $8::text, burst => $9::bigint)`

	hitUpToSQL = `select allowed, reason, quota, remaining, retry_after, reset_at, on_outage, limit_version, charged
from pglimit.hit_up_to(limit_name => $1::text, subject => $2::text, wanted => $3::bigint, at_least => $4::bigint,
    max_hits => $5::bigint, per => $6::interval, algorithm => $7::text, burst => $8::bigint, tenant => $9::text)`

	holdSQL = `select held, reason, hold_id, remaining, retry_after, expires_at
from pglimit.hold(limit_name => $1::text, subject => $2::text, estimate => $3::bigint, ttl => $4::interval,
    max_hits => $5::bigint, per => $6::interval, algorithm => $7::text, burst => $8::bigint, tenant => $9::text)`

	listHoldsSQL = `select hold_id, tenant, limit_name, subject, charged, held_at, expires_at, state, actual, durable
from pglimit.list_holds(limit_filter => $1::text, subject_filter => $2::text, after => $3::bigint, max_rows => $4::int,
    tenant_filter => $5::text, state_filter => $6::text)`

	refundSQL = `select pglimit.refund(limit_name => $1::text, subject => $2::text, cost => $3::bigint, tenant => $4::text,
    max_hits => $5::bigint, per => $6::interval, algorithm => $7::text, burst => $8::bigint)`

	settleSQL = `select settled, reason, coalesce(remaining, 0) as remaining, coalesce(debt, 0) as debt
from pglimit.settle(hold_id => $1::bigint, actual => $2::bigint)`
)

// Charge is the answer to [Client.Charge].
type Charge struct {
	// Charged says whether the cost was taken; of a limit that is not enforced also that it need not be.
	Charged bool

	// Debt is how far the count is below nothing, Remaining what is left; one of them is zero.
	Debt, Remaining int64

	// Reason is [ReasonCharged]; or [ReasonDebt] or [ReasonNever] when the debt would be more than MaxDebt. Of a limit that
	// is not enforced it may be [ReasonShadow] or [ReasonOff].
	Reason Reason

	// ResetAt is when the whole quota is there again, on the database's clock. Zero while nothing is counted.
	ResetAt time.Time
}

// ChargeParams are the arguments of [Client.Charge].
type ChargeParams struct {
	// Limit, Subject, Algorithm, Burst, MaxHits, Per and Tenant are as in [HitParams].
	Limit, Subject string
	Algorithm      Algorithm
	Burst          *int64
	MaxHits        *int64
	Per            *time.Duration
	Tenant         string

	// Cost is what was used. Zero looks.
	Cost int64

	// MaxDebt is how far below nothing the count may go. Defaults to no bound.
	MaxDebt *int64
}

// Hold is the answer to [Client.Hold].
type Hold struct {
	// Held is whether the estimate was charged, or need not be.
	Held bool

	// ExpiresAt is when the hold lapses, on the database's clock; zero when nothing was charged.
	ExpiresAt time.Time

	// ID is what [Client.Settle] takes. Zero when nothing was charged: settling it is allowed and changes nothing.
	ID int64

	// Reason is [ReasonHeld]; [ReasonLimit], [ReasonNever] for an estimate above the quota, or [ReasonBlocked]. Of a limit
	// that is not enforced it may be [ReasonShadow] or [ReasonOff].
	Reason Reason

	// Remaining is what is left, RetryAfter how long to wait until the same hold can be made; zero when held, never, or
	// blocked for ever.
	Remaining  int64
	RetryAfter time.Duration
}

// HoldParams are the arguments of [Client.Hold].
type HoldParams struct {
	// Limit, Subject, Algorithm, Burst, MaxHits, Per and Tenant are as in [HitParams].
	Limit, Subject string
	Algorithm      Algorithm
	Burst          *int64
	MaxHits        *int64
	Per            *time.Duration
	Tenant         string

	// Estimate is what is charged until the hold is settled: one or more.
	Estimate int64

	// TTL is how long it can be settled. Required. What becomes of it later is the limit's [OnLapse].
	TTL time.Duration
}

// HitUpToParams are the arguments of [Client.HitUpTo].
type HitUpToParams struct {
	// Hit names the limit and the subject. Its Cost must be left out: Wanted is in its place.
	Hit HitParams

	// AtLeast is how much is worth having. Defaults to 1.
	AtLeast *int64

	// Wanted is how much would be taken.
	Wanted int64
}

// HoldRow is one hold, as [Client.ListHolds] shows it.
type HoldRow struct {
	// Actual is what it was settled at. Nil before.
	Actual *int64 `db:"actual"`

	// Charged is what was charged when it was held.
	Charged int64 `db:"charged"`

	// Durable holds survive a crash.
	Durable bool `db:"durable"`

	ExpiresAt time.Time `db:"expires_at"`
	HeldAt    time.Time `db:"held_at"`
	ID        int64     `db:"hold_id"` // also what to give as After to go on behind this row
	Limit     string    `db:"limit_name"`
	State     HoldState `db:"state"`
	Subject   string    `db:"subject"`
	Tenant    string    `db:"tenant"`
}

// HoldState is what has become of a hold.
type HoldState string

const (
	HoldOpen     HoldState = "open"     // it can be settled
	HoldLapsed   HoldState = "lapsed"   // its time was over before it was settled, and its charge stays
	HoldSettled  HoldState = "settled"  // its charge is what was used
	HoldReturned HoldState = "returned" // it lapsed, and purge gave back of it what was still counted
)

// ListHoldsParams are the arguments of [Client.ListHolds]. Filters are exact; an empty one shows all.
type ListHoldsParams struct {
	// After is the ID of the last row seen. Defaults to the beginning.
	After int64

	Limit, Subject string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// State shows holds that became this. Defaults to all.
	State HoldState

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// OnLapse is what becomes of a hold that is not settled in time.
type OnLapse string

const (
	OnLapseKeep   OnLapse = "keep"   // it stays charged
	OnLapseReturn OnLapse = "return" // purge gives it back
)

// RefundParams are the arguments of [Client.Refund].
type RefundParams struct {
	// Limit, Subject, Algorithm, Burst, MaxHits, Per and Tenant are as in [HitParams].
	Limit, Subject string
	Algorithm      Algorithm
	Burst          *int64
	MaxHits        *int64
	Per            *time.Duration
	Tenant         string

	// Cost is what to give back.
	Cost int64
}

// Settlement is the answer to [Client.Settle].
type Settlement struct {
	// Settled is whether the hold is settled, by this call or an earlier one. The settlement of ID zero, of a [Hold] that
	// charged nothing, is too.
	Settled bool `db:"settled"`

	// Reason is [ReasonSettled]; [ReasonAgain] when it was settled before; [ReasonLapsed] when its time was over; or
	// [ReasonUnknown] when it is not there, for it lapsed long ago or was lost in a crash. All but the first change nothing.
	Reason Reason `db:"reason"`

	// Debt is how far the count is below nothing, Remaining what is left. Both are zero for [ReasonUnknown].
	Debt      int64 `db:"debt"`
	Remaining int64 `db:"remaining"`
}

func (r Settlement) refused() bool { return !r.Settled }

// limitOf adds the arguments of a limit that the call brings.
func limitOf(args *arguments, maxHits *int64, per *time.Duration, algorithm Algorithm, burst *int64) {
	args.optionalNumber(maxHits)
	args.optionalWindow("per", per, algorithm)
	args.optionalText("algorithm", string(algorithm))
	args.optionalNumber(burst)
}

// Charge counts what was used already, whether or not it was left: the count goes into debt, down to MaxDebt below nothing.
// While there is debt every hit is refused. It is counted whatever becomes of ctx, as in [Client.Hit], and also while the
// subject is blocked.
func (c *Client) Charge(ctx context.Context, p ChargeParams) (Charge, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.add(p.Cost)
	args.optionalNumber(p.MaxDebt)
	c.tenant(ctx, &args, p.Tenant)
	limitOf(&args, p.MaxHits, p.Per, p.Algorithm, p.Burst)
	row, err := run(ctx, c, statement[chargeRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[chargeRow],
		name:    p.Limit,
		sql:     chargeSQL,
		verb:    "charge",
	})
	return Charge{Charged: row.Charged, Debt: row.Debt, Reason: row.Reason, Remaining: row.Remaining, ResetAt: time.Time(row.ResetAt)}, err
}

// HitUpTo counts as much as is left, from AtLeast to Wanted: Charged says how much. A limit that is not enforced stands in
// nobody's way: go by Wanted where the Reason is [ReasonShadow] or [ReasonOff].
func (c *Client) HitUpTo(ctx context.Context, p HitUpToParams) (Decision, error) {
	var args arguments
	if p.Hit.Cost != nil {
		args.fail(invalidArgument("a hit with a Cost", "HitUpTo takes AtLeast and Wanted instead"))
	}
	args.text("limit_name", p.Hit.Limit)
	args.text("subject", p.Hit.Subject)
	args.add(p.Wanted)
	args.numberOr(p.AtLeast, 1)
	limitOf(&args, p.Hit.MaxHits, p.Hit.Per, p.Hit.Algorithm, p.Hit.Burst)
	c.tenant(ctx, &args, p.Hit.Tenant)
	row, err := run(ctx, c, statement[decisionRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[decisionRow],
		name:    p.Hit.Limit,
		sql:     hitUpToSQL,
		verb:    "hit_up_to",
	})
	return row.decision(), err
}

// Hold charges an estimate that [Client.Settle] corrects once it is known what it was: tokens of a model, rows of an export.
// A refusal is a Hold that is not Held, and a nil error. When the reply is lost the estimate stays charged until the hold
// lapses.
func (c *Client) Hold(ctx context.Context, p HoldParams) (Hold, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.add(p.Estimate)
	args.duration("ttl", p.TTL)
	limitOf(&args, p.MaxHits, p.Per, p.Algorithm, p.Burst)
	c.tenant(ctx, &args, p.Tenant)
	row, err := run(ctx, c, statement[holdRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[holdRow],
		name:    p.Limit,
		sql:     holdSQL,
		verb:    "hold",
	})
	return Hold{
		ExpiresAt:  time.Time(row.ExpiresAt),
		Held:       row.Held,
		ID:         int64(row.ID),
		Reason:     row.Reason,
		Remaining:  row.Remaining,
		RetryAfter: time.Duration(row.RetryAfter),
	}, err
}

// ListHolds returns a page of holds, in the order they were made; also of those that are over, until a purge removes them.
func (c *Client) ListHolds(ctx context.Context, p ListHoldsParams) ([]HoldRow, error) {
	var args arguments
	args.optionalText("limit_filter", p.Limit)
	args.optionalText("subject_filter", p.Subject)
	if p.After == 0 {
		args.add(nil)
	} else {
		args.add(p.After)
	}
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	args.optionalText("state_filter", string(p.State))
	return run(ctx, c, statement[[]HoldRow]{
		args:    args,
		begin:   beginRead,
		collect: list[HoldRow],
		name:    p.Limit,
		sql:     listHoldsSQL,
		verb:    "list_holds",
	})
}

// Refund gives hits back that are counted now, and returns what remains: never more than the quota.
func (c *Client) Refund(ctx context.Context, p RefundParams) (remaining int64, err error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.add(p.Cost)
	c.tenant(ctx, &args, p.Tenant)
	limitOf(&args, p.MaxHits, p.Per, p.Algorithm, p.Burst)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Limit,
		sql:     refundSQL,
		verb:    "refund",
	})
}

// Settle makes the charge of a hold what it was in the end. It counts once, so a call whose reply was lost can be made
// again. What was used beyond a hold that has lapsed is for [Client.Charge].
func (c *Client) Settle(ctx context.Context, holdID, actual int64) (Settlement, error) {
	var args arguments
	args.add(holdID)
	args.add(actual)
	return run(ctx, c, statement[Settlement]{
		args:    args,
		begin:   beginWrite,
		collect: one[Settlement],
		sql:     settleSQL,
		verb:    "settle",
	})
}

type chargeRow struct {
	Charged   bool                 `db:"charged"`
	Reason    Reason               `db:"reason"`
	Remaining int64                `db:"remaining"`
	Debt      int64                `db:"debt"`
	ResetAt   zeronull.Timestamptz `db:"reset_at"`
}

func (r chargeRow) refused() bool { return !r.Charged }

type holdRow struct {
	Held       bool                 `db:"held"`
	Reason     Reason               `db:"reason"`
	ID         zeronull.Int8        `db:"hold_id"`
	Remaining  int64                `db:"remaining"`
	RetryAfter interval             `db:"retry_after"`
	ExpiresAt  zeronull.Timestamptz `db:"expires_at"`
}

func (r holdRow) refused() bool { return !r.Held }
