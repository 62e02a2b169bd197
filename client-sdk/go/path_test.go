package packrat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"packrat.dev/packrat/internal/lastmile"
)

const (
	patience = 5 * time.Minute
	// Time without a datagram after which no more are expected.
	longestGap = 10 * time.Second
)

func wrapped(t *testing.T, settings Settings) *Conn {
	t.Helper()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Wrap(udp, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestDatagramsComeRepairedAndInOrder(t *testing.T) {
	const count = 2000
	lastmile.Trials(t, func() (bool, string) {
		path := lastmile.StartPath(t)
		server := lastmile.Address(t, path.Datagrams)
		conn := wrapped(t, Settings{})
		buffer := make([]byte, 2048)
		seen := make(map[uint32]bool)
		var last uint32
		overtaken := uint64(0)
		for !seen[count-1] {
			// The question may be lost, and the last of the answers as well.
			wait := time.Second
			if len(seen) > 0 {
				wait = longestGap
			}
			if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
				t.Fatal(err)
			}
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if len(seen) > 0 {
					break
				}
				if _, err := fmt.Fprintf(writer{conn, server}, "get %d", count); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n != 1200 || from.String() != server.String() {
				t.Fatalf("%d bytes of %v", n, from)
			}
			number := binary.BigEndian.Uint32(buffer)
			if !seen[number] && number < last {
				overtaken++
			}
			seen[number], last = true, max(last, number)
		}
		statistics, _ := conn.Statistics(server)
		figures := path.End()
		lost := figures.DatagramsLost
		said := fmt.Sprintf("%d of %d received, %d lost, %d overtaken: %+v", len(seen), count, lost, overtaken, statistics)
		t.Log(said)
		if statistics.Condition != Assisted || statistics.Sessions != 1 {
			t.Errorf("not one session: %s", said)
		}
		if lost < 40 || statistics.RepairedInTime == 0 {
			t.Errorf("no repair in time: %s", said)
		}
		switch {
		case statistics.RepairedInTime*3 < lost || uint64(count-len(seen))*3 > lost:
			return figures.IsOnTime, "too few repairs in time"
		case overtaken > statistics.RepairedLate+statistics.GivenUp+lost/10:
			return figures.IsOnTime, "out of order"
		}
		return figures.IsOnTime, ""
	})
}

// writer writes datagrams to a peer.
type writer struct {
	conn *Conn
	peer net.Addr
}

func (w writer) Write(b []byte) (int, error) { return w.conn.WriteTo(b, w.peer) }
