package pgclient

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	purgeSQL = `select permits_purged, counters_purged, more, holds_purged, holds_returned from pglimit.purge(batch => $1::bigint)`

	raiseEpochSQL = `select pglimit.raise_epoch()`

	setGraceSQL = `select pglimit.set_grace(grace => $1::interval)`

	setInstallationCapSQL = `select pglimit.set_installation_cap(cap => $1::bigint)`

	setPurgeAfterSQL = `select pglimit.set_purge_after(idle => $1::interval)`

	showInstallationSQL = `select installation_cap, in_use, epoch, epoch_since, purge_after, last_purge_at, code_version, installed_at,
    lost_at, losses, live_known, grace, reserved
from pglimit.show_installation()`

	versionSQL = `select pglimit.pglimit_version()`
)

// Installation is what [Client.ShowInstallation] shows.
type Installation struct {
	// CodeVersion is the version of the installed functions, InstalledAt when pglimit was installed.
	CodeVersion string
	InstalledAt time.Time

	// Epoch is the high part of permit ids, EpochSince when it began: the installation, the last crash of the database
	// (which empties counters and permits), or the last [Client.RaiseEpoch].
	Epoch      int64
	EpochSince time.Time

	// Grace is how long after a loss permits can be reasserted, while room is kept for them.
	Grace time.Duration

	// InstallationCap bounds the places in use over all endpoints together, InUse is how many are. Of these Reserved are
	// only kept for permits that a crash has lost. LiveKnown is how many were in use when purge last looked.
	InstallationCap, InUse, LiveKnown, Reserved int64

	// Losses is how often a crash of the database, or the promotion of a standby, has emptied counters and permits, LostAt
	// when that was last found, zero for never.
	Losses int64
	LostAt time.Time

	// LastPurgeAt is when the last purge ended, zero for never.
	LastPurgeAt time.Time

	// PurgeAfter is how long a pool or a counter is idle before purge removes it.
	PurgeAfter time.Duration
}

// PurgeResult is the answer to a purge.
type PurgeResult struct {
	// CountersPurged, HoldsPurged and PermitsPurged are the rows removed.
	CountersPurged int64 `db:"counters_purged"`
	HoldsPurged    int64 `db:"holds_purged"`
	PermitsPurged  int64 `db:"permits_purged"`

	// HoldsReturned are the holds that had lapsed and were given back. See [OnLapse].
	HoldsReturned int64 `db:"holds_returned"`

	// More says that this pass over the tables has more to read, so that there may be more to remove.
	More bool `db:"more"`
}

// Purge removes up to batch rows of each table that nobody has come back to for long. No decision depends on it. Call it
// again while the result says that there is more.
func (c *Client) Purge(ctx context.Context, batch int64) (PurgeResult, error) {
	var args arguments
	args.add(batch)
	return run(ctx, c, statement[PurgeResult]{
		args:    args,
		begin:   beginWrite,
		collect: one[PurgeResult],
		sql:     purgeSQL,
		verb:    "purge",
	})
}

// RaiseEpoch has all later permit ids be greater than any given out before, and returns the new epoch. It is for after a
// restore from a backup; a crash is noticed without.
func (c *Client) RaiseEpoch(ctx context.Context) (int64, error) {
	return run(ctx, c, statement[int64]{
		begin:   beginWrite,
		collect: scalar[int64],
		sql:     raiseEpochSQL,
		verb:    "raise_epoch",
	})
}

// SetGrace sets how long after a loss permits can be reasserted, while room is kept for them, and returns the time before.
// It may be zero, and at most a day. As [Permit.KeepAlive] learns of a loss with its next renewal, a third of the longest
// lease is a good time.
func (c *Client) SetGrace(ctx context.Context, grace time.Duration) (before time.Duration, err error) {
	var args arguments
	args.interval(grace) // zero is allowed: keep no room
	was, err := run(ctx, c, statement[interval]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[interval],
		sql:     setGraceSQL,
		verb:    "set_grace",
	})
	return time.Duration(was), err
}

// SetInstallationCap sets the bound of the permits in use over all endpoints together, and returns the one before.
func (c *Client) SetInstallationCap(ctx context.Context, bound int64) (before int64, err error) {
	var args arguments
	args.add(bound)
	return run(ctx, c, statement[int64]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[int64],
		sql:     setInstallationCapSQL,
		verb:    "set_installation_cap",
	})
}

// SetPurgeAfter sets how long a pool or a counter is idle before purge removes it, and returns the time before. It may
// be zero.
func (c *Client) SetPurgeAfter(ctx context.Context, idle time.Duration) (before time.Duration, err error) {
	var args arguments
	args.interval(idle) // zero is allowed: purge whatever is not in use
	was, err := run(ctx, c, statement[interval]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[interval],
		sql:     setPurgeAfterSQL,
		verb:    "set_purge_after",
	})
	return time.Duration(was), err
}

// ShowInstallation returns the settings and the state of the whole installation.
func (c *Client) ShowInstallation(ctx context.Context) (Installation, error) {
	row, err := run(ctx, c, statement[installationRow]{
		begin:   beginRead,
		collect: one[installationRow],
		sql:     showInstallationSQL,
		verb:    "show_installation",
	})
	return Installation{
		CodeVersion:     row.CodeVersion,
		InstalledAt:     row.InstalledAt,
		Epoch:           row.Epoch,
		EpochSince:      time.Time(row.EpochSince),
		InstallationCap: row.InstallationCap,
		InUse:           row.InUse,
		LastPurgeAt:     time.Time(row.LastPurgeAt),
		PurgeAfter:      time.Duration(row.PurgeAfter),
		Grace:           time.Duration(row.Grace),
		LiveKnown:       row.LiveKnown,
		Losses:          row.Losses,
		LostAt:          time.Time(row.LostAt),
		Reserved:        row.Reserved,
	}, err
}

// Version returns the version of the installed functions. It is the cheapest call there is, and so the one to find out
// whether the database can be reached and pglimit is installed in it.
func (c *Client) Version(ctx context.Context) (string, error) {
	return run(ctx, c, statement[string]{
		begin:   beginRead,
		collect: scalar[string],
		sql:     versionSQL,
		verb:    "pglimit_version",
	})
}

type installationRow struct {
	InstallationCap int64                `db:"installation_cap"`
	InUse           int64                `db:"in_use"`
	Epoch           int64                `db:"epoch"`
	EpochSince      zeronull.Timestamptz `db:"epoch_since"`
	PurgeAfter      interval             `db:"purge_after"`
	LastPurgeAt     zeronull.Timestamptz `db:"last_purge_at"`
	CodeVersion     string               `db:"code_version"`
	InstalledAt     time.Time            `db:"installed_at"`
	LostAt          zeronull.Timestamptz `db:"lost_at"`
	Losses          int64                `db:"losses"`
	LiveKnown       int64                `db:"live_known"`
	Grace           interval             `db:"grace"`
	Reserved        int64                `db:"reserved"`
}
