package pgclient

import (
	"context"
	"time"
)

const doctorSQL = `select check_name, state, message, coalesce(hint, '') as hint
from pglimit.doctor(held_for => $1::interval, snapshot_for => $2::interval)`

// CheckState is what a check of [Client.Doctor] came to.
type CheckState string

// The states of a check.
const (
	CheckOK      CheckState = "ok"
	CheckWarning CheckState = "warning"
	CheckFailure CheckState = "failure"
	CheckSkipped CheckState = "skipped" // the login may not see what it needs
)

// DoctorParams are the arguments of [Client.Doctor].
type DoctorParams struct {
	// HeldFor is how long a transaction must have held locks on pglimit's tables to be named. Defaults to 5 seconds.
	HeldFor *time.Duration

	// SnapshotFor is how long a snapshot must have been held to be named. Defaults to an hour.
	SnapshotFor *time.Duration
}

// DoctorRow is what one check found. A check that found several things has several rows.
type DoctorRow struct {
	// Check is the name of the check, which stays the same.
	Check string `db:"check_name"`

	// Hint is what to type next, if anything.
	Hint string `db:"hint"`

	Message string     `db:"message"`
	State   CheckState `db:"state"`
}

// Doctor checks the database: whether all of pglimit is there and answers, who is in its way, what nobody looks after. It
// takes an operator or a monitor, and for other sessions' doings pg_monitor. It writes nothing, and needs the primary.
func (c *Client) Doctor(ctx context.Context, p DoctorParams) ([]DoctorRow, error) {
	var args arguments
	durationOr := func(d *time.Duration, otherwise time.Duration) {
		if d != nil {
			otherwise = *d
		}
		args.interval(otherwise) // zero is allowed: whatever is held
	}
	durationOr(p.HeldFor, 5*time.Second)
	durationOr(p.SnapshotFor, time.Hour)
	return run(ctx, c, statement[[]DoctorRow]{
		args:    args,
		begin:   beginWrite, // else hit could not be tried
		collect: list[DoctorRow],
		sql:     doctorSQL,
		verb:    "doctor",
	})
}
