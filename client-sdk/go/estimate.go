package packrat

import (
	"math"
	"math/bits"
	"time"
)

const (
	unmeasuredPatience = 250 * time.Millisecond
	patienceMargin     = 100 * time.Millisecond
)

// roundTrip is the smoothed round trip of the last mile and its variation (RFC 6298). Smoothed is
// 0 before the first sample.
type roundTrip struct {
	smoothed  time.Duration
	variation time.Duration
}

func (r *roundTrip) onSample(sample time.Duration) {
	sample = max(sample, time.Microsecond)
	if r.smoothed == 0 {
		r.smoothed, r.variation = sample, sample/2
		return
	}
	r.variation = (r.variation*3 + (r.smoothed - sample).Abs()) / 4
	r.smoothed = (r.smoothed*7 + sample) / 8
}

// patience is the time that a repair is worth waiting for.
func (r *roundTrip) patience(maximum time.Duration) time.Duration {
	if r.smoothed == 0 {
		return min(unmeasuredPatience, maximum)
	}
	return min(3*r.smoothed+4*r.variation+patienceMargin, maximum)
}

// overflow finds losses of an overflowing queue (docs/PROTOCOL.md, section 11, "When the client holds"), of
// which the sender must hear at once.
type overflow struct {
	// A bit for each missing one of the last numbers, the lowest bit for the highest number, and for each that a
	// full queue may have lost.
	missing, suspected uint64
	// The number before the window is missing: 1, otherwise 0.
	wasMissing uint64
	newest     uint64
	// Numbers in the window.
	numbers uint64
	// Numbers that have left the window without an overflow, missing ones, and runs of them.
	usualNumbers, usualMissing, usualRuns float64
	// Numbers since the overflow began; 0: there is none.
	lasted uint64
	isOver bool
	// Time of the last arrival, and the smoothed time between two in order.
	arrivedAt time.Time
	interval  time.Duration
}

const (
	overflowWindow     = 64
	overflowRuns       = 3
	overflowRatio      = 2.5
	overflowLost       = 0.25
	overflowLongest    = 2048
	overflowKnown      = 256
	overflowMemory     = 2048
	overflowPrior      = 64
	overflowRunsPrior  = 16
	overflowDeviations = 2
)

// onNewest takes the highest number, which has arrived; all numbers from first to before it are missing. It is
// true if they are an overflow's.
func (o *overflow) onNewest(first, number uint64, now time.Time) bool {
	isFull := o.followArrivals(number-first, now)
	ahead := min(number-o.newest, overflowWindow)
	o.newest = number
	o.leave(ahead)
	var skipped uint64 = (1<<min(number-first, overflowWindow-1) - 1) << 1
	o.missing |= skipped
	if isFull {
		o.suspected |= skipped
	}
	lost, runs := float64(bits.OnesCount64(o.suspected)), float64(bits.OnesCount64(firstOfRuns(o.suspected, 0)))
	usual := o.usualRuns + 1
	mostRuns := (usual + overflowDeviations*math.Sqrt(usual)) / (o.usualNumbers + overflowRunsPrior)
	usualLoss := o.usualMissing / (o.usualNumbers + overflowPrior)
	hasRuns := runs >= overflowRuns+overflowRatio*mostRuns*float64(o.numbers)
	hasLost := o.usualNumbers >= overflowKnown && runs >= overflowRuns && lost >= (overflowLost+overflowRatio*usualLoss)*float64(o.numbers)
	hasMany := hasRuns || hasLost
	if hasMany {
		o.lasted += ahead
	} else {
		o.lasted = 0
	}
	o.isOver = hasMany && o.lasted <= overflowLongest
	return o.isOver
}

// followArrivals takes the time of an arrival behind this many missing datagrams. It is true if it came as fast as
// from a full queue: a medium that loses several in a row leaves their time empty.
func (o *overflow) followArrivals(missing uint64, now time.Time) bool {
	before := o.arrivedAt
	o.arrivedAt = now
	if before.IsZero() {
		return true
	}
	gap := now.Sub(before)
	if missing == 0 {
		if o.interval == 0 {
			o.interval = gap
		}
		o.interval = (o.interval*15 + gap) / 16
	}
	return gap <= o.interval*3/2+o.interval*time.Duration(min(missing, overflowWindow))/8
}

// leave takes the oldest numbers out of the window.
func (o *overflow) leave(numbers uint64) {
	lost := o.missing >> (overflowWindow - numbers)
	runs := firstOfRuns(o.missing, o.wasMissing) >> (overflowWindow - numbers)
	if numbers > 0 {
		o.wasMissing = lost & 1
	}
	o.missing <<= numbers
	o.suspected <<= numbers
	leaving := max(o.numbers+numbers, overflowWindow) - overflowWindow
	o.numbers += numbers - leaving
	if o.isOver {
		return
	}
	o.usualNumbers += float64(leaving)
	o.usualMissing += float64(bits.OnesCount64(lost))
	o.usualRuns += float64(bits.OnesCount64(runs))
	if o.usualNumbers > overflowMemory {
		keep := overflowMemory / o.usualNumbers
		o.usualNumbers, o.usualMissing, o.usualRuns = overflowMemory, o.usualMissing*keep, o.usualRuns*keep
	}
}

// firstOfRuns has a bit for the first number of each run of missing ones. before: 1 if the number before them is
// missing.
func firstOfRuns(missing, before uint64) uint64 {
	return missing &^ (missing>>1 | before<<(overflowWindow-1))
}
