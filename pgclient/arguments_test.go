package pgclient_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

// Everything the client refuses itself, it refuses before it asks for a connection.
func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	client := must(pgclient.New(unreachable{t}))(t)
	hit := func(change func(*pgclient.HitParams)) func(context.Context) error {
		p := pgclient.HitParams{Limit: "api", Subject: "u1", MaxHits: pgclient.N(5), Per: pgclient.D(time.Minute)}
		change(&p)
		return func(ctx context.Context) error {
			_, hitErr := client.Hit(ctx, p)
			_, peekErr := client.Peek(ctx, p)
			if (hitErr == nil) != (peekErr == nil) {
				t.Errorf("hit says %v, peek says %v", hitErr, peekErr)
			}
			return hitErr
		}
	}
	claim := func(change func(*pgclient.ClaimPermitParams)) func(context.Context) error {
		p := pgclient.ClaimPermitParams{Endpoint: "export", Holder: "u1", HolderCap: pgclient.N(1), Lease: pgclient.D(time.Minute)}
		change(&p)
		return func(ctx context.Context) error {
			permit, err := client.ClaimPermit(ctx, p)
			if permit != nil {
				t.Errorf("got permit %+v beside the error", permit)
			}
			return err
		}
	}
	far := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	const nul, broken = "a\x00b", "a\xffb"
	for name, call := range map[string]func(context.Context) error{
		"ClaimEndpointNUL":   claim(func(p *pgclient.ClaimPermitParams) { p.Endpoint = nul }),
		"ClaimHolderBroken":  claim(func(p *pgclient.ClaimPermitParams) { p.Holder = broken }),
		"ClaimLeaseZero":     claim(func(p *pgclient.ClaimPermitParams) { p.Lease = pgclient.D(0) }),
		"ClaimLeaseNegative": claim(func(p *pgclient.ClaimPermitParams) { p.Lease = pgclient.D(-time.Second) }),
		"ClaimLeaseTiny":     claim(func(p *pgclient.ClaimPermitParams) { p.Lease = pgclient.D(time.Microsecond - 1) }),
		"ClaimNoteNoJSON":    claim(func(p *pgclient.ClaimPermitParams) { p.Note = json.RawMessage(`{"a":`) }),
		"ClaimNoteEmpty":     claim(func(p *pgclient.ClaimPermitParams) { p.Note = json.RawMessage{} }),
		"ClaimNoteBroken":    claim(func(p *pgclient.ClaimPermitParams) { p.Note = json.RawMessage("\"\xff\"") }),
		"ClaimWaitNegative":  claim(func(p *pgclient.ClaimPermitParams) { p.Wait = pgclient.D(-1) }),
		"ClaimWaitAgain":     claim(func(p *pgclient.ClaimPermitParams) { p.RequestID, p.Wait = "r", pgclient.D(time.Second) }),
		"ClaimTenantNUL":     claim(func(p *pgclient.ClaimPermitParams) { p.Tenant = nul }),
		"HitAlgorithmNUL":    hit(func(p *pgclient.HitParams) { p.Algorithm = nul }),
		"HitLimitNUL":        hit(func(p *pgclient.HitParams) { p.Limit = nul }),
		"HitSubjectBroken":   hit(func(p *pgclient.HitParams) { p.Subject = broken }),
		"HitTenantBroken":    hit(func(p *pgclient.HitParams) { p.Tenant = broken }),
		"HitPerZero":         hit(func(p *pgclient.HitParams) { p.Per = pgclient.D(0) }),
		"HitPerNegative":     hit(func(p *pgclient.HitParams) { p.Per = pgclient.D(-1) }),
		"ForgetSubjectNUL": func(ctx context.Context) error {
			_, err := client.Forget(ctx, pgclient.ForgetParams{Limit: "api", Subject: nul})
			return err
		},
		"EnqueueRequestID": func(ctx context.Context) error {
			_, err := client.EnqueuePermit(ctx, pgclient.ClaimPermitParams{Endpoint: "e", Holder: "u1", RequestID: "r"})
			return err
		},
		"EnqueueWaitZero": func(ctx context.Context) error {
			_, err := client.EnqueuePermit(ctx, pgclient.ClaimPermitParams{Endpoint: "e", Holder: "u1", Wait: pgclient.D(0)})
			return err
		},
		"OverrideYear": func(ctx context.Context) error {
			_, err := client.SetEndpointOverride(ctx, pgclient.SetEndpointOverrideParams{Endpoint: "e", Holder: "u1", ValidFrom: &far})
			return err
		},
		"OverrideHolderNUL": func(ctx context.Context) error {
			_, err := client.SetEndpointOverride(ctx, pgclient.SetEndpointOverrideParams{Endpoint: "e", Holder: nul})
			return err
		},
		"ReleaseHolderNUL": func(ctx context.Context) error {
			_, err := client.ReleasePermit(ctx, 1, nul)
			return err
		},
		"RenewLeaseZero": func(ctx context.Context) error {
			_, err := client.RenewPermit(ctx, 1, pgclient.D(0))
			return err
		},
		"SetLimitPerZero": func(ctx context.Context) error {
			_, err := client.SetLimit(ctx, pgclient.SetLimitParams{Limit: "api", MaxHits: 1})
			return err
		},
		"SetEndpointLongestZero": func(ctx context.Context) error {
			_, err := client.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: "e", Longest: pgclient.D(0)})
			return err
		},
		"SetEndpointTimeBoundNegative": func(ctx context.Context) error {
			_, err := client.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: "e", TimeBound: pgclient.D(-time.Hour)})
			return err
		},
		"DropLimitNUL": func(ctx context.Context) error {
			_, err := client.DropLimit(ctx, nul, "")
			return err
		},
		"DropEndpointTenantNUL": func(ctx context.Context) error {
			_, err := client.DropEndpoint(ctx, "e", nul)
			return err
		},
		"ListPermitsRowsNegative": func(ctx context.Context) error {
			_, err := client.ListPermits(ctx, pgclient.ListPermitsParams{MaxRows: -1})
			return err
		},
		"ListCountersAfterNUL": func(ctx context.Context) error {
			_, err := client.ListCounters(ctx, pgclient.ListCountersParams{After: nul})
			return err
		},
		"ListLimitsTenantNUL": func(ctx context.Context) error {
			_, err := client.ListLimits(ctx, pgclient.ListLimitsParams{Tenant: pgclient.S(nul)})
			return err
		},
		"ListEndpointsRowsHuge": func(ctx context.Context) error {
			_, err := client.ListEndpoints(ctx, pgclient.ListEndpointsParams{MaxRows: 1 << 31})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := wantKind(t, call(t.Context()), pgclient.ErrInvalidArgument)
			if e.Operation == "" || e.Detail == "" || e.Code != "" {
				t.Errorf("got %+v, want an operation and a detail, and no SQLSTATE", e)
			}
			if strings.ContainsRune(e.Error(), 0) {
				t.Errorf("%q passes the NUL byte on", e)
			}
		})
	}
}

// A refused permit, and none at all, can be released and renewed without a round trip.
func TestPermitNeverGranted(t *testing.T) {
	t.Parallel()
	for _, permit := range []*pgclient.Permit{nil, {}, {Reason: pgclient.ReasonHolder}} {
		released := must(permit.Release(t.Context()))(t)
		want(t, "release", released, pgclient.ReleaseResult{Reason: pgclient.ReasonUnknown})
		renewed := must(permit.Renew(t.Context(), pgclient.D(time.Minute)))(t)
		want(t, "renew", renewed, pgclient.RenewResult{Reason: pgclient.ReasonUnknown})
	}
}

func TestPointers(t *testing.T) {
	t.Parallel()
	type weight uint8
	want(t, "untyped", *pgclient.N(5), 5)
	want(t, "int", *pgclient.N(len("abc")), 3)
	want(t, "own type", *pgclient.N(weight(200)), 200)
	want(t, "duration", *pgclient.D(time.Minute), time.Minute)
	want(t, "string", *pgclient.S(""), "")
}
