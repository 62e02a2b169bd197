package packrat

import (
	"math"
	"time"
)

const (
	maximumJump       = 1024
	maximumLateness   = 16_384
	minimumJump       = 32
	believedPerSecond = 0.1
	farInARow         = 8
	mostRows          = 64
)

// places reads the numbers in front of datagrams: places in the gateway's forwarding order, which continue from
// session to session (docs/PROTOCOL.md, section 11, "Numbers").
//
//	0 ................. expected - 16384 ...... expected ...... expected + jump ...........
//	far: believed once they go on |<-- believed if empty -->|<- believed ->|   far, likewise
//
// The jump is 1024, and shorter the more unbelieved numbers arrive.
type places struct {
	session uint64
	key     numberKey
	// The number of the session's first place.
	base uint64
	// The place behind the highest that was believed.
	expected uint64
	// Rows of far numbers; the one continued most recently is the last.
	rows []row
	// Numbers of the last second, or so, that were not believed.
	strange float64
	counted time.Time
}

type row struct {
	last  uint64
	count int
}

// follow begins a session: its places come behind the previous session's.
func (p *places) follow(session uint64, key numberKey) {
	*p = places{session: session, key: key, base: p.base + p.expected, strange: p.strange, counted: p.counted}
}

// nearest is the number that the datagram may have whose place is next to the expected one, believed or not.
func (p *places) nearest(masked uint32, value identifier) uint64 {
	return p.base + p.key.place(masked, value, p.expected)
}

// read is the number of a datagram; false if it is not believed.
func (p *places) read(masked uint32, value identifier, now time.Time) (uint64, bool) {
	place := p.key.place(masked, value, p.expected)
	isNear := p.expected-place <= maximumLateness
	if place >= p.expected {
		isNear = place-p.expected <= p.jump(now)
	}
	if !isNear {
		p.strange++
		var isBelieved bool
		if place, isBelieved = p.goOn(place); !isBelieved {
			return 0, false
		}
		p.expected = place
	}
	p.expected = max(p.expected, place+1)
	return p.base + place, true
}

func (p *places) jump(now time.Time) uint64 {
	if !p.counted.IsZero() {
		p.strange *= math.Exp(-max(now.Sub(p.counted).Seconds(), 0))
	}
	p.counted = now
	jump := believedPerSecond * numberModulus / max(p.strange, 1)
	return min(max(uint64(jump), minimumJump), maximumJump)
}

// goOn takes a far place: it begins a row, or is the next one of a row. True if the row is long enough to be
// believed.
func (p *places) goOn(place uint64) (uint64, bool) {
	next := row{place, 1}
	for at, before := range p.rows {
		if ahead := (place - before.last) % numberModulus; 1 <= ahead && ahead <= maximumJump {
			next = row{before.last + ahead, before.count + 1}
			p.rows = append(p.rows[:at], p.rows[at+1:]...)
			break
		}
	}
	if next.count >= farInARow {
		p.rows = nil
		return next.last, true
	}
	if len(p.rows) >= mostRows {
		p.rows = p.rows[:copy(p.rows, p.rows[1:])]
	}
	p.rows = append(p.rows, next)
	return 0, false
}

const (
	doubt         = 10 * time.Second
	longestDoubt  = 640 * time.Second
	reliable      = time.Minute
	doubtedRate   = 100.0
	doubtedAtOnce = 24.0
	// Believed numbers since the last Reset that show that the gateway numbers.
	numberedEnough = 64
)

// plain judges datagrams that no number speaks for: after two Resets within ten seconds, or one where
// numbers arrive, only 100 a second enter the set, until ten seconds have passed without one; twice as
// long each time that belief ends within a minute.
type plain struct {
	lastReset time.Time
	// Numbers that were believed since the last Reset, and the longest datagram with one ever.
	numbered uint64
	longest  int
	// A longer one without a number was recorded since then: the path may have no room for its number.
	hasLonger    bool
	doubtedUntil time.Time
	lasts        time.Duration
	tokens       float64
	earnedAt     time.Time
}

func (p *plain) onNumber(length int) {
	p.numbered++
	p.longest = max(p.longest, length)
}

func (p *plain) onReset(now time.Time) {
	soon := !p.lastReset.IsZero() && now.Sub(p.lastReset) < doubt
	hasLonger := p.hasLonger
	hasNumbers := p.numbered >= numberedEnough && !hasLonger
	p.lastReset, p.numbered, p.hasLonger = now, 0, false
	if now.Before(p.doubtedUntil) {
		if until := now.Add(doubt); until.After(p.doubtedUntil) {
			p.doubtedUntil = until
		}
		return
	}
	if !soon && !hasNumbers {
		return
	}
	if isAgain := !hasLonger && !p.doubtedUntil.IsZero() && now.Before(p.doubtedUntil.Add(reliable)); isAgain {
		p.lasts = min(2*p.lasts, longestDoubt)
	} else {
		p.lasts = doubt
	}
	p.doubtedUntil = now.Add(p.lasts)
}

func (p *plain) admits(length int, now time.Time) bool {
	isBelieved := !now.Before(p.doubtedUntil) || p.pays(now)
	p.hasLonger = p.hasLonger || isBelieved && length > p.longest
	return isBelieved
}

func (p *plain) pays(now time.Time) bool {
	if !p.earnedAt.IsZero() {
		p.tokens = min(p.tokens+now.Sub(p.earnedAt).Seconds()*doubtedRate, doubtedAtOnce)
	}
	p.earnedAt = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}
