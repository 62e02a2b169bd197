package packrat

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

const (
	firstFlight    = 32
	greaseSessions = 16 // one of this number begins with a meaningless message
)

// Shim is assistance between a socket and an unmodified transport, without input and output of its own: time and
// randomness are arguments. M belongs to a datagram and passes through untouched, such as its ECN mark.
//
//	                   +------------------------- Shim ---------------------------+
//	socket -------->   | number, control   ->   now: the caller's own bytes       |  --------> transport
//	                   |                        later: kept, released in order    |
//	       <--------   | control: handshake, eACKs, what the gateway misses       |
//	       <--------   | a number in front, or nothing                        <-  |  <-------- transport
//	                   +----------------------------------------------------------+
//
// After each call, call Deliver and Transmit until they return no more datagrams, and call HandleTimeout at Timeout.
// The transport's own datagrams go to the socket behind the number that Send returns. A Shim is not safe for
// concurrent use.
type Shim[M any] struct {
	params    clientParams
	random    *rand.ChaCha8
	discovery *discovery
	session   *session
	// Places of numbered datagrams; nil before a session with numbers.
	places  *places
	hold    hold
	path    roundTrip
	plain   plain
	release release[M]
	urgent  [][]byte
	// Material of the last datagram before a session: its set begins behind it.
	anchor *material
	// A number has arrived.
	isNumbered bool
	authentic  int
	// Gateways in a row that were lost without a Report.
	losses  int
	closed  bool
	balance balance
	// Bundling; nil until the caller has asked for bundles.
	bundling     *bundling
	destinations destinations
	wholePath    wholePath
	figures      Statistics
	// Key of the session's gateway.
	gatewayKey [32]byte
}

// NewShim is a shim for one peer. seed: 32 fresh bytes of crypto/rand. The first Transmit asks for a
// gateway.
func NewShim[M any](settings Settings, seed [32]byte, now time.Time) (*Shim[M], error) {
	params, err := settings.params()
	if err != nil {
		return nil, err
	}
	random := rand.NewChaCha8(seed)
	return &Shim[M]{params: params, random: random, discovery: newDiscovery(params, settings.GatewayKey, random, now)}, nil
}

// Receive takes a UDP payload as it was received. If isNow, payload, a part of datagram, is the
// transport's at once, before what Deliver has. Otherwise it is Packrat's own, or the second copy of
// one that the transport has, or comes out of Deliver later.
func (s *Shim[M]) Receive(datagram []byte, metadata M, now time.Time) (payload []byte, isNow bool) {
	s.balance.pass(0, len(datagram))
	masked, base, hasNumber := uint32(0), datagram, false
	if s.places != nil {
		masked, base, hasNumber = splitNumber(datagram)
	}
	if isControl(base) {
		c, err := decodeControl(base)
		if err == nil || s.session != nil {
			s.figures.ControlBytesReceived += uint64(len(datagram))
			if err != nil || hasNumber {
				s.figures.ControlDropped++
			} else {
				s.onControl(&c, base, now)
			}
			s.releaseReady()
			return nil, false
		}
		// Without a session, datagrams other than control datagrams of this protocol are the transport's.
	}
	s.wholePath.onReceived(now)
	s.destinations.onReceived(base)
	if s.bundling != nil {
		s.bundling.wait.onReceived(s.wholePath.roundTrip, now)
	}
	passed := s.onBase(base, masked, hasNumber, metadata, now)
	s.releaseReady()
	if passed {
		s.onDelivered(base)
	}
	return base, passed
}

// onBase is true if the datagram passes now.
func (s *Shim[M]) onBase(base []byte, masked uint32, hasNumber bool, metadata M, now time.Time) bool {
	if s.session == nil {
		if !s.closed && !hasNumber {
			m := materialOf(s.params.scheme, base)
			s.anchor = &m
			s.onAuthentic(now)
		}
		return s.behind(base, metadata)
	}
	m := materialOf(s.session.scheme, base)
	value := s.session.key.identify(m)
	isKnown := s.session.isKnown(value, m)
	if isKnown {
		s.figures.Duplicates++
		s.session.last = named{value, now}
		s.onSignOfLife(now)
		// A repair, a tail probe, or the network's copy.
		if hasNumber && s.session.numbers != nil && s.session.isCopy(value, s.places.nearest(masked, value)) {
			return false
		}
	}
	if !hasNumber || s.session.numbers == nil {
		if !isKnown && !hasNumber && s.plain.admits(len(base), now) {
			s.session.record(value, m, now)
			if !s.isNumbered {
				s.session.newest = s.session.last
			}
			s.onAuthentic(now)
		}
		return s.behind(base, metadata)
	}
	number, isBelieved := s.places.read(masked, value, now)
	if !isBelieved || s.hold.hasArrived(number) {
		// A datagram with a number that has arrived is the same datagram, or forged.
		return s.behind(base, metadata)
	}
	if !isKnown {
		s.session.record(value, m, now)
		s.onAuthentic(now)
	}
	s.plain.onNumber(len(base))
	s.onNumber(number, value, now)
	if first, waits := s.hold.firstHeld(); (!waits || number < first.number) && s.release.isNext(number) {
		return true
	}
	s.keep(number, base, metadata)
	return false
}

// behind passes a datagram without a place: behind earlier ones if any datagram waits.
func (s *Shim[M]) behind(base []byte, metadata M) bool {
	if len(s.release.waiting) == 0 || s.hold.expected == 0 {
		return true
	}
	s.keep(s.hold.expected-1, base, metadata)
	return false
}

func (s *Shim[M]) keep(number uint64, base []byte, metadata M) {
	s.release.keep(number, base, metadata)
	s.figures.Kept++
}

func (s *Shim[M]) onNumber(number uint64, value identifier, now time.Time) {
	session := s.session
	s.isNumbered = true
	arrival := s.hold.onArrival(number, s.holds(now), now, &s.figures)
	session.join(value, number)
	if arrival.newest {
		session.newest = session.last
	}
	if arrival.opened {
		session.scheduler.onUrgent(now)
		if s.bundling != nil {
			s.bundling.wait.onHole(now)
		}
	}
	if arrival.held {
		// Probably a repair: the gateway is at work.
		session.liveness.onRepair()
	}
}

// holds is true if a hole that opens now is waited for.
func (s *Shim[M]) holds(now time.Time) bool {
	return s.params.maximumHold > 0 && !s.closed && !s.balance.isUpload() && !s.session.queueStands &&
		!s.session.liveness.isSilent()
}

func (s *Shim[M]) onAuthentic(now time.Time) {
	s.authentic++
	if s.authentic == 1 {
		s.discovery.onPathAlive(now)
	}
	s.onSignOfLife(now)
}

func (s *Shim[M]) onSignOfLife(now time.Time) {
	if s.session == nil {
		return
	}
	session := s.session
	session.scheduler.onDatagram(now)
	session.liveness.hasDatagram = true
	session.liveness.quietAt = now.Add(s.quietAfter())
	if !s.isNumbered && s.authentic <= firstFlight {
		session.scheduler.onPrecious(now)
	}
}

func (s *Shim[M]) onControl(c *control, datagram []byte, now time.Time) {
	switch {
	case s.closed:
	case c.kind == typeSealed:
		s.onSealed(datagram, now)
	case c.kind == typeRefusal && c.reason == refusedSession:
		if s.session == nil || !s.session.hasSent(c.nonce) {
			s.figures.ControlDropped++
		} else if s.session.liveness.onDoubt(&s.path, now) {
			s.session.scheduler.onUrgent(now)
		}
	default:
		agreed, sample, known := s.discovery.onControl(c, now)
		if !known {
			s.figures.ControlDropped++
		} else if agreed != nil {
			s.onEstablished(agreed, sample, now)
		}
	}
}

func (s *Shim[M]) onEstablished(e *established, sample time.Duration, now time.Time) {
	anchor := s.anchor
	if e.params.scheme != s.params.scheme {
		// Recorded by another scheme, the anchor is meaningless.
		anchor = nil
	}
	session, err := newSession(e, anchor, sample, now)
	if err != nil {
		s.lose(reconnectAfter, now)
		return
	}
	if sample > 0 {
		s.path.onSample(sample)
	}
	s.session, s.gatewayKey = session, e.gatewayKey
	s.figures.Sessions++
	s.discovery.setTicket(e.params.ticket)
	if session.numbers != nil {
		if s.places == nil {
			s.places = &places{}
		}
		s.places.follow(s.figures.Sessions, *session.numbers)
	}
	if random := s.random.Uint64(); random%greaseSessions == 0 {
		s.say([]byte{grease(random >> 8), byte(random >> 16), byte(random >> 24)})
	}
}

func (s *Shim[M]) onSealed(datagram []byte, now time.Time) {
	if s.session == nil {
		s.figures.ControlDropped++
		return
	}
	plaintext, err := s.session.opener.open(datagram)
	if err != nil {
		s.figures.ControlDropped++
		return
	}
	s.session.liveness.onAuthentic(now)
	if s.session.upward != nil {
		s.session.upward.isSilent = false
	}
	m, err := decodeMessage(plaintext)
	switch {
	case errors.Is(err, errUnknownMessage):
	case err != nil:
		s.figures.ControlDropped++
	case m.kind == messageReport:
		s.onReport(&m.report, now)
	case m.kind == messageReset:
		if isNewer(m.epoch, s.session.epoch) {
			s.plain.onReset(now)
			s.session.begin(m.epoch, now)
		}
	case m.kind == messageHoles && s.session.upward != nil:
		s.figures.UpwardMissing += s.session.upward.onHoles(&m.holes, now)
	case m.kind == messageGoodbye:
		s.lose(reconnectAfter, now)
	case m.kind == messagePathChallenge:
		s.say(append([]byte{messagePathResponse}, m.data[:]...))
	default:
		s.figures.ControlDropped++
	}
}

func (s *Shim[M]) onReport(r *report, now time.Time) {
	session := s.session
	s.losses = 0
	session.queueStands = r.queueing != 0
	session.liveness.onAnswer(r.echo)
	sample := session.roundTripOf(r, now)
	if r.epoch != session.epoch {
		return
	}
	session.confirmed = true
	if sample > 0 {
		s.path.onSample(sample)
	}
	if r.form == formPowerSums && session.want(int(r.count), s.path.smoothed, now) {
		session.scheduler.onUrgent(now)
	}
	// The gateway leaves no number out: a settled datagram has come without one, as an early repair does.
	if found, ok := session.known[r.settled]; ok && found.hasNumber {
		s.hold.settle(found.number)
	}
}

// say seals a message that is sent before all others.
func (s *Shim[M]) say(plaintext []byte) {
	if s.session == nil {
		return
	}
	// An exhausted counter costs the message; the session ends with the next eACK.
	if datagram, _, err := s.session.sealer.seal(plaintext); err == nil {
		s.urgent = append(s.urgent, datagram)
	}
}

// lose ends the session: holes are not waited for any more, and another gateway is looked for.
func (s *Shim[M]) lose(wait time.Duration, now time.Time) {
	s.hold.giveUp()
	s.session = nil
	s.urgent = nil
	// A gateway that only answers handshakes is asked at growing intervals.
	if s.losses > 0 {
		wait = reconnectAfter << min(s.losses, 8)
	}
	s.losses++
	s.discovery.restart(now.Add(wait))
	s.discovery.successors = successorQuestions
}

func (s *Shim[M]) releaseReady() {
	limit := uint64(math.MaxUint64)
	if first, waits := s.hold.firstHeld(); waits && !s.closed {
		limit = first.number
	}
	s.release.below(limit)
}

func (s *Shim[M]) onDelivered(payload []byte) {
	s.figures.DeliveredDatagrams++
	s.figures.DeliveredBytes += uint64(len(payload))
}

// Deliver is the next datagram for the transport that was kept.
func (s *Shim[M]) Deliver() (payload []byte, metadata M, ok bool) {
	next, ok := s.release.poll()
	if ok {
		s.onDelivered(next.payload)
	}
	return next.payload, next.metadata, ok
}

// Send takes a datagram that the transport sends to the peer, and returns the number to put in front of it; nil: no
// number, and always without Settings.Uploads. If the caller does not send the datagram with the number, it calls
// Refused.
func (s *Shim[M]) Send(datagram []byte, now time.Time) []byte {
	s.count(datagram)
	if s.closed || isControl(datagram) {
		return nil
	}
	s.noteSent(datagram, now)
	s.hurry(now)
	// One that uploads sends all the time: the gateway's Reports are the answers to its eACKs.
	if s.session != nil && s.session.upward == nil {
		s.session.scheduler.onCompany(now)
	}
	if s.session != nil && s.session.scheduler.isSilent(now) && s.session.liveness.onQuiet() {
		s.session.scheduler.onUrgent(now)
	} else if s.session != nil && s.session.upward == nil && s.session.liveness.quietAt.IsZero() {
		// At another address of this client the datagram waits for a sealed one.
		s.session.liveness.quietAt = now.Add(s.quietAfter())
	}
	// Networks on the path look for a SCONE packet at the very beginning.
	if s.session == nil || s.session.upward == nil || hasScone(datagram) ||
		!s.session.upward.takes(len(datagram), s.balance.isDownload(), now) {
		return nil
	}
	s.figures.UpwardNumbered++
	value := s.session.key.identify(materialOf(s.session.scheme, datagram))
	return s.session.upward.number(datagram, value, now)
}

func (s *Shim[M]) count(datagram []byte) {
	s.figures.SentDatagrams++
	s.figures.SentBytes += uint64(len(datagram))
}

func (s *Shim[M]) noteSent(datagram []byte, now time.Time) {
	s.balance.pass(len(datagram), 0)
	s.wholePath.onSent(now)
	s.destinations.onSent(datagram, now)
}

// quietAfter is the silence after which the gateway is asked for an echo. There is a session.
func (s *Shim[M]) quietAfter() time.Duration {
	return max(s.session.liveness.echoWait(&s.path), echoInterval)
}

// Refused reports that the socket has refused a datagram of this length with the number of Send: it is sent without,
// and so are all later ones of at least this length.
func (s *Shim[M]) Refused(bytes int) {
	if s.session != nil && s.session.upward != nil {
		s.session.upward.onRefused(bytes)
	}
}

// Transmit is the next control datagram, repair, or datagram that Bundle has taken, to send to the peer from the
// transport's own socket; nil if there is none.
func (s *Shim[M]) Transmit(now time.Time) []byte {
	if again := s.nextAgain(now); again != nil {
		s.figures.UpwardRepairs++
		s.figures.UpwardRepairBytes += uint64(len(again))
		return again
	}
	if own := s.nextUnbundled(); own != nil {
		return own
	}
	if control := s.nextControl(now); control != nil {
		s.figures.ControlBytesSent += uint64(len(control))
		return control
	}
	if s.closed || s.session == nil {
		return nil
	}
	if s.bundling != nil {
		return s.nextWithOthers(now)
	}
	return s.nextEack(now)
}

// nextAgain is a datagram that the gateway misses.
func (s *Shim[M]) nextAgain(now time.Time) []byte {
	if len(s.urgent) > 0 || s.closed || s.session == nil || s.session.upward == nil {
		return nil
	}
	return s.session.upward.poll(func(datagram []byte) bool { return s.destinations.isInUse(datagram, now) }, now)
}

// nextControl is a message that leaves before anything else, or a question for a gateway.
func (s *Shim[M]) nextControl(now time.Time) []byte {
	if len(s.urgent) > 0 {
		datagram := s.urgent[0]
		s.urgent = s.urgent[1:]
		return datagram
	}
	if s.closed || s.session != nil {
		return nil
	}
	return s.discovery.poll(now)
}

// nextEack is the eACK that is due. There is a session.
func (s *Shim[M]) nextEack(now time.Time) []byte {
	due := s.session.scheduler.due(s.hold.count > 0, s.path.smoothed)
	if due.IsZero() || due.After(now) {
		return nil
	}
	missing := s.hold.expectedMissing(s.patience(), now)
	datagram, err := s.session.eack(missing, s.hold.count, now)
	if err != nil {
		s.lose(reconnectAfter, now)
		s.releaseReady()
		return nil
	}
	s.figures.Eacks++
	s.figures.EackBytes += uint64(len(datagram))
	s.figures.ControlBytesSent += uint64(len(datagram))
	return datagram
}

// patience is the time that a hole is waited for. If datagrams never wait, eACKs must still be long enough for all
// datagrams that the gateway repairs.
func (s *Shim[M]) patience() time.Duration {
	if s.params.maximumHold == 0 {
		return s.path.patience(DefaultMaximumHold)
	}
	return s.path.patience(s.params.maximumHold)
}

// Timeout is when to call HandleTimeout; zero: not before another call.
func (s *Shim[M]) Timeout() time.Time {
	if s.closed {
		return time.Time{}
	}
	due := s.hold.nextTimeout(s.patience())
	if s.session == nil {
		return earliest(due, s.discovery.nextAt)
	}
	live := &s.session.liveness
	due = earliest(due, live.doubtedUntil)
	due = earliest(due, live.quietAt)
	due = earliest(due, live.echoDeadline(&s.path))
	if s.session.upward != nil {
		due = earliest(due, s.session.upward.tailDeadline())
	}
	if s.bundling != nil {
		due = earliest(due, s.bundling.deadline())
	}
	return earliest(due, s.session.scheduler.due(s.hold.count > 0, s.path.smoothed))
}

// HandleTimeout runs the timers that are due.
func (s *Shim[M]) HandleTimeout(now time.Time) {
	if s.closed {
		return
	}
	s.hold.expire(s.patience(), now, &s.figures)
	isDue := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	if s.session != nil && isDue(s.session.liveness.doubtedUntil) {
		s.lose(0, now)
	}
	if s.session != nil && isDue(s.session.liveness.quietAt) {
		if s.session.liveness.onQuiet() {
			s.session.scheduler.onUrgent(now)
		}
	}
	if s.session != nil && isDue(s.session.liveness.echoDeadline(&s.path)) {
		s.onEchoOverdue(now)
	}
	if s.session != nil && s.session.upward != nil && isDue(s.session.upward.tailDeadline()) {
		s.session.upward.onTail(now)
	}
	s.releaseReady()
}

func (s *Shim[M]) onEchoOverdue(now time.Time) {
	live := &s.session.liveness
	isGone := live.onOverdue(now)
	s.session.scheduler.onUrgent(now)
	switch {
	case isGone:
		s.lose(reconnectAfter, now)
	case live.isSilent():
		s.hold.giveUp()
	}
}

// OnNetworkChange reports that the program or the system changes this client's address: call it before a datagram is
// sent from the new one.
func (s *Shim[M]) OnNetworkChange(now time.Time) {
	switch {
	case s.closed:
	case s.session == nil:
		// A nonce also belongs to one path.
		if s.discovery.step == discovering || s.discovery.step == initiating {
			s.discovery.restart(now)
		}
	default:
		s.urgent = nil
		if len(s.session.names) > 0 {
			s.session.sealer.session = s.session.names[0]
			s.session.names = s.session.names[1:]
		}
		s.session.liveness.askAgain()
		if s.session.upward != nil {
			s.session.upward.onMove()
		}
		s.session.scheduler.onUrgent(now)
	}
}

// SetAccess sets the token of future handshakes, and the key of the gateway to accept (nil: any, on first use). A
// session with another gateway ends.
func (s *Shim[M]) SetAccess(token []byte, gatewayKey *[32]byte, now time.Time) error {
	if err := checkToken(token); err != nil {
		return err
	}
	switch isOtherKey := s.discovery.setAccess(token, gatewayKey, now); {
	case s.closed || !isOtherKey:
	case s.session == nil:
		// Any gateway would answer the current question.
		s.discovery.restart(now)
	case gatewayKey != nil && *gatewayKey != s.gatewayKey:
		s.say([]byte{messageGoodbye, 1})
		farewell := s.urgent
		s.lose(0, now)
		s.urgent, s.discovery.nextAt = farewell, now
		s.releaseReady()
	}
	return nil
}

// Close ends the connection: Transmit then returns a last message for the gateway, and no datagram waits any more.
func (s *Shim[M]) Close(now time.Time) {
	if !s.closed {
		s.say([]byte{messageGoodbye, 1})
	}
	s.closed = true
	s.hold.giveUp()
	s.releaseReady()
}

// Statistics are the figures until now.
func (s *Shim[M]) Statistics() Statistics {
	figures := s.figures
	figures.RoundTrip = s.path.smoothed
	switch {
	case s.session != nil:
		figures.Condition = Assisted
	case s.discovery.step == waiting:
		figures.Condition = NoGateway
	case s.discovery.step == refused:
		figures.Condition = Refused
	default:
		figures.Condition = Asking
	}
	return figures
}
