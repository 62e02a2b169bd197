package packrat

import "time"

// Times of eACKs (docs/PROTOCOL.md, sections 11 and 13).
const (
	everyDatagrams   = 24
	every            = 15 * time.Millisecond
	shortestInterval = time.Millisecond
	atOnceDatagrams  = 256
	// Delay of an eACK about one of the first datagrams, so that it follows the transport's answer: BBR derives the rate
	// of the path from the distance of the first acknowledgements.
	behind               = 200 * time.Microsecond
	shortestHoleInterval = 4 * time.Millisecond
	longestHoleInterval  = 30 * time.Millisecond
	// Time without an eACK after which one leaves with the transport's next datagram. A NAT may have given the client
	// another port; datagrams from there wait for a sealed message, or are taken for another client's.
	silent = 500 * time.Millisecond
	// Number of datagrams, and time, before an eACK is due from which it leaves with the transport's next datagram: one
	// wake-up of the radio instead of two.
	soonDatagrams = 8
	soon          = 5 * time.Millisecond
)

// scheduler decides when the next eACK is due. A zero time means no time.
type scheduler struct {
	unreported      int
	firstUnreported time.Time
	atOnce          time.Time
	lastSent        time.Time
}

func (s *scheduler) onDatagram(now time.Time) {
	if s.unreported == 0 {
		s.firstUnreported = now
	}
	s.unreported++
}

// onUrgent requests an eACK at once.
func (s *scheduler) onUrgent(now time.Time) {
	s.atOnce = earliest(s.atOnce, s.notBefore(now))
}

// onPrecious is called for a datagram whose loss costs most. It is reported after the transport's answer to it.
func (s *scheduler) onPrecious(now time.Time) {
	s.atOnce = earliest(s.atOnce, now.Add(behind))
}

// onCompany is called when the transport sends a datagram: an eACK that is due soon goes with it.
func (s *scheduler) onCompany(now time.Time) {
	if s.unreported+soonDatagrams >= everyDatagrams || s.unreported > 0 && !s.firstUnreported.Add(every).After(now.Add(soon)) {
		s.onUrgent(now)
	}
}

// isSilent is true if the gateway has not heard anything for long enough that this client may have another
// address by now.
func (s *scheduler) isSilent(now time.Time) bool {
	return !s.lastSent.IsZero() && now.Sub(s.lastSent) >= silent
}

func (s *scheduler) due(waits bool, smoothed time.Duration) time.Time {
	due := s.atOnce
	if s.unreported > 0 {
		due = earliest(due, s.firstUnreported.Add(every))
	}
	if s.unreported >= atOnceDatagrams {
		due = earliest(due, s.firstUnreported)
	} else if s.unreported >= everyDatagrams {
		due = earliest(due, s.notBefore(s.firstUnreported))
	}
	if waits && !s.lastSent.IsZero() {
		interval := longestHoleInterval
		if smoothed != 0 {
			interval = min(max(smoothed, shortestHoleInterval), longestHoleInterval)
		}
		due = earliest(due, s.lastSent.Add(interval))
	}
	return due
}

func (s *scheduler) notBefore(wanted time.Time) time.Time {
	if soonest := s.lastSent.Add(shortestInterval); !s.lastSent.IsZero() && soonest.After(wanted) {
		return soonest
	}
	return wanted
}

func (s *scheduler) onSent(now time.Time) {
	*s = scheduler{lastSent: now}
}

// earliest is the earlier of two times; a zero one is ignored.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
