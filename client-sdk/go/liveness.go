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
	// Of them, those during which a datagram came: the last mile carries what its other end sends.
	contradictedUntilGone = 4
	// Where nothing at all gets through, the gateway is gone after this.
	longestOutage = 30 * time.Second
	// Most that is waited longer for an echo because others were not answered.
	longestStep  = 100 * time.Millisecond
	minimumDoubt = 20 * time.Millisecond
)

// liveness knows whether the gateway of a session is there. A zero time is none.
//
//	         an eACK asks for an echo              no answer in time: asked again at once
//	Quiet --------------------------> Asked ----------------------------------------------+
//	  ^                                | ^                                                |
//	  |  the answer                    | +------------------------------------------------+
//	  +--------------------------------+     after 8 in a row: nothing is held any more
//	                                         after 24: the gateway is gone, if datagrams come all
//	                                         the same; otherwise nothing gets through, and it is
//	                                         asked for 30 s
type liveness struct {
	asked    time.Time
	counter  uint32
	lastEcho time.Time
	// An echo is asked for then unless a datagram arrives before.
	quietAt    time.Time
	unanswered int
	// Of the echoes, those during which a datagram came; and whether one has come since the last was asked for.
	contradicted int
	hasDatagram  bool
	// When the gateway last said something.
	lastAuthentic time.Time
	// A Refusal says that the gateway does not know the session; believed then, unless the gateway
	// speaks.
	doubtedUntil time.Time
}

func (l *liveness) wantsEcho(now time.Time) bool {
	return l.asked.IsZero() && (l.lastEcho.IsZero() || now.Sub(l.lastEcho) >= echoInterval)
}

func (l *liveness) onAsked(counter uint32, now time.Time) {
	l.asked, l.counter, l.lastEcho = now, counter, now
	l.hasDatagram = false
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

func (l *liveness) onAuthentic(now time.Time) {
	l.doubtedUntil, l.lastAuthentic = time.Time{}, now
	l.onRepair()
}

// onRepair says that the gateway is at work.
func (l *liveness) onRepair() {
	l.unanswered, l.contradicted = 0, 0
}

// onOverdue says that an echo was not answered in time. It is true if the gateway is gone: its silence is
// not that of the last mile, which carries datagrams, or lasts for long.
func (l *liveness) onOverdue(now time.Time) bool {
	l.askAgain()
	l.unanswered++
	if l.hasDatagram {
		l.contradicted++
	}
	isOutage := l.contradicted < contradictedUntilGone && !l.lastAuthentic.IsZero() &&
		now.Sub(l.lastAuthentic) < longestOutage
	return l.unanswered >= echoesUntilGone && !isOutage
}

// onQuiet says that no datagram has come for a while, or that nothing was said to the gateway. It is true
// if the gateway is to be asked: all may be well, or this client has another address that the gateway does
// not know yet.
func (l *liveness) onQuiet() bool {
	l.quietAt = time.Time{}
	ask := l.asked.IsZero()
	if ask {
		l.askAgain()
	}
	return ask
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
	once += 4*path.variation + echoMargin
	return once + min(once*time.Duration(l.unanswered/echoesOfAStep), max(once, longestStep))
}

func (l *liveness) echoDeadline(path *roundTrip) time.Time {
	if l.asked.IsZero() {
		return time.Time{}
	}
	return l.asked.Add(l.echoWait(path))
}
