package pgclient

import "time"

// EndOfLease is when the permit will take itself for lost.
func (p *Permit) EndOfLease() time.Time {
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	return p.lease.end
}
