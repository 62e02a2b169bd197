package packrat

import (
	"bytes"
	"net"
	"syscall"
	"testing"
	"time"
)

// bundlingConn is a socket of whose peer's download acknowledgements wait for others, and that peer.
func bundlingConn(t *testing.T) (*Conn, *net.UDPConn, *net.UDPAddr) {
	t.Helper()
	conn, server, to := numberingConn(t)
	raw, err := server.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_RECVTOS, 1)
	}); err != nil {
		t.Fatal(err)
	}
	p := conn.peers[unmapped(to.AddrPort())]
	shim := p.shim
	shim.session.upward, shim.session.bundles = nil, true
	// The client has sent an eACK.
	shim.session.scheduler = scheduler{lastSent: time.Now()}
	shim.balance, shim.wholePath = balance{down: 60_000}, wholePath{time.Now(), true, toServerRoundTrip}
	shim.destinations.shakeHands("\x01\x01\x01\x01")
	shim.bundling = &bundling{wait: wait{step: waitSteps, backoff: firstBackoff}}
	p.last.Condition = Assisted
	return conn, server, to
}

// marked is a control message with an ECN mark.
func marked(mark byte) []byte {
	oob := cut(int(mark))
	at := syscall.CmsgLen(0)
	copy(oob[at-8:], []byte{syscall.IPPROTO_IP, 0, 0, 0, syscall.IP_TOS, 0, 0, 0})
	copy(oob, []byte{byte(syscall.CmsgLen(4))})
	return append(oob[:at], mark, 0, 0, 0, 0, 0, 0, 0)
}

// arriving are the acknowledgements in the next datagram of the program's, and its mark.
func arriving(t *testing.T, server *net.UDPConn) ([][]byte, byte) {
	t.Helper()
	buffer, oob := make([]byte, longestDatagram), make([]byte, oobSize)
	for {
		if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, oobn, _, _, err := server.ReadMsgUDP(buffer, oob)
		if err != nil {
			t.Fatal(err)
		}
		mark := byte(0)
		messages, _ := syscall.ParseSocketControlMessage(oob[:oobn])
		for _, m := range messages {
			if m.Header.Level == syscall.IPPROTO_IP && m.Header.Type == syscall.IP_TOS {
				mark = m.Data[0]
			}
		}
		if datagrams, _, ok := splitBundle(buffer[:n]); ok {
			return datagrams, mark
		}
		if suits(buffer[:n]) {
			return [][]byte{buffer[:n]}, mark
		}
	}
}

func TestWhatLeavesTogetherBearsTheMarkThatItWasSentWithAndIsNotCut(t *testing.T) {
	conn, server, to := bundlingConn(t)
	var sent [][]byte
	for index, oob := range [][]byte{marked(2), append(cut(40), marked(2)...), append(marked(2), cut(40)...), marked(1), nil} {
		sent = append(sent, acknowledgement(1, index))
		if n, oobn, err := conn.WriteMsgUDP(sent[index], oob, to); n != len(sent[index]) || oobn != len(oob) || err != nil {
			t.Fatal(n, oobn, err)
		}
	}
	conn.Close()
	// Datagrams of one mark leave together, unless the host has stopped for longer than they wait.
	marks := []byte{2, 2, 2, 1, 0}
	for came := 0; came < len(sent); {
		datagrams, mark := arriving(t, server)
		for _, datagram := range datagrams {
			if !bytes.Equal(datagram, sent[came]) || mark != marks[came] {
				t.Fatalf("%x arrives as number %d with the mark %d instead of %x with %d", datagram, came, mark, sent[came], marks[came])
			}
			came++
		}
	}
}

func TestWhatBearsTheMark(t *testing.T) {
	repair := append(append(header(typeNumbered), make([]byte, numberLength-controlLength)...), acknowledgement(1, 0)...)
	bundle := joinBundle([][]byte{acknowledgement(1, 0)}, nil)
	message := append(header(typeSealed), 1, 2, 3)
	if !BearsMark(repair) || !BearsMark(bundle) || !BearsMark(acknowledgement(1, 0)) || BearsMark(message) {
		t.Error("a repair, a bundle and a copy bear the transport's mark, and a message does not")
	}
}

func TestAReaderThatWaitsIsWokenForWhatHasToLeave(t *testing.T) {
	conn, server, to := bundlingConn(t)
	ended := make(chan error)
	go func() {
		_, _, err := conn.ReadFrom(make([]byte, 10))
		ended <- err
	}()
	sent := acknowledgement(1, 0)
	if _, err := conn.WriteTo(sent, to); err != nil {
		t.Fatal(err)
	}
	conn.mu.Lock()
	armed, waits := conn.armed, len(conn.peers[unmapped(to.AddrPort())].shim.bundling.waiting) > 0
	conn.mu.Unlock()
	// The host may have stopped for longer than it waits.
	if waits && (armed.IsZero() || armed.After(time.Now().Add(longestWait))) {
		t.Errorf("it wakes at %v", armed)
	}
	if datagrams, _ := arriving(t, server); len(datagrams) != 1 || !bytes.Equal(datagrams[0], sent) {
		t.Errorf("%x arrive", datagrams)
	}
	conn.Close()
	if err := <-ended; err == nil {
		t.Error("something has come")
	}
}

func TestAReaderThatWaitsIsWokenForTheTimersOfWhatIsSent(t *testing.T) {
	conn, server, to := bundlingConn(t)
	conn.mu.Lock()
	p := conn.peers[unmapped(to.AddrPort())]
	p.guard(func(*Shim[mark]) {})
	conn.arm(time.Now())
	if due := p.due; !due.IsZero() || !conn.armed.IsZero() {
		t.Fatalf("timers are set: %v", due)
	}
	conn.mu.Unlock()
	ended := make(chan error)
	go func() {
		_, _, err := conn.ReadFrom(make([]byte, 10))
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond) // it waits by then, most of the time
	if _, err := conn.WriteTo(bytes.Repeat([]byte{0x41}, 400), to); err != nil {
		t.Fatal(err)
	}
	conn.mu.Lock()
	if at := p.wakesAt(time.Now()); !at.IsZero() && (conn.armed.IsZero() || conn.armed.After(at)) {
		t.Errorf("it wakes at %v instead of %v", conn.armed, at)
	}
	conn.mu.Unlock()
	// An eACK asks whether the gateway is there, as no datagram comes back.
	buffer := make([]byte, longestDatagram)
	if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := server.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := decodeControl(buffer[:n]); err == nil && c.kind == typeSealed {
			break
		}
	}
	conn.Close()
	if err := <-ended; err == nil {
		t.Error("something has come")
	}
}

// A sender that is as fast as it gets sets no deadline for each datagram, and does not put off the timers of a reader that waits.
func TestADeadlineIsSetOnceForManyDatagrams(t *testing.T) {
	conn, _, to := bundlingConn(t)
	send := func() time.Time {
		if _, err := conn.WriteTo(bytes.Repeat([]byte{0x41}, 400), to); err != nil {
			t.Fatal(err)
		}
		return conn.armed
	}
	armed, deadlines := send(), 1
	for p := conn.peers[unmapped(to.AddrPort())]; time.Now().Before(p.due.Add(10 * soonest)); {
		next := send()
		if next.After(armed) {
			t.Fatalf("the reader is woken %v later", next.Sub(armed))
		}
		if next.Before(armed) {
			armed, deadlines = next, deadlines+1
		}
	}
	if deadlines > 4 {
		t.Errorf("%d deadlines", deadlines)
	}
}
