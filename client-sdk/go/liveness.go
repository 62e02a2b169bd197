package packrat

import "time"

// Echoes (docs/PROTOCOL.md, sections 11 and 13).
const (
	echoInterval      = 150 * time.Millisecond
	echoMargin        = 25 * time.Millisecond
	assumedRoundTrip  = 120 * time.Millisecond
	echoesUntilNoHold = 8
	echoesOfAStep     = 4
	echoesUntilGone   = 24
	minimumDoubt      = 20 * time.Millisecond
)

// liveness knows whether the gateway of a session is there. A zero time is none.
//
//	         an eACK asks for an echo              no answer in time: asked again at once
//	Quiet --------------------------> Asked ----------------------------------------------+
//	  ^                                | ^                                                |
//	  |  the answer                    | +------------------------------------------------+
//	  +--------------------------------+     after 8 in a row: nothing is held any more
//	                                         after 24: the gateway is gone
type liveness struct {
	asked    time.Time
	counter  uint32
	lastEcho time.Time
	// An echo is asked for then unless a datagram arrives before.
	quietAt    time.Time
	unanswered int
	// A Refusal says that the gateway does not know the session; believed then, unless the gateway
	// speaks.
	doubtedUntil time.Time
}

func (l *liveness) wantsEcho(now time.Time) bool {
	return l.asked.IsZero() && (l.lastEcho.IsZero() || now.Sub(l.lastEcho) >= echoInterval)
}

func (l *liveness) onAsked(counter uint32, now time.Time) {
	l.asked, l.counter, l.lastEcho = now, counter, now
}

func (l *liveness) onAnswer(counter uint32) {
	if counter >= l.counter {
		l.asked = time.Time{}
	}
}

// askAgain makes the next eACK ask for an echo.
func (l *liveness) askAgain() {
	l.asked, l.lastEcho = time.Time{}, time.Time{}
}

func (l *liveness) onAuthentic() {
	l.doubtedUntil, l.unanswered = time.Time{}, 0
}

// onDoubt is true if the gateway is to be asked.
func (l *liveness) onDoubt(path *roundTrip, now time.Time) bool {
	if !l.doubtedUntil.IsZero() {
		return false
	}
	l.doubtedUntil = now.Add(max(3*path.smoothed, minimumDoubt))
	l.askAgain()
	return true
}

func (l *liveness) isSilent() bool {
	return l.unanswered >= echoesUntilNoHold
}

// echoWait is the time that an echo may take: what is asked ever more seldom is still answered when
// a long burst of loss is over.
func (l *liveness) echoWait(path *roundTrip) time.Duration {
	once := path.smoothed
	if once == 0 {
		once = assumedRoundTrip
	}
	return (once + 4*path.variation + echoMargin) * time.Duration(1+l.unanswered/echoesOfAStep)
}

func (l *liveness) echoDeadline(path *roundTrip) time.Time {
	if l.asked.IsZero() {
		return time.Time{}
	}
	return l.asked.Add(l.echoWait(path))
}
