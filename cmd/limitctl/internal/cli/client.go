package cli

import (
	"context"
	"time"

	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// Client is what the commands need of pgclient.
type Client interface {
	Block(context.Context, pgclient.BlockParams) (until *time.Time, err error)
	BlockRange(context.Context, pgclient.BlockRangeParams) (until *time.Time, err error)
	Doctor(context.Context, pgclient.DoctorParams) ([]pgclient.DoctorRow, error)
	DropEndpoint(ctx context.Context, endpoint, tenant string) (bool, error)
	DropEndpointOverride(context.Context, pgclient.DropEndpointOverrideParams) (bool, error)
	DropLimit(ctx context.Context, limit, tenant string) (bool, error)
	DropLimitOverride(context.Context, pgclient.DropLimitOverrideParams) (bool, error)
	ExplainLimit(context.Context, pgclient.ExplainParams) ([]pgclient.ExplainRow, error)
	ForceRelease(ctx context.Context, id int64, why string) (pgclient.ReleaseResult, error)
	Forget(context.Context, pgclient.ForgetParams) (bool, error)
	ForgetSignIn(context.Context, pgclient.SignInParams) (bool, error)
	InstallReady(ctx context.Context, name, tenant string) (int64, error)
	ListBlocks(context.Context, pgclient.ListBlocksParams) ([]pgclient.BlockRow, error)
	ListChanges(context.Context, pgclient.ListChangesParams) ([]pgclient.ChangeRow, error)
	ListCounters(context.Context, pgclient.ListCountersParams) ([]pgclient.CounterRow, error)
	ListEndpointOverrides(context.Context, pgclient.ListEndpointOverridesParams) ([]pgclient.EndpointOverrideRow, error)
	ListEndpoints(context.Context, pgclient.ListEndpointsParams) ([]pgclient.EndpointRow, error)
	ListHolds(context.Context, pgclient.ListHoldsParams) ([]pgclient.HoldRow, error)
	ListLimitOverrides(context.Context, pgclient.ListLimitOverridesParams) ([]pgclient.LimitOverrideRow, error)
	ListLimits(context.Context, pgclient.ListLimitsParams) ([]pgclient.LimitRow, error)
	ListPermits(context.Context, pgclient.ListPermitsParams) ([]pgclient.PermitRow, error)
	Peek(context.Context, pgclient.HitParams) (pgclient.Decision, error)
	Purge(ctx context.Context, batch int64) (pgclient.PurgeResult, error)
	RaiseEpoch(context.Context) (int64, error)
	ReleaseHolder(context.Context, pgclient.ReleaseHolderParams) (int64, error)
	ReleasePermit(ctx context.Context, id int64, holder string) (pgclient.ReleaseResult, error)
	SetEndpoint(context.Context, pgclient.SetEndpointParams) (int64, error)
	SetGrace(ctx context.Context, grace time.Duration) (before time.Duration, err error)
	SetEndpointOverride(context.Context, pgclient.SetEndpointOverrideParams) (int64, error)
	SetInstallationCap(ctx context.Context, bound int64) (before int64, err error)
	SetLimit(context.Context, pgclient.SetLimitParams) (int64, error)
	SetLimitOverride(context.Context, pgclient.SetLimitOverrideParams) (int64, error)
	SetPurgeAfter(ctx context.Context, idle time.Duration) (before time.Duration, err error)
	ShowInstallation(context.Context) (pgclient.Installation, error)
	ShowSignIn(context.Context, pgclient.SignInParams) ([]pgclient.SignInCount, error)
	Simulate(context.Context, pgclient.SimulateParams) ([]pgclient.Simulated, error)
	Unblock(context.Context, pgclient.UnblockParams) (bool, error)
	UnblockRange(context.Context, pgclient.UnblockRangeParams) (bool, error)
	Version(context.Context) (string, error)

	Close()
}

// Session is what a connection is to the server.
type Session struct {
	Login   string
	Now     time.Time // by the server's clock
	Roles   []string  // of pglimit, and pg_monitor, that the login has the rights of
	Standby bool
	Super   bool
}

// Migrator is what the schema verbs and doctor need of package migrations, on a connection.
type Migrator interface {
	Check(context.Context) (migrations.Status, error)
	Drop(context.Context, ...migrations.Option) (migrations.DropResult, error)
	Session(context.Context) (Session, error)
	Up(context.Context, ...migrations.Option) (migrations.Result, error)

	Database() string // the name of the database, for questions and messages
	Server() string   // where it is
	Close()
}
