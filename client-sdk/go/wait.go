package packrat

import "time"

const (
	// The longest wait, and the most as a part of the round trip to the server.
	longestWait     = 8 * time.Millisecond
	partOfRoundTrip = 4
	// Steps to the longest wait.
	waitSteps = 3
	// The length of a span, which is a round trip at least. A span with fewer datagrams says nothing.
	shortestSpan = 100 * time.Millisecond
	busySpan     = 16
	// A span is full with so many percent of the datagrams of the fullest of late, which counts for less by this part
	// with each span.
	fullSpan   = 97
	forgetting = 256
	// The sender is in slow start where so many percent of the datagrams of a span come in the next.
	spanGrowth = 125
	// A datagram that is missing keeps acknowledgements from waiting for so long.
	calmAfter = 300 * time.Millisecond
	// The time without waiting after a wait that has made the download slower: at first, and at most.
	firstBackoff   = 2 * time.Second
	longestBackoff = 32 * time.Second
)

// wait is the wait of acknowledgements for others: as long as makes the download no slower.
//
// A sender whose window holds more than the path, so that a queue stands somewhere, gets nothing sooner by sooner
// acknowledgements. One whose window is smaller, in slow start and after a loss, is slowed down by each of them that
// waits. A client can't see the window. It sees whether datagrams come as fast as they ever did, and whether they
// still do once acknowledgements wait.
//
//	     full, for a span          full, for a span
//	0 --------------------> 1/3 --------------------> 2/3 --> 1 of the longest wait
//	^                        |                          |     |
//	+-- fewer come: not again for 2 s, 4 s ... 32 s ----+-----+
//	+-- a datagram is missing, or more come: again with the next full span
type wait struct {
	// The span that has begun: since when, and datagrams in it.
	since time.Time
	count int
	// Datagrams in the span before; 0: there was none.
	last      int
	fullest   int
	step      int
	lastHole  time.Time
	notBefore time.Time
	backoff   time.Duration
}

// onReceived says that a datagram of the transport has arrived. roundTrip: to the server.
func (w *wait) onReceived(roundTrip time.Duration, now time.Time) {
	span := max(shortestSpan, roundTrip)
	if passed := now.Sub(w.since); passed >= span {
		w.onSpan(passed < 2*span, now)
		w.since, w.count = now, 0
	}
	w.count++
}

// onSpan says that a span is over; a pause in it or behind it makes it none of a busy download.
func (w *wait) onSpan(isWhole bool, now time.Time) {
	before := w.last
	w.last = 0
	if isWhole {
		w.last = w.count
	}
	if !isWhole || w.count < busySpan {
		w.step = 0
		return
	}
	w.fullest = max(w.count, w.fullest-(w.fullest+forgetting-1)/forgetting)
	isFull := w.count*100 >= w.fullest*fullSpan
	grows := before == 0 || w.count*100 > before*spanGrowth
	switch {
	case !w.isCalm(now) || grows:
		w.step = 0
	case isFull && now.Before(w.notBefore):
		w.step = 0
	case isFull:
		w.step = min(w.step+1, waitSteps)
	case w.step > 0:
		w.step = 0
		w.notBefore = now.Add(w.backoff)
		w.backoff = min(2*w.backoff, longestBackoff)
	}
}

// onHole says that a datagram is missing.
func (w *wait) onHole(now time.Time) { w.lastHole = now }

func (w *wait) isCalm(now time.Time) bool {
	return w.lastHole.IsZero() || now.Sub(w.lastHole) >= calmAfter
}

// ofNow is the wait of an acknowledgement that is sent now.
func (w *wait) ofNow(roundTrip time.Duration, now time.Time) time.Duration {
	if !w.isCalm(now) {
		return 0
	}
	return min(longestWait, roundTrip/partOfRoundTrip) * time.Duration(w.step) / waitSteps
}

// wholePath is the path between the client and the server, gateway or not. Its round trip is the time from the first
// datagram that the transport sends to the first that comes back: where one of them is lost, it is too long by a
// timeout.
type wholePath struct {
	asked      time.Time
	isAnswered bool
	// 0: not known.
	roundTrip time.Duration
}

func (p *wholePath) onSent(now time.Time) {
	if p.asked.IsZero() && !p.isAnswered {
		p.asked = now
	}
}

func (p *wholePath) onReceived(now time.Time) {
	if !p.isAnswered && !p.asked.IsZero() {
		p.roundTrip = now.Sub(p.asked)
	}
	p.isAnswered = true
}
