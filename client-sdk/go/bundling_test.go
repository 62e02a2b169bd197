package packrat

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

const (
	toServerRoundTrip = 60 * time.Millisecond
	// Datagrams of the server that the transport acknowledges at once.
	perAcknowledgement = 2
)

// acknowledgement is a datagram with a short header to a connection ID of four bytes.
func acknowledgement(id byte, index int) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0x41, id, id, id, id}, uint32(index))
	return append(out, make([]byte, 21)...)
}

// send sends a datagram from the transport, as a program that asks for bundles.
func (w *world) send(datagram []byte) {
	if !w.shim.Bundle(datagram, w.now) {
		w.shim.Send(datagram, w.now)
		w.drain()
		w.sent++
		w.travel(func() {
			if suits(datagram) {
				w.acknowledged = append(w.acknowledged, datagram)
			}
		})
		return
	}
	w.drain()
}

// acknowledging is a client with a session, whose transport has begun a download.
func acknowledging(t *testing.T, prepare func(*world)) *world {
	t.Helper()
	w := newWorld(t, 3, settings())
	prepare(w)
	w.send(append([]byte{0xc0}, make([]byte, 1200)...))
	w.run(toServerRoundTrip)
	w.shim.destinations.shakeHands("\x01\x01\x01\x01")
	w.forward(0)
	w.run(200 * time.Millisecond)
	if w.shim.session == nil {
		t.Fatal("no session")
	}
	return w
}

// fetch forwards datagrams, one each millisecond, and acknowledges them.
func (w *world) fetch(from, count int) (sent [][]byte) {
	for index := from; index < from+count; index++ {
		w.forward(index)
		w.run(time.Millisecond)
		if index%perAcknowledgement == 0 {
			sent = append(sent, acknowledgement(1, index))
			w.send(sent[len(sent)-1])
		}
	}
	return sent
}

func TestAcknowledgementsOfADownloadLeaveTogetherAllAndInTheirOrder(t *testing.T) {
	w := acknowledging(t, func(*world) {})
	before, eacks := w.sent, w.eacks
	sent := w.fetch(1, 3000)
	w.run(100 * time.Millisecond)
	alone := len(sent) + w.eacks - eacks
	if leave := w.sent - before; leave*3 > alone {
		t.Errorf("%d datagrams leave instead of %d", leave, alone)
	}
	if !slices.EqualFunc(w.acknowledged, sent, bytes.Equal) {
		t.Errorf("%d of %d arrive, or in another order", len(w.acknowledged), len(sent))
	}
	if figures := w.shim.Statistics(); figures.SentDatagrams != uint64(len(sent))+1 {
		t.Errorf("%+v", figures)
	}
	w.assertNothingIsLost(testHold)
}

func TestNothingLeavesTogetherWithoutAnAgreementOrOfAnUpload(t *testing.T) {
	if w := acknowledging(t, func(w *world) { w.gateway.withoutBundles = true }); w.shim.session.bundles {
		t.Error("the gateway has not agreed")
	}
	for what, change := range map[string]func(*world){
		"without an agreement": func(w *world) { w.shim.session.bundles = false },
		"of an upload":         func(w *world) { w.shim.balance = balance{up: 10_000, down: 10_000} },
		"of a closed shim":     func(w *world) { w.shim.Close(w.now) },
	} {
		w := withWaiting(t)
		change(w)
		if w.shim.Bundle(acknowledgement(1, 0), w.now) {
			t.Errorf("%s one is taken", what)
		}
	}
	w := withWaiting(t)
	w.skip(5000)
	if waits := w.shim.bundling.wait.ofNow(toServerRoundTrip, w.now); waits != 0 {
		t.Errorf("%v behind a loss", waits)
	}
	for _, datagram := range [][]byte{nil, {0x40}, bytes.Repeat([]byte{0x40}, longestBundled+1), bytes.Repeat([]byte{0xc0}, 40),
		bytes.Repeat([]byte{0x16}, 40), header(typeSealed)} {
		if suits(datagram) {
			t.Errorf("%x is taken for an acknowledgement", datagram)
		}
	}
}

func TestAnEACKThatIsDueSoonLeavesWithWhatTheTransportSends(t *testing.T) {
	for _, send := range []func(*world){
		func(w *world) { w.shim.Send(bytes.Repeat([]byte{0x41}, 400), w.now) },
		func(w *world) { w.shim.Bundle(acknowledgement(1, 0), w.now) },
	} {
		w := acknowledging(t, func(*world) {})
		for index := range 100 {
			w.receive(datagramOf(index + 1))
			w.run(100 * time.Microsecond)
		}
		w.run(20 * time.Millisecond)
		w.receive(datagramOf(101))
		eacks := w.eacks
		w.run(every - soon - time.Millisecond)
		send(w)
		w.drain()
		if w.eacks != eacks {
			t.Error("it is not due soon")
		}
		w.run(time.Millisecond)
		send(w)
		w.drain()
		if w.eacks != eacks+1 || w.shim.bundling != nil && len(w.shim.bundling.waiting) > 0 {
			t.Errorf("%d eACKs leave", w.eacks-eacks)
		}
	}
}

// withWaiting is a client of which an acknowledgement waits.
func withWaiting(t *testing.T) *world {
	t.Helper()
	w := acknowledging(t, func(*world) {})
	for from := 1; w.shim.bundling == nil || w.shim.bundling.wait.step < waitSteps || len(w.shim.bundling.waiting) == 0; from += 10 {
		if from > 3000 {
			t.Fatal("none waits")
		}
		w.fetch(from, 10)
	}
	return w
}

func TestWhatWaitsLeavesInTimeAndWithSomethingElseAndAtTheEnd(t *testing.T) {
	for _, end := range []struct {
		what string
		run  func(*world)
	}{
		{"in time", func(w *world) { w.run(longestWait) }},
		{"on request", func(w *world) { w.shim.EndBundle(w.now) }},
		{"in front of a request", func(w *world) {
			if front := w.shim.Send(append(acknowledgement(1, 9999), make([]byte, 400)...), w.now); front != nil {
				w.t.Errorf("%x is in front", front)
			}
		}},
		{"when the connection ends", func(w *world) { w.shim.Close(w.now) }},
		{"when the gateway is lost", func(w *world) { w.shim.lose(0, w.now) }},
	} {
		w := withWaiting(t)
		waits := slices.Clone(w.shim.bundling.waiting)
		if due, until := w.shim.Timeout(), w.now.Add(longestWait); due.After(until) {
			t.Errorf("they wait for %v", due.Sub(w.now))
		}
		end.run(w)
		w.drain()
		if left := len(w.shim.bundling.waiting); left > 0 {
			t.Errorf("%s: %d wait on", end.what, left)
		}
		w.run(6 * time.Millisecond) // on the last mile
		if arrived := w.acknowledged[max(0, len(w.acknowledged)-len(waits)):]; !slices.EqualFunc(arrived, waits, bytes.Equal) {
			t.Errorf("%s: %x arrive of %x", end.what, arrived, waits)
		}
	}
}

func TestNothingLeavesToAConnectionIDThatTheTransportHasLeft(t *testing.T) {
	w := withWaiting(t)
	waits := slices.Clone(w.shim.bundling.waiting)
	w.shim.Send(append(acknowledgement(2, 9999), make([]byte, 400)...), w.now)
	w.drain()
	w.run(100 * time.Millisecond)
	for _, arrived := range w.acknowledged {
		if slices.ContainsFunc(waits, func(datagram []byte) bool { return bytes.Equal(datagram, arrived) }) {
			t.Errorf("%x leaves", arrived)
		}
	}
}

func TestAFullBundleLeavesAtOnceAndALongEACKByItself(t *testing.T) {
	var b bundling
	now := begun()
	datagram := bytes.Repeat([]byte{0x40}, longestBundled)
	for range mostBundled {
		if !b.hasRoom() || b.deadline().Equal(now) {
			t.Fatal("no room")
		}
		b.take(datagram, longestWait, now)
	}
	if b.hasRoom() || !b.deadline().Equal(now) {
		t.Errorf("a full one waits until %v", b.deadline())
	}
	eack := append(header(typeSealed), make([]byte, 500)...)
	if made := b.with(eack); !bytes.Equal(made, eack) {
		t.Errorf("%d bytes are not the eACK", len(made))
	}
	if apart, _, ok := splitBundle(b.alone()); !ok || len(apart) != mostBundled || !b.deadline().IsZero() {
		t.Errorf("%d leave", len(apart))
	}
	b.take(datagram, longestWait, now)
	if alone := b.alone(); !bytes.Equal(alone, datagram) {
		t.Errorf("one that is alone leaves as %x", alone)
	}
}

// pace is a download, and the clock.
type pace struct {
	wait wait
	now  time.Time
}

func newPace() *pace { return &pace{wait{backoff: firstBackoff}, begun()} }

// goesOn delivers this number of datagrams in each of some spans.
func (p *pace) goesOn(spans, datagrams int) time.Duration {
	for range spans * datagrams {
		p.now = p.now.Add(shortestSpan / time.Duration(datagrams))
		p.wait.onReceived(toServerRoundTrip, p.now)
	}
	return p.wait.ofNow(toServerRoundTrip, p.now)
}

func TestAcknowledgementsWaitOnceADownloadIsAsFastAsItGets(t *testing.T) {
	p := newPace()
	for _, datagrams := range []int{20, 40, 80, 160} {
		if waits := p.goesOn(1, datagrams); waits != 0 {
			t.Errorf("%v in slow start", waits)
		}
	}
	if waits := p.goesOn(6, 160); waits != longestWait {
		t.Errorf("%v", waits)
	}
	if waits := p.goesOn(1, 158); waits != longestWait {
		t.Errorf("%v: a few more or less are nothing", waits)
	}
	for roundTrip, want := range map[time.Duration]time.Duration{8 * time.Millisecond: 2 * time.Millisecond, 0: 0} {
		if waits := p.wait.ofNow(roundTrip, p.now); waits != want {
			t.Errorf("%v of a round trip of %v", waits, roundTrip)
		}
	}
}

func TestWhereTheWaitMakesItSlowerThereIsNoneForLongerEachTime(t *testing.T) {
	p, before := newPace(), 0
	p.goesOn(3, 160)
	for range 3 {
		for p.goesOn(1, 160) == 0 {
		}
		if waits := p.goesOn(2, 150); waits != 0 {
			t.Fatalf("%v", waits)
		}
		spans := 1
		for p.goesOn(1, 160) == 0 {
			spans++
		}
		if spans < 4 || spans <= before*3/2 {
			t.Errorf("%d spans after %d", spans, before)
		}
		before = spans
	}
}

func TestALossAPauseOrAThinFlowEndsTheWaitAtOnceAndIsNotItsFault(t *testing.T) {
	for interrupt, run := range []func(*pace){
		func(p *pace) { p.wait.onHole(p.now) },
		func(p *pace) { p.now = p.now.Add(3 * shortestSpan); p.goesOn(1, 160) },
		func(p *pace) { p.goesOn(2, 10) },
	} {
		p := newPace()
		if waits := p.goesOn(8, 160); waits != longestWait {
			t.Fatalf("%v", waits)
		}
		run(p)
		if waits := p.wait.ofNow(toServerRoundTrip, p.now); waits != 0 {
			t.Errorf("%d: %v", interrupt, waits)
		}
		if waits := p.goesOn(9, 160); waits != longestWait {
			t.Errorf("%d: %v a second later", interrupt, waits)
		}
	}
}
