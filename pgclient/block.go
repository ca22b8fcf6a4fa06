package pgclient

import (
	"context"
	"net/netip"
	"time"
)

// AllLimits as the limit of a block or a pause is every limit of the tenant.
const AllLimits = "*"

const (
	blockSQL = `select pglimit.block(limit_name => $1::text, subject => $2::text, duration => $3::interval, why => $4::text,
    tenant => $5::text)`

	blockRangeSQL = `select pglimit.block_range(limit_name => $1::text, network => $2::text::inet, duration => $3::interval,
    why => $4::text, tenant => $5::text)`

	listBlocksSQL = `select tenant, limit_name, coalesce(subject, '') as subject, network, blocked_until, state, strikes, why,
    updated_at, updated_by, cursor
from pglimit.list_blocks(limit_filter => $1::text, subject_filter => $2::text, after => $3::text, max_rows => $4::int,
    tenant_filter => $5::text, network_filter => $6::text::inet)`

	pauseSQL = `select pglimit.pause(limit_name => $1::text, subject => $2::text, until => $3::timestamptz, duration => $4::interval,
    why => $5::text, tenant => $6::text)`

	strikeSQL = `select strikes, blocked_until, retry_after
from pglimit.strike(limit_name => $1::text, subject => $2::text, base => $3::interval, factor => $4::bigint, maximum => $5::interval,
    decay => $6::interval, why => $7::text, tenant => $8::text)`

	unblockSQL = `select pglimit.unblock(limit_name => $1::text, subject => $2::text, tenant => $3::text)`

	unblockRangeSQL = `select pglimit.unblock_range(limit_name => $1::text, network => $2::text::inet, tenant => $3::text)`
)

// BlockParams are the arguments of [Client.Block].
type BlockParams struct {
	// Duration is for how long. Nil is for ever.
	Duration *time.Duration

	// Limit and Subject say who is refused where; the limit need not have a row, and [AllLimits] is every one. Both are
	// required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Why is for the history. Optional.
	Why string
}

// BlockRangeParams are the arguments of [Client.BlockRange].
type BlockRangeParams struct {
	// Duration is for how long. Nil is for ever.
	Duration *time.Duration

	// Limit is where they are refused, as that of [BlockParams]. Required.
	Limit string

	// Network is whose addresses are refused; bits behind its mask count nothing. Required.
	Network netip.Prefix

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Why is for the history. Optional.
	Why string
}

// BlockRow is one block, of a subject or of a network.
type BlockRow struct {
	// BlockedUntil is when it ends. Nil is never.
	BlockedUntil *time.Time `db:"blocked_until"`

	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	Limit string `db:"limit_name"`

	// Network is what [Client.BlockRange] blocked. The zero Prefix, which is not valid, for a block of a subject.
	Network netip.Prefix `db:"network"`

	// State is "blocked", or "over".
	State string `db:"state"`

	// Strikes in a row led to the block. Zero for those of [Client.Block] and [Client.Pause].
	Strikes int64 `db:"strikes"`

	// Subject is empty for a block of a network.
	Subject string `db:"subject"`

	Tenant    string    `db:"tenant"`
	UpdatedAt time.Time `db:"updated_at"`
	UpdatedBy string    `db:"updated_by"`
	Why       *string   `db:"why"`
}

// ListBlocksParams are the arguments of [Client.ListBlocks]. Filters are exact; an empty one shows all.
type ListBlocksParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	// Limit shows the blocks at this limit, and Subject those that refuse this subject: its own, and those of networks
	// it is an address in.
	Limit, Subject string

	// Network shows the blocks of this very network.
	Network netip.Prefix

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// PauseParams are the arguments of [Client.Pause].
type PauseParams struct {
	// Duration is for how long, and Until until when, on the database's clock. One of them is required.
	Duration *time.Duration
	Until    *time.Time

	// Limit and Subject say who is refused where, as those of [BlockParams]. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Why is what [Client.ListBlocks] shows. Optional.
	Why string
}

// StrikeParams are the arguments of [Client.Strike].
type StrikeParams struct {
	// Base is how long the first block is, and Factor how many times as long each further one, up to Maximum. Default to a
	// minute, 2 and a day.
	Base    *time.Duration
	Factor  *float64
	Maximum *time.Duration

	// Decay is how long after a block the strikes are forgotten. Defaults to a day.
	Decay *time.Duration

	// Limit and Subject say who is refused where, as those of [BlockParams]. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Why is what [Client.ListBlocks] shows. Optional.
	Why string
}

// StrikeResult is the answer to [Client.Strike].
type StrikeResult struct {
	// BlockedUntil is when the block ends. Nil is never: it was a ban before.
	BlockedUntil *time.Time

	// RetryAfter is how long that is. Zero is for ever.
	RetryAfter time.Duration

	// Strikes is how many there were in a row.
	Strikes int64
}

// UnblockParams are the arguments of [Client.Unblock].
type UnblockParams struct {
	// Limit and Subject are those of the block, [AllLimits] as well. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// UnblockRangeParams are the arguments of [Client.UnblockRange].
type UnblockRangeParams struct {
	// Limit and Network are those of the block. Both are required.
	Limit   string
	Network netip.Prefix

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// Block refuses a subject at one limit or at all, with [ReasonBlocked], from the next hit on, whatever it has left. It
// replaces a block that was there. It returns until when the subject is blocked; nil is for ever.
func (c *Client) Block(ctx context.Context, p BlockParams) (*time.Time, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.optionalDuration("duration", p.Duration)
	args.optionalText("why", p.Why)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[*time.Time]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[*time.Time],
		name:    p.Limit,
		sql:     blockSQL,
		verb:    "block",
	})
}

// BlockRange refuses all subjects that are addresses in a network, however they are written, as [Client.Block] does one.
// It replaces a block of that very network. It returns until when they are blocked; nil is for ever.
func (c *Client) BlockRange(ctx context.Context, p BlockRangeParams) (*time.Time, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.network("network", p.Network)
	args.optionalDuration("duration", p.Duration)
	args.optionalText("why", p.Why)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[*time.Time]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[*time.Time],
		name:    p.Limit,
		sql:     blockRangeSQL,
		verb:    "block_range",
	})
}

// ListBlocks returns a page of blocks, of each limit those of subjects first and then those of networks, also those that
// are over and not yet purged.
func (c *Client) ListBlocks(ctx context.Context, p ListBlocksParams) ([]BlockRow, error) {
	var args arguments
	args.optionalText("limit_filter", p.Limit)
	args.optionalText("subject_filter", p.Subject)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	if p.Network.IsValid() {
		args.network("network_filter", p.Network)
	} else {
		args.add(nil)
	}
	return run(ctx, c, statement[[]BlockRow]{
		args:    args,
		begin:   beginRead,
		collect: list[BlockRow],
		name:    p.Limit,
		sql:     listBlocksSQL,
		verb:    "list_blocks",
	})
}

// Pause refuses a subject for a time, as a service learns it from an upstream's Retry-After. Of several pauses the
// longest holds, and a block is never shortened. It returns until when the subject is blocked; nil is for ever.
func (c *Client) Pause(ctx context.Context, p PauseParams) (*time.Time, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.optionalTime("until", p.Until)
	args.optionalDuration("duration", p.Duration)
	args.optionalText("why", p.Why)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[*time.Time]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[*time.Time],
		name:    p.Limit,
		sql:     pauseSQL,
		verb:    "pause",
	})
}

// Strike blocks a subject, for longer each time it is called after the block before. During a block it changes nothing.
func (c *Client) Strike(ctx context.Context, p StrikeParams) (StrikeResult, error) {
	or := func(d *time.Duration, otherwise time.Duration) *time.Duration {
		if d == nil {
			return &otherwise
		}
		return d
	}
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.optionalDuration("base", or(p.Base, time.Minute))
	factor := 2.0
	if p.Factor != nil {
		factor = *p.Factor
	}
	args.add(factor)
	args.optionalDuration("maximum", or(p.Maximum, 24*time.Hour))
	args.optionalDuration("decay", or(p.Decay, 24*time.Hour))
	args.optionalText("why", p.Why)
	c.tenant(ctx, &args, p.Tenant)
	row, err := run(ctx, c, statement[strikeRow]{
		args:    args,
		begin:   beginWrite,
		collect: one[strikeRow],
		name:    p.Limit,
		sql:     strikeSQL,
		verb:    "strike",
	})
	return StrikeResult{BlockedUntil: row.BlockedUntil, RetryAfter: time.Duration(row.RetryAfter), Strikes: row.Strikes}, err
}

type strikeRow struct {
	Strikes      int64      `db:"strikes"`
	BlockedUntil *time.Time `db:"blocked_until"`
	RetryAfter   interval   `db:"retry_after"`
}

// Unblock lifts a block or a pause. It reports whether the subject was blocked.
func (c *Client) Unblock(ctx context.Context, p UnblockParams) (bool, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    p.Limit,
		sql:     unblockSQL,
		verb:    "unblock",
	})
}

// UnblockRange lifts the block of a network; those of wider and of narrower ones stay. It reports whether it was blocked.
func (c *Client) UnblockRange(ctx context.Context, p UnblockRangeParams) (bool, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.network("network", p.Network)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    p.Limit,
		sql:     unblockRangeSQL,
		verb:    "unblock_range",
	})
}
