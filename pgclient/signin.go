package pgclient

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype/zeronull"
)

const (
	checkSignInSQL = `select verdict, delay, reason, retry_after
from pglimit.check_sign_in(account => $1::text, source => $2::text, tenant => $3::text)`

	forgetSignInSQL = `select pglimit.forget_sign_in(account => $1::text, source => $2::text, tenant => $3::text)`

	showSignInSQL = `select limit_name, subject, used, quota, remaining, retry_after, reset_at, known
from pglimit.show_sign_in(account => $1::text, source => $2::text, tenant => $3::text)`

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

// SignInCount is one of the three counts that a sign-in goes by, of [Client.ShowSignIn].
type SignInCount struct {
	// Limit is sign_in_account, sign_in_source or sign_in_pair, Subject the hash under which it counts.
	Limit, Subject string

	// Known is whether the account has signed in from this source within 90 days: then only the pair counts.
	Known bool

	// Quota, Remaining and Used are in failures.
	Quota, Remaining, Used int64

	// ResetAt is when nothing is used any more, on the database's clock. Zero while nothing is counted.
	ResetAt time.Time

	// RetryAfter is how long a failure counts no more. Zero while something remains.
	RetryAfter time.Duration
}

// SignInParams are the arguments of the methods about sign-ins.
type SignInParams struct {
	// Account is the name as it was typed, whether or not there is such an account. Space around it, case and Unicode forms
	// are folded, so that all its spellings are one. Required.
	Account string

	// Source is the peer's address without its port. Of IPv6 the network counts, an IPv4 address is the same where it is
	// written as IPv6. Required but for [Client.ForgetSignIn].
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

// ForgetSignIn gives an account its attempts back, for whoever helps a user who is locked out, and with a source also
// those of the account from there and those of the source. It reports whether there was anything to give back; the
// history then has it. It needs the rights of an operator.
func (c *Client) ForgetSignIn(ctx context.Context, p SignInParams) (bool, error) {
	var args arguments
	args.text("account", p.Account)
	args.optionalText("source", p.Source)
	c.tenant(ctx, &args, p.Tenant)
	return run(ctx, c, statement[bool]{
		args:    args,
		begin:   beginWrite,
		collect: scalar[bool],
		name:    "sign_in",
		sql:     forgetSignInSQL,
		verb:    "forget_sign_in",
	})
}

// ShowSignIn shows what [Client.CheckSignIn] goes by: the counts of the account, of the source and of the two together.
// It needs the rights of an operator or a monitor.
func (c *Client) ShowSignIn(ctx context.Context, p SignInParams) ([]SignInCount, error) {
	rows, err := run(ctx, c, statement[[]signInCountRow]{
		args:    c.signInArguments(ctx, p),
		begin:   beginRead,
		collect: list[signInCountRow],
		name:    "sign_in",
		sql:     showSignInSQL,
		verb:    "show_sign_in",
	})
	counts := make([]SignInCount, len(rows))
	for i, r := range rows {
		counts[i] = SignInCount{
			Known: r.Known, Limit: r.Limit, Quota: r.Quota, Remaining: r.Remaining, ResetAt: time.Time(r.ResetAt),
			RetryAfter: time.Duration(r.RetryAfter), Subject: r.Subject, Used: r.Used,
		}
	}
	return counts, err
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

type signInCountRow struct {
	Limit      string               `db:"limit_name"`
	Subject    string               `db:"subject"`
	Used       int64                `db:"used"`
	Quota      int64                `db:"quota"`
	Remaining  int64                `db:"remaining"`
	RetryAfter interval             `db:"retry_after"`
	ResetAt    zeronull.Timestamptz `db:"reset_at"`
	Known      bool                 `db:"known"`
}

func (r signInRow) refused() bool { return r.Verdict == SignInRefuse }
