package packrat

import (
	"cmp"
	"errors"
	"iter"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// buffers are for datagrams with a number in front.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// datagramsOf are the datagrams that the system cuts out of b: all of it where segment is 0.
func datagramsOf(b []byte, segment int) iter.Seq[[]byte] {
	if segment == 0 || len(b) <= segment {
		return func(yield func([]byte) bool) { yield(b) }
	}
	return slices.Chunk(b, segment)
}

// write sends the program's data, with numbers in front of its datagrams. send is a method of the socket.
func (c *Conn) write(b, oob []byte, addr netip.AddrPort, send func(b, oob []byte) (int, int, error)) (n, oobn int, err error) {
	segment := segmentOf(oob)
	fronts, isTaken := c.sending(addr, b, oob, segment)
	if isTaken {
		return len(b), len(oob), nil
	}
	if fronts == nil {
		return send(b, oob)
	}
	longer := oob
	if segment != 0 {
		longer = slices.Clone(oob)
		setSegment(longer, segment+numberLength)
	}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	if !slices.ContainsFunc(fronts, func(front []byte) bool { return front == nil }) {
		together, at := (*pooled)[:0], 0
		for datagram := range datagramsOf(b, segment) {
			together = append(append(together, fronts[at]...), datagram...)
			at++
		}
		*pooled = together
		_, oobn, err = send(together, longer)
		if isTooLong(err) {
			c.refused(addr, min(len(b), cmp.Or(segment, len(b))))
			return send(b, oob)
		}
		return len(b), oobn, err
	}
	// Some have a number and some do not: they differ in length, and leave one by one.
	at := 0
	for datagram := range datagramsOf(b, segment) {
		isPlain := fronts[at] == nil
		if !isPlain {
			*pooled = append(append((*pooled)[:0], fronts[at]...), datagram...)
			_, oobn, err = send(*pooled, longer)
			if isTooLong(err) {
				c.refused(addr, len(datagram))
				isPlain = true
			}
		}
		if isPlain {
			_, oobn, err = send(datagram, oob)
		}
		if err != nil {
			return n, oobn, err
		}
		n += len(datagram)
		at++
	}
	return n, oobn, nil
}

// isTooLong is true if the link has no room for a datagram, or for one of the datagrams that the system cuts.
func isTooLong(err error) bool {
	return errors.Is(err, syscall.EMSGSIZE) || errors.Is(err, syscall.EINVAL)
}

// WriteMsgUDP is net.UDPConn's.
func (c *Conn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if addr == nil {
		return c.udp.WriteMsgUDP(b, oob, addr)
	}
	return c.write(b, oob, addr.AddrPort(), func(b, oob []byte) (int, int, error) {
		return c.udp.WriteMsgUDP(b, oob, addr)
	})
}

// WriteTo is net.PacketConn's.
func (c *Conn) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok || to == nil {
		return c.udp.WriteTo(b, addr)
	}
	n, _, err := c.write(b, nil, to.AddrPort(), func(b, _ []byte) (int, int, error) {
		n, err := c.udp.WriteTo(b, to)
		return n, 0, err
	})
	return n, err
}

// WriteToUDPAddrPort is net.UDPConn's.
func (c *Conn) WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	n, _, err := c.write(b, nil, addr, func(b, _ []byte) (int, int, error) {
		n, err := c.udp.WriteToUDPAddrPort(b, addr)
		return n, 0, err
	})
	return n, err
}
