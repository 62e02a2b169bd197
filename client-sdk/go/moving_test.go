package packrat

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"packrat.dev/packrat/internal/lastmile"
)

// startSeveral starts several servers behind several gateways with one key, and returns the gateways' addresses. Each server answers
// a datagram with its own number, the address that the datagram came from, and the datagram. The function ends them, and returns whether
// the host has never kept them waiting for as long as makes a difference.
func startSeveral(t *testing.T) (gateways []*net.UDPAddr, end func() (isOnTime bool)) {
	t.Helper()
	var begun struct{ Gateways []string }
	endAll := lastmile.Start(t, &begun, "--several")
	for _, gateway := range begun.Gateways {
		gateways = append(gateways, lastmile.Address(t, gateway))
	}
	return gateways, func() bool {
		var figures lastmile.Figures
		endAll(&figures)
		return figures.IsOnTime
	}
}

// nat is a network address translator in front of one client.
type nat struct {
	t      *testing.T
	inside *net.UDPConn

	mu      sync.Mutex
	client  net.Addr
	outside *net.UDPConn
	first   []byte
}

func startNAT(t *testing.T, gateway *net.UDPAddr) *nat {
	t.Helper()
	inside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n := &nat{t: t, inside: inside}
	n.move(net.IPv4(127, 0, 0, 1), gateway)
	t.Cleanup(func() {
		inside.Close()
		n.outside.Close()
	})
	go func() {
		buffer := make([]byte, longestDatagram)
		for {
			length, from, err := inside.ReadFrom(buffer)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.client = from
			if n.first == nil {
				n.first = bytes.Clone(buffer[:length])
			}
			_, _ = n.outside.Write(buffer[:length])
			n.mu.Unlock()
		}
	}()
	return n
}

// address is the client's destination.
func (n *nat) address() *net.UDPAddr { return n.inside.LocalAddr().(*net.UDPAddr) }

// firstOut is the client's first datagram since the last move; nil if there is none.
func (n *nat) firstOut() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.first
}

// move gives the client another port of this address, and leads it to this gateway.
func (n *nat) move(local net.IP, gateway *net.UDPAddr) {
	n.t.Helper()
	outside, err := net.DialUDP("udp4", &net.UDPAddr{IP: local}, gateway)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.outside != nil {
		n.outside.Close()
	}
	n.outside, n.first = outside, nil
	go func() {
		buffer := make([]byte, longestDatagram)
		for {
			length, err := outside.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			n.mu.Lock()
			if err == nil && n.client != nil {
				_, _ = n.inside.WriteTo(buffer[:length], n.client)
			}
			n.mu.Unlock()
		}
	}()
}

// asker is a client that asks who answers it.
type asker struct {
	t    *testing.T
	conn *Conn
	nat  *nat
}

// answer is the next datagram of a server: its number, the client's address that it sees, and the question.
func (a asker) answer(within time.Duration) (server int, seen, question string, err error) {
	a.t.Helper()
	if err := a.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		a.t.Fatal(err)
	}
	buffer := make([]byte, longestDatagram)
	n, _, err := a.conn.ReadFrom(buffer)
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			a.t.Fatal(err)
		}
		return 0, "", "", err
	}
	if _, err := fmt.Sscan(string(buffer[:n]), &server, &seen, &question); err != nil {
		a.t.Fatalf("%q: %v", buffer[:n], err)
	}
	return server, seen, question, nil
}

func (a asker) say(text string) {
	a.t.Helper()
	if _, err := a.conn.WriteTo([]byte(text), a.nat.address()); err != nil {
		a.t.Fatal(err)
	}
}

// ask sends a question until it is answered: datagrams in flight while a gateway changes a client's server may be
// lost.
func (a asker) ask(question string) (server int, seen string) {
	a.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		a.say(question)
		for again := time.Now().Add(2 * time.Second); time.Now().Before(again); {
			if server, seen, answered, err := a.answer(100 * time.Millisecond); err == nil && answered == question {
				return server, seen
			}
		}
	}
	a.t.Fatalf("no answer to %q: %+v", question, a.statistics())
	return 0, ""
}

func (a asker) statistics() Statistics {
	figures, _ := a.conn.Statistics(a.nat.address())
	return figures
}

// assisted asks until a gateway has answered the client's eACKs in the session with this number, or a later one.
func (a asker) assisted(session uint64) (server int, seen string) {
	a.t.Helper()
	for number, until := 0, time.Now().Add(patience); time.Now().Before(until); number++ {
		server, seen = a.ask(fmt.Sprintf("of-%d-%d", session, number))
		figures := a.statistics()
		if figures.Condition == Assisted && figures.Sessions >= session && figures.RoundTrip > 0 && number > 50 {
			return server, seen
		}
		time.Sleep(2 * time.Millisecond)
	}
	a.t.Fatalf("no session: %+v", a.statistics())
	return 0, ""
}

// isAnswered is true if the gateway has answered all that it was asked for.
func (a asker) isAnswered() bool {
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	session := a.conn.peers[unmapped(a.nat.address().AddrPort())].shim.session
	return session != nil && session.liveness.asked.IsZero()
}

// rest reads until the client has been silent for this time. With its last eACK it asks whether the gateway is still
// there.
func (a asker) rest(silence time.Duration) {
	a.t.Helper()
	for eacks, since := a.statistics().Eacks, time.Now(); time.Since(since) < silence || !a.isAnswered(); {
		_, _, _, _ = a.answer(echoInterval / 4)
		if now := a.statistics().Eacks; now != eacks {
			eacks, since = now, time.Now()
		}
	}
}

func startAsker(t *testing.T, gateway *net.UDPAddr) asker {
	t.Helper()
	return asker{t, wrapped(t, Settings{}), startNAT(t, gateway)}
}

// A NAT forgets silent clients first, and their transports' datagrams then reach the gateway before any eACK is due.
func TestASilentClientSaysWhereItIsWithWhatItsTransportSends(t *testing.T) {
	movesBehind(t, silent, func(first []byte) {
		if !isControl(first) {
			t.Errorf("%x leaves first", first)
		}
	})
}

// The client has sent a datagram a moment ago, and expects an answer of its server first.
func TestAClientThatHasNoAnswerSaysWhereItIs(t *testing.T) {
	movesBehind(t, echoInterval, func([]byte) {})
}

// movesBehind makes a client move some times, each after this silence, and then ask. The server does not see the
// move, unless the host delays client or gateway for longer than a gateway waits.
func movesBehind(t *testing.T, silence time.Duration, leavesFirst func(datagram []byte)) {
	t.Helper()
	lastmile.Trials(t, func() (bool, string) {
		gateways, end := startSeveral(t)
		client := startAsker(t, gateways[0])
		_, before := client.assisted(1)
		var seen []string
		for move := range 4 {
			client.rest(silence)
			client.nat.move(net.IPv4(127, 0, 0, 1), gateways[0])
			_, now := client.ask(fmt.Sprintf("move-%d", move))
			leavesFirst(client.nat.firstOut())
			seen = append(seen, now)
		}
		figures := client.statistics()
		if figures.Sessions != 1 || slices.ContainsFunc(seen, func(now string) bool { return now != before }) {
			return end(), fmt.Sprintf("the server saw %s, and sees %v: %+v", before, seen, figures)
		}
		return end(), ""
	})
}

// addressOfAnotherServer is an address whose clients get another server than this one.
func addressOfAnotherServer(t *testing.T, gateway *net.UDPAddr, server int) net.IP {
	t.Helper()
	for host := byte(2); host < 100; host++ {
		local := net.IPv4(127, 0, 0, host)
		plain, err := net.DialUDP("udp4", &net.UDPAddr{IP: local}, gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		if _, err := plain.Write([]byte("who")); err != nil {
			t.Fatal(err)
		}
		if err := plain.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, longestDatagram)
		n, err := plain.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(buffer[:n]), fmt.Sprint(server, " ")) {
			return local
		}
	}
	t.Fatal("all addresses have the same server")
	return nil
}

func TestAClientWhoseAddressChangesFindsItsServerThroughAnotherGateway(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) {
		gateways, end := startSeveral(t)
		client := startAsker(t, gateways[0])
		server, _ := client.assisted(1)
		another := addressOfAnotherServer(t, gateways[0], server)
		var first []int
		for moved := 1; moved < 5; moved++ {
			client.rest(silent)
			// The third gateway has learned it from the second: the ticket belongs to the second one's session.
			client.nat.move(another, gateways[moved%len(gateways)])
			at, _ := client.ask(fmt.Sprintf("move-%d", moved))
			first = append(first, at)
			if now, _ := client.assisted(uint64(moved + 1)); now != server {
				t.Fatalf("move %d: the server was %d, and is %d: %+v", moved, server, now, client.statistics())
			}
		}
		if slices.ContainsFunc(first, func(at int) bool { return at != server }) {
			return end(), fmt.Sprintf("datagrams do not wait for the ticket: of %d they come to %v", server, first)
		}
		return end(), ""
	})
}
