package packrat

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestAHoleIsReportedAtOnceAndWhileItIsWaitedFor(t *testing.T) {
	w := newWorld(t, 9, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	w.gateway.silent = true
	before := w.eacks
	w.skip(50)
	w.run(2 * time.Millisecond)
	w.skip(53)
	if w.eacks != before+2 {
		t.Errorf("%d eACKs for two holes", w.eacks-before)
	}
	before = w.eacks
	w.run(100 * time.Millisecond)
	// Each round trip, which is 10 ms.
	if count := w.eacks - before; count < 8 || count > 14 {
		t.Errorf("%d eACKs in ten round trips", count)
	}
}

// numbers gives places as one gateway numbers them.
type numbers struct{ key numberKey }

func (n numbers) read(p *places, place uint64, now time.Time) (uint64, bool) {
	value := identifier(fold(place+1, 0x9e3779b97f4a7c15)%(prime-1)) + 1
	return p.read((uint32(place)+n.key.mask(value))%numberModulus, value, now)
}

func TestASilentClientMayHaveMoved(t *testing.T) {
	var s scheduler
	now := begun()
	if s.isSilent(now) {
		t.Error("its session has just begun")
	}
	s.onSent(now)
	if s.isSilent(now.Add(silent-time.Nanosecond)) || !s.isSilent(now.Add(silent)) {
		t.Error("not after half a second")
	}
}

func TestPlacesAreFoundInAnyOrderAndBeyond24Bits(t *testing.T) {
	genuine, p := numbers{numberKey{7, 9}}, &places{}
	p.follow(1, genuine.key)
	for step := range uint64(40_000) {
		for _, place := range []uint64{step * 900, step*900 - min(step*900, 500)} {
			if number, ok := genuine.read(p, place, begun()); !ok || number != place {
				t.Fatalf("%d is read as %d, %v", place, number, ok)
			}
		}
	}
	p.follow(2, genuine.key)
	if number, ok := genuine.read(p, 0, begun()); !ok || number != 39_999*900+1 {
		t.Errorf("the next session begins with %d, %v", number, ok)
	}
}

func TestFarNumbersAreBelievedWhenTheyGoOnAmongForgedOnes(t *testing.T) {
	genuine, forger, p := numbers{numberKey{7, 9}}, numbers{numberKey{8, 1}}, &places{}
	p.follow(1, genuine.key)
	genuine.read(p, 10, begun())
	believed, invented := uint64(0), uint64(0)
	for place := uint64(50_000); place < 50_020; place++ {
		for range 20 {
			invented++
			if _, ok := forger.read(p, invented, begun()); ok {
				t.Fatalf("the forged number %d is believed", invented)
			}
		}
		if number, ok := genuine.read(p, place, begun()); ok {
			if number != place {
				t.Fatalf("%d is read as %d", place, number)
			}
			believed++
		}
	}
	if believed != 13 {
		t.Errorf("%d of 20 are believed: all but seven should be", believed)
	}
}

func TestInventedNumbersAreHardlyEverBelieved(t *testing.T) {
	genuine, p := numbers{numberKey{7, 9}}, &places{}
	p.follow(1, genuine.key)
	random := rand.New(rand.NewPCG(1, 2))
	ahead := 0
	for millisecond := range 10_000 {
		now := begun().Add(time.Duration(millisecond) * time.Millisecond)
		for range 25 {
			before := p.expected
			p.read(random.Uint32()%numberModulus, 1, now)
			if p.expected != before {
				ahead++
			}
		}
	}
	if ahead > 8 {
		t.Errorf("%d in ten seconds", ahead)
	}
}

func TestThereIsRoomForSoMuchAndTheLowestPassesFirst(t *testing.T) {
	var r release[int]
	payload := make([]byte, 1<<20)
	for number := 17; number >= 0; number-- {
		r.keep(uint64(number), payload, number)
	}
	r.below(0)
	for expected := range 2 {
		if next, ok := r.poll(); !ok || next.metadata != expected {
			t.Fatalf("%d comes out in the place of %d", next.metadata, expected)
		}
	}
	if _, ok := r.poll(); ok || r.bytes != mostWaitingBytes {
		t.Errorf("%d bytes wait", r.bytes)
	}
	for number := range uint64(mostWaiting) {
		r.keep(100+number, nil, 0)
	}
	if r.below(0); len(r.waiting) != mostWaiting {
		t.Errorf("%d wait", len(r.waiting))
	}
}

func TestAfterTwoResetsFewPlainDatagramsAreBelieved(t *testing.T) {
	var p plain
	admitted := func(from time.Duration) (count int) {
		for millisecond := range 1000 {
			if p.admits(1000, begun().Add(from+time.Duration(millisecond)*time.Millisecond)) {
				count++
			}
		}
		return count
	}
	p.onNumber(1000)
	p.onReset(begun())
	p.onReset(begun().Add(19 * time.Second))
	if count := admitted(19 * time.Second); count != 1000 {
		t.Errorf("%d, after two that are far from each other", count)
	}
	p.onReset(begun().Add(21 * time.Second))
	if count := admitted(21 * time.Second); count < 90 || count > 130 {
		t.Errorf("%d of 1000 in doubt", count)
	}
	if count := admitted(32 * time.Second); count != 1000 {
		t.Errorf("%d, when the doubt is over", count)
	}
	for range numberedEnough {
		p.onNumber(900)
	}
	p.onReset(begun().Add(100 * time.Second))
	if count := admitted(100 * time.Second); count > 130 {
		t.Errorf("%d of 1000, after one where numbers arrive", count)
	}
	for range numberedEnough {
		p.onNumber(900)
	}
	if !p.admits(1001, begun().Add(180*time.Second)) {
		t.Error("in doubt")
	}
	p.onReset(begun().Add(181 * time.Second))
	if count := admitted(181 * time.Second); count != 1000 {
		t.Errorf("%d, where longer ones have no number", count)
	}
}

func TestAnAttackerWhoGoesOnIsBelievedEverMoreRarely(t *testing.T) {
	var p plain
	believed := 0
	for tenth := range 36_000 {
		now := begun().Add(time.Duration(tenth) * 100 * time.Millisecond)
		if !now.Before(p.doubtedUntil) {
			believed++
			p.onReset(now)
		}
	}
	if believed >= 25 {
		t.Errorf("%d tenths of a second in an hour", believed)
	}
}

func TestALateTimerLooksAtWhatHasArrivedFirst(t *testing.T) {
	w := newWorld(t, 10, settings())
	w.run(200 * time.Millisecond)
	w.download(0, 50, time.Millisecond)
	w.gateway.silent = true
	w.skip(50)
	repair := w.gateway.number(51)
	other := w.gateway.number(50)
	// This host does not run for a second; the repairs wait in its socket.
	w.now = w.now.Add(time.Second)
	w.shim.HandleTimeout(w.now)
	w.receive(repair)
	w.receive(other)
	if figures := w.shim.Statistics(); w.overtaken != 0 || figures.GivenUp != 0 || figures.RepairedInTime < 2 || len(w.deliveries) != 53 {
		t.Errorf("given up: %s", w.said())
	}
}
