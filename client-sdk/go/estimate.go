package packrat

import "time"

const (
	unmeasuredPatience = 250 * time.Millisecond
	patienceMargin     = 100 * time.Millisecond
	standingQueue      = 10 * time.Millisecond
	baseWindow         = 30 * time.Second
)

// roundTrip is the smoothed round trip of the last mile and its variation (RFC 6298). Smoothed is
// 0 before the first sample.
type roundTrip struct {
	smoothed  time.Duration
	variation time.Duration
}

func (r *roundTrip) onSample(sample time.Duration) {
	sample = max(sample, time.Microsecond)
	if r.smoothed == 0 {
		r.smoothed, r.variation = sample, sample/2
		return
	}
	r.variation = (r.variation*3 + (r.smoothed - sample).Abs()) / 4
	r.smoothed = (r.smoothed*7 + sample) / 8
}

// patience is the time that a repair is worth waiting for.
func (r *roundTrip) patience(maximum time.Duration) time.Duration {
	if r.smoothed == 0 {
		return min(unmeasuredPatience, maximum)
	}
	return min(3*r.smoothed+4*r.variation+patienceMargin, maximum)
}

// onset decides whether holes are held in one session (docs/PROTOCOL.md, section 11, "When the
// client holds").
//
//	           a repair without a queue
//	Undecided --------------------------> On <---+ a repair without a queue
//	    |                                 |      |
//	    | a queue stands                  v      |
//	    +-------------------------------> Off ---+
//	                            30 s without such a repair
type onset struct {
	decided bool
	// Time of the last loss of the medium; zero: no loss.
	on time.Time
	// Shortest round trips of this half minute and the one before.
	shortest, before time.Duration
	since            time.Time
}

const forgottenAfter = 30 * time.Second

func (o *onset) onRoundTrip(sample time.Duration, now time.Time) {
	if o.since.IsZero() || now.Sub(o.since) >= baseWindow {
		o.before, o.shortest, o.since = o.shortest, 0, now
	}
	if o.shortest == 0 || sample < o.shortest {
		o.shortest = max(sample, time.Microsecond)
	}
}

// base is the round trip of an empty last mile; 0: not known.
func (o *onset) base() time.Duration {
	if o.before == 0 || o.shortest != 0 && o.shortest < o.before {
		return o.shortest
	}
	return o.before
}

// onFilled takes the time between the opening of a hole and the arrival of the missing datagram.
func (o *onset) onFilled(after time.Duration, queueStands bool, now time.Time) {
	base := o.base()
	if base != 0 && !queueStands && after*2 >= base && after < base+standingQueue {
		o.decided, o.on = true, now
	}
}

// onQueue is called while a queue stands.
func (o *onset) onQueue() {
	o.decided = true
}

func (o *onset) isOn(now time.Time) bool {
	return !o.decided || !o.on.IsZero() && now.Sub(o.on) < forgottenAfter
}
