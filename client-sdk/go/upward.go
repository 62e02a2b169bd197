package packrat

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Uploads (docs/PROTOCOL.md, section 11, "Uploads", and section 17).
const (
	// Numbered datagrams and bytes that are kept at most, and for how long: then the longest wait
	// at the gateway is over.
	mostKept      = 2048
	mostKeptBytes = 2 << 20
	oldestKept    = time.Second
	// Length from which a datagram belongs to an upload, as do all following ones for a while.
	bulkLength = 400
	bulkLasts  = 250 * time.Millisecond
	// Shorter ones of a download that get a number: requests and the first acknowledgements of an answer. Of
	// any other connection all do: a call, or a stream that is sent.
	thinPerSecond = 10.0
	thinAtOnce    = 16.0
	// Number of datagrams, longer than any numbered one known to have arrived, that get a number nevertheless; the
	// interval of numbered ones after these; and the number of vanished ones after which such lengths leave unnumbered.
	mostUnproven  = 64
	unprovenOneOf = 64
	mostVanished  = 8
	// Share of the sent datagrams that may be sent again, and the largest share if the loss requires it.
	repairShare     = 0.25
	mostRepairShare = 0.5
	// Savings of it: as much as was sent in this time, within these limits in bytes.
	savedTime  = 100 * time.Millisecond
	leastSaved = 24_000.0
	mostSaved  = 256_000.0
	// Transmissions of one datagram.
	mostTransmissions = 12
	// Time beside one and a half round trips in which the gateway would have reported a repair.
	againMargin = 2 * time.Millisecond
	// Time beside the round trip in which it reports a last datagram: of a few, and of many.
	tailMargin       = 10 * time.Millisecond
	tailMarginOfMany = 30 * time.Millisecond
	few              = 4
	// Repetitions of a last datagram that the gateway has not reported.
	mostProbes = 4
	// Shortest silence of the gateway about numbered datagrams after which they leave unnumbered.
	silence = 250 * time.Millisecond
	// Datagrams over which the loss is remembered.
	lossHorizon = 1024.0
)

// bucket holds tokens that are earned and spent.
type bucket float64

func (b *bucket) earn(tokens, most float64) { *b = bucket(min(float64(*b)+tokens, most)) }

// keptUp is a numbered datagram that may have to be sent again.
type keptUp struct {
	// The datagram with its number; nil: not needed any more.
	datagram []byte
	// Without its number.
	length        int
	at            time.Time
	transmissions int
	// The next place at the time of the last transmission: once the datagram with that place arrives, this one should
	// have arrived.
	horizon uint64
}

// upward numbers the transport's datagrams, keeps them for a while, and sends them again if the gateway reports them
// as missing.
//
//	transport --> number in front, a copy kept --> socket
//	                   ^                             ^
//	                   |  arrived: forgotten         | the same bytes, the same number
//	                   +--- gateway: Holes ----------+ within the budget, if the gateway wants it
//
// It never holds up the transport: datagrams leave unnumbered if the gateway is silent, if a datagram is too long, or
// in a thin stream of acknowledgements.
type upward struct {
	key numberKey
	// The longest datagram that gets a number: as agreed, and now.
	agreed, largest int
	// The longest numbered datagram that has arrived by this path, and longer ones since then.
	proven, unproven, vanished, shortestVanished int
	// The next place; kept datagrams have places below it.
	next  uint64
	kept  []keptUp
	bytes int
	// The gateway has reported on the places below told. Places from told on are unreported since untoldSince;
	// zero if there are none.
	told        uint64
	untoldSince time.Time
	// Set if datagrams leave unnumbered until the gateway reports again.
	isSilent   bool
	path       roundTrip
	sent, lost float64
	budget     bucket
	// Bytes sent lately.
	recent float64
	sentAt time.Time
	// Places to send again.
	ready []uint64
	// Repetitions of the last datagram, since the time.
	probes    int
	tailSince time.Time
	bulkUntil time.Time
	thin      bucket
	thinAt    time.Time
}

// newUpward is nil if datagrams towards the server are not numbered. sample: the handshake's round trip; 0: unknown.
func newUpward(p *gatewayParams, sample time.Duration, now time.Time) *upward {
	if p.numbered.flags&toServer == 0 {
		return nil
	}
	largest := int(p.numbered.largest)
	u := &upward{key: upwardNumberKeyOf(p.secret), agreed: largest, largest: largest, shortestVanished: math.MaxInt,
		budget: leastSaved, thin: thinAtOnce, sentAt: now, tailSince: now, bulkUntil: now, thinAt: now}
	if sample > 0 {
		u.path.onSample(sample)
	}
	return u
}

// takes is true if a datagram of this length gets a number now. isDownload: most bytes come from the server, so that
// short datagrams are acknowledgements, and not a stream of their own.
func (u *upward) takes(length int, isDownload bool, now time.Time) bool {
	if !u.untoldSince.IsZero() && now.Sub(u.untoldSince) > max(4*u.againAfter(), silence) {
		u.fallSilent()
	}
	if u.isSilent || length > u.largest {
		return false
	}
	if length >= bulkLength {
		u.bulkUntil = now.Add(bulkLasts)
	} else if isDownload && !now.Before(u.bulkUntil) {
		u.thin.earn(now.Sub(u.thinAt).Seconds()*thinPerSecond, thinAtOnce)
		u.thinAt = now
		if u.thin < 1 {
			return false
		}
		u.thin--
	}
	if length > u.proven {
		u.unproven++
		return u.unproven <= mostUnproven || u.unproven%unprovenOneOf == 0
	}
	return true
}

// fallSilent ends numbering, and drops all copies.
func (u *upward) fallSilent() {
	u.isSilent = true
	if u.unproven > 0 {
		// It may be the length that the path does not carry.
		u.unproven = mostUnproven
	}
	u.kept, u.ready, u.bytes = nil, nil, 0
	u.told, u.untoldSince, u.probes = u.next, time.Time{}, 0
}

// onMove is called when the client moves: arrival by the new path is unproven.
func (u *upward) onMove() {
	u.fallSilent()
	u.largest = u.agreed
	u.proven = 0
	u.expectLonger()
	u.path = roundTrip{}
}

// expectLonger forgets the fate of datagrams longer than any known to have arrived.
func (u *upward) expectLonger() {
	u.unproven, u.vanished, u.shortestVanished = 0, 0, math.MaxInt
}

// number keeps a datagram that takes has accepted, and returns the number to put in front of it.
func (u *upward) number(datagram []byte, value identifier, now time.Time) []byte {
	masked := (uint32(u.next) + u.key.mask(value)) % numberModulus
	numbered := make([]byte, numberLength, numberLength+len(datagram))
	copy(numbered, magic)
	binary.BigEndian.PutUint32(numbered[4:], masked)
	numbered[4] = version<<4 | byte(typeNumbered)
	front := numbered[:numberLength:numberLength]
	u.kept = append(u.kept, keptUp{datagram: append(numbered, datagram...), length: len(datagram), at: now, transmissions: 1,
		horizon: u.next})
	u.next++
	u.bytes += len(datagram)
	u.limit(now)
	elapsed := now.Sub(u.sentAt).Seconds()
	u.sentAt = now
	u.recent = u.recent*math.Exp(-elapsed/savedTime.Seconds()) + float64(len(datagram))
	u.budget.earn(float64(len(datagram))*u.share(), min(max(u.recent, leastSaved), mostSaved))
	if u.untoldSince.IsZero() {
		u.untoldSince = now
	}
	u.probes, u.tailSince = 0, now
	return front
}

// limit forgets the oldest kept datagrams.
func (u *upward) limit(now time.Time) {
	over := 0
	for over < len(u.kept) {
		oldest := &u.kept[over]
		if len(u.kept)-over <= mostKept && u.bytes <= mostKeptBytes && oldest.datagram != nil && now.Sub(oldest.at) <= oldestKept {
			break
		}
		u.drop(oldest)
		over++
	}
	u.kept = u.kept[over:]
}

func (u *upward) drop(sent *keptUp) {
	if sent.datagram != nil {
		sent.datagram = nil
		u.bytes -= sent.length
	}
}

func (u *upward) share() float64 {
	loss := u.lost / max(u.sent, 1)
	return min(max(1.3*loss/max(1-loss, 0.1), repairShare), mostRepairShare)
}

// onRefused is called when the sender's link refuses a datagram of this length with its number: all datagrams of at
// least this length leave unnumbered, and no copy of one is sent.
func (u *upward) onRefused(length int) {
	u.largest = min(u.largest, length-1)
	u.expectLonger()
	for at := range u.kept {
		if u.kept[at].length >= length {
			u.drop(&u.kept[at])
		}
	}
}

// first is the place of the oldest that is kept.
func (u *upward) first() uint64 { return u.next - uint64(len(u.kept)) }

func (u *upward) at(place uint64) *keptUp {
	if place < u.first() || place >= u.next {
		return nil
	}
	return &u.kept[place-u.first()]
}

// againAfter is the time in which the gateway reports the arrival of a datagram.
func (u *upward) againAfter() time.Duration {
	smoothed := u.path.smoothed
	if smoothed == 0 {
		smoothed = assumedRoundTrip
	}
	return smoothed*3/2 + 4*u.path.variation + againMargin
}

// onHoles takes the gateway's report of missing datagrams, and returns the number of new ones.
func (u *upward) onHoles(h *holes, now time.Time) uint64 {
	// A forged number may have led the gateway ahead of the sent ones.
	ahead := int64(int32(h.expected - uint32(u.next)))
	if ahead < 0 && uint64(-ahead) > u.next {
		return 0
	}
	above := u.next + uint64(ahead)
	expected, told := min(above, u.next), u.told
	if expected < told {
		return 0
	}
	if above <= u.next && expected > told && h.age != saturatedAge {
		if newest := u.at(expected - 1); newest != nil && newest.transmissions == 1 {
			u.path.onSample(now.Sub(newest.at) - time.Duration(h.age)*ageUnit)
		}
	}
	begin, lost := min(u.first(), expected), uint64(0)
	var missing []uint64
	for _, run := range slices.Backward(h.runs) {
		behind := uint64(h.expected - run.first)
		first := above - min(behind, above)
		u.onArrived(begin, min(first, expected))
		begin = first + uint64(run.count)
		for place := max(first, u.first()); place < min(begin, expected); place++ {
			if place >= told {
				lost++
			}
			missing = append(missing, place)
		}
	}
	u.onArrived(begin, expected)
	u.onFate(expected-told, lost)
	for _, place := range missing {
		u.onMissing(place, above <= u.next, expected, h.wanted, now)
	}
	if expected > told {
		u.probes, u.tailSince = 0, now
	}
	u.told, u.isSilent, u.untoldSince = expected, false, time.Time{}
	if expected < u.next {
		u.untoldSince = now
	}
	return lost
}

// onFate remembers the loss of the last mile.
func (u *upward) onFate(sent, lost uint64) {
	u.sent += float64(sent)
	u.lost += float64(lost)
	if u.sent > lossHorizon {
		u.sent, u.lost = lossHorizon, u.lost*lossHorizon/u.sent
	}
}

// onArrived is called when the datagrams of these places have arrived, or are not waited for.
func (u *upward) onArrived(from, to uint64) {
	for place := max(from, u.first()); place < to; place++ {
		sent := u.at(place)
		if sent == nil {
			continue
		}
		u.drop(sent)
		if place >= u.told && sent.length > u.proven {
			u.proven, u.unproven, u.vanished = sent.length, 0, 0
		}
	}
}

// onMissing is called when the datagram of this place is missing. isSure: the datagrams below expected that are not
// missing have arrived.
func (u *upward) onMissing(place uint64, isSure bool, expected uint64, wanted bool, now time.Time) {
	sent := u.at(place)
	if sent == nil {
		return
	}
	if place >= u.told && sent.length > u.proven {
		u.vanished++
		u.shortestVanished = min(u.shortestVanished, sent.length)
		if u.vanished >= mostVanished {
			u.largest = min(u.largest, u.shortestVanished-1)
			u.expectLonger()
		}
	}
	if sent.datagram == nil {
		return
	}
	if !wanted {
		u.drop(sent)
		return
	}
	isDue := isSure && expected > sent.horizon || now.Sub(sent.at) >= u.againAfter()
	if isDue && sent.transmissions < mostTransmissions && !slices.Contains(u.ready, place) {
		u.ready = append(u.ready, place)
	}
}

// poll is the next datagram to send again, with its number, if the budget allows it; nil if there is none. Datagrams
// to a connection ID out of use stay.
func (u *upward) poll(isInUse func(datagram []byte) bool, now time.Time) []byte {
	for len(u.ready) > 0 {
		sent := u.at(u.ready[0])
		u.ready = u.ready[1:]
		if sent == nil || sent.datagram == nil || !isInUse(sent.datagram[numberLength:]) {
			continue
		}
		if float64(sent.length) > float64(u.budget) {
			// The gateway asks again.
			u.ready = nil
			return nil
		}
		sent.at, sent.horizon = now, u.next
		sent.transmissions++
		u.budget -= bucket(sent.length)
		return sent.datagram
	}
	return nil
}

// tailDeadline is the time at which the last datagram is sent again because the gateway has not reported it; zero:
// never.
func (u *upward) tailDeadline() time.Time {
	untold := u.next - u.told
	if untold == 0 || u.isSilent || u.probes >= mostProbes {
		return time.Time{}
	}
	margin := tailMarginOfMany
	if untold < few {
		margin = tailMargin
	}
	return u.tailSince.Add((u.againAfter() + margin) << u.probes)
}

// onTail is called at the tail deadline.
func (u *upward) onTail(now time.Time) {
	u.probes++
	u.tailSince = now
	if last := u.next - 1; !slices.Contains(u.ready, last) {
		u.ready = append(u.ready, last)
	}
}

const (
	// Window of the bytes that count in a direction: each time that this number has passed, earlier ones count half.
	directionWindow = 64 << 10
	// Ratio of the bytes that an upload sends, or a download receives, to the bytes of the other direction.
	uploadRatio = 4
)

// balance is the direction of most of a connection's bytes. A client that uploads receives almost only
// acknowledgements: losing one does not harm its transport, but holding the later ones for it would delay the
// transport's sending.
type balance struct{ up, down int }

func (b *balance) pass(up, down int) {
	b.up += up
	b.down += down
	if b.up+b.down > directionWindow {
		b.up /= 2
		b.down /= 2
	}
}

func (b *balance) isDownload() bool { return b.down > uploadRatio*b.up }

func (b *balance) isUpload() bool { return b.up > uploadRatio*b.down }
