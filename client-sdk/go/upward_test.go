package packrat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// upwards is the gateway's knowledge of numbered datagrams of the client.
type upwards struct {
	key      numberKey
	expected uint64
	arrived  map[uint64]bool
	// A message about holes is due, or one is sent periodically while datagrams are missing.
	isDue bool
	// Datagrams that arrived, by index: with a number, and without.
	numbered, plain map[int]int
	// The gateway does not report missing datagrams, or does not want repairs.
	mute, unwanted bool
	// Datagrams longer than this do not arrive with a number; 0: all do.
	narrow int
	sent   int
}

// long is a datagram of an upload.
func long(index int) []byte {
	return append(datagramOf(index), make([]byte, 1100)...)
}

// upload sends a datagram from the transport, by way of the shim.
func (w *world) upload(index int) { w.uploadOne(long(index)) }

func (w *world) uploadOne(datagram []byte) {
	front := w.shim.Send(datagram, w.now)
	w.gateway.up.sent++
	leaves := append(bytes.Clone(front), datagram...)
	w.travel(func() {
		if masked, base, ok := splitNumber(leaves); ok {
			w.onUpward(masked, base)
		} else {
			w.gateway.up.take(&w.gateway.up.plain, leaves)
		}
	})
	w.drain()
}

func (u *upwards) take(into *map[int]int, datagram []byte) {
	if *into == nil {
		*into = map[int]int{}
	}
	if index, ok := indexOf(datagram); ok {
		(*into)[index]++
	}
}

// onUpward takes a numbered datagram at the gateway.
func (w *world) onUpward(masked uint32, base []byte) {
	g, u := &w.gateway, &w.gateway.up
	if g.gone || u.narrow > 0 && len(base) > u.narrow {
		return
	}
	u.take(&u.numbered, base)
	place := u.key.place(masked, g.key.identify(materialOf(w.shim.params.scheme, base)), u.expected)
	if u.arrived == nil {
		u.arrived = map[uint64]bool{}
	}
	u.arrived[place] = true
	u.expected = max(u.expected, place+1)
	w.tell()
}

// tell reports the missing datagrams, periodically while there are some.
func (w *world) tell() {
	u := &w.gateway.up
	if u.isDue {
		return
	}
	u.isDue = true
	w.after(2*time.Millisecond, func() {
		u.isDue = false
		if u.mute || w.gateway.gone {
			return
		}
		out := append([]byte{messageHoles, 1}, make([]byte, 6)...)
		if u.unwanted {
			out[1] = 0
		}
		binary.BigEndian.PutUint32(out[2:], uint32(u.expected))
		binary.BigEndian.PutUint16(out[6:], encodeAge(2*time.Millisecond))
		above, runs := u.expected, 0
		for place := u.expected; place > 0 && place+1000 > u.expected && runs < mostRuns; place-- {
			if !u.arrived[place-1] {
				out = binary.BigEndian.AppendUint16(out, uint16(above-place))
				out = binary.BigEndian.AppendUint16(out, 1)
				above = place - 1
				runs++
			}
		}
		w.say(out)
		if runs > 0 && !u.unwanted {
			w.tell()
		}
	})
}

func uploading(t *testing.T, seed uint64) *world {
	t.Helper()
	with := settings()
	with.Uploads = true
	w := newWorld(t, seed, with)
	w.run(300 * time.Millisecond)
	if w.shim.session == nil || w.shim.session.upward == nil {
		t.Fatal("nothing is agreed towards the server")
	}
	return w
}

func TestWhatTheGatewayMissesComesAgain(t *testing.T) {
	const count = 2000
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := uploading(t, seed)
			w.loss = float64(seed%4) * 0.05
			w.jitter = time.Duration(seed%3) * time.Millisecond
			for index := range count {
				w.upload(index)
				w.run(time.Millisecond)
			}
			w.run(2 * time.Second)
			u, figures := &w.gateway.up, w.shim.Statistics()
			said := fmt.Sprintf("%d numbered, %d plain arrived: %+v", len(u.numbered), len(u.plain), figures)
			if len(u.numbered)+len(u.plain) != count || len(u.plain) > 0 || figures.UpwardNumbered != count {
				t.Errorf("not all arrive, or not with a number: %s", said)
			}
			lost := w.loss * count
			// Some overtaken datagrams are taken for lost.
			most := 1.3*lost/(1-w.loss) + 20 + 20*w.jitter.Seconds()*1000
			if float64(figures.UpwardMissing) < lost/2 || float64(figures.UpwardRepairs) > most {
				t.Errorf("%.0f lost: %s", lost, said)
			}
			if w.loss == 0 && w.jitter == 0 && figures.UpwardRepairs > 0 {
				t.Errorf("nothing was lost: %s", said)
			}
			if figures.ControlDropped > 0 {
				t.Errorf("a message is dropped: %s", said)
			}
			// The last message may be lost.
			if w.shim.session.upward.bytes > 3*len(long(0)) {
				t.Errorf("%d bytes are kept of what has arrived", w.shim.session.upward.bytes)
			}
		})
	}
}

func TestTheLastDatagramOfAnUploadComesAgain(t *testing.T) {
	w := uploading(t, 3)
	for index := range 100 {
		w.loss = 0
		if index == 99 {
			w.loss = 1
		}
		w.upload(index)
		w.loss = 0
		w.run(time.Millisecond)
	}
	w.run(time.Second)
	if u := &w.gateway.up; u.numbered[99] != 1 || w.shim.Statistics().UpwardRepairs != 1 {
		t.Errorf("it came %d times: %+v", u.numbered[99], w.shim.Statistics())
	}
}

func TestWhatIsNotWantedIsNotSentAgain(t *testing.T) {
	w := uploading(t, 4)
	w.gateway.up.unwanted = true
	w.loss = 0.1
	for index := range 1000 {
		w.upload(index)
		w.run(time.Millisecond)
	}
	// The last datagrams may have come again, as the gateway did not report them.
	if figures := w.shim.Statistics(); figures.UpwardRepairs > 4 || figures.UpwardMissing < 50 {
		t.Errorf("%+v", figures)
	}
}

func TestRepairsKeepToTheirBudget(t *testing.T) {
	w := uploading(t, 5)
	w.loss = 0.7
	for index := range 2000 {
		w.upload(index)
		w.run(time.Millisecond)
	}
	figures := w.shim.Statistics()
	sent := float64(2000 * len(long(0)))
	if repaired := float64(figures.UpwardRepairBytes); repaired < sent/5 || repaired > sent*mostRepairShare*1.05+leastSaved {
		t.Errorf("%.0f bytes again, of %.0f: %+v", repaired, sent, figures)
	}
}

func TestWhereTheGatewayIsNotHeardDatagramsGoPlain(t *testing.T) {
	w := uploading(t, 6)
	for index := range 1000 {
		if index == 100 {
			w.gateway.up.mute, w.gateway.silent = true, true
		}
		w.upload(index)
		w.run(time.Millisecond)
	}
	// Four times one and a half round trips, and 250 ms at least.
	if u := &w.gateway.up; len(u.plain) < 500 || len(u.numbered) < 300 {
		t.Errorf("%d numbered, %d plain", len(u.numbered), len(u.plain))
	}
	if kept := len(w.shim.session.upward.kept); kept > 0 {
		t.Errorf("%d are kept for nobody", kept)
	}
	w.gateway.up.mute, w.gateway.silent = false, false
	w.say(w.report(0))
	w.run(50 * time.Millisecond)
	before := len(w.gateway.up.numbered)
	for index := 1000; index < 1100; index++ {
		w.upload(index)
		w.run(time.Millisecond)
	}
	w.run(time.Second)
	if len(w.gateway.up.numbered)-before < 100 {
		t.Errorf("it is heard again, and nothing is numbered: %+v", w.shim.Statistics())
	}
}

func TestALengthThatDoesNotArriveWithANumberGoesPlain(t *testing.T) {
	w := uploading(t, 7)
	w.gateway.up.narrow = len(datagramOf(0)) + 1000
	for index := range 3000 {
		w.upload(index)
		w.run(time.Millisecond)
		if index%10 == 0 {
			// Something shorter, which shows that the others have not arrived.
			front := w.shim.Send(datagramOf(100_000+index), w.now)
			masked, base, ok := splitNumber(append(bytes.Clone(front), datagramOf(100_000+index)...))
			if ok {
				w.after(5*time.Millisecond, func() { w.onUpward(masked, base) })
			}
		}
	}
	if u := &w.gateway.up; len(u.plain) < 2500 {
		t.Errorf("%d of 3000 arrive: %+v", len(u.plain), w.shim.Statistics())
	}
}

func TestWhatTheLinkRefusesGoesPlainAndIsNotSentAgain(t *testing.T) {
	now := begun()
	p := gatewayParams{numbered: numbered{toServer, 1472}}
	u := newUpward(&p, 10*time.Millisecond, now)
	for place, length := range []int{1200, 1466, 1200} {
		if !u.takes(length, true, now) {
			t.Fatalf("%d has no number", place)
		}
		u.number(make([]byte, length), identifier(place+1), now)
	}
	u.onRefused(1466)
	for length, takes := range map[int]bool{1466: false, 1470: false, 1465: true} {
		if u.takes(length, true, now) != takes {
			t.Errorf("of %d bytes: %v", length, !takes)
		}
	}
	// The gateway misses the refused datagram, and a lost one.
	now = now.Add(100 * time.Millisecond)
	u.onHoles(&holes{wanted: true, expected: 3, runs: []holeRun{{0, 2}}}, now)
	any := func([]byte) bool { return true }
	first := u.poll(any, now)
	if masked, base, ok := splitNumber(first); !ok || len(base) != 1200 || u.key.place(masked, 1, 0) != 0 {
		t.Errorf("%d bytes come again", len(first))
	}
	if u.poll(any, now) != nil {
		t.Error("the refused one comes again")
	}
	// The datagram may fit on another path.
	u.onMove()
	u.isSilent = false
	if !u.takes(1466, true, now) {
		t.Error("by another path, too")
	}
}

func TestShortDatagramsHaveNumbersButForTheAcknowledgementsOfADownload(t *testing.T) {
	const count = 200
	short := func(index int) []byte { return append(datagramOf(index), make([]byte, 120)...) }
	for _, isDownload := range []bool{false, true} {
		w := uploading(t, 4)
		for index := range count {
			w.uploadOne(short(index))
			if isDownload {
				w.forward(2 * index)
				w.receive(long(2*index + 1))
			}
			w.run(20 * time.Millisecond)
		}
		numbered := w.shim.Statistics().UpwardNumbered
		if few := numbered < count/2; few != isDownload || !few && numbered < count*9/10 {
			t.Errorf("%d of %d, in a download: %v", numbered, count, isDownload)
		}
	}
}

func TestWithoutTheSettingNothingIsNumbered(t *testing.T) {
	w := newWorld(t, 1, settings())
	w.run(300 * time.Millisecond)
	if front := w.shim.Send(long(0), w.now); w.shim.session == nil || front != nil {
		t.Errorf("%x in front", front)
	}
}

func TestAClientThatUploadsWaitsForNothing(t *testing.T) {
	w := uploading(t, 8)
	w.download(0, 20, time.Millisecond)
	for index := range 200 {
		w.upload(index)
		w.run(time.Millisecond)
	}
	if w.shim.holds(w.now) {
		t.Error("it holds acknowledgements back")
	}
	for index := 1000; index < 2000; index++ {
		w.forward(index)
		w.run(100 * time.Microsecond)
	}
	if !w.shim.holds(w.now) {
		t.Errorf("it never waits again: %s", w.said())
	}
}
