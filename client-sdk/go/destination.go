package packrat

import "bytes"

// longestID is the length of the longest connection ID of QUIC, version 1.
const longestID = 20

// destination is the connection ID that a QUIC client sends to (RFC 8999), as its datagrams show it.
//
// A client that changes it retires the old one, and a server answers what still comes to a retired one with a
// stateless reset (RFC 9000, section 10.3). A client that takes it for its own loses the connection. So nothing is
// sent to a connection ID again after one that is sent to another.
type destination struct {
	// Its length, which only a long header tells.
	length  int
	isKnown bool
	// That of the newest datagram with a short header; nil: there was none.
	newest []byte
}

// onReceived takes a datagram of the server's: its long header has the length of the server's connection IDs. Of
// other protocols' datagrams it may be anything, which does no harm: isInUse asks for short headers alone.
func (d *destination) onReceived(datagram []byte) {
	if len(datagram) < 6 || datagram[0]&0x80 == 0 {
		return
	}
	at := 6 + int(datagram[5])
	if at < len(datagram) && datagram[at] <= longestID {
		d.length, d.isKnown = int(datagram[at]), true
	}
}

// onSent takes a datagram of the client's. True: it goes to another connection ID than the one before.
func (d *destination) onSent(datagram []byte) bool {
	id, ok := d.of(datagram)
	if !ok || d.newest != nil && bytes.Equal(id, d.newest) {
		return false
	}
	hasChanged := d.newest != nil
	d.newest = append(make([]byte, 0, longestID), id...)
	return hasChanged
}

// isInUse is false if a datagram goes to a connection ID that is no longer used.
func (d *destination) isInUse(datagram []byte) bool {
	id, ok := d.of(datagram)
	return !ok || d.newest == nil || bytes.Equal(id, d.newest)
}

// of is the connection ID of a datagram with a short header.
func (d *destination) of(datagram []byte) ([]byte, bool) {
	if !d.isKnown || len(datagram) <= d.length || datagram[0]&0xc0 != 0x40 {
		return nil, false
	}
	return datagram[1 : 1+d.length], true
}
