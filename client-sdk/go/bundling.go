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

// bundling makes short datagrams of the transport leave together, with an eACK behind them.
//
//	transport --> short, in a busy download --> waits --> with the next eACK, or when its time is over --> socket
//	          \-> anything else ---------------------------------------------------------------------> socket
//
// A downloading client sends almost only acknowledgements. They are encrypted and can be neither dropped nor merged;
// a bundle saves the datagram around each. An acknowledgement waits for others only while waiting makes the download
// no slower. If an eACK is due, the acknowledgement leaves with it at once.
type bundling struct {
	waiting [][]byte
	// Time at which the waiting datagrams have to leave.
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

// deadline is the time at which the waiting datagrams have to leave; zero if there are none.
func (b *bundling) deadline() time.Time {
	if len(b.waiting) == 0 {
		return time.Time{}
	}
	return b.until
}

// with is the bundle of all waiting datagrams, with a message behind it; the message alone if no datagram waits, or
// if they do not fit into one bundle.
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

// first is the first waiting datagram, as it is; nil if there is none.
func (b *bundling) first() []byte {
	if b == nil || len(b.waiting) == 0 {
		return nil
	}
	first := b.waiting[0]
	b.waiting = b.waiting[1:]
	return first
}

// Bundle takes a datagram of the transport that can leave together with others: an acknowledgement of a download, if
// the gateway agrees. Transmit then returns it. It waits for at most 8 ms or a quarter of the round trip to the
// server, and only while that makes the download no slower. False: the caller passes it to Send, and sends it.
//
// Call it for each datagram that the transport sends, or never. The transport's ECN mark belongs on datagrams of
// Transmit for which BearsMark is true; before the mark changes, call EndBundle and Transmit. Only QUIC's datagrams
// are taken, of connections whose handshakes the shim has seen.
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

// EndBundle makes the datagrams that Bundle has taken leave now, with the next one of Transmit.
func (s *Shim[M]) EndBundle(now time.Time) {
	if s.bundling != nil {
		s.bundling.until = now
	}
}

// hurry makes waiting datagrams leave in front of another one of the transport, which must not overtake them: except
// datagrams to a connection ID that this one may retire. For the server these are lost, as if they had left too late.
func (s *Shim[M]) hurry(now time.Time) {
	s.EndBundle(now)
	if s.bundling != nil {
		s.bundling.waiting = slices.DeleteFunc(s.bundling.waiting, func(datagram []byte) bool { return !s.destinations.isInUse(datagram, now) })
	}
}

// nextUnbundled is a datagram that has waited for a bundle, if bundles are not agreed any more.
func (s *Shim[M]) nextUnbundled() []byte {
	if !s.closed && s.session != nil && s.session.bundles {
		return nil
	}
	return s.bundling.first()
}

// nextWithOthers is the next eACK, with the datagrams that wait to leave with it; or a bundle without an eACK.
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
