package pgclient

import (
	"context"
	"encoding/json"
	"time"
)

// defaultMaxRows is the functions' own default.
const defaultMaxRows = 100

const (
	listCountersSQL = `select tenant, limit_name, subject, used, window_start, reset_at, state, shadow_refused, cursor,
    algorithm, durable
from pglimit.list_counters(limit_filter => $1::text, subject_filter => $2::text, after => $3::text, max_rows => $4::int,
    tenant_filter => $5::text, include_closed => $6::boolean)`

	listEndpointsSQL = `select tenant, endpoint, holder_cap, endpoint_cap, time_bound, longest, row_cap, in_installation, mode,
    on_outage, limit_version, updated_at, updated_by, cursor, fair, queue_cap, holder_queue_cap, waiting, shadow_refused
from pglimit.list_endpoints(endpoint_filter => $1::text, after => $2::text, max_rows => $3::int, tenant_filter => $4::text)`

	listLimitsSQL = `select tenant, limit_name, max_hits, per, algorithm, burst, durable, mode, on_outage, limit_version, updated_at,
    updated_by, shadow_refused, on_lapse, cursor, coalesce(time_zone, '') as time_zone
from pglimit.list_limits(limit_filter => $1::text, after => $2::text, max_rows => $3::int, tenant_filter => $4::text)`

	listPermitsSQL = `select permit_id, tenant, endpoint, holder, weight, claimed_at, expires_at, state, note, reasserted_at
from pglimit.list_permits(endpoint_filter => $1::text, holder_filter => $2::text, after => $3::bigint, max_rows => $4::int,
    tenant_filter => $5::text, include_lapsed => $6::boolean, held_longer_than => $7::interval, lapses_within => $8::interval)`
)

// CounterRow is one count, as [Client.ListCounters] shows it.
type CounterRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	Limit   string `db:"limit_name"`
	Subject string `db:"subject"`
	Tenant  string `db:"tenant"`

	// Algorithm is how it was counted last; of windows of the calendar it is [AlgorithmFixedWindow] too. Durable counts
	// survive a crash.
	Algorithm Algorithm `db:"algorithm"`
	Durable   bool      `db:"durable"`

	// ShadowRefused hits of this window were allowed for the mode of the limit alone.
	ShadowRefused int64 `db:"shadow_refused"`

	// State is "open", or "closed" when the window has ended and the next hit begins anew.
	State string `db:"state"`

	// Used hits were counted since WindowStart, and count until ResetAt. Of a bucket, Used is what it lacks.
	ResetAt     time.Time `db:"reset_at"`
	Used        int64     `db:"used"`
	WindowStart time.Time `db:"window_start"`
}

// EndpointRow is the row of an endpoint. The fields mean what those of [SetEndpointParams] do.
type EndpointRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	// ShadowRefused is how many claims [ModeShadow] granted and [ModeEnforce] would have refused, since the endpoint was
	// last idle for long or a crash; nil for none. Waiting is how many tickets wait; nil on a standby.
	ShadowRefused *int64 `db:"shadow_refused"`
	Waiting       *int64 `db:"waiting"`

	Endpoint       string         `db:"endpoint"`
	EndpointCap    *int64         `db:"endpoint_cap"`
	Fair           bool           `db:"fair"`
	HolderCap      *int64         `db:"holder_cap"`
	HolderQueueCap int64          `db:"holder_queue_cap"`
	InInstallation bool           `db:"in_installation"`
	LimitVersion   int64          `db:"limit_version"`
	Longest        *time.Duration `db:"longest"`
	Mode           Mode           `db:"mode"`
	OnOutage       OnOutage       `db:"on_outage"`
	QueueCap       int64          `db:"queue_cap"`
	RowCap         *int64         `db:"row_cap"`
	Tenant         string         `db:"tenant"`
	TimeBound      *time.Duration `db:"time_bound"`
	UpdatedAt      time.Time      `db:"updated_at"`
	UpdatedBy      string         `db:"updated_by"`
}

// LimitRow is the row of a limit. The fields mean what those of [SetLimitParams] do.
type LimitRow struct {
	// Cursor is what to give as After to go on behind this row.
	Cursor string `db:"cursor"`

	Algorithm    Algorithm     `db:"algorithm"`
	Burst        *int64        `db:"burst"`
	Durable      bool          `db:"durable"`
	Limit        string        `db:"limit_name"`
	LimitVersion int64         `db:"limit_version"`
	MaxHits      int64         `db:"max_hits"`
	Mode         Mode          `db:"mode"`
	OnLapse      OnLapse       `db:"on_lapse"`
	OnOutage     OnOutage      `db:"on_outage"`
	Per          time.Duration `db:"per"`
	Tenant       string        `db:"tenant"`
	TimeZone     string        `db:"time_zone"` // empty for UTC
	UpdatedAt    time.Time     `db:"updated_at"`
	UpdatedBy    string        `db:"updated_by"`

	// ShadowRefused is how many hits of the open windows would have been refused. Nil but for [ModeShadow], and on a
	// standby, which cannot read counters.
	ShadowRefused *int64 `db:"shadow_refused"`
}

// PermitRow is one permit, or a ticket, as [Client.ListPermits] shows it.
type PermitRow struct {
	ClaimedAt time.Time       `db:"claimed_at"`
	Endpoint  string          `db:"endpoint"`
	ExpiresAt time.Time       `db:"expires_at"`
	Holder    string          `db:"holder"`
	ID        int64           `db:"permit_id"` // also what to give as After to go on behind this row
	Note      json.RawMessage `db:"note"`      // nil for none
	State     string          `db:"state"`     // "live", "waiting" (a ticket), "beyond" the caps (granted for the mode), "lapsed"
	Tenant    string          `db:"tenant"`
	Weight    int64           `db:"weight"`

	// ReassertedAt is when the permit was taken again after a crash, nil for one that was not.
	ReassertedAt *time.Time `db:"reasserted_at"`
}

// ListCountersParams are the arguments of [Client.ListCounters]. Filters are exact; an empty one shows all.
type ListCountersParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	// IncludeClosed also shows counts whose window has ended. Defaults to leaving them out.
	IncludeClosed bool

	Limit, Subject string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// ListEndpointsParams are the arguments of [Client.ListEndpoints]. Filters are exact; an empty one shows all.
type ListEndpointsParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	Endpoint string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// ListLimitsParams are the arguments of [Client.ListLimits]. Filters are exact; an empty one shows all.
type ListLimitsParams struct {
	// After is the Cursor of the last row seen. Defaults to the beginning.
	After string

	Limit string

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// ListPermitsParams are the arguments of [Client.ListPermits]. Filters are exact; an empty one shows all.
type ListPermitsParams struct {
	// After is the ID of the last row seen. Defaults to the beginning.
	After int64

	Endpoint, Holder string

	// HeldLongerThan shows permits that were claimed at least so long ago. Defaults to all.
	HeldLongerThan *time.Duration

	// IncludeLapsed also shows permits whose lease has ended. Defaults to leaving them out.
	IncludeLapsed bool

	// LapsesWithin shows permits whose lease ends in that time, unless they are renewed. Defaults to all.
	LapsesWithin *time.Duration

	// MaxRows is the size of the page. Defaults to 100.
	MaxRows int

	// Tenant defaults to the answer of [WithTenantFunc], or else to all tenants.
	Tenant *string
}

// ListCounters returns a page of counts.
func (c *Client) ListCounters(ctx context.Context, p ListCountersParams) ([]CounterRow, error) {
	var args arguments
	args.optionalText("limit_filter", p.Limit)
	args.optionalText("subject_filter", p.Subject)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	args.add(p.IncludeClosed)
	return run(ctx, c, statement[[]CounterRow]{
		args:    args,
		begin:   beginRead,
		collect: list[CounterRow],
		name:    p.Limit,
		sql:     listCountersSQL,
		verb:    "list_counters",
	})
}

// ListEndpoints returns a page of endpoint rows.
func (c *Client) ListEndpoints(ctx context.Context, p ListEndpointsParams) ([]EndpointRow, error) {
	var args arguments
	args.optionalText("endpoint_filter", p.Endpoint)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	return run(ctx, c, statement[[]EndpointRow]{
		args:    args,
		begin:   beginRead,
		collect: list[EndpointRow],
		name:    p.Endpoint,
		sql:     listEndpointsSQL,
		verb:    "list_endpoints",
	})
}

// ListLimits returns a page of limit rows.
func (c *Client) ListLimits(ctx context.Context, p ListLimitsParams) ([]LimitRow, error) {
	var args arguments
	args.optionalText("limit_filter", p.Limit)
	args.optionalText("after", p.After)
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	return run(ctx, c, statement[[]LimitRow]{
		args:    args,
		begin:   beginRead,
		collect: list[LimitRow],
		name:    p.Limit,
		sql:     listLimitsSQL,
		verb:    "list_limits",
	})
}

// ListPermits returns a page of permits and tickets, in the order they were claimed and drawn.
func (c *Client) ListPermits(ctx context.Context, p ListPermitsParams) ([]PermitRow, error) {
	var args arguments
	args.optionalText("endpoint_filter", p.Endpoint)
	args.optionalText("holder_filter", p.Holder)
	if p.After == 0 {
		args.add(nil)
	} else {
		args.add(p.After)
	}
	args.rows(p.MaxRows)
	c.tenantFilter(ctx, &args, p.Tenant)
	args.add(p.IncludeLapsed)
	args.optionalDuration("held_longer_than", p.HeldLongerThan)
	args.optionalDuration("lapses_within", p.LapsesWithin)
	return run(ctx, c, statement[[]PermitRow]{
		args:    args,
		begin:   beginRead,
		collect: list[PermitRow],
		name:    p.Endpoint,
		sql:     listPermitsSQL,
		verb:    "list_permits",
	})
}
