package packrat

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	// Datagrams that are read at once, and the longest one.
	batchSize       = 8
	longestDatagram = 65_535
	oobSize         = 128
	// Time without a datagram after which a peer makes room for another one.
	idle = 5 * time.Minute
	// Time for which the peer's gateway may number, if the goodbye is lost: longer than the idle timeout of sessions.
	numbering = 3 * time.Minute
	// Peers that are assisted at the same time.
	mostPeers = 64
	// Shortest time until a timer, so that arrived datagrams are read between two timers.
	soonest = 500 * time.Microsecond
)

// Conn is an assisted UDP socket: it takes the place of the socket that it wraps, for quic-go
// (quic.OOBCapablePacketConn) and for any other program. It has one shim for each peer that the
// program sends to; datagrams of other peers pass. Its methods may be called concurrently.
//
// It works while the program reads: assistance has no goroutine of its own.
type Conn struct {
	udp      *net.UDPConn
	batch    *ipv4.PacketConn
	settings Settings

	// Held while a reader reads, so that one reads at a time. It is taken before mu.
	reading  sync.Mutex
	messages []ipv4.Message
	// Read; parts of messages, unless they were kept. Those before returned have been returned.
	ready    []received
	returned int

	mu    sync.Mutex
	peers map[netip.AddrPort]*peer
	// Peers that have made room, and until when their gateways may number.
	former map[netip.AddrPort]time.Time
	// The program's deadline for reading, and the current one; zero: no deadline.
	deadline, armed time.Time
}

// received is a datagram for the program.
type received struct {
	payload []byte
	oob     []byte
	flags   int
	from    *net.UDPAddr
}

// mark belongs to a datagram that may be kept: its control messages, such as the ECN mark.
type mark struct {
	oob    [oobSize]byte
	length int
	flags  int
}

// peer is a peer with its shim.
type peer struct {
	shim *Shim[mark] // nil: it has failed
	// Unmapped: sockets of both families take that.
	addr netip.AddrPort
	// The peer's address as the socket reports it; nil before its first datagram.
	from *net.UDPAddr
	// Its figures after the last call.
	last Statistics
	// The shim's next timeout; zero: no timeout.
	due time.Time
	// The last datagram to it, or of it.
	used time.Time
	// The datagrams that waited in a shim that has failed.
	rescued []*kept[mark]
	// The control messages, such as the ECN mark, of datagrams that wait to leave with others.
	beside []byte
	// nil: no records.
	logger *slog.Logger
}

// Wrap takes over a UDP socket that is not connected. The program then uses the Conn in its place, and closes the
// Conn.
func Wrap(udp *net.UDPConn, settings Settings) (*Conn, error) {
	if udp.RemoteAddr() != nil {
		return nil, fmt.Errorf("%w to %v: wrap one of net.ListenUDP", ErrConnected, udp.RemoteAddr())
	}
	if _, err := settings.params(); err != nil {
		return nil, err
	}
	c := &Conn{udp: udp, batch: ipv4.NewPacketConn(udp), settings: settings,
		messages: make([]ipv4.Message, batchSize), peers: make(map[netip.AddrPort]*peer),
		former: make(map[netip.AddrPort]time.Time)}
	for at := range c.messages {
		c.messages[at].Buffers = [][]byte{make([]byte, longestDatagram)}
		c.messages[at].OOB = make([]byte, oobSize)
	}
	return c, nil
}

func unmapped(addr netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// guard runs a function with a peer's shim. If the shim fails, it is removed; its waiting datagrams are rescued, and
// the peer's later datagrams pass. Statistics count to the last call before.
func (p *peer) guard(run func(*Shim[mark])) {
	if p.shim == nil {
		return
	}
	before := p.last.Condition
	defer func() {
		if reason := recover(); reason != nil {
			p.rescued = allThatWaits(p.shim)
			p.shim, p.due = nil, time.Time{}
			if len(p.rescued) > 0 {
				p.due = time.Now()
			}
			p.last.Condition = Failed
			if p.logger != nil {
				p.logger.Error("packrat: the assistance of a peer has failed; its datagrams pass", "peer", p.addr, "reason", reason)
			}
		}
	}()
	run(p.shim)
	p.due, p.last = p.shim.Timeout(), p.shim.Statistics()
	if p.logger != nil && p.last.Condition != before {
		p.logger.Info("packrat: the condition of a peer has changed", "peer", p.addr, "condition", p.last.Condition)
	}
}

// allThatWaits takes the waiting datagrams out of a shim that has failed, as far as that is possible: losing them
// would be no worse than a loss on the path.
func allThatWaits(shim *Shim[mark]) (waiting []*kept[mark]) {
	defer func() { _ = recover() }()
	waiting = append(waiting, shim.release.ready...)
	return append(waiting, shim.release.waiting...)
}

// withoutNumber is a datagram of a peer whose session has ended here: its gateway numbers until it learns that.
// False: it is a message of the gateway.
func withoutNumber(datagram []byte) ([]byte, bool) {
	_, base, _ := splitNumber(datagram)
	return base, !isControl(base)
}

// rescue delivers the datagrams that waited in a peer's shim that has failed.
func (c *Conn) rescue(p *peer) {
	for _, waiting := range p.rescued {
		beside := waiting.metadata
		c.ready = append(c.ready, received{waiting.payload, beside.oob[:beside.length], beside.flags, p.from})
	}
	if p.rescued != nil {
		p.rescued, p.due = nil, time.Time{}
	}
}

// transmit sends the control datagrams that are due.
func (c *Conn) transmit(p *peer, now time.Time) {
	p.guard(func(shim *Shim[mark]) {
		for {
			datagram := shim.Transmit(now)
			if datagram == nil {
				return
			}
			var beside []byte
			if BearsMark(datagram) {
				beside = p.beside
			}
			// A datagram lost here is like one lost on the path.
			_, _, _ = c.udp.WriteMsgUDPAddrPort(datagram, beside, p.addr)
		}
	})
}

// wakesAt is the time at which a waiting reader serves the peer's timer; zero: no timer.
func (p *peer) wakesAt(now time.Time) time.Time {
	if first := now.Add(soonest); !p.due.IsZero() && p.due.Before(first) {
		return first
	}
	return p.due
}

// arm sets the socket's deadline: the program's, or the next one of a shim.
func (c *Conn) arm(now time.Time) {
	next := c.deadline
	for _, p := range c.peers {
		next = earliest(next, p.wakesAt(now))
	}
	if !next.Equal(c.armed) && c.udp.SetReadDeadline(next) == nil {
		c.armed = next
	}
}

// sending finds the peer's shim, or makes one, before datagrams are sent: several that the system cuts out of b, or
// one if segment is 0. It returns the number to put in front of each, nil: no numbers; or isTaken: the only one is
// sent with others.
func (c *Conn) sending(to netip.AddrPort, b, oob []byte, segment int) (fronts [][]byte, isTaken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	key := unmapped(to)
	p := c.peers[key]
	if p == nil {
		if len(c.peers) >= mostPeers && !c.makeRoom(now) {
			return nil, false
		}
		var seed [32]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return nil, false
		}
		shim, err := NewShim[mark](c.settings, seed, now)
		if err != nil {
			return nil, false
		}
		p = &peer{shim: shim, addr: key, logger: c.settings.Logger}
		c.peers[key] = p
	}
	p.used = now
	isAlone := segment == 0 || len(b) <= segment
	if beside := withoutSegment(oob); !bytes.Equal(beside, p.beside) {
		// A waiting datagram bears the mark that it was sent with.
		p.guard(func(shim *Shim[mark]) { shim.EndBundle(now) })
		c.transmit(p, now)
		p.beside = bytes.Clone(beside)
	}
	isNumbered := false
	p.guard(func(shim *Shim[mark]) {
		if isAlone && shim.Bundle(b, now) {
			isTaken = true
			return
		}
		for datagram := range datagramsOf(b, segment) {
			front := shim.Send(datagram, now)
			isNumbered = isNumbered || front != nil
			fronts = append(fronts, front)
		}
	})
	if p.shim == nil || !isNumbered {
		fronts = nil
	}
	if isDue := !p.due.IsZero() && !p.due.After(now); isDue || p.last.Condition != Assisted {
		// A question, or the eACK that informs the gateway of these datagrams' source address.
		c.transmit(p, now)
	}
	// A deadline that is too early is set again when it is over. A later one would keep the reader from due timers for
	// as long as the program sends.
	if at := p.wakesAt(now); !at.IsZero() && (c.armed.IsZero() || at.Before(c.armed)) {
		c.arm(now)
	}
	return fronts, isTaken
}

// refused reports that the socket has refused numbers in front of a peer's datagrams.
func (c *Conn) refused(to netip.AddrPort, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[unmapped(to)]; p != nil {
		p.guard(func(shim *Shim[mark]) { shim.Refused(bytes) })
	}
}

// makeRoom forgets the peer that was used longest ago, if it is idle.
func (c *Conn) makeRoom(now time.Time) bool {
	var oldest *peer
	for _, p := range c.peers {
		if oldest == nil || p.used.Before(oldest.used) {
			oldest = p
		}
	}
	if oldest == nil || now.Sub(oldest.used) < idle {
		return false
	}
	c.leave(oldest, now)
	delete(c.peers, oldest.addr)
	for addr, until := range c.former {
		if now.After(until) {
			delete(c.former, addr)
		}
	}
	c.former[oldest.addr] = now.Add(numbering)
	return true
}

// leave ends the session with a peer's gateway.
func (c *Conn) leave(p *peer, now time.Time) {
	p.guard(func(shim *Shim[mark]) { shim.Close(now) })
	c.transmit(p, now)
}

// fill reads until something is there for the program. reading is held.
func (c *Conn) fill() error {
	for c.returned == len(c.ready) {
		c.ready, c.returned = c.ready[:0], 0
		c.mu.Lock()
		c.arm(time.Now())
		c.mu.Unlock()
		count, err := c.batch.ReadBatch(c.messages, 0)
		c.mu.Lock()
		now := time.Now()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.armed = now // over: arm sets another one
			if !c.deadline.IsZero() && !now.Before(c.deadline) {
				c.mu.Unlock()
				return err
			}
			c.onTimeouts(now)
			c.mu.Unlock()
			continue
		}
		for at := range max(count, 0) {
			c.onMessage(&c.messages[at], now)
		}
		// Timers that were due while datagrams arrived: those come first.
		c.onTimeouts(now)
		c.mu.Unlock()
		if err != nil && len(c.ready) == 0 {
			return err
		}
	}
	return nil
}

func (c *Conn) onMessage(m *ipv4.Message, now time.Time) {
	from, ok := m.Addr.(*net.UDPAddr)
	if !ok {
		return
	}
	r := received{m.Buffers[0][:m.N], m.OOB[:m.NN], m.Flags, from}
	key := unmapped(from.AddrPort())
	p := c.peers[key]
	wasPeer := now.Before(c.former[key])
	if p != nil {
		p.from, p.used = from, now
	}
	if p == nil || p.shim == nil {
		if p != nil {
			c.rescue(p)
		}
		c.pass(r, p != nil || wasPeer)
		return
	}
	// The datagram belongs to a session that its shim does not know.
	if wasPeer && p.shim.places == nil {
		if base, isFor := withoutNumber(r.payload); isFor {
			r.payload = base
		}
	}
	isDone := false
	p.guard(func(shim *Shim[mark]) {
		// Datagrams of an earlier message of this batch, or of a timer, come first.
		c.deliver(p, shim)
		beside := mark{flags: r.flags}
		beside.length = copy(beside.oob[:], r.oob)
		payload, isNow := shim.Receive(r.payload, beside, now)
		isDone = true
		if isNow {
			r.payload = payload
			c.ready = append(c.ready, r)
		}
		c.deliver(p, shim)
	})
	if p.shim == nil {
		c.rescue(p)
		if !isDone {
			// It has failed over this one.
			c.pass(r, true)
		}
	}
	c.transmit(p, now)
}

// pass delivers a datagram without a shim. wasAssisted: the gateway's number is removed.
func (c *Conn) pass(r received, wasAssisted bool) {
	isFor := true
	if wasAssisted {
		r.payload, isFor = withoutNumber(r.payload)
	}
	if isFor {
		c.ready = append(c.ready, r)
	}
}

func (c *Conn) deliver(p *peer, shim *Shim[mark]) {
	for {
		payload, beside, ok := shim.Deliver()
		if !ok {
			return
		}
		c.ready = append(c.ready, received{payload, beside.oob[:beside.length], beside.flags, p.from})
	}
}

func (c *Conn) onTimeouts(now time.Time) {
	for _, p := range c.peers {
		if p.due.IsZero() || now.Before(p.due) {
			continue
		}
		p.guard(func(shim *Shim[mark]) {
			shim.HandleTimeout(now)
			c.deliver(p, shim)
		})
		c.rescue(p)
		c.transmit(p, now)
	}
}

// next is the next datagram for the program. reading is held; the datagram is valid as long.
func (c *Conn) next() (received, error) {
	if err := c.fill(); err != nil {
		return received{}, err
	}
	r := c.ready[c.returned]
	c.ready[c.returned] = received{}
	c.returned++
	return r, nil
}

// ReadMsgUDP is net.UDPConn's.
func (c *Conn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	r, err := c.next()
	if err != nil {
		return 0, 0, 0, nil, err
	}
	return copy(b, r.payload), copy(oob, r.oob), r.flags, r.from, nil
}

// ReadBatch is golang.org/x/net/ipv4's: quic-go would read past the Conn without it.
func (c *Conn) ReadBatch(messages []ipv4.Message, _ int) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	count := 0
	for count < len(messages) && (count == 0 || c.returned < len(c.ready)) {
		r, err := c.next()
		if err != nil {
			return 0, err
		}
		m := &messages[count]
		m.N, m.NN = 0, copy(m.OOB, r.oob)
		for _, buffer := range m.Buffers {
			m.N += copy(buffer, r.payload[m.N:])
		}
		m.Flags, m.Addr = r.flags, r.from
		count++
	}
	return count, nil
}

// ReadFromUDPAddrPort is net.UDPConn's.
func (c *Conn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	n, _, _, addr, err := c.ReadMsgUDP(b, nil)
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	return n, addr.AddrPort(), nil
}

// ReadFrom is net.PacketConn's.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, _, _, addr, err := c.ReadMsgUDP(b, nil)
	if err != nil {
		return 0, nil, err
	}
	return n, addr, nil
}

// Statistics are the figures of a peer; false if the program has sent it no datagram, or it was idle and made room
// for another one.
func (c *Conn) Statistics(peer net.Addr) (Statistics, bool) {
	addr, ok := peer.(*net.UDPAddr)
	if !ok {
		return Statistics{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[unmapped(addr.AddrPort())]
	if p == nil {
		return Statistics{}, false
	}
	p.guard(func(*Shim[mark]) {})
	return p.last, true
}

// OnNetworkChange reports that the host's address changes: call it before a datagram is sent from the new one. A
// change without this call is detected a moment later, by a missing answer of the gateway.
func (c *Conn) OnNetworkChange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, p := range c.peers {
		p.guard(func(shim *Shim[mark]) { shim.OnNetworkChange(now) })
		c.transmit(p, now)
	}
	c.arm(now)
}

// SetAccess sets the token of future handshakes, and the key of the gateway to accept (nil: any, on first use), also
// for existing peers: a session with another gateway ends.
func (c *Conn) SetAccess(token []byte, gatewayKey *[32]byte) error {
	if err := checkToken(token); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.settings.Token, c.settings.GatewayKey = token, gatewayKey
	for _, p := range c.peers {
		p.guard(func(shim *Shim[mark]) { _ = shim.SetAccess(token, gatewayKey, now) })
	}
	// The reader delivers the datagrams of an ended session, and asks the other gateway.
	c.arm(now)
	return nil
}

// Close ends the sessions with the gateways and closes the socket.
func (c *Conn) Close() error {
	c.mu.Lock()
	now := time.Now()
	for key, p := range c.peers {
		c.leave(p, now)
		delete(c.peers, key)
	}
	c.mu.Unlock()
	return c.udp.Close()
}

// SetDeadline is net.Conn's.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.udp.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// SetReadDeadline is net.Conn's.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.armed = t, t
	// A waiting reader is also informed; fill adds the shims' times.
	if err := c.udp.SetReadDeadline(t); err != nil {
		return err
	}
	c.arm(time.Now())
	return nil
}

// SetWriteDeadline is net.Conn's.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.udp.SetWriteDeadline(t) }

// LocalAddr is net.Conn's.
func (c *Conn) LocalAddr() net.Addr { return c.udp.LocalAddr() }

// SyscallConn is net.UDPConn's. Datagrams read by it are neither repaired nor in order.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.udp.SyscallConn() }

// SetReadBuffer is net.UDPConn's.
func (c *Conn) SetReadBuffer(bytes int) error { return c.udp.SetReadBuffer(bytes) }

// SetWriteBuffer is net.UDPConn's.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.udp.SetWriteBuffer(bytes) }
