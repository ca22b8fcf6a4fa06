package pgclient_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	rows := must(db.operator.Doctor(ctx, pgclient.DoctorParams{}))(t)
	states := map[string]pgclient.CheckState{}
	for _, r := range rows {
		states[r.Check] = r.State
		if r.Message == "" {
			t.Errorf("%+v", r)
		}
	}
	for check, state := range map[string]pgclient.CheckState{
		"server": pgclient.CheckOK, "objects": pgclient.CheckOK, "call": pgclient.CheckOK, "blockers": pgclient.CheckSkipped,
	} {
		want(t, check, states[check], state)
	}

	db.exec(t, "revoke execute on function pglimit.hit from pglimit_app")
	held := pgclient.DoctorParams{HeldFor: pgclient.D(time.Duration(0)), SnapshotFor: pgclient.D(time.Minute)}
	for _, r := range must(db.operator.Doctor(ctx, held))(t) {
		if r.State == pgclient.CheckFailure && (r.Check != "functions" || !strings.Contains(r.Message, "pglimit_app may not call pglimit.hit(") || r.Hint == "") {
			t.Errorf("%+v", r)
		}
		states[r.Check] = r.State
	}
	want(t, "functions", states["functions"], pgclient.CheckFailure)

	if _, err := db.app.Doctor(ctx, pgclient.DoctorParams{}); !errors.Is(err, pgclient.ErrPermission) {
		t.Errorf("the app: %v", err)
	}
	if _, err := db.operator.Doctor(ctx, pgclient.DoctorParams{HeldFor: pgclient.D(-time.Second)}); !errors.Is(err, pgclient.ErrInvalidArgument) {
		t.Errorf("a negative time: %v", err)
	}
}

func TestInstallReady(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()

	version := must(db.operator.InstallReady(ctx, pgclient.ReadyRequestInFlight, ""))(t)
	want(t, "version", must(db.operator.InstallReady(ctx, pgclient.ReadyRequestInFlight, ""))(t), version)
	claim := func(holder string) *pgclient.Permit {
		t.Helper()
		return must(db.app.ClaimPermit(ctx, pgclient.ClaimPermitParams{Endpoint: pgclient.ReadyRequestInFlight, Holder: holder}))(t)
	}
	for range 10 {
		if p := claim("token a"); !p.Granted {
			t.Fatalf("refused: %+v", p)
		}
	}
	if p := claim("token a"); p.Granted || p.Reason != pgclient.ReasonHolder || p.Cap != 10 || p.InUse != 10 {
		t.Errorf("the eleventh: %+v", p)
	}
	if p := claim("token b"); !p.Granted {
		t.Errorf("another token: %+v", p)
	}
	want(t, "of the installation", must(db.operator.ShowInstallation(ctx))(t).InUse, int64(0))

	_, err := db.operator.InstallReady(ctx, "audit.export", "")
	var e *pgclient.Error
	if !errors.As(err, &e) || !errors.Is(err, pgclient.ErrInvalidArgument) || !strings.Contains(e.Hint, pgclient.ReadyRequestInFlight) {
		t.Errorf("another name: %v", err)
	}
}
