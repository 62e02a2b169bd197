package packrat

import (
	"encoding/binary"
	"time"
)

const (
	remembered      = 16_384
	rememberedEacks = 128
	wantedLifetime  = 100 * time.Millisecond
)

// recorded is a datagram of this or an earlier epoch.
type recorded struct {
	material  material
	number    uint64
	hasNumber bool
}

// named is a datagram by identifier, and its time of arrival; identifier 0: no datagram.
type named struct {
	value identifier
	at    time.Time
}

// sentEack is an eACK whose answer may still come.
type sentEack struct {
	counter   uint32
	reference uint64
	at        time.Time
}

// session is the assisted state of a connection, from InitAck to Goodbye.
type session struct {
	scheme  Scheme
	key     identifierKey
	numbers *numberKey
	sealer  sealer
	opener  opener
	// Names that no path has seen yet.
	names []uint32

	// The set of the epoch, and the datagrams that do not enter it again.
	set    *powerSums
	known  map[identifier]recorded
	order  []identifier
	oldest int
	// Two datagrams with one identifier and one number are the same one.
	knowsCopies bool
	last        named
	newest      named
	anchor      identifier

	epoch       uint16
	confirmed   bool
	wanted      int
	wantedUntil time.Time

	scheduler   scheduler
	liveness    liveness
	queueStands bool
	sent        []sentEack
	// nil: datagrams towards the server are not numbered.
	upward *upward
	// Bundles are agreed.
	bundles bool
}

// newSession begins one. sample: the handshake's round trip; 0: not known.
func newSession(e *established, anchor *material, sample time.Duration, now time.Time) (*session, error) {
	sealing, err := newDirection(e.sealing)
	if err != nil {
		return nil, err
	}
	opening, err := newDirection(e.opening)
	if err != nil {
		return nil, err
	}
	names := e.params.names()
	s := &session{
		scheme:  e.params.scheme,
		key:     identifierKeyOf(e.params.secret),
		sealer:  sealer{direction: sealing, session: names[0]},
		opener:  opener{direction: opening},
		names:   names[1:],
		set:     newPowerSums(int(e.params.powerSums)),
		known:   make(map[identifier]recorded),
		upward:  newUpward(&e.params, sample, now),
		bundles: e.params.bundles,
		// With only part of the bytes, a forged datagram could equal a genuine one.
		knowsCopies: e.params.distinct && e.params.scheme == Payload,
	}
	if e.params.numbered.flags&toClient != 0 {
		key := numberKeyOf(e.params.secret)
		s.numbers = &key
	}
	if anchor != nil {
		// When it is repeated, it must not enter the set.
		s.anchor = s.key.identify(*anchor)
		s.remember(s.anchor, *anchor)
	}
	s.scheduler.onUrgent(now)
	return s, nil
}

// isKnown is true if a datagram was recorded before.
func (s *session) isKnown(value identifier, m material) bool {
	found, ok := s.known[value]
	return ok && found.material == m
}

// record takes an authentic datagram into the set. Another one with its identifier counts as the
// same, at both ends alike.
func (s *session) record(value identifier, m material, now time.Time) {
	s.last = named{value, now}
	if _, ok := s.known[value]; !ok {
		s.remember(value, m)
		s.set.insert(value)
	}
}

func (s *session) remember(value identifier, m material) {
	s.known[value] = recorded{material: m}
	if len(s.order) < remembered {
		s.order = append(s.order, value)
		return
	}
	delete(s.known, s.order[s.oldest])
	s.order[s.oldest] = value
	s.oldest = (s.oldest + 1) % remembered
}

// join assigns a number to a recorded datagram.
func (s *session) join(value identifier, number uint64) {
	if found, ok := s.known[value]; ok {
		found.number, found.hasNumber = number, true
		s.known[value] = found
	}
}

// isCopy is true if the datagram with this identifier, which was recorded before, had this number then.
func (s *session) isCopy(value identifier, number uint64) bool {
	found := s.known[value]
	return s.knowsCopies && found.hasNumber && found.number == number
}

// begin enters an epoch: the set is empty.
func (s *session) begin(epoch uint16, now time.Time) {
	s.epoch, s.confirmed, s.wanted = epoch, false, 0
	s.set = newPowerSums(len(s.set.sums))
	if s.anchor = s.newest.value; s.anchor == 0 {
		s.anchor = s.last.value
	}
	s.newest = named{}
	s.scheduler.onUrgent(now)
}

func isNewer(epoch, than uint16) bool {
	return epoch != than && epoch-than < 1<<15
}

// want takes the gateway's wish for a prefix; true if it is longer than the last one.
func (s *session) want(count int, smoothed time.Duration, now time.Time) bool {
	if count < fewestSums || count > len(s.set.sums) {
		return false
	}
	if smoothed == 0 {
		smoothed = assumedRoundTrip
	}
	isLonger := now.After(s.wantedUntil) || count > s.wanted
	if isLonger {
		s.wanted = count
	}
	s.wantedUntil = now.Add(2*smoothed + wantedLifetime)
	return isLonger
}

// eack seals the eACK that is due. missing: datagrams that the gateway may still repair.
func (s *session) eack(missing, held int, now time.Time) ([]byte, error) {
	// One difference more than the holes explain, and one sum more as a check.
	count := min(max(missing+2, fewestSums), len(s.set.sums))
	if now.Before(s.wantedUntil) {
		count = max(count, s.wanted)
	}
	said := eack{
		epoch: s.epoch, echo: s.liveness.wantsEcho(now), holes: held,
		newest: s.newest.value, newestAge: now.Sub(s.newest.at),
		form: formPowerSums, count: byte(count), prefix: s.set.prefix(count),
	}
	if !s.confirmed {
		said.anchor = s.anchor
	}
	datagram, counter, err := s.sealer.seal(said.encode())
	if err != nil {
		return nil, err
	}
	if said.echo {
		s.liveness.onAsked(counter, now)
	}
	if len(s.sent) == rememberedEacks {
		s.sent = s.sent[:copy(s.sent, s.sent[1:])]
	}
	s.sent = append(s.sent, sentEack{counter, binary.BigEndian.Uint64(datagram[5:]), now})
	s.scheduler.onSent(now)
	return datagram, nil
}

// roundTripOf is the round trip that a Report shows; 0: unknown.
func (s *session) roundTripOf(r *report, now time.Time) time.Duration {
	if r.echoAge == saturatedAge {
		return 0
	}
	for _, sent := range s.sent {
		if sent.counter == r.echo {
			return max(now.Sub(sent.at)-time.Duration(r.echoAge)*ageUnit, time.Microsecond)
		}
	}
	return 0
}

// hasSent is true if a Refusal with this nonce answers one of the last eACKs.
func (s *session) hasSent(reference uint64) bool {
	for _, sent := range s.sent {
		if sent.reference == reference {
			return true
		}
	}
	return false
}
