package pgclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	enqueuePermitSQL = `select enqueued, reason, ticket, ahead, poll_after, deadline_at, cap, in_use
from pglimit.enqueue_permit(endpoint => $1::text, holder => $2::text, holder_cap => $3::bigint, endpoint_cap => $4::bigint,
    installation_cap => $5::bigint, lease => $6::interval, weight => $7::bigint, deadline => $8::interval, note => $9::text::jsonb,
    tenant => $10::text)`

	pollTicketSQL = `select granted, reason, permit_id, expires_at, expires_at - pg_catalog.clock_timestamp() as lease_left, cap, in_use, retry_after, time_bound, row_cap, on_outage, limit_version, shadow_reason, ahead, poll_after
from pglimit.poll_ticket(ticket => $1::bigint)`
)

// defaultWait is enqueue_permit's own default.
const defaultWait = time.Minute

// longestTicket is a little less than the longest time that the functions take.
const longestTicket = 36_500 * 24 * time.Hour

// maxDraws is how many tickets one claim draws at most. A second one is for what seldom happens, so that many are a
// sign of somebody who releases them.
const maxDraws = 10

// drawPause is that before a ticket is drawn again, when so many were drawn that this one had to wait for too long.
const drawPause = 200 * time.Millisecond

// outagePauses are those before a ticket is polled again whose poll failed; together shorter than it lives.
var outagePauses = [...]time.Duration{250 * time.Millisecond, time.Second}

// Ticket is the answer of [Client.EnqueuePermit].
type Ticket struct {
	// Ahead is how many tickets were before this one.
	Ahead int64

	// Cap and InUse are, of [ReasonQueueFull], how many tickets may wait and do; of [ReasonNever], Cap is that of the pool.
	Cap, InUse int64

	// DeadlineAt is when the ticket ends, on the database's clock.
	DeadlineAt time.Time

	// Enqueued says whether there is a ticket.
	Enqueued bool

	// ID is for [Client.PollTicket], and for [Client.ReleasePermit] to give the ticket up. Zero for none.
	ID int64

	// PollAfter is when to poll the ticket.
	PollAfter time.Duration

	// Reason is [ReasonWaiting], [ReasonQueueFull] or [ReasonNever].
	Reason Reason
}

// Poll is the answer of [Client.PollTicket].
type Poll struct {
	// Ahead is how many tickets were before this one lately.
	Ahead int64

	// Permit is the one granted, or what the ticket waits for, or why it is over: [ReasonDeadline], [ReasonLapsed] as it
	// was not polled, [ReasonNever], [ReasonUnknown]. It is never nil. Its Endpoint and its Holder are empty.
	Permit *Permit

	// PollAfter is when to poll again. Zero when there is nothing to wait for.
	PollAfter time.Duration
}

// EnqueuePermit draws a ticket: a place in the queue of the endpoint, good for p.Wait, or a minute without. It is for
// programs that wait in pieces, such as a page that asks again; others set Wait and call [Client.ClaimPermit]. A ticket
// that is not polled for two seconds and three times its PollAfter is over.
func (c *Client) EnqueuePermit(ctx context.Context, p ClaimPermitParams) (Ticket, error) {
	wait := defaultWait
	if p.Wait != nil {
		wait = *p.Wait
	}
	row, err := run(ctx, c, c.enqueue(ctx, p, wait))
	return Ticket{
		Ahead: int64(row.Ahead), Cap: int64(row.Cap), DeadlineAt: time.Time(row.DeadlineAt), Enqueued: row.Enqueued,
		ID: int64(row.Ticket), InUse: int64(row.InUse), PollAfter: time.Duration(row.PollAfter), Reason: row.Reason,
	}, err
}

// PollTicket claims the permit of a ticket when its turn has come, or says when to ask again. It is idempotent: the
// permit of a ticket is the same as long as it lives. So it is made again when its reply was lost, and given back when
// ctx has ended, as [Client.ClaimPermit] does.
func (c *Client) PollTicket(ctx context.Context, ticket int64) (Poll, error) {
	var sent time.Time
	row, err := run(ctx, c, c.poll(ctx, ticket, "", "", &sent))
	if err != nil {
		return Poll{}, err
	}
	lease := time.Duration(row.LeaseLeft)
	return Poll{
		Ahead:     int64(row.Ahead),
		Permit:    c.newPermit(ctx, ClaimPermitParams{Lease: &lease}, row.claimRow, sent),
		PollAfter: time.Duration(row.PollAfter),
	}, nil
}

func (c *Client) enqueue(ctx context.Context, p ClaimPermitParams, deadline time.Duration) statement[ticketRow] {
	var args arguments
	p.what(&args)
	args.duration("Wait", deadline)
	args.note(p.Note)
	c.tenant(ctx, &args, p.Tenant)
	if p.RequestID != "" {
		args.fail(invalidArgument("a ticket with a RequestID", "the claim of a ticket is one request by itself"))
	}
	return statement[ticketRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[ticketRow],
		name:    p.Endpoint,
		repeat:  "there may be a ticket that nobody polls, until it lapses in seconds",
		sql:     enqueuePermitSQL,
		verb:    "enqueue_permit",
	}
}

func (c *Client) poll(ctx context.Context, ticket int64, endpoint, holder string, sent *time.Time) statement[pollRow] {
	var args arguments
	args.add(ticket)
	return statement[pollRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[pollRow],
		name:    endpoint,
		repeat:  unknownPermit,
		sent:    sent,
		settle:  func(row pollRow) error { return c.settle(ctx, row.claimRow, holder) },
		sql:     pollTicketSQL,
		verb:    "poll_ticket",
	}
}

// wait waits in turn for the permit of a claim that was refused, until end. It also returns when the answered call was
// sent.
func (c *Client) wait(ctx context.Context, p ClaimPermitParams, refused claimRow, end time.Time, o *Observation) (row claimRow, sent time.Time, err error) {
	for range maxDraws {
		left := until(end)
		switch {
		case ctx.Err() != nil:
			return row, sent, c.gone(ctx, 0, p.Holder)
		case left <= 0:
			return refused, sent, nil
		}
		// The ticket outlives the wait, so that the last poll does not come too late for it.
		ticket, retries, err := call(ctx, c, c.enqueue(ctx, p, min(left, longestTicket)+c.timeout))
		o.Retries += retries
		if lockTimeout(err) && sleep(ctx, min(jitter(drawPause, 0.5), until(end))) {
			continue // many draw tickets at once, one after the other: nothing was drawn
		}
		if err != nil {
			return row, sent, err
		}
		if !ticket.Enqueued {
			refused.Reason, refused.Cap, refused.InUse = ticket.Reason, ticket.Cap, ticket.InUse
			return refused, sent, nil
		}
		over := false
		row, over, err = c.turn(ctx, p, ticket, refused, end, &sent, o)
		if err != nil || over {
			return row, sent, err
		}
		refused = row
	}
	return refused, sent, nil
}

// turn polls a ticket until its turn has come or the wait is over. It is not over when the ticket was lost.
func (c *Client) turn(ctx context.Context, p ClaimPermitParams, ticket ticketRow, refused claimRow, end time.Time, sent *time.Time, o *Observation) (
	row claimRow, over bool, err error,
) {
	id := int64(ticket.Ticket)
	after := time.Duration(ticket.PollAfter)
	failed := 0
	for {
		left := until(end)
		if left <= 0 {
			_, _ = c.ReleasePermit(ctx, id, p.Holder) // should it fail, the ticket lapses
			return refused, true, nil
		}
		if !sleep(ctx, min(after, left)) {
			return row, true, c.gone(ctx, id, p.Holder)
		}
		polled, retries, err := call(ctx, c, c.poll(ctx, id, p.Endpoint, p.Holder, sent))
		o.Polls++
		o.Retries += retries
		switch {
		case err != nil && ctx.Err() != nil:
			if released, releaseErr := c.ReleasePermit(ctx, id, p.Holder); releaseErr == nil && !released.Released {
				// It was granted, and the reply lost: asked again, it is given back.
				if _, _, again := call(ctx, c, c.poll(ctx, id, p.Endpoint, p.Holder, sent)); again != nil {
					err = again
				}
			}
			return row, true, err
		case err != nil:
			if !errors.Is(err, ErrUnavailable) || failed == len(outagePauses) || until(end) <= 0 {
				return row, true, err
			}
			after = jitter(outagePauses[failed], 0.2)
			failed++
		case polled.Granted:
			return polled.claimRow, true, nil
		case polled.PollAfter > 0:
			refused, after, failed = polled.claimRow, time.Duration(polled.PollAfter), 0
		case polled.Reason == ReasonLapsed, polled.Reason == ReasonUnknown:
			return refused, false, nil
		case polled.Reason == ReasonDeadline:
			return refused, true, nil
		default:
			return polled.claimRow, true, nil
		}
	}
}

// lockTimeout says whether the server gave up waiting for a lock.
func lockTimeout(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}

// gone gives up a ticket, where there is one, of a caller who has gone, and returns the error for it.
func (c *Client) gone(ctx context.Context, ticket int64, holder string) error {
	message := "the context ended while the claim waited"
	var errs []error
	if ticket != 0 {
		if _, err := c.ReleasePermit(ctx, ticket, holder); err != nil {
			message += fmt.Sprintf(", and giving up ticket %d failed; it lapses by itself: %v", ticket, err)
			errs = []error{err}
		}
	}
	err := contextEnded(ctx, message, errs...)
	err.Operation = "claim_permit"
	return err
}

// waits says whether waiting helps against a refusal of a claim.
func (r Reason) waits() bool {
	return r == ReasonHolder || r == ReasonEndpoint || r == ReasonInstallation || r == ReasonQueue
}

type ticketRow struct {
	Enqueued   bool                 `db:"enqueued"`
	Reason     Reason               `db:"reason"`
	Ticket     zeronull.Int8        `db:"ticket"`
	Ahead      zeronull.Int8        `db:"ahead"`
	PollAfter  interval             `db:"poll_after"`
	DeadlineAt zeronull.Timestamptz `db:"deadline_at"`
	Cap        zeronull.Int8        `db:"cap"`
	InUse      zeronull.Int8        `db:"in_use"`
}

func (r ticketRow) refused() bool { return !r.Enqueued }

type pollRow struct {
	claimRow
	Ahead     zeronull.Int8 `db:"ahead"`
	PollAfter interval      `db:"poll_after"`
}
