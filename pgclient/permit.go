package pgclient

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	claimPermitSQL = `select granted, reason, permit_id, expires_at, expires_at - pg_catalog.clock_timestamp() as lease_left, cap, in_use, retry_after, time_bound, row_cap, on_outage, limit_version, shadow_reason
from pglimit.claim_permit(endpoint => $1::text, holder => $2::text, holder_cap => $3::bigint, endpoint_cap => $4::bigint,
    installation_cap => $5::bigint, lease => $6::interval, weight => $7::bigint, request_id => $8::text, note => $9::text::jsonb,
    tenant => $10::text)`

	reassertPermitSQL = `select renewed, reason, expires_at, expires_at - pg_catalog.clock_timestamp() as lease_left
from pglimit.reassert_permit(permit_id => $1::bigint, endpoint => $2::text, holder => $3::text, holder_cap => $4::bigint,
    endpoint_cap => $5::bigint, installation_cap => $6::bigint, lease => $7::interval, weight => $8::bigint,
    note => $9::text::jsonb, tenant => $10::text)`

	releasePermitSQL = `select released, reason from pglimit.release_permit(permit_id => $1::bigint, holder => $2::text)`

	renewPermitSQL = `select renewed, reason, expires_at, expires_at - pg_catalog.clock_timestamp() as lease_left
from pglimit.renew_permit(permit_id => $1::bigint, lease => $2::interval)`
)

// ClaimPermitParams are the arguments of [Client.ClaimPermit].
type ClaimPermitParams struct {
	// Endpoint is the heavy operation, Holder who runs it. Both are required.
	Endpoint, Holder string

	// EndpointCap, HolderCap and InstallationCap bound the permits in use at the endpoint, by the holder there, and
	// everywhere together. Zero is closed. Each defaults to the endpoint's row; without a row a pool whose cap is not
	// given does not count.
	EndpointCap, HolderCap, InstallationCap *int64

	// Lease is how long the permit lasts unless it is renewed or released. Defaults to the time bound of the endpoint's
	// row plus 30 seconds; with neither the call is invalid.
	Lease *time.Duration

	// Note is kept with the permit for those who list it. Defaults to none.
	Note json.RawMessage

	// RequestID tells this claim from others of the same holder at the endpoint: while the permit that it was granted
	// lives, a claim with the same one has that permit, and takes nothing. It is for programs that can be stopped between
	// claim and work and then start over, and has 1 to 200 printable ASCII characters. It does not go with Wait. Defaults
	// to a fresh random one for each call.
	RequestID string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Wait is how long to wait in turn for a permit that is refused because its pools are in use. Defaults to not waiting.
	// See [Client.ClaimPermit].
	Wait *time.Duration

	// Weight is how many places the permit takes in each pool. Defaults to 1.
	Weight *int64
}

// Permit is the answer to a claim. It is safe for concurrent use, and its fields are not changed by its methods: what
// becomes of a granted permit is told by [Permit.Lost].
type Permit struct {
	// Granted says whether the work may start. Everything below but Reason is about the permit when it is true, about
	// the refusal when it is false.
	Granted bool

	// Cap and InUse are those of the pool that refused, or would have in [ModeShadow]; of [ReasonQueueFull] how many may
	// wait, and do. 0 when granted, for a grant does not count its pools.
	Cap, InUse int64

	// Endpoint and Holder are those of the claim.
	Endpoint, Holder string

	// ExpiresAt is when the permit lapses by itself, on the database's clock. Renewals answer the instant that follows.
	ExpiresAt time.Time

	// ID only ever grows from claim to claim, so it serves as a fencing token. Zero when refused.
	ID int64

	// LimitVersion is the version of the endpoint's row, zero without one.
	LimitVersion int64

	// OnOutage is what the endpoint's row wishes while the database cannot be reached, empty without one.
	OnOutage OnOutage

	// Reason is [ReasonGranted], or whose cap refused: [ReasonHolder], [ReasonEndpoint], [ReasonInstallation]; or
	// [ReasonNever] for a weight above a cap, such as a cap of zero; or [ReasonQueue] where others wait for the room there
	// is, [ReasonQueueFull] where no more may wait. A permit that was granted for the endpoint's mode has [ReasonShadow] or
	// [ReasonOff].
	Reason Reason

	// RetryAfter is when the next place comes free at the latest, unless it is renewed. Zero when granted or never.
	RetryAfter time.Duration

	// ShadowReason is what [ModeEnforce] would have refused a claim with that was granted with [ReasonShadow]. Empty for
	// others.
	ShadowReason Reason

	// RowCap and TimeBound are the bounds of the work, from the endpoint's row. Nil and zero for none.
	RowCap    *int64
	TimeBound time.Duration

	client *Client
	lease  *lease // nil when refused
}

// ReleaseResult is the answer to a release.
type ReleaseResult struct {
	// Released is true for the one release that gave the permit back.
	Released bool `db:"released"`

	// Reason is [ReasonReleased]; [ReasonLapsed] when the lease had ended; [ReasonUnknown] when the permit was released
	// before, purged, lost in a crash of the database, or never granted; or [ReasonNotHolder].
	Reason Reason `db:"reason"`
}

// RenewResult is the answer to a renewal, and to a reassertion.
type RenewResult struct {
	// ExpiresAt is when the permit lapses now; or when it lapsed. Zero when unknown.
	ExpiresAt time.Time

	// Reason is [ReasonRenewed], [ReasonLapsed] or [ReasonUnknown]; after a crash of the database also those of
	// [Client.ReassertPermit].
	Reason Reason

	// Renewed is false when the permit is no longer held: the work goes on without one.
	Renewed bool
}

// ClaimPermit asks for a permit to run a heavy operation. A refusal is a Permit that is not Granted, and a nil error.
//
// The claim runs to its end whatever becomes of ctx. If it is granted and ctx has ended by then, nobody is there to
// release it, so it is given back at once and the error is that of ctx. Should giving it back fail, the error says so
// and names the permit, which then lapses by itself.
//
// A claim whose reply was lost, as the connection broke or no answer came within the time-out, may have been granted all
// the same. So it is made again with the same RequestID, on another connection, at most twice and not after ctx has
// ended; each attempt has the time-out of its own. Whatever the server answers is final. When no attempt has an answer,
// the error says so: then there may be a permit that nobody knows of, until it lapses by itself.
//
// With Wait, a claim whose pools are in use draws a ticket of the endpoint's queue and asks from time to time, as the
// server says, whether its turn has come. A holder's tickets are served in their order, and holders take turns; while it
// waits it holds no connection. When the time is over the answer is the last refusal, with the same reasons as without
// Wait; [ReasonNever] and [ReasonQueueFull] are not waited for. It can take as much longer as the last call does. When
// ctx ends, the ticket is given up at once and the error is that of ctx. When ClaimPermit returns without a permit, its
// ticket is gone, or lapses in seconds, as that of a process that has died does. A ticket that was lost, as the process
// was stopped for long or the database crashed, is drawn anew, at the end of the queue, nine times at most. While the
// database is away the claim asks twice more within a few seconds, then it fails like any other.
//
// A granted permit should be released as soon as the work has ended:
//
//	defer permit.Release(ctx)
func (c *Client) ClaimPermit(ctx context.Context, p ClaimPermitParams) (*Permit, error) {
	start := now()
	o := Observation{Name: p.Endpoint, Operation: "claim_permit"}
	row, sent, err := c.claim(ctx, p, start, &o)
	o.Duration, o.Err, o.Outcome = since(start), err, outcomeOf(!row.Granted, err)
	c.report(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.newPermit(ctx, p, row, sent), nil
}

// claim claims once, and waits when it is refused and may. It also returns when the answered call was sent.
func (c *Client) claim(ctx context.Context, p ClaimPermitParams, start time.Time, o *Observation) (row claimRow, sent time.Time, err error) {
	var args arguments
	p.what(&args)
	requestID := p.RequestID
	if requestID == "" {
		requestID = rand.Text()
	}
	args.text("request_id", requestID)
	args.note(p.Note)
	c.tenant(ctx, &args, p.Tenant)
	switch {
	case p.Wait == nil:
	case *p.Wait < 0:
		args.fail(invalidArgument(fmt.Sprintf("Wait of %v", *p.Wait), "it must not be negative; none at all tries once"))
	case p.RequestID != "":
		args.fail(invalidArgument("RequestID together with Wait", "a claim that waits is told from others by its ticket"))
	}
	row, o.Retries, err = call(ctx, c, statement[claimRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[claimRow],
		name:    p.Endpoint,
		repeat:  unknownPermit,
		sent:    &sent,
		settle:  func(row claimRow) error { return c.settle(ctx, row, p.Holder) },
		sql:     claimPermitSQL,
		verb:    "claim_permit",
	})
	if err == nil && p.Wait != nil && !row.Granted && row.Reason.waits() {
		return c.wait(ctx, p, row, start.Add(*p.Wait), o)
	}
	return row, sent, err
}

// what adds the arguments that claim_permit and enqueue_permit have in common, but for the last.
func (p ClaimPermitParams) what(args *arguments) {
	args.text("endpoint", p.Endpoint)
	args.text("holder", p.Holder)
	args.optionalNumber(p.HolderCap)
	args.optionalNumber(p.EndpointCap)
	args.optionalNumber(p.InstallationCap)
	args.optionalDuration("lease", p.Lease)
	args.numberOr(p.Weight, 1)
}

// unknownPermit is what a claim may leave behind whose replies were lost.
const unknownPermit = "there may be a permit that nobody knows of, until it lapses by itself"

func (c *Client) newPermit(ctx context.Context, p ClaimPermitParams, row claimRow, sent time.Time) *Permit {
	permit := &Permit{
		Granted:      row.Granted,
		Cap:          int64(row.Cap),
		InUse:        int64(row.InUse),
		Endpoint:     p.Endpoint,
		Holder:       p.Holder,
		ExpiresAt:    time.Time(row.ExpiresAt),
		ID:           int64(row.PermitID),
		LimitVersion: int64(row.LimitVersion),
		OnOutage:     OnOutage(row.OnOutage),
		Reason:       row.Reason,
		RetryAfter:   time.Duration(row.RetryAfter),
		RowCap:       row.RowCap,
		ShadowReason: Reason(row.ShadowReason),
		TimeBound:    time.Duration(row.TimeBound),
		client:       c,
	}
	if row.Granted {
		lease := permit.TimeBound + leaseMargin
		if p.Lease != nil {
			lease = *p.Lease
		}
		permit.lease = newLease(sent, time.Duration(row.LeaseLeft), lease, permit.ExpiresAt)
		permit.lease.claim, permit.lease.tenant = p.clone(), c.tenantOf(ctx, p.Tenant)
	}
	return permit
}

// leaseMargin is how much longer than the time bound a lease is that the claim does not give.
const leaseMargin = 30 * time.Second

// settle releases a permit that was granted to a caller who has gone, and returns the error for it.
func (c *Client) settle(ctx context.Context, row claimRow, holder string) error {
	if !row.Granted || ctx.Err() == nil {
		return nil
	}
	released, err := c.ReleasePermit(ctx, int64(row.PermitID), holder)
	switch {
	case err != nil:
		return contextEnded(ctx, fmt.Sprintf("the context ended before permit %d was granted, and giving it back failed; it lapses at %s: %v",
			row.PermitID, time.Time(row.ExpiresAt).Format(time.RFC3339), err), err)
	case !released.Released:
		return contextEnded(ctx, fmt.Sprintf("the context ended before permit %d was granted, and it was gone before it was given back: %s",
			row.PermitID, released.Reason))
	}
	return contextEnded(ctx, fmt.Sprintf("the context ended before permit %d was granted; it was given back", row.PermitID))
}

// ReleasePermit gives a permit back, so that its places are free at once. It is idempotent: for a permit that is no
// longer held it changes nothing and says why in the result, with a nil error. Where holder is not empty, the permit is
// released only if it is that holder's. Any caller of the role pglimit_app may release any permit.
func (c *Client) ReleasePermit(ctx context.Context, id int64, holder string) (ReleaseResult, error) {
	var args arguments
	args.add(id)
	args.optionalText("holder", holder)
	return run(ctx, c, statement[ReleaseResult]{
		args:    args,
		begin:   beginWrite,
		collect: one[ReleaseResult],
		sql:     releasePermitSQL,
		verb:    "release_permit",
	})
}

// RenewPermit has a permit last for lease from now; with a nil lease, for as long as its claim asked for. It never lasts
// longer than the endpoint's row allowed when it was claimed, renewals included. A permit that has lapsed cannot be
// renewed: the result says so, with a nil error.
func (c *Client) RenewPermit(ctx context.Context, id int64, lease *time.Duration) (RenewResult, error) {
	r, _, _, err := c.renewPermit(ctx, nil, 0, id, lease)
	return r, err
}

// renewPermit also returns how much of the lease was left when the server answered, and when it was asked: zero when
// it was not.
func (c *Client) renewPermit(ctx context.Context, source Connections, timeout time.Duration, id int64, lease *time.Duration) (
	r RenewResult, left time.Duration, sent time.Time, err error,
) {
	var args arguments
	args.add(id)
	args.optionalDuration("lease", lease)
	row, err := run(ctx, c, statement[renewRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[renewRow],
		sent:    &sent,
		source:  source,
		sql:     renewPermitSQL,
		timeout: timeout,
		verb:    "renew_permit",
	})
	r = RenewResult{ExpiresAt: time.Time(row.ExpiresAt), Reason: row.Reason, Renewed: row.Renewed}
	return r, time.Duration(row.LeaseLeft), sent, err
}

// ReassertPermit takes a permit again that a crash of the database, or the promotion of a standby, has lost: under its
// own id and within its caps, as long as the grace time after the loss lasts. The parameters are those of its claim,
// of which RequestID and Wait count for nothing. A permit that is live is renewed.
//
// Whether the permit is held is RenewResult.Renewed; a refusal has a nil error. Beside those of a renewal its reasons are
// [ReasonReasserted], [ReasonLate], [ReasonNotHolder], and whose cap has no room, as for a claim. It is for programs that
// keep ids by themselves: [Permit.Renew] and [Permit.KeepAlive] do it where it is needed.
func (c *Client) ReassertPermit(ctx context.Context, id int64, p ClaimPermitParams) (RenewResult, error) {
	r, _, _, err := c.reassertPermit(ctx, nil, 0, id, p, c.tenantOf(ctx, p.Tenant))
	return r, err
}

// reassertPermit is to ReassertPermit what renewPermit is to RenewPermit.
func (c *Client) reassertPermit(ctx context.Context, source Connections, timeout time.Duration, id int64, p ClaimPermitParams,
	tenant *string,
) (r RenewResult, left time.Duration, sent time.Time, err error) {
	var args arguments
	args.add(id)
	args.text("endpoint", p.Endpoint)
	args.text("holder", p.Holder)
	args.optionalNumber(p.HolderCap)
	args.optionalNumber(p.EndpointCap)
	args.optionalNumber(p.InstallationCap)
	args.optionalDuration("lease", p.Lease)
	args.numberOr(p.Weight, 1)
	args.note(p.Note)
	c.tenantFilter(ctx, &args, tenant)
	row, err := run(ctx, c, statement[renewRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[renewRow],
		name:    p.Endpoint,
		sent:    &sent,
		source:  source,
		sql:     reassertPermitSQL,
		timeout: timeout,
		verb:    "reassert_permit",
	})
	r = RenewResult{ExpiresAt: time.Time(row.ExpiresAt), Reason: row.Reason, Renewed: row.Renewed}
	return r, time.Duration(row.LeaseLeft), sent, err
}

// clone shares nothing with the caller, who may change what he passed.
func (p ClaimPermitParams) clone() ClaimPermitParams {
	for _, n := range []**int64{&p.HolderCap, &p.EndpointCap, &p.InstallationCap, &p.Weight} {
		if *n != nil {
			*n = N(**n)
		}
	}
	if p.Lease != nil {
		p.Lease = D(*p.Lease)
	}
	p.Note = slices.Clone(p.Note)
	return p
}

// Release gives the permit back as [Client.ReleasePermit] does, and ends what [Permit.KeepAlive] began. It works with a
// context that has ended, so it can be deferred. Should it fail, the permit lapses by itself. On a permit that was refused, and on a nil one, it does nothing and asks nobody.
func (p *Permit) Release(ctx context.Context) (ReleaseResult, error) {
	if p == nil || p.lease == nil {
		return ReleaseResult{Reason: ReasonUnknown}, nil
	}
	p.lease.lose()
	return p.client.ReleasePermit(ctx, p.ID, p.Holder)
}

// Renew has the permit last for lease from now, as [Client.RenewPermit] does; with a nil lease, for as long as the last
// Renew asked for, or else the claim. It takes its turn with the renewals of [Permit.KeepAlive], which go on with the
// same lease. A permit that was refused, or is nil, is not renewed, and nobody is asked.
//
// Where the database does not know the permit, a crash may have lost it: then it is reasserted once, as by
// [Client.ReassertPermit] with what its claim asked for, and Reason is [ReasonReasserted], or says why not.
func (p *Permit) Renew(ctx context.Context, lease *time.Duration) (RenewResult, error) {
	if p == nil || p.lease == nil {
		return RenewResult{Reason: ReasonUnknown}, nil
	}
	result, _, err := p.lease.renew(ctx, p.client, nil, 0, p.ID, lease)
	return result, err
}

type claimRow struct {
	Granted      bool                 `db:"granted"`
	Reason       Reason               `db:"reason"`
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
	ShadowReason zeronull.Text        `db:"shadow_reason"`
}

func (r claimRow) refused() bool { return !r.Granted }

type renewRow struct {
	Renewed   bool                 `db:"renewed"`
	Reason    Reason               `db:"reason"`
	ExpiresAt zeronull.Timestamptz `db:"expires_at"`
	LeaseLeft interval             `db:"lease_left"`
}
