package packrat

import (
	"bytes"
	"testing"
)

// scone is a datagram with a SCONE packet of unknown advice in front.
func scone(packets []byte) []byte {
	return append([]byte("\xff\xef\x7d\xc0\xfd\x04dest\x00"), packets...)
}

func TestASconePacketIsSplitOffOnlyAsAWhole(t *testing.T) {
	datagram := scone([]byte("packets"))
	if rest := behindScone(datagram); string(rest) != "packets" || !hasScone(datagram) {
		t.Errorf("%q", rest)
	}
	for length := range len(scone(nil)) {
		if hasScone(datagram[:length]) {
			t.Errorf("%d bytes of it", length)
		}
	}
	for _, other := range []struct {
		at   int
		bits byte
	}{{0, 0x80}, {1, 0x40}, {4, 1}} {
		bent := bytes.Clone(datagram)
		bent[other.at] ^= other.bits
		if hasScone(bent) {
			t.Errorf("another byte %d", other.at)
		}
	}
}

func TestADatagramWithASconePacketLeavesWithoutANumber(t *testing.T) {
	w := uploading(t, 4)
	if w.shim.Send(long(1), w.now) == nil {
		t.Fatal("others have none either")
	}
	if w.shim.Send(scone(long(2)), w.now) != nil {
		t.Error("its advice is hidden")
	}
}

func TestConnectionIDsAreReadBehindASconePacket(t *testing.T) {
	var d destinations
	now := begun()
	d.onReceived(scone(longHeader(quicVersion1, "ab", eight(7))))
	d.onSent(scone(longHeader(quicVersion1, eight(7), "ab")), now)
	if !d.knowsLength() || !d.isInUse(scone(shortHeader(7, 0, 40)), now) {
		t.Error("the handshake's is unknown")
	}
	d.onSent(scone(shortHeader(9, 0, 40)), now)
	if d.isInUse(scone(shortHeader(7, 0, 40)), now) {
		t.Error("the left one is in use")
	}
}
