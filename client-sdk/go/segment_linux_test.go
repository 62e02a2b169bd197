package packrat

import (
	"bytes"
	"encoding/binary"
	"net"
	"syscall"
	"testing"
	"time"
)

// numberingConn is a socket whose peer has a session with numbers towards the server, and that peer.
func numberingConn(t *testing.T) (*Conn, *net.UDPConn, *net.UDPAddr) {
	t.Helper()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	conn := wrapped(t, Settings{Uploads: true})
	to := server.LocalAddr().(*net.UDPAddr)
	if _, err := conn.WriteTo([]byte("hello"), to); err != nil {
		t.Fatal(err)
	}
	params := gatewayParams{scheme: Payload, powerSums: 64, numbered: numbered{toServer, 65_535}}
	session, err := newSession(&established{params: params}, nil, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conn.peers[unmapped(to.AddrPort())].shim.session = session
	return conn, server, to
}

// next is the next datagram that the server gets and that is the program's, and its place; -1: it has no number.
func next(t *testing.T, server *net.UDPConn) ([]byte, int) {
	t.Helper()
	buffer := make([]byte, longestDatagram)
	for {
		if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := server.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		masked, base, ok := splitNumber(buffer[:n])
		if ok {
			params := gatewayParams{}
			value := identifierKeyOf(params.secret).identify(materialOf(Payload, base))
			return base, int(upwardNumberKeyOf(params.secret).place(masked, value, 0))
		}
		if !isControl(base) && string(base) != "hello" {
			return base, -1
		}
	}
}

// cut is the control message that asks for segments.
func cut(length int) []byte {
	oob := make([]byte, syscall.CmsgSpace(2))
	header := syscall.CmsgLen(2)
	if len(oob) == 24 { // of a system with 64 bits
		binary.NativeEndian.PutUint64(oob, uint64(header))
	} else {
		binary.NativeEndian.PutUint32(oob, uint32(header))
	}
	at := syscall.CmsgLen(0)
	binary.NativeEndian.PutUint32(oob[at-8:], syscall.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(oob[at-4:], udpSegment)
	binary.NativeEndian.PutUint16(oob[at:], uint16(length))
	return oob
}

func TestEachDatagramThatTheSystemCutsHasItsNumber(t *testing.T) {
	conn, server, to := numberingConn(t)
	var sent [][]byte
	for at := range 5 {
		sent = append(sent, bytes.Repeat([]byte{byte('a' + at)}, 1200))
	}
	sent[4] = sent[4][:700]
	oob := cut(1200)
	n, oobn, err := conn.WriteMsgUDP(bytes.Join(sent, nil), oob, to)
	if err != nil || n != 4*1200+700 || oobn != len(oob) || segmentOf(oob) != 1200 {
		t.Fatalf("%d and %d of %d bytes, %v", n, oobn, len(oob), err)
	}
	for at, want := range sent {
		if base, place := next(t, server); place != at || !bytes.Equal(base, want) {
			t.Errorf("%d comes with the place %d, and %d bytes %q...", at, place, len(base), base[:4])
		}
	}
	// One datagram may be too long for a number.
	conn.peers[unmapped(to.AddrPort())].shim.session.upward.largest = 1000
	if n, _, err := conn.WriteMsgUDP(bytes.Join(sent[3:], nil), oob, to); n != 1900 || err != nil {
		t.Fatal(n, err)
	}
	for at, want := range [][]byte{sent[3], sent[4]} {
		if base, place := next(t, server); place != []int{-1, 5}[at] || !bytes.Equal(base, want) {
			t.Errorf("place %d, and %d bytes", place, len(base))
		}
	}
	if statistics, _ := conn.Statistics(to); statistics.SentDatagrams != 8 || statistics.UpwardNumbered != 6 {
		t.Errorf("%+v", statistics)
	}
}

func TestADatagramThatTheLinkRefusesWithItsNumberLeavesWithout(t *testing.T) {
	conn, server, to := numberingConn(t)
	for _, length := range []int{65_500, 65_501, 1200} {
		if n, err := conn.WriteTo(make([]byte, length), to); n != length || err != nil {
			t.Fatal(length, n, err)
		}
		base, place := next(t, server)
		if isLong := length > 65_499; len(base) != length || (place < 0) != isLong {
			t.Errorf("of %d bytes %d come with the place %d", length, len(base), place)
		}
	}
	if statistics, _ := conn.Statistics(to); statistics.UpwardNumbered != 2 {
		t.Errorf("the second one has got a number, too: %+v", statistics)
	}
}
