package pgclient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// KeepAlive has the lease renewed in the background until ctx ends, the permit is released or lost, or the client is
// closed. It returns at once, and while the permit is being kept alive another call changes nothing.
//
// Each renewal is for as long as the claim, or the last [Permit.Renew], asked for. It comes at a third of the lease, give
// or take a tenth, from a goroutine of its own. Where the client's connections are a *pgxpool.Pool, [Open]'s or the
// caller's, it is made on a connection apart from those, so that a program whose workers hold all connections, or are too
// busy to do anything else, keeps its permits as long as its process runs. The connections for renewals have the pool's
// configuration; there is seldom more than one for all permits of a client, never more than four, and none when nothing
// is kept alive. From any other source each renewal takes a connection like all calls.
//
// A permit that a crash of the database has lost is taken again, as [Permit.Renew] says, if the next renewal comes within
// the grace time: [Client.SetGrace]. A renewal that fails is soon tried again, until the lease is over. Renewals end for good with the longest time that the
// endpoint's row lets a permit be held, and the permit is lost when that is over.
//
// What is kept alive is the permit, whether its work makes progress or not: for work that can hang, end ctx, or have the
// endpoint's Longest set. And it is a lease, not a lock, as [Permit.Lost] says. On a permit that was refused, and on a
// nil one, it does nothing.
func (p *Permit) KeepAlive(ctx context.Context) {
	if p == nil || p.lease == nil {
		return
	}
	p.lease.watch()
	kept, stop := context.WithCancel(ctx)
	k := &keeper{ctx: kept, stop: stop}
	if !p.client.renewals.begin(k) {
		stop()
		return
	}
	if !p.lease.keep(k) {
		stop()
		p.client.renewals.end(k)
		return
	}
	go func() {
		defer p.client.renewals.end(k)
		defer p.lease.unkeep(k)
		defer stop()
		source, done := p.client.renewals.open(ctx, p.client)
		defer done()
		p.renewUntilEnd(kept, source)
	}()
}

// renewUntilEnd renews at a third of the lease.
func (p *Permit) renewUntilEnd(ctx context.Context, source Connections) {
	began, length := p.lease.known()
	wait := jitter(length/renewShare, renewJitter) - since(began)
	for {
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
		case <-p.lease.lost:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil || p.lease.isLost() {
			return
		}

		// One that hangs must leave time for another.
		timeout := min(p.client.timeout, max(length/renewShare, minRenewal))
		result, last, err := p.lease.renew(ctx, p.client, source, timeout, p.ID, nil)
		switch {
		case err != nil:
			wait = jitter(min(max(length/retryShare, minRetry), maxRetry), renewJitter)
		case !result.Renewed, last:
			return
		default:
			began, length = p.lease.known()
			wait = jitter(length/renewShare, renewJitter) - since(began)
		}
	}
}

const (
	renewShare  = 3   // of the lease, until it is renewed
	renewJitter = 0.1 // of the wait, more or less
	retryShare  = 30  // of the lease, until a failed renewal is tried again
	minRetry    = 10 * time.Millisecond
	maxRetry    = 5 * time.Second
	minRenewal  = 100 * time.Millisecond // that one renewal may take
)

// Lost returns a channel that is closed when the permit is known to be held no longer: a renewal was answered with
// lapsed, or with unknown and it could not be reasserted, the lease ran out without having been renewed, or [Permit.Release] was called on this permit. Work
// that heeds it stops:
//
//	select {
//	case <-permit.Lost():
//	    return errors.New("the permit was lost")
//	case part := <-parts:
//	    …
//	}
//
// That the lease ran out is known without asking anybody, even while the database is away: it lasts, on this machine's
// monotonic clock, from the moment the claim or the renewal was sent for as long as the server said it had left when it
// answered. So it is over here before it is over there, where another claim can then have the place. What Lost cannot
// tell in time: that somebody else released the permit, or that a crash of the database lost it, which the next renewal
// tells; and that the process was not running, or the machine suspended, which stops its monotonic clock. And nothing
// stops work that does not look. A lease is not a lock: where two must never both write, check the permit's ID where the
// write happens. It only grows, so the holder of an older permit can be turned away.
//
// Renewals made with [Client.RenewPermit], or by another process, are not known to the permit. Of a permit that was
// refused, or is nil, the channel is closed.
func (p *Permit) Lost() <-chan struct{} {
	if p == nil || p.lease == nil {
		return closedChannel
	}
	p.lease.watch()
	return p.lease.lost
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// lease is what a granted permit knows of its own end. Copies of the permit share it. Every instant in it is one of the
// monotonic clock, and none is later than what it stands for.
type lease struct {
	lost chan struct{} // closed when over

	// renewing is held during a renewal, so that the last answer is that of the last renewal.
	renewing sync.Mutex
	asked    *time.Duration // by the last renewal that asked for another lease than the claim; guarded by renewing
	claimed  time.Duration  // what the claim asked for

	claim  ClaimPermitParams // for a reassertion
	tenant *string           // of the claim

	mu     sync.Mutex
	began  time.Time     // when the call that gave the lease was sent
	end    time.Time     // of which the server said ends
	ends   time.Time     // on the server's clock; only ever compared with its like
	length time.Duration // from began to end
	keeper *keeper       // nil without
	over   bool
	timer  *time.Timer // closes lost at end; nil as long as nobody asked for it
}

// newLease is the lease of a claim that was sent at a moment and was answered when the lease had so much left.
func newLease(sent time.Time, left, claimed time.Duration, ends time.Time) *lease {
	return &lease{
		lost:    make(chan struct{}),
		claimed: claimed,
		began:   sent,
		end:     sent.Add(left),
		ends:    ends,
		length:  left,
	}
}

// known returns when the call that gave the lease was sent, and for how long from then it lasts.
func (l *lease) known() (began time.Time, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began, l.length
}

func (l *lease) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// runs is whether the permit is held as far as is known here.
func (l *lease) runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.over && until(l.end) > 0
}

// watch has lost be closed when the lease runs out. A permit of which nobody asks it costs no timer.
func (l *lease) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.timer == nil {
		l.timer = time.AfterFunc(until(l.end), l.runOut)
	}
}

// runOut is the timer's. It may come late, when the lease was renewed meanwhile.
func (l *lease) runOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := until(l.end); !l.over && left > 0 {
		l.timer.Reset(left)
		return
	}
	l.finish()
}

// lose is for a lease that is over before its time.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish()
}

// finish needs mu.
func (l *lease) finish() {
	if l.over {
		return
	}
	l.over = true
	close(l.lost)
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.keeper != nil {
		l.keeper.stop()
	}
}

// set takes over a new end. One that has passed already is for the timer to find, if there is one.
func (l *lease) set(began time.Time, length time.Duration, ends time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.length, l.end, l.ends = began, length, began.Add(length), ends
	if !l.over && l.timer != nil {
		l.timer.Reset(until(l.end))
	}
}

// keeper is a goroutine of KeepAlive.
type keeper struct {
	ctx  context.Context
	stop func()
}

// keep is false when there is nothing to do for k. One that was stopped, and may still be in a renewal, is replaced.
func (l *lease) keep(k *keeper) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.keeper != nil && l.keeper.ctx.Err() == nil {
		return false
	}
	l.keeper = k
	return true
}

func (l *lease) unkeep(k *keeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keeper == k {
		l.keeper = nil
	}
}

// renew renews a permit for a time, or with nil for the same time as before. It reports whether the end that the server
// gave is the last it ever gives.
func (l *lease) renew(ctx context.Context, c *Client, source Connections, timeout time.Duration, id int64, lease *time.Duration) (
	r RenewResult, last bool, err error,
) {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	if lease == nil {
		lease = l.asked
	}
	r, left, sent, err := c.renewPermit(ctx, source, timeout, id, lease)
	// a permit of PollTicket does not know for whom it is
	if err == nil && r.Reason == ReasonUnknown && l.claim.Endpoint != "" && l.runs() {
		claim := l.claim
		if lease != nil {
			claim.Lease = lease
		}
		again, leftAgain, sentAgain, failed := c.reassertPermit(ctx, source, timeout, id, claim, l.tenant)
		switch {
		case failed == nil && again.Renewed && !l.runs():
			// released meanwhile, or over by its own account
			_, _ = c.ReleasePermit(ctx, id, claim.Holder)
		case failed == nil:
			r, left, sent = again, leftAgain, sentAgain
		case errors.Is(failed, ErrUnavailable):
			r, left, sent, err = again, leftAgain, sentAgain, failed
		default: // for the call itself, so that another one would fare no better
		}
	}
	l.mu.Lock()
	end, ends := l.end, l.ends
	l.mu.Unlock()
	switch {
	case err != nil:
		// It may have been done all the same, and if it was for less than what is left, the end has come nearer.
		length := l.claimed
		if lease != nil {
			length = *lease
		}
		if !sent.IsZero() && sent.Add(length).Before(end) {
			l.set(sent, length, time.Time{})
		}
	case r.Renewed:
		l.asked = lease
		// Only an end that does not move with the clock can be the same again.
		last = r.ExpiresAt.Equal(ends)
		l.set(sent, left, r.ExpiresAt)
	default:
		l.lose()
	}
	return r, last, err
}

// now, since and until are the only ones who ask the clock for more than a call's time-out. What they are asked of, and
// answer, are instants with a monotonic reading alone.
func now() time.Time                  { return time.Now() }
func since(t time.Time) time.Duration { return time.Since(t) }
func until(t time.Time) time.Duration { return time.Until(t) }

// renewals are what keeps a client's permits alive: goroutines, and connections by the pool whose configuration they
// have. Either are there as long as they are used, so that nobody has to close them.
type renewals struct {
	mu      sync.Mutex
	closed  bool
	keepers map[*keeper]struct{}
	pools   map[*pgxpool.Pool]*renewalPool
	running sync.WaitGroup
}

// begin is false when the client was closed. Otherwise call end.
func (r *renewals) begin(k *keeper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if r.keepers == nil {
		r.keepers = map[*keeper]struct{}{}
	}
	r.keepers[k] = struct{}{}
	r.running.Add(1)
	return true
}

func (r *renewals) end(k *keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keepers, k)
	r.running.Done()
}

// close stops all goroutines, and waits for renewals under way.
func (r *renewals) close() {
	r.mu.Lock()
	r.closed = true
	for k := range r.keepers {
		k.stop()
	}
	r.mu.Unlock()
	r.running.Wait()
}

type renewalPool struct {
	*pgxpool.Pool
	users int
}

// open returns where renewals get their connections from. Call done when the last was made.
func (r *renewals) open(ctx context.Context, c *Client) (source Connections, done func()) {
	source = c.source
	for {
		lookup, ok := source.(contextConnections)
		if !ok {
			break
		}
		if source = lookup(ctx); isNil(source) {
			return c.source, func() {} // whose error says why
		}
	}
	pool, ok := source.(*pgxpool.Pool)
	if !ok {
		return source, func() {}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.pools[pool]
	if own == nil {
		config := pool.Config()
		config.MaxConns, config.MinConns, config.MinIdleConns = defaultMaxConns, 0, 0
		if config.ConnConfig.ConnectTimeout == 0 {
			config.ConnConfig.ConnectTimeout = c.timeout
		}
		made, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
		if err != nil {
			return source, func() {}
		}
		own = &renewalPool{Pool: made}
		if r.pools == nil {
			r.pools = map[*pgxpool.Pool]*renewalPool{}
		}
		r.pools[pool] = own
	}
	own.users++
	return own.Pool, func() {
		r.mu.Lock()
		own.users--
		last := own.users == 0
		if last {
			delete(r.pools, pool)
		}
		r.mu.Unlock()
		if last {
			own.Close()
		}
	}
}
