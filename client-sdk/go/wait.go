package packrat

import "time"

const (
	// The longest wait, and the most as a part of the round trip to the server.
	longestWait     = 8 * time.Millisecond
	partOfRoundTrip = 4
	// Steps to the longest wait.
	waitSteps = 3
	// Length of a span, which is at least a round trip, and the fewest datagrams in a span that is measured.
	shortestSpan = 100 * time.Millisecond
	busySpan     = 16
	// A span is full with this percentage of the datagrams of the fullest recent span, whose count decays by this part
	// with each span.
	fullSpan   = 97
	forgetting = 256
	// Percentage of a span's datagrams in the next span from which the sender counts as in slow start.
	spanGrowth = 125
	// Time without waiting acknowledgements after a missing datagram.
	calmAfter = 300 * time.Millisecond
	// The time without waiting after a wait that has made the download slower: at first, and at most.
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = 32 * time.Second
)

// wait is the wait of acknowledgements for others: the longest that makes the download no slower.
//
// If a sender's window exceeds the capacity of the path, a queue builds up somewhere, and earlier acknowledgements
// deliver data no earlier. If the window is smaller, in slow start and after a loss, each waiting acknowledgement
// slows the sender down. A client cannot see the window. It sees whether datagrams arrive at the highest rate so far,
// and whether they still do once acknowledgements wait.
//
//	     full, for a span          full, for a span
//	0 --------------------> 1/3 --------------------> 2/3 --> 1 of the longest wait
//	^                        |                          |     |
//	+-- fewer come: not again for .5 s, 1 s ... 32 s ---+-----+
//	+-- a datagram is missing, or more come: again with the next full span
type wait struct {
	// The span that has begun: since when, and datagrams in it.
	since time.Time
	count int
	// Datagrams in the previous span; 0: there was no previous span.
	last      int
	fullest   int
	step      int
	lastHole  time.Time
	notBefore time.Time
	backoff   time.Duration
}

// onReceived is called when a datagram of the transport has arrived. roundTrip: to the server.
func (w *wait) onReceived(roundTrip time.Duration, now time.Time) {
	span := max(shortestSpan, roundTrip)
	if passed := now.Sub(w.since); passed >= span {
		w.onSpan(passed < 2*span, now)
		w.since, w.count = now, 0
	}
	w.count++
}

// onSpan ends a span; a pause in it or after it excludes it from a busy download.
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

// onHole is called when a datagram is missing.
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

// wholePath is the path between the client and the server, gateway or not. Its round trip is the time from the
// transport's first datagram to the first answer: if either of the two is lost, it is too long by a timeout.
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
