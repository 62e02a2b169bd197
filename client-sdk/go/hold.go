package packrat

import (
	"sort"
	"time"
)

const (
	// Distance behind the highest number at which numbers are still remembered: lower ones are not believed (places).
	rememberedNumbers = 4096
	mostHoles         = 4096
	forgetAfter       = 2 * time.Second
	// The gateway gives up a little later than the client.
	stillExpected = 60 * time.Millisecond
	// Delay of a timer that shows that this host did not run: datagrams that arrived before are processed first.
	stall = 4 * time.Millisecond
)

// hole is one missing number. Numbers are places, counted on from session to session.
type hole struct {
	number   uint64
	opened   time.Time
	held     bool
	settled  bool
	filled   bool
	extended bool
}

// hold knows the numbers that have arrived, the missing ones, and the missing ones to wait for.
//
//	a number is skipped                 it arrives
//	--------------------> held -----------------------> filled in time
//	                       |  |
//	     patience is over  |  | the gateway has nothing to repair
//	                       v  v
//	                      ended ----------------------> filled late
type hold struct {
	// The number behind the highest one that has arrived.
	expected uint64
	arrived  [rememberedNumbers / 64]uint64
	// Holes in the order of numbers, which is the order of opening.
	holes []hole
	// All before this one are not held any more.
	first    int
	count    int
	overflow overflow
}

func (h *hold) hasArrived(number uint64) bool {
	if number >= h.expected {
		return false
	}
	return number+rememberedNumbers < h.expected || h.arrived[number%rememberedNumbers/64]&(1<<(number%64)) != 0
}

// arrival is the effect of a number.
type arrival struct {
	newest bool
	opened bool
	// It was missing; held: and waited for.
	filled bool
	held   bool
}

// onArrival takes a number that has not arrived before. Holes of at most maximumJump open for skipped numbers; a
// larger leap opens none.
func (h *hold) onArrival(number uint64, holds bool, now time.Time, figures *Statistics) arrival {
	if number < h.expected {
		h.mark(number)
		effect := h.fill(number, now, figures)
		if effect.filled && !effect.held {
			// The gateway calls its loss the medium's, or it was overtaken.
			h.overflow.usualMissing++
			h.overflow.usualRuns++
		}
		return effect
	}
	skipped := h.expected
	if number-skipped >= rememberedNumbers {
		clear(h.arrived[:])
	}
	for at := max(skipped, number-min(number, rememberedNumbers-1)); at < number; at++ {
		h.arrived[at%rememberedNumbers/64] &^= 1 << (at % 64)
	}
	h.mark(number)
	h.expected = number + 1
	opened := number > skipped && number-skipped <= maximumJump
	if number-skipped <= maximumJump && h.overflow.onNewest(skipped, number, now) && opened {
		h.giveUp()
		holds = false
	}
	if opened {
		for at := skipped; at < number; at++ {
			h.holes = append(h.holes, hole{number: at, opened: now, held: holds})
		}
		figures.Holes += number - skipped
		if holds {
			h.count += int(number - skipped)
		}
		h.limit()
	}
	return arrival{newest: true, opened: opened}
}

func (h *hold) mark(number uint64) {
	h.arrived[number%rememberedNumbers/64] |= 1 << (number % 64)
}

func (h *hold) fill(number uint64, now time.Time, figures *Statistics) arrival {
	at := sort.Search(len(h.holes), func(at int) bool { return h.holes[at].number >= number })
	if at == len(h.holes) || h.holes[at].number != number || h.holes[at].filled {
		return arrival{}
	}
	found := &h.holes[at]
	effect := arrival{filled: true, held: found.held}
	if found.held {
		figures.RepairedInTime++
	} else {
		figures.RepairedLate++
	}
	found.filled = true
	h.end(found)
	return effect
}

func (h *hold) end(found *hole) {
	if found.held {
		found.held = false
		h.count--
	}
}

// limit forgets the oldest holes.
func (h *hold) limit() {
	over := len(h.holes) - mostHoles
	for at := 0; at < over; at++ {
		h.end(&h.holes[at])
	}
	h.drop(max(over, 0))
}

func (h *hold) drop(count int) {
	h.holes = h.holes[:copy(h.holes, h.holes[count:])]
	h.first = max(h.first-count, 0)
}

// firstHeld is the lowest number that is waited for.
func (h *hold) firstHeld() (*hole, bool) {
	for ; h.first < len(h.holes); h.first++ {
		if h.holes[h.first].held {
			return &h.holes[h.first], true
		}
	}
	return nil, false
}

// expire ends holes whose patience is over, and forgets old ones.
func (h *hold) expire(patience time.Duration, now time.Time, figures *Statistics) {
	for at := h.first; at < len(h.holes); at++ {
		found := &h.holes[at]
		late := now.Sub(found.opened) - patience
		if late < 0 {
			break
		}
		if !found.held {
			continue
		}
		if late >= stall && !found.extended {
			// Extends this hole, to now and a moment: `late` is the timer's delay.
			found.extended = true
			found.opened = found.opened.Add(late + stall)
			continue
		}
		h.end(found)
		figures.GivenUp++
	}
	old := 0
	for old < len(h.holes) && !h.holes[old].held && now.Sub(h.holes[old].opened) >= forgetAfter {
		old++
	}
	if old > 0 {
		h.drop(old)
	}
}

// giveUp ends all holes.
func (h *hold) giveUp() {
	for at := h.first; at < len(h.holes); at++ {
		h.end(&h.holes[at])
	}
}

// settle ends the holes below a number, below which the gateway repairs no datagram any more.
func (h *hold) settle(below uint64) {
	for at := range h.holes {
		if h.holes[at].number >= below {
			break
		}
		h.holes[at].settled = true
		h.end(&h.holes[at])
	}
}

// expectedMissing is the number of datagrams that the gateway may still have to repair.
func (h *hold) expectedMissing(patience time.Duration, now time.Time) int {
	missing := 0
	for at := len(h.holes) - 1; at >= 0; at-- {
		found := &h.holes[at]
		if now.Sub(found.opened) >= patience+stillExpected+stall {
			break
		}
		if !found.filled && !found.settled {
			missing++
		}
	}
	return missing
}

// nextTimeout is when the next hole's patience is over.
func (h *hold) nextTimeout(patience time.Duration) time.Time {
	if first, ok := h.firstHeld(); ok {
		return first.opened.Add(patience)
	}
	return time.Time{}
}
