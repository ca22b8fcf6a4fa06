package pgclient

import (
	"context"
	"time"
)

const (
	dropEndpointSQL = `select pglimit.drop_endpoint(endpoint => $1::text, tenant => $2::text)`

	dropLimitSQL = `select pglimit.drop_limit(limit_name => $1::text, tenant => $2::text)`

	installReadySQL = `select pglimit.install_ready(name => $1::text, tenant => $2::text)`

	setEndpointSQL = `select pglimit.set_endpoint(endpoint => $1::text, holder_cap => $2::bigint, endpoint_cap => $3::bigint,
    time_bound => $4::interval, row_cap => $5::bigint, in_installation => $6::boolean, mode => $7::text, on_outage => $8::text,
    tenant => $9::text, longest => $10::interval, fair => $11::boolean, queue_cap => $12::bigint, holder_queue_cap => $13::bigint)`

	setLimitSQL = `select pglimit.set_limit(limit_name => $1::text, max_hits => $2::bigint, per => $3::interval, algorithm => $4::text,
    burst => $5::bigint, mode => $6::text, on_outage => $7::text, tenant => $8::text, durable => $9::boolean, time_zone => $10::text,
    on_lapse => $11::text, carry => $12::text)`
)

// The function's own defaults.
const (
	defaultHolderQueueCap = 100
	defaultQueueCap       = 1000
)

// SetEndpointParams are the arguments of [Client.SetEndpoint].
type SetEndpointParams struct {
	// Endpoint is the name of the heavy operation. Required.
	Endpoint string

	// EndpointCap and HolderCap bound the permits in use at the endpoint and by each holder there. Zero is closed.
	// Defaults to no cap.
	EndpointCap, HolderCap *int64

	// Fair has claims that do not wait be refused with [ReasonQueue] while somebody waits who could go. Defaults to
	// serving whoever asks when there is room.
	Fair bool

	// HolderQueueCap and QueueCap bound how many wait, of one holder and in all. Zero lets nobody wait. Default to 100 and
	// 1,000.
	HolderQueueCap, QueueCap *int64

	// Longest bounds how long a permit is held, renewals included: neither its first lease nor a renewal goes past it. It
	// is for work that never ends while its process lives and renews. Defaults to no bound.
	Longest *time.Duration

	// Mode defaults to [ModeEnforce].
	Mode Mode

	// OnOutage defaults to [OnOutageAllow].
	OnOutage OnOutage

	// OutsideInstallation leaves the endpoint's permits out of the cap over all endpoints. Defaults to counting them.
	OutsideInstallation bool

	// RowCap and TimeBound bound the work itself, and are told with each permit. A permit's lease defaults to the time
	// bound plus 30 seconds. Defaults to no bound.
	RowCap    *int64
	TimeBound *time.Duration

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant. A row of the
	// empty tenant is for all tenants without one of their own.
	Tenant string
}

// Carry is what becomes of what subjects have used when their limit changes.
type Carry string

const (
	CarryKeep         Carry = "keep"         // what is used stays used, in hits
	CarryProportional Carry = "proportional" // it goes with the capacity, rounded up
	CarryReset        Carry = "reset"        // it is nothing
)

// SetLimitParams are the arguments of [Client.SetLimit].
type SetLimitParams struct {
	// Limit is the name of the limit. Required.
	Limit string

	// MaxHits are allowed Per window. A MaxHits of zero is closed; Per is required.
	MaxHits int64
	Per     time.Duration

	// Algorithm defaults to [AlgorithmFixedWindow].
	Algorithm Algorithm

	// Burst is what the bucket of an [AlgorithmTokenBucket] limit holds when it is full. Defaults to MaxHits.
	Burst *int64

	// Carry is what becomes of what is used, where the row changes. Defaults to [CarryKeep].
	Carry Carry

	// Durable has counts survive a crash of the server; each hit then waits for the disk. Defaults to counts that a crash
	// empties.
	Durable bool

	// Mode defaults to [ModeEnforce].
	Mode Mode

	// OnLapse is what becomes of a hold that is not settled in time. Defaults to [OnLapseKeep].
	OnLapse OnLapse

	// OnOutage defaults to [OnOutageAllow].
	OnOutage OnOutage

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant. A row of the
	// empty tenant is for all tenants without one of their own.
	Tenant string

	// TimeZone is where the windows of an [AlgorithmCalendar] limit begin, such as Europe/Berlin. Defaults to UTC.
	TimeZone string
}

// DropEndpoint removes the row of an endpoint. It reports whether there was one. Permits in use stay in use.
func (c *Client) DropEndpoint(ctx context.Context, endpoint, tenant string) (bool, error) {
	var args arguments
	args.text("endpoint", endpoint)
	c.tenant(ctx, &args, tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    endpoint,
		sql:     dropEndpointSQL,
		verb:    "drop_endpoint",
	})
}

// DropLimit removes the row of a limit. It reports whether there was one.
func (c *Client) DropLimit(ctx context.Context, limit, tenant string) (bool, error) {
	var args arguments
	args.text("limit_name", limit)
	c.tenant(ctx, &args, tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    limit,
		sql:     dropLimitSQL,
		verb:    "drop_limit",
	})
}

// ReadyRequestInFlight is the ready endpoint that caps how many requests each holder, say a token, has in flight: ten, for
// thirty seconds each, apart from the cap over all endpoints.
const ReadyRequestInFlight = "request_in_flight"

// Ready limits.
const (
	ReadyLoginAttempt         = "login_attempt"          // sign-ins, for who counts them by one key: 5 in 15 minutes
	ReadyPasswordResetRedeem  = "password_reset_redeem"  // 5 in an hour
	ReadyPasswordResetRequest = "password_reset_request" // 3 in an hour
	ReadyUploadWindow         = "upload_window"          // 10 in an hour

	// What [Client.CheckSignIn] goes by, with a row or without: failures in 15 minutes.
	ReadySignInAccount = "sign_in_account" // of an account, from wherever: 100
	ReadySignInPair    = "sign_in_pair"    // of an account from one source: 5
	ReadySignInSource  = "sign_in_source"  // of a source, at any account: 20
)

// ReadyLimits are the names of the ready limits.
func ReadyLimits() []string {
	return []string{
		ReadyLoginAttempt, ReadyPasswordResetRedeem, ReadyPasswordResetRequest, ReadySignInAccount, ReadySignInPair, ReadySignInSource,
		ReadyUploadWindow,
	}
}

// InstallReady writes the ready row of a name, such as [ReadyRequestInFlight], unless there is one, which is left as it
// is. It returns the row's version.
func (c *Client) InstallReady(ctx context.Context, name, tenant string) (int64, error) {
	var args arguments
	args.text("name", name)
	c.tenant(ctx, &args, tenant)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    name,
		sql:     installReadySQL,
		verb:    "install_ready",
	})
}

// SetEndpoint writes the whole row of an endpoint, and returns the row's new version. It takes effect with the next
// claim.
func (c *Client) SetEndpoint(ctx context.Context, p SetEndpointParams) (int64, error) {
	var args arguments
	args.text("endpoint", p.Endpoint)
	args.optionalNumber(p.HolderCap)
	args.optionalNumber(p.EndpointCap)
	args.optionalDuration("time_bound", p.TimeBound)
	args.optionalNumber(p.RowCap)
	args.add(!p.OutsideInstallation)
	args.textOr("mode", string(p.Mode), string(ModeEnforce))
	args.textOr("on_outage", string(p.OnOutage), string(OnOutageAllow))
	c.tenant(ctx, &args, p.Tenant)
	args.optionalDuration("longest", p.Longest)
	args.add(p.Fair)
	args.numberOr(p.QueueCap, defaultQueueCap)
	args.numberOr(p.HolderQueueCap, defaultHolderQueueCap)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Endpoint,
		sql:     setEndpointSQL,
		verb:    "set_endpoint",
	})
}

// SetLimit writes the whole row of a limit, and returns the row's new version. It takes effect with the next hit.
func (c *Client) SetLimit(ctx context.Context, p SetLimitParams) (int64, error) {
	var args arguments
	args.text("limit_name", p.Limit)
	args.add(p.MaxHits)
	args.window("per", p.Per, p.Algorithm)
	args.textOr("algorithm", string(p.Algorithm), string(AlgorithmFixedWindow))
	args.optionalNumber(p.Burst)
	args.textOr("mode", string(p.Mode), string(ModeEnforce))
	args.textOr("on_outage", string(p.OnOutage), string(OnOutageAllow))
	c.tenant(ctx, &args, p.Tenant)
	args.add(p.Durable)
	args.optionalText("time_zone", p.TimeZone)
	args.textOr("on_lapse", string(p.OnLapse), string(OnLapseKeep))
	args.textOr("carry", string(p.Carry), string(CarryKeep))
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		name:    p.Limit,
		sql:     setLimitSQL,
		verb:    "set_limit",
	})
}
