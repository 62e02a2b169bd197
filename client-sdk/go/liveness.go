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
	// Unanswered echoes during which a datagram came: the last mile does carry the gateway's datagrams.
	contradictedUntilGone = 4
	// Time without any datagram after which the gateway is considered gone.
	longestOutage = 30 * time.Second
	// Longest additional wait for an echo after unanswered ones.
	longestStep  = 100 * time.Millisecond
	minimumDoubt = 20 * time.Millisecond
)

// liveness knows whether the gateway of a session is there. A zero time means no time.
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
	// Unanswered echoes during which a datagram came, and whether one has come since the last was asked for.
	contradicted int
	hasDatagram  bool
	// Time of the gateway's last authentic message.
	lastAuthentic time.Time
	// Time at which a Refusal of this session is believed, unless the gateway sends a message before.
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

// onRepair is called for a repair: the gateway is at work.
func (l *liveness) onRepair() {
	l.unanswered, l.contradicted = 0, 0
}

// onOverdue is called for an echo without an answer in time. It is true if the gateway is gone: the last mile carries
// datagrams and does not explain the silence, or the silence lasts for long.
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

// onQuiet is called if no datagram was received, or no message sent, for a while. It is true if the gateway is to be
// asked: all may be well, or this client has another address that the gateway does not know yet.
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

// echoWait is the time that an echo may take: with growing intervals, echoes are still answered when a long burst of
// loss is over.
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
