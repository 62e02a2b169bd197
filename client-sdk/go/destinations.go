package packrat

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"
)

const (
	// longestID is the length of the longest connection ID of QUIC, versions 1 and 2.
	longestID = 20
	// Versions whose long headers have the server's connection ID (RFC 9000, section 17.2; RFC 9369).
	quicVersion1 = 1
	quicVersion2 = 0x6b3343cf
	// Connection IDs to remember: IDs that the client has sent to, and IDs offered by handshakes.
	mostUsed    = 8
	mostOffered = 4
	// Longest pause of a connection, among several, during which its datagrams are still sent again.
	longestPause = time.Second
)

// destinations are the connection IDs that QUIC clients send to (RFC 8999), as read from their datagrams.
//
// A client that changes its connection ID retires the old one, and a server answers datagrams to a retired one with a
// stateless reset (RFC 9000, section 10.3). A client that accepts this reset loses the connection, which is worse
// than a missing repair. But a socket may have several connections to one server, and no datagram identifies its
// connection. Therefore each new connection ID puts all others in doubt, as it may replace any of them. An ID that is
// used again after that was not replaced: it belongs to another connection.
//
//	                                  another one is new
//	new, sent to last ---> in use ----------------------> in doubt: nothing is sent again
//	                         ^                               |
//	                         +------ sent to once more ------+
//
// A connection may try a new path with its new connection ID and use both until it retires the old one. Therefore an
// ID that was not used for a while is also out of use.
type destinations struct {
	// The last one first.
	used []usedID
	// IDs of the server's long headers that the client has not sent to. They may be forged.
	offered [][]byte
	// Length of the last handshake's connection ID, which the following IDs share.
	length int
}

// usedID is a connection ID that the client has sent to.
type usedID struct {
	id      []byte
	at      time.Time
	inDoubt bool
}

// onReceived takes a datagram of the server. If it has a long header of QUIC, the header offers a connection ID. The
// ID is believed once the client sends a long header to it: a forged ID is harmless.
func (d *destinations) onReceived(datagram []byte) {
	_, id, ok := splitLongHeader(datagram)
	if !ok || len(id) > longestID || d.offeredAs(id) >= 0 ||
		slices.ContainsFunc(d.used, func(used usedID) bool { return bytes.Equal(used.id, id) }) {
		return
	}
	if len(d.offered) == mostOffered {
		d.offered = slices.Delete(d.offered, 0, 1)
	}
	d.offered = append(d.offered, bytes.Clone(id))
}

func (d *destinations) offeredAs(id []byte) int {
	return slices.IndexFunc(d.offered, func(offered []byte) bool { return bytes.Equal(offered, id) })
}

// onSent takes a datagram of the client's.
func (d *destinations) onSent(datagram []byte, now time.Time) {
	if id, _, ok := splitLongHeader(datagram); ok {
		if at := d.offeredAs(id); at >= 0 {
			d.offered = slices.Delete(d.offered, at, at+1)
			d.length = len(id)
			d.begin(id, now)
		}
	} else if rest, ok := behindShortHeader(datagram); ok {
		if at := d.find(rest); at >= 0 {
			id := d.used[at].id
			copy(d.used[1:at+1], d.used[:at])
			d.used[0] = usedID{id: id, at: now}
		} else if d.knowsLength() && len(rest) >= d.length {
			d.begin(rest[:d.length], now)
		}
	}
}

// begin takes a connection ID that is sent to for the first time.
func (d *destinations) begin(id []byte, now time.Time) {
	for at := range d.used {
		d.used[at].inDoubt = true
	}
	d.used = d.used[:min(len(d.used), mostUsed-1)]
	d.used = slices.Insert(d.used, 0, usedID{id: bytes.Clone(id), at: now})
}

// knowsLength is true if a handshake of QUIC has passed.
func (d *destinations) knowsLength() bool { return len(d.used) > 0 }

// isInUse is false if a datagram goes to a connection ID that may be retired.
func (d *destinations) isInUse(datagram []byte, now time.Time) bool {
	rest, ok := behindShortHeader(datagram)
	if !ok || !d.knowsLength() {
		return true
	}
	at := d.find(rest)
	return at == 0 || at > 0 && !d.used[at].inDoubt && now.Sub(d.used[at].at) < longestPause
}

func (d *destinations) find(rest []byte) int {
	return slices.IndexFunc(d.used, func(used usedID) bool { return bytes.HasPrefix(rest, used.id) })
}

func behindShortHeader(datagram []byte) ([]byte, bool) {
	datagram = behindScone(datagram)
	if len(datagram) == 0 || datagram[0]&0xc0 != 0x40 {
		return nil, false
	}
	return datagram[1:], true
}

// splitLongHeader returns the destination and source connection IDs of a long header.
func splitLongHeader(datagram []byte) (destination, source []byte, ok bool) {
	datagram = behindScone(datagram)
	if len(datagram) < 6 || datagram[0]&0x80 == 0 {
		return nil, nil, false
	}
	if of := binary.BigEndian.Uint32(datagram[1:]); of != quicVersion1 && of != quicVersion2 {
		return nil, nil, false
	}
	at := 6 + int(datagram[5])
	if at >= len(datagram) || at+1+int(datagram[at]) > len(datagram) {
		return nil, nil, false
	}
	return datagram[6:at], datagram[at+1 : at+1+int(datagram[at])], true
}
