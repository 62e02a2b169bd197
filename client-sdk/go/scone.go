package packrat

import "encoding/binary"

const (
	// sconeVersion is the version of SCONE packets, with the bit of the advice in it set to 0.
	sconeVersion = 0x6f7dc0fd
	// sconeAdviceBit is the bit of the version that belongs to the advice.
	sconeAdviceBit = 1 << 31
)

// behindScone is a datagram without the SCONE packet in front (draft-ietf-scone-protocol-08): a long header in which
// networks on the path write their advice about the rate, so that it differs at the two ends.
func behindScone(datagram []byte) []byte {
	if len(datagram) < 7 || datagram[0]&0x80 == 0 ||
		binary.BigEndian.Uint32(datagram[1:])&^sconeAdviceBit != sconeVersion {
		return datagram
	}
	rest := datagram[5:]
	for range 2 { // Connection IDs: the destination's and the source's.
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return datagram
		}
		rest = rest[1+int(rest[0]):]
	}
	return rest
}

// hasScone is true if a datagram begins with a SCONE packet.
func hasScone(datagram []byte) bool { return len(behindScone(datagram)) < len(datagram) }
