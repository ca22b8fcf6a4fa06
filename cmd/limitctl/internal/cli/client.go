package cli

import (
	"context"
	"time"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// Client is what the commands need of pgclient.
type Client interface {
	DropEndpoint(ctx context.Context, endpoint, tenant string) (bool, error)
	DropEndpointOverride(context.Context, pgclient.DropEndpointOverrideParams) (bool, error)
	DropLimit(ctx context.Context, limit, tenant string) (bool, error)
	ForceRelease(ctx context.Context, id int64, why string) (pgclient.ReleaseResult, error)
	Forget(context.Context, pgclient.ForgetParams) (bool, error)
	ListChanges(context.Context, pgclient.ListChangesParams) ([]pgclient.ChangeRow, error)
	ListCounters(context.Context, pgclient.ListCountersParams) ([]pgclient.CounterRow, error)
	ListEndpointOverrides(context.Context, pgclient.ListEndpointOverridesParams) ([]pgclient.EndpointOverrideRow, error)
	ListEndpoints(context.Context, pgclient.ListEndpointsParams) ([]pgclient.EndpointRow, error)
	ListLimits(context.Context, pgclient.ListLimitsParams) ([]pgclient.LimitRow, error)
	ListPermits(context.Context, pgclient.ListPermitsParams) ([]pgclient.PermitRow, error)
	Peek(context.Context, pgclient.HitParams) (pgclient.Decision, error)
	Purge(ctx context.Context, batch int64) (pgclient.PurgeResult, error)
	RaiseEpoch(context.Context) (int64, error)
	ReleaseHolder(context.Context, pgclient.ReleaseHolderParams) (int64, error)
	ReleasePermit(ctx context.Context, id int64, holder string) (pgclient.ReleaseResult, error)
	SetEndpoint(context.Context, pgclient.SetEndpointParams) (int64, error)
	SetEndpointOverride(context.Context, pgclient.SetEndpointOverrideParams) (int64, error)
	SetInstallationCap(ctx context.Context, bound int64) (before int64, err error)
	SetLimit(context.Context, pgclient.SetLimitParams) (int64, error)
	SetPurgeAfter(ctx context.Context, idle time.Duration) (before time.Duration, err error)
	ShowInstallation(context.Context) (pgclient.Installation, error)
	Version(context.Context) (string, error)

	Close()
}

// Migrator is what the schema verbs need of package migrations, on a connection.
type Migrator interface {
	Check(context.Context) (migrations.Status, error)
	Drop(context.Context, ...migrations.Option) (migrations.DropResult, error)
	Up(context.Context, ...migrations.Option) (migrations.Result, error)

	Database() string // the name of the database, for questions and messages
	Server() string   // where it is
	Close()
}
