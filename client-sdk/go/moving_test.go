package packrat

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"packrat.dev/packrat/internal/lastmile"
)

// startSeveral starts several servers behind several gateways with one key, and returns the gateways' addresses. Each server answers
// a datagram with its own number, the address that the datagram came from, and the datagram.
func startSeveral(t *testing.T) (gateways []*net.UDPAddr) {
	t.Helper()
	var begun struct{ Gateways []string }
	lastmile.Start(t, &begun, "--several")
	for _, gateway := range begun.Gateways {
		gateways = append(gateways, address(t, gateway))
	}
	return gateways
}

// nat is a network address translator in front of one client.
type nat struct {
	t      *testing.T
	inside *net.UDPConn

	mu      sync.Mutex
	client  net.Addr
	outside *net.UDPConn
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
			_, _ = n.outside.Write(buffer[:length])
			n.mu.Unlock()
		}
	}()
	return n
}

// address is where the client sends to.
func (n *nat) address() *net.UDPAddr { return n.inside.LocalAddr().(*net.UDPAddr) }

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
	n.outside = outside
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

// answer is the next datagram of a server: its number, where it sees the client, and what it was asked.
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

// ask sends a question until it is answered: what is under way while a gateway changes a client's server may be lost.
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

// assisted asks until a gateway has answered the client's eACKs in the session with this number.
func (a asker) assisted(session uint64) (server int, seen string) {
	a.t.Helper()
	for number, until := 0, time.Now().Add(patience); time.Now().Before(until); number++ {
		server, seen = a.ask(fmt.Sprintf("of-%d-%d", session, number))
		figures := a.statistics()
		if figures.Condition == Assisted && figures.Sessions == session && figures.RoundTrip > 0 && number > 50 {
			return server, seen
		}
		time.Sleep(2 * time.Millisecond)
	}
	a.t.Fatalf("no session: %+v", a.statistics())
	return 0, ""
}

// rest is silent for long, but reads. Its last eACK is the one that asks whether the gateway is still there.
func (a asker) rest() {
	a.t.Helper()
	a.restFor(silent + 2*echoInterval)
}

func (a asker) restFor(silence time.Duration) {
	a.t.Helper()
	for until := time.Now().Add(silence); time.Now().Before(until); {
		_, _, _, _ = a.answer(time.Until(until))
	}
}

func startAsker(t *testing.T, gateway *net.UDPAddr) asker {
	t.Helper()
	return asker{t, wrapped(t, Settings{}), startNAT(t, gateway)}
}

// A NAT forgets silent clients first, and what their transports send then finds the gateway before any eACK is due.
func TestASilentClientSaysWhereItIsWithWhatItsTransportSends(t *testing.T) {
	gateways := startSeveral(t)
	client := startAsker(t, gateways[0])
	_, seen := client.assisted(1)
	for moves := range 4 {
		client.rest()
		before := client.statistics()
		client.nat.move(net.IPv4(127, 0, 0, 1), gateways[0])
		if _, now := client.ask(fmt.Sprintf("move-%d", moves)); now != seen {
			t.Fatalf("move %d: the server saw %s, and sees %s: %+v", moves, seen, now, client.statistics())
		}
		// Its answer comes when the gateway has heard where the client is, and so no eACK was due yet.
		if after := client.statistics(); after.Eacks != before.Eacks+1 || after.Sessions != 1 {
			t.Errorf("move %d: before %+v, after %+v", moves, before, after)
		}
	}
}

// It has said something a moment ago, and expects an answer of its server first.
func TestAClientThatHasNoAnswerSaysWhereItIs(t *testing.T) {
	gateways := startSeveral(t)
	client := startAsker(t, gateways[0])
	_, seen := client.assisted(1)
	for moves := range 4 {
		client.restFor(2 * echoInterval)
		client.nat.move(net.IPv4(127, 0, 0, 1), gateways[0])
		if _, now := client.ask(fmt.Sprintf("move-%d", moves)); now != seen {
			t.Fatalf("move %d: the server saw %s, and sees %s: %+v", moves, seen, now, client.statistics())
		}
	}
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
	gateways := startSeveral(t)
	client := startAsker(t, gateways[0])
	server, _ := client.assisted(1)
	another := addressOfAnotherServer(t, gateways[0], server)
	atOnce := 0
	for moved := 1; moved < 5; moved++ {
		client.rest()
		// The third gateway's word is the second one's: the ticket is that of its session.
		client.nat.move(another, gateways[moved%len(gateways)])
		if first, _ := client.ask(fmt.Sprintf("move-%d", moved)); first == server {
			atOnce++
		}
		if now, _ := client.assisted(uint64(moved + 1)); now != server {
			t.Fatalf("move %d: the server was %d, and is %d: %+v", moved, server, now, client.statistics())
		}
	}
	// On a busy host a message may come later than datagrams wait.
	if atOnce == 0 {
		t.Error("datagrams do not wait for the ticket")
	}
}
