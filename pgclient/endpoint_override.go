package pgclient

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
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

// EndpointOverrideRow is what a holder has of his own at an endpoint. The fields mean what those of
// [SetEndpointOverrideParams] do.
type EndpointOverrideRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string

	Endpoint     string
	Holder       string
	HolderCap    *int64
	LimitVersion int64
	Share        int64
	State        string // "valid", "later" or "over"
	Tenant       string
	UpdatedAt    time.Time
	UpdatedBy    string
	ValidFrom    time.Time // zero: always
	ValidUntil   time.Time // zero: for good
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

	// ValidFrom and ValidUntil are when it holds, on the database's clock. Default to now and for good.
	ValidFrom, ValidUntil time.Time
}

// DropEndpointOverride takes a holder's own bounds at an endpoint away. It reports whether he had some.
func (c *Client) DropEndpointOverride(ctx context.Context, endpoint, holder, tenant string) (bool, error) {
	var args arguments
	args.text("endpoint", endpoint)
	args.text("holder", holder)
	c.tenant(ctx, &args, tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    endpoint,
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
		args:  args,
		begin: beginRead,
		collect: func(rows pgx.Rows) ([]EndpointOverrideRow, error) {
			return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r EndpointOverrideRow, err error) {
				err = row.Scan(&r.Tenant, &r.Endpoint, &r.Holder, &r.HolderCap, &r.Share, (*zeronull.Timestamptz)(&r.ValidFrom),
					(*zeronull.Timestamptz)(&r.ValidUntil), &r.State, &r.LimitVersion, &r.UpdatedAt, &r.UpdatedBy, &r.Cursor)
				return r, err
			})
		},
		name: p.Endpoint,
		sql:  listEndpointOverridesSQL,
		verb: "list_endpoint_overrides",
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
	args.optionalInstant(p.ValidFrom)
	args.optionalInstant(p.ValidUntil)
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
