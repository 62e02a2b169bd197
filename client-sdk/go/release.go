package packrat

import (
	"bytes"
	"slices"
	"sort"
)

const (
	mostWaitingBytes = 16 << 20
	mostWaiting      = 16_384
)

// kept is a datagram that waits for the repair of an earlier one.
type kept[M any] struct {
	number   uint64
	payload  []byte
	metadata M
}

// release has waiting datagrams by number, and released ones.
type release[M any] struct {
	// Waiting datagrams in the order of numbers; pointers, as a repair moves those above it.
	waiting []*kept[M]
	bytes   int
	ready   []*kept[M]
}

// isNext is true if no datagram waits below this number, or is to be delivered before it.
func (r *release[M]) isNext(number uint64) bool {
	return len(r.ready) == 0 && (len(r.waiting) == 0 || number <= r.waiting[0].number)
}

// keep copies a datagram, behind others with its number. Datagrams are not compared: the transport detects
// duplicates, and each forged datagram would be compared with all others.
func (r *release[M]) keep(number uint64, payload []byte, metadata M) {
	at := len(r.waiting)
	if at > 0 && r.waiting[at-1].number > number {
		at = sort.Search(at, func(at int) bool { return r.waiting[at].number > number })
	}
	r.waiting = slices.Insert(r.waiting, at, &kept[M]{number, bytes.Clone(payload), metadata})
	r.bytes += len(payload)
}

// below releases all datagrams below this number, and the datagrams for which there is no room.
func (r *release[M]) below(limit uint64) {
	count := 0
	for count < len(r.waiting) {
		first := r.waiting[count]
		isFull := r.bytes > mostWaitingBytes || len(r.waiting)-count > mostWaiting
		if first.number >= limit && !isFull {
			break
		}
		r.bytes -= len(first.payload)
		count++
	}
	if count == 0 {
		return
	}
	r.ready = append(r.ready, r.waiting[:count]...)
	// The others stay in place, until there is no more room behind them.
	clear(r.waiting[:count])
	if r.waiting = r.waiting[count:]; len(r.waiting) == 0 {
		r.waiting = nil
	}
}

func (r *release[M]) poll() (kept[M], bool) {
	if len(r.ready) == 0 {
		return kept[M]{}, false
	}
	next := *r.ready[0]
	r.ready[0] = nil
	if r.ready = r.ready[1:]; len(r.ready) == 0 {
		r.ready = nil
	}
	return next, true
}
