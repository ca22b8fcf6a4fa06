package pgclient

import (
	"context"
	"time"
)

const (
	dropLimitOverrideSQL = `select pglimit.drop_limit_override(limit_name => $1::text, subject => $2::text, tenant => $3::text)`

	listLimitOverridesSQL = `select tenant, limit_name, subject, max_hits, valid_from, valid_until, state, limit_version, updated_at,
    updated_by, cursor
from pglimit.list_limit_overrides(limit_filter => $1::text, subject_filter => $2::text, after => $3::text, max_rows => $4::int,
    tenant_filter => $5::text)`

	setLimitOverrideSQL = `select pglimit.set_limit_override(limit_name => $1::text, subject => $2::text, max_hits => $3::bigint,
    valid_from => $4::timestamptz, valid_until => $5::timestamptz, tenant => $6::text)`
)

// DropLimitOverrideParams are the arguments of [Client.DropLimitOverride].
type DropLimitOverrideParams struct {
	// Limit and Subject name the override. Both are required.
	Limit, Subject string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// LimitOverrideRow is one override. The fields mean what those of [SetLimitOverrideParams] do.
type LimitOverrideRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	Limit        string `db:"limit_name"`
	LimitVersion int64  `db:"limit_version"`
	MaxHits      int64  `db:"max_hits"`

	// State is "valid", "future" when it does not hold yet, or "over" when it holds no more.
	State string `db:"state"`

	Subject    string     `db:"subject"`
	Tenant     string     `db:"tenant"`
	UpdatedAt  time.Time  `db:"updated_at"`
	UpdatedBy  string     `db:"updated_by"`
	ValidFrom  *time.Time `db:"valid_from"`
	ValidUntil *time.Time `db:"valid_until"`
}

// ListLimitOverridesParams are the arguments of [Client.ListLimitOverrides]. Filters are exact; an empty one shows all.
type ListLimitOverridesParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	Limit, Subject string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// SetLimitOverrideParams are the arguments of [Client.SetLimitOverride].
type SetLimitOverrideParams struct {
	// Limit and Subject say for whom the override is; the limit need not have a row. Both are required.
	Limit, Subject string

	// MaxHits are what the subject has in a window instead of the limit's. Zero is closed.
	MaxHits int64

	// ValidFrom and ValidUntil bound the time in which the override holds, on the database's clock. Nil is now and for ever.
	ValidFrom, ValidUntil *time.Time

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant. An override of the
	// empty tenant is for that tenant only.
	Tenant string
}

// DropLimitOverride removes the override of a subject. It reports whether there was one.
func (c *Client) DropLimitOverride(ctx context.Context, p DropLimitOverrideParams) (bool, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    p.Limit,
		sql:     dropLimitOverrideSQL,
		verb:    "drop_limit_override",
	})
}

// ListLimitOverrides returns a page of overrides, also of those that are over.
func (c *Client) ListLimitOverrides(ctx context.Context, p ListLimitOverridesParams) ([]LimitOverrideRow, error) {
	var args arguments
	args.optionalText("limit_filter", p.Limit)
	args.optionalText("subject_filter", p.Subject)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	return run(ctx, c, statement[[]LimitOverrideRow]{
		args:    args,
		begin:   beginRead,
		collect: list[LimitOverrideRow],
		name:    p.Limit,
		sql:     listLimitOverridesSQL,
		verb:    "list_limit_overrides",
	})
}

// SetLimitOverride gives one subject hits of its own instead of the limit's, also where calls bring their limit, and
// returns the override's version. It takes effect with the next hit, and replaces one that was there.
func (c *Client) SetLimitOverride(ctx context.Context, p SetLimitOverrideParams) (int64, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.text("subject", p.Subject)
	args.add(p.MaxHits)
	args.optionalTime("valid_from", p.ValidFrom)
	args.optionalTime("valid_until", p.ValidUntil)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Limit,
		sql:     setLimitOverrideSQL,
		verb:    "set_limit_override",
	})
}
