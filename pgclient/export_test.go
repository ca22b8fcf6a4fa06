package pgclient

import "time"

// EndOfLease is when the permit will take itself for lost.
func (p *Permit) EndOfLease() time.Time {
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	return p.lease.end
}

// Age has the last heartbeat be so much longer ago.
func (r *Replica) Age(d time.Duration) {
	last := *r.last.Load()
	last.at = last.at.Add(-d)
	r.last.Store(&last)
}
