package pgclient

import (
	"context"
	"time"
)

const (
	dropEndpointOverrideSQL = `select pglimit.drop_endpoint_override(endpoint => $1::text, holder => $2::text, tenant => $3::text)`

	listEndpointOverridesSQL = `select tenant, endpoint, holder, holder_cap, share, nullif(valid_from, '-infinity') as valid_from,
    nullif(valid_until, 'infinity') as valid_until, state, limit_version, updated_at, updated_by, cursor
from pglimit.list_endpoint_overrides(endpoint_filter => $1::text, holder_filter => $2::text, after => $3::text, max_rows => $4::int,
    tenant_filter => $5::text)`

	setEndpointOverrideSQL = `select pglimit.set_endpoint_override(endpoint => $1::text, holder => $2::text, holder_cap => $3::bigint,
    share => $4::bigint, valid_from => $5::text::timestamptz, valid_until => $6::text::timestamptz, tenant => $7::text)`
)

// DropEndpointOverrideParams are the arguments of [Client.DropEndpointOverride].
type DropEndpointOverrideParams struct {
	// Endpoint and Holder name the override. Both are required.
	Endpoint, Holder string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// EndpointOverrideRow is what a holder has of his own at an endpoint. The fields mean what those of
// [SetEndpointOverrideParams] do.
type EndpointOverrideRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	Endpoint     string `db:"endpoint"`
	Holder       string `db:"holder"`
	HolderCap    *int64 `db:"holder_cap"`
	LimitVersion int64  `db:"limit_version"`
	Share        int64  `db:"share"`

	// State is "valid", "future" when it does not hold yet, or "over" when it holds no more.
	State string `db:"state"`

	Tenant     string     `db:"tenant"`
	UpdatedAt  time.Time  `db:"updated_at"`
	UpdatedBy  string     `db:"updated_by"`
	ValidFrom  *time.Time `db:"valid_from"`  // nil: always
	ValidUntil *time.Time `db:"valid_until"` // nil: for good
}

// ListEndpointOverridesParams are the arguments of [Client.ListEndpointOverrides]. Filters are exact; an empty one shows
// all.
type ListEndpointOverridesParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	Endpoint, Holder string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// SetEndpointOverrideParams are the arguments of [Client.SetEndpointOverride].
type SetEndpointOverrideParams struct {
	// Endpoint has to be set already, Holder is whose the bounds are. Both are required.
	Endpoint, Holder string

	// HolderCap bounds the permits that the holder has in use, whatever the endpoint's row or the claim says. Zero is
	// closed. Defaults to theirs.
	HolderCap *int64

	// Share is how many turns the holder's tickets get for one of another's, 1 to 1,000. Defaults to 1.
	Share *int64

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant. The override is
	// for this tenant's holder alone.
	Tenant string

	// ValidFrom and ValidUntil bound the time in which it holds, on the database's clock. Default to now and for good.
	ValidFrom, ValidUntil *time.Time
}

// DropEndpointOverride takes a holder's own bounds at an endpoint away. It reports whether he had some.
func (c *Client) DropEndpointOverride(ctx context.Context, p DropEndpointOverrideParams) (bool, error) {
	var args arguments
	args.text("endpoint", p.Endpoint)
	args.text("holder", p.Holder)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    p.Endpoint,
		sql:     dropEndpointOverrideSQL,
		verb:    "drop_endpoint_override",
	})
}

// ListEndpointOverrides returns a page of holders with bounds of their own.
func (c *Client) ListEndpointOverrides(ctx context.Context, p ListEndpointOverridesParams) ([]EndpointOverrideRow, error) {
	var args arguments
	args.optionalText("endpoint_filter", p.Endpoint)
	args.optionalText("holder_filter", p.Holder)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	return run(ctx, c, statement[[]EndpointOverrideRow]{
		args:    args,
		begin:   beginRead,
		collect: list[EndpointOverrideRow],
		name:    p.Endpoint,
		sql:     listEndpointOverridesSQL,
		verb:    "list_endpoint_overrides",
	})
}

// SetEndpointOverride gives a holder bounds of his own at an endpoint, and returns their version, which his claims then
// tell. It takes effect with the next claim, and costs other holders nothing.
func (c *Client) SetEndpointOverride(ctx context.Context, p SetEndpointOverrideParams) (int64, error) {
	var args arguments
	args.text("endpoint", p.Endpoint)
	args.text("holder", p.Holder)
	args.optionalNumber(p.HolderCap)
	args.numberOr(p.Share, 1)
	args.optionalTime("valid_from", p.ValidFrom)
	args.optionalTime("valid_until", p.ValidUntil)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Endpoint,
		sql:     setEndpointOverrideSQL,
		verb:    "set_endpoint_override",
	})
}
