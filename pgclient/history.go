package pgclient

import (
	"context"
	"encoding/json"
	"time"
)

const (
	forceReleaseSQL = `select released, reason from pglimit.force_release(permit_id => $1::bigint, why => $2::text)`

	listChangesSQL = `select version, changed_at, changed_by, action, tenant, name, before, after, coalesce(why, '') as why
from pglimit.list_changes(name_filter => $1::text, after => $2::bigint, max_rows => $3::int, tenant_filter => $4::text,
    action_filter => $5::text)`

	releaseHolderSQL = `select pglimit.release_holder(endpoint => $1::text, holder => $2::text, why => $3::text, tenant => $4::text)`
)

// ChangeRow is what an operator changed, as [Client.ListChanges] shows it.
type ChangeRow struct {
	// Action is the SQL function that was called, such as "set_limit".
	Action string `db:"action"`

	// Before and After are the definition that was there and the one that is there since: an object with the columns of
	// the row. Of a release by force, Before says which permits were released. Nil for none.
	Before json.RawMessage `db:"before"`
	After  json.RawMessage `db:"after"`

	// ChangedAt is when, ChangedBy the login that did it.
	ChangedAt time.Time `db:"changed_at"`
	ChangedBy string    `db:"changed_by"`

	// Name is the limit or the endpoint, and Tenant whose it is. Both are empty for what concerns the whole installation.
	Name   string `db:"name"`
	Tenant string `db:"tenant"`

	// Version grows with every change. Of a limit or an endpoint that was set it is the row's LimitVersion. It is also
	// what to give as After to go on behind this row.
	Version int64 `db:"version"`

	// Why is the reason given for a release by force. Empty for others.
	Why string `db:"why"`
}

// ListChangesParams are the arguments of [Client.ListChanges]. Filters are exact; an empty one shows all.
type ListChangesParams struct {
	// Action is the SQL function that was called.
	Action string

	// After is the Version of the last row seen. Defaults to the newest.
	After int64

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Name is the limit or the endpoint.
	Name string

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// ReleaseHolderParams are the arguments of [Client.ReleaseHolder].
type ReleaseHolderParams struct {
	// Endpoint and Holder say whose permits are released. Both are required.
	Endpoint, Holder string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string

	// Why is recorded. Required; at most 1,024 bytes.
	Why string
}

// ForceRelease releases a permit whoever holds it, and records who did it and why. It is for operators. A permit that is
// no longer held stays as it is, nothing is recorded, and the result says why, with a nil error.
func (c *Client) ForceRelease(ctx context.Context, id int64, why string) (ReleaseResult, error) {
	var args arguments
	args.add(id)
	args.text("why", why)
	return run(ctx, c, statement[ReleaseResult]{
		args:    args,
		begin:   beginWrite,
		collect: one[ReleaseResult],
		sql:     forceReleaseSQL,
		verb:    "force_release",
	})
}

// ListChanges returns a page of what operators changed, the newest first.
func (c *Client) ListChanges(ctx context.Context, p ListChangesParams) ([]ChangeRow, error) {
	var args arguments
	args.optionalText("name_filter", p.Name)
	if p.After == 0 {
		args.add(nil)
	} else {
		args.add(p.After)
	}
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	args.optionalText("action_filter", p.Action)
	return run(ctx, c, statement[[]ChangeRow]{
		args:    args,
		begin:   beginRead,
		collect: list[ChangeRow],
		name:    p.Name,
		sql:     listChangesSQL,
		verb:    "list_changes",
	})
}

// ReleaseHolder releases all permits that a holder has at an endpoint, or none, records who did it and why, and returns
// how many there were. It is for operators. What the holder claims meanwhile stays his.
func (c *Client) ReleaseHolder(ctx context.Context, p ReleaseHolderParams) (released int64, err error) {
	var args arguments
	args.text("endpoint", p.Endpoint)
	args.text("holder", p.Holder)
	args.text("why", p.Why)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Endpoint,
		sql:     releaseHolderSQL,
		verb:    "release_holder",
	})
}
