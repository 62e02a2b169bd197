package packrat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// longHeader is a datagram with a long header of this version, to one connection ID and from another.
func longHeader(of uint32, to, from string) []byte {
	return fmt.Appendf(binary.BigEndian.AppendUint32([]byte{0xc0}, of), "%c%s%c%s", len(to), to, len(from), from)
}

// shakeHands is the handshake of a server with this connection ID.
func (d *destinations) shakeHands(id string) {
	d.onReceived(longHeader(quicVersion1, "ab", id))
	d.onSent(longHeader(quicVersion1, id, "ab"), begun())
}

// shortHeader is a datagram of this length to a connection ID of eight bytes.
func shortHeader(id byte, index, length int) []byte {
	datagram := bytes.Repeat([]byte{byte(index)}, length)
	copy(datagram, append([]byte{0x41}, bytes.Repeat([]byte{id}, 8)...))
	return datagram
}

func eight(id byte) string { return string(bytes.Repeat([]byte{id}, 8)) }

// sentTo are the connection IDs that the client has sent to in this order, one each millisecond, after the handshake of
// the first.
func sentTo(ids ...byte) *destinations {
	var d destinations
	d.shakeHands(eight(ids[0]))
	for at, id := range ids {
		d.onSent(shortHeader(id, 1, 40), begun().Add(time.Duration(at)*time.Millisecond))
	}
	return &d
}

func TestAConnectionIDIsOutOfUseWhenAnotherOneIsNewUntilItIsSentToAgain(t *testing.T) {
	for _, c := range []struct{ sent, inUse []byte }{
		{[]byte{1}, []byte{1}},
		{[]byte{1, 1, 2}, []byte{2}},
		{[]byte{1, 2, 1}, []byte{1, 2}},
		{[]byte{1, 2, 1, 2, 3}, []byte{3}},
		{[]byte{1, 2, 1, 2, 3, 2, 3}, []byte{2, 3}},
		{[]byte{1, 2, 1, 3, 1, 2}, []byte{1, 2, 3}},
	} {
		d, now := sentTo(c.sent...), begun().Add(10*time.Millisecond)
		for id := byte(1); id < 5; id++ {
			if isInUse := d.isInUse(shortHeader(id, 9, 40), now); isInUse != bytes.Contains(c.inUse, []byte{id}) {
				t.Errorf("%v: %d is in use: %v", c.sent, id, isInUse)
			}
		}
		if !d.isInUse(longHeader(quicVersion1, eight(1), ""), now) {
			t.Error("a handshake's are ignored, not reset")
		}
	}
}

func TestWhatIsNotSentToForAWhileIsOutOfUseBesideWhatIs(t *testing.T) {
	d, late := sentTo(1, 2, 1, 2), begun().Add(2*time.Millisecond+longestPause)
	if !d.isInUse(shortHeader(1, 9, 40), late.Add(-time.Millisecond)) || d.isInUse(shortHeader(1, 9, 40), late) {
		t.Error("sooner or later")
	}
	if !d.isInUse(shortHeader(2, 9, 40), late.Add(longestPause)) {
		t.Error("the last one is")
	}
}

func TestMoreConnectionsThanAreRememberedSendNothingAgainButOfTheLast(t *testing.T) {
	for connections, want := range map[int]int{mostUsed: mostUsed, mostUsed + 1: 1} {
		var ids []byte
		for at := range 2 * connections {
			ids = append(ids, byte(at%connections))
		}
		d, inUse := sentTo(ids...), 0
		for id := range connections {
			if d.isInUse(shortHeader(byte(id), 9, 40), begun().Add(50*time.Millisecond)) {
				inUse++
			}
		}
		if inUse != want {
			t.Errorf("%d of %d are in use", inUse, connections)
		}
	}
}

func TestAConnectionIDIsBelievedOnceTheClientsHandshakeGoesToIt(t *testing.T) {
	for _, of := range []uint32{quicVersion1, quicVersion2} {
		var d destinations
		now := begun()
		offer := func() {
			// The client sends to no forged ID, before or after.
			for _, id := range []string{"", "\x07\x07", eight(7) + eight(7), eight(7)} {
				d.onReceived(longHeader(of, "ab", id))
			}
		}
		d.onSent(longHeader(of, "drawn by the client", "ab"), now)
		offer()
		d.onSent(shortHeader(7, 1, 40), now)
		if d.knowsLength() {
			t.Error("it may be any protocol's")
		}
		d.onSent(longHeader(of, eight(7), "ab"), now)
		offer()
		// A client may leave the handshake's ID before a short header goes there.
		d.onSent(shortHeader(9, 1, 40), now)
		d.onSent(shortHeader(9, 2, 40), now)
		if len(d.used) != 2 || string(d.used[0].id) != eight(9) || d.isInUse(shortHeader(7, 1, 40), now) {
			t.Errorf("%+v", d.used)
		}
	}
}

func TestConnectionsHaveConnectionIDsOfTheirOwnLengths(t *testing.T) {
	d, now := sentTo(7), begun()
	d.shakeHands("five.")
	for index := range 4 {
		d.onSent(shortHeader(7, index, 40), now)
		d.onSent(fmt.Appendf(nil, "Afive.%d and more", index), now)
	}
	if len(d.used) != 2 || !d.isInUse(shortHeader(7, 9, 40), now) {
		t.Errorf("%+v", d.used)
	}
}

func TestServersWithoutConnectionIDsAndOtherProtocolsHaveNoneOutOfUse(t *testing.T) {
	isAnyOutOfUse := func(d *destinations, other []byte) bool {
		d.onReceived(other)
		for _, id := range []byte{7, 9} {
			d.onSent(other, begun())
			d.onSent(shortHeader(id, 1, 40), begun())
		}
		return !d.isInUse(shortHeader(7, 1, 40), begun()) || !d.isInUse(shortHeader(9, 1, 40), begun())
	}
	var empty destinations
	if isAnyOutOfUse(&empty, longHeader(quicVersion1, "", "")) || !empty.knowsLength() {
		t.Error("an empty one is out of use")
	}
	whole, long := longHeader(quicVersion1, eight(7), eight(7)), "longer than any that is one"
	for _, other := range [][]byte{longHeader(0x12345678, eight(7), eight(7)), longHeader(0, eight(7), eight(7)),
		longHeader(quicVersion1, long, long), whole[:len(whole)-1], {0xc0, 0, 0, 0, 1, 200, 1}, {0x80}, nil} {
		var d destinations
		if isAnyOutOfUse(&d, other) || d.knowsLength() {
			t.Errorf("%x is a handshake", other)
		}
	}
}

// miss reports all of the first numbered datagrams but these as arrived, and returns the repeated ones.
func (w *world) miss(from, to, expected int) (again []byte) {
	out := binary.BigEndian.AppendUint32([]byte{messageHoles, 1}, uint32(expected))
	out = binary.BigEndian.AppendUint16(out, encodeAge(0))
	out = binary.BigEndian.AppendUint16(out, uint16(expected-to))
	out = binary.BigEndian.AppendUint16(out, uint16(to-from))
	sealed, _, err := w.gateway.seals.seal(out)
	if err != nil {
		w.t.Fatal(err)
	}
	w.shim.Receive(sealed, 0, w.now)
	for datagram := w.shim.Transmit(w.now); datagram != nil; datagram = w.shim.Transmit(w.now) {
		if _, base, ok := splitNumber(datagram); ok {
			again = append(again, base[len(base)-1])
		}
	}
	return again
}

func TestTwoConnectionsGetTheRepairsOfBothButNotToAConnectionIDThatIsLeft(t *testing.T) {
	for _, c := range []struct {
		sent        []byte
		from, until int
		again       []byte
	}{
		{[]byte{1, 2, 1, 2, 1, 2, 1, 2}, 4, 6, []byte{4, 5}},
		{[]byte{1, 2, 1, 2, 3, 2, 3}, 2, 5, []byte{3, 4}},
		{[]byte{1, 1, 2}, 0, 3, []byte{2}},
	} {
		w := uploading(t, 4)
		w.shim.destinations.shakeHands(eight(1))
		w.loss = 1
		for index, id := range c.sent {
			if w.shim.Send(shortHeader(id, index, 500), w.now) == nil {
				t.Fatal("it has no number")
			}
		}
		w.now = w.now.Add(50 * time.Millisecond)
		if again := w.miss(c.from, c.until, len(c.sent)); !bytes.Equal(again, c.again) {
			t.Errorf("%v: %v come again", c.sent, again)
		}
	}
}

func TestAForgedLongHeaderCostsNoRepair(t *testing.T) {
	for _, forged := range []string{eight(7) + eight(7), "a connection ID of 20", "four", "\x07", ""} {
		w := uploading(t, 4)
		w.loss = 1
		w.shim.destinations.shakeHands(eight(7))
		for index := range 10 {
			w.shim.Send(shortHeader(7, index, 500), w.now)
			w.shim.destinations.onReceived(longHeader(quicVersion1, "ab", forged))
		}
		w.now = w.now.Add(50 * time.Millisecond)
		if again := w.miss(3, 4, 10); !bytes.Equal(again, []byte{3}) {
			t.Errorf("%q: %v come again", forged, again)
		}
	}
}

func TestWhatWaitsLeavesAlsoBehindAnotherConnection(t *testing.T) {
	w := withWaiting(t)
	big := func(id byte) []byte { return append(acknowledgement(id, 9999), make([]byte, 400)...) }
	for _, id := range []byte{2, 1, 2} {
		w.shim.Send(big(id), w.now)
		w.drain()
	}
	w.run(6 * time.Millisecond) // on the last mile
	w.acknowledged = nil
	sent := [][]byte{acknowledgement(1, 5000), acknowledgement(1, 5001)}
	for _, datagram := range sent {
		if !w.shim.Bundle(datagram, w.now) {
			t.Fatal("it is not taken")
		}
	}
	w.shim.Send(big(2), w.now)
	w.drain()
	w.run(6 * time.Millisecond)
	if len(w.acknowledged) != 2 || !bytes.Equal(w.acknowledged[0], sent[0]) || !bytes.Equal(w.acknowledged[1], sent[1]) {
		t.Errorf("%x arrive", w.acknowledged)
	}
}

func TestNothingOfAnotherProtocolIsTaken(t *testing.T) {
	w := withWaiting(t)
	for _, of := range []uint32{quicVersion1, 0x5eed1234} {
		w.shim.destinations = destinations{}
		w.shim.destinations.onReceived(longHeader(of, "ab", eight(3)))
		w.shim.Send(shortHeader(7, 0, 400), w.now)
		if w.shim.Bundle(shortHeader(7, 1, 40), w.now) {
			t.Error("it is taken")
		}
	}
}
