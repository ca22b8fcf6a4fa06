package pgclient_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

func TestExplainAndSimulate(t *testing.T) {
	t.Parallel()
	db := setup(t)
	ctx := t.Context()
	must(db.operator.SetLimit(ctx, pgclient.SetLimitParams{Limit: "l", MaxHits: 1, Per: time.Hour}))(t)
	must(db.app.Hit(ctx, pgclient.HitParams{Limit: "l", Subject: "s"}))(t)

	rows := must(db.operator.ExplainLimit(ctx, pgclient.ExplainParams{Limit: "l", Subject: "s"}))(t)
	var steps string
	for _, r := range rows {
		steps += r.Step + " "
	}
	want(t, "steps", steps, "rule override block counter holds arithmetic answer ")
	var facts struct{ Allowed bool }
	if err := json.Unmarshal(rows[6].Facts, &facts); err != nil || facts.Allowed || rows[1].Facts != nil {
		t.Errorf("got %v, %+v", err, rows)
	}

	at := time.Date(2015, 5, 17, 10, 0, 0, 1000, time.UTC)
	events := []pgclient.Event{{At: at.Add(time.Second), Cost: 1, Subject: "a"}, {At: at, Cost: 1, Subject: "a"}, {At: at, Cost: 0, Subject: `<"é">`}}
	answers := must(db.operator.Simulate(ctx, pgclient.SimulateParams{Limit: "l", Events: events}))(t)
	want(t, "answers", len(answers), 3)
	want(t, "the later one", answers[0], pgclient.Simulated{Quota: 1, Reason: pgclient.ReasonLimit, RetryAfter: time.Hour - time.Second})
	want(t, "the earlier one", answers[1], pgclient.Simulated{Allowed: true, Quota: 1, Reason: pgclient.ReasonAllowed})
	want(t, "a look", answers[2], pgclient.Simulated{Allowed: true, Quota: 1, Reason: pgclient.ReasonAllowed, Remaining: 1})
	answers = must(db.operator.Simulate(ctx, pgclient.SimulateParams{
		Limit: "new", Events: events, MaxHits: pgclient.N(2), Per: pgclient.D(pgclient.CalendarMonth), Algorithm: pgclient.AlgorithmCalendar, TimeZone: "Europe/Berlin",
	}))(t)
	want(t, "of a limit given", answers[0].Allowed, true)
	want(t, "no events", len(must(db.operator.Simulate(ctx, pgclient.SimulateParams{Limit: "l"}))(t)), 0)
	if _, err := db.operator.Simulate(ctx, pgclient.SimulateParams{Limit: "none", Events: events}); !errors.Is(err, pgclient.ErrUnknownLimit) {
		t.Errorf("got %v", err)
	}
	if _, err := db.operator.Simulate(ctx, pgclient.SimulateParams{Limit: "l", Events: []pgclient.Event{{At: at, Subject: "a\x00"}}}); !errors.Is(err, pgclient.ErrInvalidArgument) {
		t.Errorf("got %v", err)
	}
}
