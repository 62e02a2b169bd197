package packrat

import (
	"bytes"
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

// release has datagrams by number, and those that need not wait any more.
type release[M any] struct {
	// In the order of numbers.
	waiting []kept[M]
	bytes   int
	ready   []kept[M]
}

// isNext is true if nothing waits below this number, nor is to be delivered before it.
func (r *release[M]) isNext(number uint64) bool {
	return len(r.ready) == 0 && (len(r.waiting) == 0 || number <= r.waiting[0].number)
}

// keep copies a datagram; false if it waits already. Of several of one number the transport decides
// which one is authentic.
func (r *release[M]) keep(number uint64, payload []byte, metadata M) bool {
	at := len(r.waiting)
	if at > 0 && r.waiting[at-1].number > number {
		at = sort.Search(at, func(at int) bool { return r.waiting[at].number > number })
	}
	for same := at - 1; same >= 0 && r.waiting[same].number == number; same-- {
		if bytes.Equal(r.waiting[same].payload, payload) {
			return false
		}
	}
	r.waiting = append(r.waiting, kept[M]{})
	copy(r.waiting[at+1:], r.waiting[at:])
	r.waiting[at] = kept[M]{number, bytes.Clone(payload), metadata}
	r.bytes += len(payload)
	return true
}

// below releases everything below this number, and what there is no room for.
func (r *release[M]) below(limit uint64) {
	count := 0
	for count < len(r.waiting) {
		first := &r.waiting[count]
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
	left := copy(r.waiting, r.waiting[count:])
	clear(r.waiting[left:])
	r.waiting = r.waiting[:left]
}

func (r *release[M]) poll() (kept[M], bool) {
	if len(r.ready) == 0 {
		return kept[M]{}, false
	}
	next := r.ready[0]
	r.ready[0] = kept[M]{}
	if r.ready = r.ready[1:]; len(r.ready) == 0 {
		r.ready = nil
	}
	return next, true
}
