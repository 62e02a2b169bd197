package packrat

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo answers each datagram with itself.
func echo(t *testing.T) *net.UDPAddr {
	t.Helper()
	server, _ := countingEcho(t)
	return server
}

// countingEcho also counts control datagrams.
func countingEcho(t *testing.T) (*net.UDPAddr, *atomic.Int64) {
	t.Helper()
	questions := new(atomic.Int64)
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, longestDatagram)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			if isControl(buffer[:n]) {
				questions.Add(1)
			} else {
				_, _ = server.WriteTo(buffer[:n], from)
			}
		}
	}()
	return server.LocalAddr().(*net.UDPAddr), questions
}

// exchange sends a datagram and gets it back.
func exchange(t *testing.T, conn *Conn, server net.Addr, text string) {
	t.Helper()
	if _, err := conn.WriteTo([]byte(text), server); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, from, err := conn.ReadFrom(buffer)
	if err != nil || string(buffer[:n]) != text || from.String() != server.String() {
		t.Fatalf("%q of %v, %v", buffer[:n], from, err)
	}
}

func TestWithoutAGatewayTheSocketIsASocket(t *testing.T) {
	server, conn := echo(t), wrapped(t, Settings{})
	for range 3 {
		exchange(t, conn, server, "hello")
	}
	statistics, ok := conn.Statistics(server)
	if !ok || statistics.Condition != Asking && statistics.Condition != NoGateway ||
		statistics.SentDatagrams != 3 || statistics.DeliveredBytes != 15 || statistics.ControlBytesSent == 0 {
		t.Errorf("%+v", statistics)
	}
	if _, ok := conn.Statistics(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}); ok {
		t.Error("figures of a peer without any")
	}
	connected, err := net.DialUDP("udp", nil, server)
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	if _, err := Wrap(connected, Settings{}); err == nil {
		t.Error("a connected socket is wrapped")
	}
}

func TestQuestionsLeaveSocketsOfBothFamiliesHoweverAnAddressIsWritten(t *testing.T) {
	for _, local := range []*net.UDPAddr{nil, {IP: net.IPv4(127, 0, 0, 1)}} {
		for _, ip := range []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv4(127, 0, 0, 1).To16()} {
			server, questions := countingEcho(t)
			udp, err := net.ListenUDP("udp", local)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := Wrap(udp, Settings{})
			if err != nil {
				t.Fatal(err)
			}
			to := &net.UDPAddr{IP: ip, Port: server.Port}
			for questions.Load() == 0 { // each round trip is later than the question before it
				if _, err := conn.WriteTo([]byte("hello"), to); err != nil {
					t.Fatal(err)
				}
				if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				if _, _, err := conn.ReadFrom(make([]byte, 10)); err != nil {
					t.Fatal(err)
				}
				if statistics, ok := conn.Statistics(to); !ok || statistics.SentDatagrams > 1000 {
					t.Fatalf("no question arrives from %v to %v: %+v", local, []byte(ip), statistics)
				}
			}
			conn.Close()
		}
	}
}

func TestDeadlinesAreTheProgramsAlthoughShimsHaveTimers(t *testing.T) {
	server, conn := echo(t), wrapped(t, Settings{})
	exchange(t, conn, server, "hello")
	expect := func(what string) {
		t.Helper()
		_, _, err := conn.ReadFrom(make([]byte, 10))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("%s: %v", what, err)
		}
	}
	begun := time.Now()
	if err := conn.SetReadDeadline(begun.Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	expect("a deadline behind some timers")
	if waited := time.Since(begun); waited < 200*time.Millisecond {
		t.Errorf("it ended after %v", waited)
	}
	expect("a deadline that is over")
	if err := conn.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, server, "without one again")

	// A reader that waits already hears of a deadline, and of the end.
	done := make(chan error)
	read := func() {
		_, _, err := conn.ReadFrom(make([]byte, 10))
		done <- err
	}
	go read()
	time.Sleep(20 * time.Millisecond)
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the reader gets %v", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go read()
	time.Sleep(20 * time.Millisecond)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the reader gets %v", err)
	}
}

func TestASocketThatIsConnectedIsRefused(t *testing.T) {
	udp, err := net.DialUDP("udp", nil, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := Wrap(udp, Settings{}); !errors.Is(err, ErrConnected) {
		t.Error(err)
	}
}

func TestATokenThatIsSetLaterIsForOldPeersAndNewOnes(t *testing.T) {
	server, conn := echo(t), wrapped(t, Settings{})
	exchange(t, conn, server, "hello")
	if err := conn.SetAccess([]byte("token"), nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetAccess(make([]byte, 201), nil); !errors.Is(err, ErrTokenTooLong) {
		t.Error(err)
	}
	exchange(t, conn, echo(t), "hello")
	conn.mu.Lock()
	defer conn.mu.Unlock()
	for addr, p := range conn.peers {
		if token := string(p.shim.discovery.params.token); token != "token" {
			t.Errorf("%v: %q", addr, token)
		}
	}
}

func TestAShimThatFailsIsPutAwayAndDatagramsPass(t *testing.T) {
	var records bytes.Buffer
	server, conn := echo(t), wrapped(t, Settings{Logger: slog.New(slog.NewTextHandler(&records, nil))})
	exchange(t, conn, server, "hello")
	conn.mu.Lock()
	for _, p := range conn.peers {
		p.shim.discovery = nil // it panics from here on
	}
	conn.mu.Unlock()
	exchange(t, conn, server, "all the same")
	exchange(t, conn, server, "and once more")
	if statistics, _ := conn.Statistics(server); statistics.Condition != Failed {
		t.Errorf("%+v", statistics)
	}
	for _, part := range []string{"level=INFO", "condition=asking", "level=ERROR", "peer=" + server.String()} {
		if !strings.Contains(records.String(), part) {
			t.Errorf("%s is not in the log: %s", part, &records)
		}
	}
}

// asNumbered is a datagram as a gateway numbers it.
func asNumbered(text string) []byte {
	return append([]byte{magic[0], magic[1], magic[2], magic[3], version<<4 | byte(typeNumbered), 0, 0, 7}, text...)
}

// saying is a peer that answers the first datagram with the given datagrams.
func saying(t *testing.T, datagrams ...[]byte) *net.UDPAddr {
	t.Helper()
	peer, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	go func() {
		buffer := make([]byte, longestDatagram)
		for {
			n, from, err := peer.ReadFrom(buffer)
			if err != nil {
				return
			}
			if !isControl(buffer[:n]) {
				for _, datagram := range datagrams {
					_, _ = peer.WriteTo(datagram, from)
				}
			}
		}
	}()
	return peer.LocalAddr().(*net.UDPAddr)
}

// expectAll reads these, in this order.
func expectAll(t *testing.T, conn *Conn, texts ...string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	for _, text := range texts {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil || string(buffer[:n]) != text {
			t.Fatalf("%q instead of %q, %v", buffer[:n], text, err)
		}
	}
}

// A gateway numbers until it learns that its session is over: the program must not see its numbers.
func TestAfterAFailureNumbersComeOffAndWhatWaitedComesOut(t *testing.T) {
	report := append(header(typeSealed), make([]byte, 30)...)
	server := saying(t, asNumbered("numbered"), report, []byte("plain"))
	conn := wrapped(t, Settings{})
	if _, err := conn.WriteTo([]byte("hello"), server); err != nil {
		t.Fatal(err)
	}
	conn.mu.Lock()
	for _, p := range conn.peers {
		p.from = server
		p.shim.release.keep(2, []byte("the second"), mark{})
		p.shim.release.keep(1, []byte("the first"), mark{})
		p.guard(func(*Shim[mark]) { panic("as the test wants it") })
	}
	conn.mu.Unlock()
	expectAll(t, conn, "the first", "the second", "numbered", "plain")
	if statistics, _ := conn.Statistics(server); statistics.Condition != Failed {
		t.Errorf("%+v", statistics)
	}
}

func TestADatagramOverWhichAShimFailsPassesOnceAndWithoutItsNumber(t *testing.T) {
	server := saying(t, asNumbered("numbered"), []byte("plain"))
	conn := wrapped(t, Settings{})
	if _, err := conn.WriteTo([]byte("hello"), server); err != nil {
		t.Fatal(err)
	}
	conn.mu.Lock()
	for _, p := range conn.peers {
		p.shim.places = &places{}
		p.shim.session = &session{} // it panics over the next datagram
	}
	conn.mu.Unlock()
	expectAll(t, conn, "numbered", "plain")
	if statistics, _ := conn.Statistics(server); statistics.Condition != Failed {
		t.Errorf("%+v", statistics)
	}
}

func TestAPeerThatHasMadeRoomIsStillNumberedAndOneThatIsHeardMakesNone(t *testing.T) {
	server := saying(t, asNumbered("numbered"), []byte("plain"))
	conn := wrapped(t, Settings{})
	send := func(to net.Addr) {
		t.Helper()
		if _, err := conn.WriteTo([]byte("hello"), to); err != nil {
			t.Fatal(err)
		}
	}
	send(server)
	expectAll(t, conn, string(asNumbered("numbered")), "plain") // there never was a session
	age := func(used time.Duration) {
		conn.mu.Lock()
		for _, p := range conn.peers {
			p.used = time.Now().Add(-used)
		}
		conn.mu.Unlock()
	}
	age(idle)
	send(server)
	age(idle)
	expectAll(t, conn, string(asNumbered("numbered")), "plain")
	for at := range mostPeers - 1 {
		send(&net.UDPAddr{IP: net.IPv4(127, 0, 3, byte(at)), Port: 9})
	}
	another := &net.UDPAddr{IP: net.IPv4(127, 0, 4, 1), Port: 9}
	send(another)
	if _, ok := conn.Statistics(server); !ok {
		t.Error("a peer that is heard makes room")
	}
	age(idle)
	conn.mu.Lock()
	if p := conn.peers[unmapped(server.AddrPort())]; p != nil {
		p.used = time.Time{}
	}
	conn.mu.Unlock()
	send(another)
	if _, ok := conn.Statistics(server); ok {
		t.Error("an idle peer makes no room")
	}
	// It is not among the peers now, nor is there a session when it is one again.
	if _, err := conn.udp.WriteTo([]byte("hello"), server); err != nil {
		t.Fatal(err)
	}
	expectAll(t, conn, "numbered", "plain")
	age(idle)
	send(server)
	expectAll(t, conn, "numbered", "plain")
}

func TestManyUseASocketAtTheSameTimeAndWithManyPeers(t *testing.T) {
	server, conn := echo(t), wrapped(t, Settings{})
	var writers, readers sync.WaitGroup
	for range 3 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for at := range 50 {
				_, _ = conn.WriteTo([]byte("hello"), server)
				_, _ = conn.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(at)), Port: 9})
				_, _ = conn.Statistics(server)
			}
		}()
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				if _, _, err := conn.ReadFrom(make([]byte, 10)); err != nil {
					return
				}
			}
		}()
	}
	writers.Wait()
	for at := range mostPeers + 10 {
		_, _ = conn.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.IPv4(127, 0, 2, byte(at)), Port: 9})
	}
	conn.mu.Lock()
	peers := len(conn.peers)
	conn.mu.Unlock()
	if peers != mostPeers {
		t.Errorf("%d peers", peers)
	}
	conn.OnNetworkChange()
	conn.Close()
	readers.Wait()
}
