package pgclient

import (
	"context"
	"time"
)

const (
	checkSignInSQL = `select verdict, delay, reason, retry_after
from pglimit.check_sign_in(account => $1::text, source => $2::text, tenant => $3::text)`

	signInFailedSQL = `select pglimit.sign_in_failed(account => $1::text, source => $2::text, tenant => $3::text) is not null`

	signInSucceededSQL = `select pglimit.sign_in_succeeded(account => $1::text, source => $2::text, tenant => $3::text) is not null`
)

// SignInVerdict says whether to look at a password.
type SignInVerdict string

// Verdicts of [Client.CheckSignIn].
const (
	SignInAllow  SignInVerdict = "allow"
	SignInDelay  SignInVerdict = "delay"  // wait for SignInDecision.Delay first
	SignInRefuse SignInVerdict = "refuse" // and do not look at it
)

// Reasons of sign-ins, beside ReasonAllowed: whose failures they are. They are for the log, not for who signs in.
const (
	ReasonAccount Reason = "account" // of the account, from wherever
	ReasonPair    Reason = "pair"    // of the account from this source
	ReasonSource  Reason = "source"  // of this source, at any account
)

// SignInDecision is the answer to [Client.CheckSignIn].
type SignInDecision struct {
	// Delay is how long to wait before the password is looked at. Zero unless the verdict is [SignInDelay].
	Delay time.Duration

	Reason Reason

	// RetryAfter is how long a refusal lasts. Zero unless the verdict is [SignInRefuse].
	RetryAfter time.Duration

	Verdict SignInVerdict
}

// SignInParams are the arguments of [Client.CheckSignIn], [Client.SignInFailed] and [Client.SignInSucceeded].
type SignInParams struct {
	// Account is the name as it was typed, whether or not there is such an account. Space around it, case and Unicode forms
	// are folded, so that all its spellings are one. Required.
	Account string

	// Source is the peer's address without its port. Of IPv6 the network counts, an IPv4 address is the same where it is
	// written as IPv6. Required.
	Source string

	// Tenant defaults to the answer of [WithTenantFunc], or else to the server's setting pglimit.tenant.
	Tenant string
}

// CheckSignIn says, before a password is looked at, whether to look at it: by the failures of the account from this
// source, of this source, and of the account. The last two do not count for a source that has signed in to the account
// within 90 days, so strangers do not lock its owner out. It counts nothing: say how it went with [Client.SignInFailed]
// or [Client.SignInSucceeded]. A refusal is a decision and a nil error.
func (c *Client) CheckSignIn(ctx context.Context, p SignInParams) (SignInDecision, error) {
	row, err := run(ctx, c, statement[signInRow]{
		args:    c.signInArguments(ctx, p),
		begin:   beginRead,
		collect: one[signInRow],
		name:    "sign_in",
		sql:     checkSignInSQL,
		verb:    "check_sign_in",
	})
	return SignInDecision{
		Delay:      time.Duration(row.Delay),
		Reason:     row.Reason,
		RetryAfter: time.Duration(row.RetryAfter),
		Verdict:    row.Verdict,
	}, err
}

// SignInFailed counts a failure, also of an account that does not exist, or the answers would tell which do. It counts
// whatever becomes of ctx.
func (c *Client) SignInFailed(ctx context.Context, p SignInParams) error {
	return c.noteSignIn(ctx, "sign_in_failed", signInFailedSQL, p)
}

// SignInSucceeded forgets the failures of the account, and those of the account from this source, and knows the two
// together for 90 days. The failures of the source stay.
func (c *Client) SignInSucceeded(ctx context.Context, p SignInParams) error {
	return c.noteSignIn(ctx, "sign_in_succeeded", signInSucceededSQL, p)
}

func (c *Client) noteSignIn(ctx context.Context, verb, sql string, p SignInParams) error {
	_, err := run(ctx, c, statement[bool]{
		args:    c.signInArguments(ctx, p),
		begin:   beginWrite,
		collect: scalar[bool],
		name:    "sign_in",
		sql:     sql,
		verb:    verb,
	})
	return err
}

func (c *Client) signInArguments(ctx context.Context, p SignInParams) (args arguments) {
	args.text("account", p.Account)
	args.text("source", p.Source)
	c.tenant(ctx, &args, p.Tenant)
	return args
}

type signInRow struct {
	Verdict    SignInVerdict `db:"verdict"`
	Delay      interval      `db:"delay"`
	Reason     Reason        `db:"reason"`
	RetryAfter interval      `db:"retry_after"`
}

func (r signInRow) refused() bool { return r.Verdict == SignInRefuse }
