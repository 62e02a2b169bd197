package packrat

import (
	"bytes"
	"slices"
	"time"
)

// Bundles (docs/PROTOCOL.md, sections 3 and 11).
const (
	mostBundled     = 16
	shortestBundled = 21
	// An acknowledgement of a few ranges, with ECN counts. A request is longer.
	longestBundled = 64
)

// bundling has short datagrams of the transport that leave together, with an eACK behind them.
//
//	transport --> short, in a busy download --> waits --> with the next eACK, or when its time is over --> socket
//	          \-> anything else ---------------------------------------------------------------------> socket
//
// A downloading client sends hardly anything but acknowledgements. Encrypted as they are, none can
// be dropped or merged; what can be saved is the datagram around each. One waits for others only while that
// makes the download no slower. With an eACK that is due in any case it leaves at once.
type bundling struct {
	waiting [][]byte
	// The end of the wait of those that wait.
	until time.Time
	wait  wait
}

// suits is true if a datagram looks like an acknowledgement of QUIC's: short, and with a short header (RFC
// 9000, section 17.3). It may have another frame beside it or instead.
func suits(datagram []byte) bool {
	return len(datagram) >= shortestBundled && len(datagram) <= longestBundled && datagram[0]&0xc0 == 0x40
}

func (b *bundling) hasRoom() bool { return len(b.waiting) < mostBundled }

// take takes a datagram, which leaves after this wait at the latest.
func (b *bundling) take(datagram []byte, wait time.Duration, now time.Time) {
	before := b.deadline()
	b.waiting = append(b.waiting, bytes.Clone(datagram))
	until := now
	if b.hasRoom() {
		until = now.Add(wait)
	}
	b.until = earliest(before, until)
}

// deadline is when what waits has to leave; zero: nothing does.
func (b *bundling) deadline() time.Time {
	if len(b.waiting) == 0 {
		return time.Time{}
	}
	return b.until
}

// with is the bundle of all that waits, with a message behind it; the message alone where nothing waits, or where
// they have no room in one.
func (b *bundling) with(message []byte) []byte {
	bundle := joinBundle(b.waiting, message)
	if bundle == nil {
		return message
	}
	b.waiting = nil
	return bundle
}

// alone is the bundle of all that waits, without a message, or the only datagram as it is.
func (b *bundling) alone() []byte {
	if len(b.waiting) > 1 {
		return b.with(nil)
	}
	return b.first()
}

// first is the first that waits, as it is; nil: nothing waits.
func (b *bundling) first() []byte {
	if b == nil || len(b.waiting) == 0 {
		return nil
	}
	first := b.waiting[0]
	b.waiting = b.waiting[1:]
	return first
}

// Bundle takes a datagram of the transport's that leaves with others, in what Transmit gives: an acknowledgement of
// a download, where the gateway agrees. It may wait for 8 ms or a quarter of the round trip to the server, while
// that makes the download no slower. False: the caller passes it to Send, and sends it.
//
// To be called for each datagram that the transport sends, or for none. The transport's ECN mark belongs on what
// Transmit gives and BearsMark; where the mark changes, EndBundle and Transmit before.
// Only QUIC's datagrams are taken, of connections whose handshakes the shim has seen.
func (s *Shim[M]) Bundle(datagram []byte, now time.Time) bool {
	if s.closed || !suits(datagram) || !s.destinations.knowsLength() || !s.balance.isDownload() || s.session == nil || !s.session.bundles {
		return false
	}
	if s.bundling == nil {
		s.bundling = &bundling{wait: wait{backoff: firstBackoff}}
	}
	scheduler := &s.session.scheduler
	if scheduler.isSilent(now) || !s.bundling.hasRoom() {
		return false
	}
	wait := s.bundling.wait.ofNow(s.wholePath.roundTrip, now)
	if wait == 0 {
		scheduler.onCompany(now)
		if due := scheduler.due(s.hold.count > 0, s.path.smoothed); due.IsZero() || due.After(now) {
			return false
		}
	}
	s.bundling.take(datagram, wait, now)
	s.count(datagram)
	s.noteSent(datagram, now)
	return true
}

// EndBundle has what Bundle has taken leave now, with what Transmit gives next.
func (s *Shim[M]) EndBundle(now time.Time) {
	if s.bundling != nil {
		s.bundling.until = now
	}
}

// hurry has what waits leave in front of something else that the transport sends, which is not to overtake it: but not
// to a connection ID that this may retire. To the server that is lost, as what left too late would be.
func (s *Shim[M]) hurry(now time.Time) {
	s.EndBundle(now)
	if s.bundling != nil {
		s.bundling.waiting = slices.DeleteFunc(s.bundling.waiting, func(datagram []byte) bool { return !s.destinations.isInUse(datagram, now) })
	}
}

// nextUnbundled is a datagram that has waited for a bundle where there are none any more.
func (s *Shim[M]) nextUnbundled() []byte {
	if !s.closed && s.session != nil && s.session.bundles {
		return nil
	}
	return s.bundling.first()
}

// nextWithOthers is the next eACK, with what waits to leave with it; or a bundle without one.
func (s *Shim[M]) nextWithOthers(now time.Time) []byte {
	due := s.bundling.deadline()
	isDue := !due.IsZero() && !due.After(now)
	if isDue {
		s.session.scheduler.onCompany(now)
	}
	eack := s.nextEack(now)
	switch {
	case s.session == nil: // it has ended over the eACK
		return s.bundling.first()
	case eack != nil:
		return s.bundling.with(eack)
	case isDue:
		return s.bundling.alone()
	}
	return nil
}
