package packrat

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// The search for a gateway (docs/PROTOCOL.md, sections 6 and 13).
const (
	firstRetry         = 25 * time.Millisecond
	tries              = 6
	betweenAttempts    = 30 * time.Second
	fullRetry          = time.Second
	successorRetry     = 400 * time.Millisecond
	successorQuestions = 100
	tokenRetry         = 300 * time.Second
	holdoutRetry       = time.Hour
	reconnectAfter     = 200 * time.Millisecond
)

type step byte

const (
	discovering step = iota
	initiating
	waiting
	refused
	finished
)

// discovery is the client's side of discovery and handshake.
type discovery struct {
	params    clientParams
	pinned    *[32]byte
	random    *rand.ChaCha8
	initiator initiator
	step      step
	offer     control
	tries     int
	// Attempts in a row that ended for lack of room.
	full int
	// Attempts that still follow each other soon: there was a gateway here.
	successors int
	// The token has changed since the current attempt began.
	hasNewToken bool
	// Reason of the refusal, in the step refused.
	refusal byte
	sentAt  time.Time
	nextAt  time.Time
}

func newDiscovery(params clientParams, pinned *[32]byte, random *rand.ChaCha8, now time.Time) *discovery {
	d := &discovery{params: params, pinned: pinned, random: random}
	d.restart(now)
	return d
}

// setTicket takes the server's ticket for the next attempts, from the current gateway.
func (d *discovery) setTicket(ticket serverTicket) {
	d.params.ticket = ticket
}

// setAccess takes another token and gateway key. A token that a gateway has demanded is shown at once. True: the key
// differs, and an attempt in progress is out of date.
func (d *discovery) setAccess(token []byte, pinned *[32]byte, now time.Time) bool {
	d.params.token, d.hasNewToken = token, true
	if d.step == refused && d.refusal == refusedToken {
		d.nextAt = now
	}
	isSame := d.pinned == nil && pinned == nil || d.pinned != nil && pinned != nil && *d.pinned == *pinned
	d.pinned = pinned
	return !isSame
}

// grease is a value that is never assigned, and skipped by all receivers.
func grease(random uint64) byte {
	return greaseFirst + byte(random%greaseCount)
}

// restart begins an attempt with fresh randomness.
func (d *discovery) restart(at time.Time) {
	words := [2]uint64{d.random.Uint64(), d.random.Uint64()}
	d.initiator = initiator{nonce: words[0], pinned: d.pinned}
	for part := 0; part < len(d.initiator.ephemeral); part += 8 {
		binary.LittleEndian.PutUint64(d.initiator.ephemeral[part:], d.random.Uint64())
	}
	d.params.versions = []byte{grease(words[1]), version}
	value := binary.LittleEndian.AppendUint32(nil, uint32(words[1]>>32))
	d.params.grease = appendRecord(nil, grease(words[1]>>8), value)
	d.initiator.payload = d.params.encode()
	d.step, d.tries, d.nextAt, d.hasNewToken = discovering, 0, at, false
}

// onPathAlive is called when the path begins to carry datagrams: earlier questions were lost.
func (d *discovery) onPathAlive(now time.Time) {
	if d.step == waiting {
		d.nextAt = now
	}
}

func (d *discovery) wait() time.Duration {
	if d.successors == 0 {
		return betweenAttempts
	}
	d.successors--
	return successorRetry
}

// poll is the question that is due, if one is.
func (d *discovery) poll(now time.Time) []byte {
	if d.step == finished || now.Before(d.nextAt) {
		return nil
	}
	if d.step == waiting || d.step == refused {
		unanswered := d.step == waiting
		d.restart(now)
		if unanswered {
			d.tries = tries - 1
		}
	}
	if d.tries >= tries {
		d.step, d.nextAt = waiting, now.Add(d.wait())
		return nil
	}
	noise, err := d.initiator.message()
	if err != nil { // the next attempt has another key
		d.step, d.nextAt = waiting, now.Add(d.wait())
		return nil
	}
	question := control{kind: typeDiscover, nonce: d.initiator.nonce, versions: d.params.versions}
	if d.step == initiating {
		question = control{kind: typeInit, nonce: d.initiator.nonce, noise: noise, cookieTime: d.offer.cookieTime, cookie: d.offer.cookie}
	} else if len(d.params.token) == 0 { // a token is for gateways only
		question.noise = noise
	}
	d.nextAt = now.Add(firstRetry << d.tries)
	d.sentAt = now
	d.tries++
	return question.encode()
}

func (d *discovery) onRefusal(reason byte, now time.Time) {
	wait := time.Duration(0)
	switch reason {
	case refusedToken:
		if !d.hasNewToken {
			wait = tokenRetry
		}
	case refusedHoldout:
		wait = holdoutRetry
	case refusedFull:
		most := min(fullRetry<<min(d.full, 5), betweenAttempts)
		d.full++
		wait = most/2 + time.Duration(d.random.Uint64()%uint64(most/2))
	default:
		wait = d.wait()
	}
	d.step, d.refusal, d.nextAt = refused, reason, now.Add(wait)
}

// onControl reads an answer. known is false if it is not for this attempt, or wrong; session is nil
// unless the handshake has ended, and sample 0 unless that measured the round trip.
func (d *discovery) onControl(c *control, now time.Time) (session *established, sample time.Duration, known bool) {
	isOpen := d.step == discovering || d.step == initiating
	if !isOpen || c.nonce != d.initiator.nonce {
		return nil, 0, false
	}
	switch c.kind {
	case typeOffer:
		if d.step != discovering || c.version != version {
			return nil, 0, false
		}
		d.step, d.offer, d.tries, d.nextAt = initiating, *c, 0, now
		return nil, 0, true
	case typeInitAck:
		e, err := d.initiator.finish(c.noise)
		limit := d.params.powerSums
		if err != nil || e.params.powerSums < fewestSums || e.params.powerSums > limit {
			return nil, 0, false
		}
		d.step, d.full, d.successors = finished, 0, 0
		if d.tries == 1 {
			sample = now.Sub(d.sentAt)
		}
		return &e, sample, true
	case typeRefusal:
		if c.reason == refusedCookie && d.step == initiating {
			d.step, d.nextAt = discovering, now.Add(firstRetry)
		} else {
			d.onRefusal(c.reason, now)
		}
		return nil, 0, true
	}
	return nil, 0, false
}
