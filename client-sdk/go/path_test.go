package packrat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"packrat.dev/packrat/internal/lastmile"
)

var _ quic.OOBCapablePacketConn = (*Conn)(nil)

const (
	patience = 5 * time.Minute
	// Time without a datagram after which no more are expected.
	longestGap = 10 * time.Second
)

// lossyPath is the program packrat-path: servers, real gateways, and last miles that lose 4 %.
type lossyPath struct {
	Name, QUIC, Lossless, SHA256, Datagrams string
	Bytes                                   int
	certificate                             string
	end                                     func() pathFigures
}

type pathFigures struct {
	IsOnTime      bool   `json:"on_time"`
	LosslessSent  uint64 `json:"lossless_sent"`
	Sent          uint64 `json:"quic_sent"`
	Lost          uint64 `json:"quic_lost"`
	LostUpwards   uint64 `json:"quic_lost_upwards"`
	Dropped       uint64 `json:"quic_dropped"`
	Declared      uint64 `json:"declared_lost"`
	DatagramsLost uint64 `json:"datagrams_lost"`
}

func startPath(t *testing.T) *lossyPath {
	t.Helper()
	path := &lossyPath{certificate: filepath.Join(t.TempDir(), "certificate.pem")}
	end := lastmile.Start(t, path, path.certificate)
	path.end = func() (figures pathFigures) {
		end(&figures)
		return figures
	}
	return path
}

func address(t *testing.T, text string) *net.UDPAddr {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

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

// connected has a connection of quic-go's with the server.
func connected(conn net.PacketConn, path *lossyPath, server net.Addr,
	run func(context.Context, *quic.Conn) ([]byte, error)) ([]byte, error) {
	certificate, err := os.ReadFile(path.certificate)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(certificate) {
		return nil, errors.New("no certificate")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport := &quic.Transport{Conn: conn}
	defer transport.Close()
	settings := &tls.Config{RootCAs: roots, ServerName: path.Name, NextProtos: []string{"packrat-test"}}
	connection, err := transport.Dial(ctx, server, settings, &quic.Config{MaxIdleTimeout: patience, HandshakeIdleTimeout: patience})
	if err != nil {
		return nil, err
	}
	defer connection.CloseWithError(0, "")
	return run(ctx, connection)
}

func download(conn *Conn, path *lossyPath, server net.Addr) ([]byte, error) {
	return connected(conn, path, server, func(ctx context.Context, connection *quic.Conn) ([]byte, error) {
		stream, err := connection.OpenStreamSync(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := stream.Write([]byte("the file")); err != nil {
			return nil, err
		}
		stream.Close()
		return io.ReadAll(stream)
	})
}

// upload returns the SHA-256 of the contents as the server has got them.
func upload(conn net.PacketConn, path *lossyPath, server net.Addr, contents []byte) ([]byte, error) {
	return connected(conn, path, server, func(ctx context.Context, connection *quic.Conn) ([]byte, error) {
		sending, err := connection.OpenUniStreamSync(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := sending.Write(contents); err != nil {
			return nil, err
		}
		sending.Close()
		receiving, err := connection.AcceptUniStream(ctx)
		if err != nil {
			return nil, err
		}
		return io.ReadAll(receiving)
	})
}

func TestWhatQUICGoUploadsComesAgainWhereItIsLost(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) {
		path := startPath(t)
		server := address(t, path.QUIC)
		conn := wrapped(t, Settings{Scheme: Trailer, Uploads: true})
		contents := make([]byte, path.Bytes)
		for at := range contents {
			contents[at] = byte(at * at >> 7)
		}
		answer, err := upload(conn, path, server, contents)
		statistics, _ := conn.Statistics(server)
		figures := path.end()
		said := fmt.Sprintf("%+v %+v", figures, statistics)
		t.Log(said)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(contents); !bytes.Equal(answer, sum[:]) {
			t.Errorf("another file: %s", said)
		}
		if statistics.Condition != Assisted || statistics.Sessions != 1 {
			t.Errorf("not one session: %s", said)
		}
		if figures.LostUpwards < 60 || statistics.UpwardRepairs == 0 {
			t.Errorf("none comes again: %s", said)
		}
		switch {
		// Some of the lost ones are repairs, or were lost before the session.
		case statistics.UpwardRepairs*2 < figures.LostUpwards:
			return figures.IsOnTime, "too few come again"
		case statistics.UpwardNumbered*10 < statistics.SentDatagrams*9:
			return figures.IsOnTime, "hardly any has a number"
		}
		return figures.IsOnTime, ""
	})
}

// downloaded downloads the file of a server of the path with assistance. It gives the path's figures, the client's, and
// both as text.
func downloaded(t *testing.T, path *lossyPath, of string) (pathFigures, Statistics, string) {
	t.Helper()
	server := address(t, of)
	conn := wrapped(t, Settings{Scheme: Trailer})
	contents, err := download(conn, path, server)
	statistics, _ := conn.Statistics(server)
	figures := path.end()
	said := fmt.Sprintf("%+v %+v", figures, statistics)
	t.Log(said)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(contents); hex.EncodeToString(sum[:]) != path.SHA256 {
		t.Errorf("%d bytes are another file: %s", len(contents), said)
	}
	if statistics.Condition != Assisted || statistics.Sessions != 1 {
		t.Errorf("not one session: %s", said)
	}
	return figures, statistics, said
}

func TestQUICGoDownloadsAndTheServerDoesNotNoticeTheLosses(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) {
		path := startPath(t)
		figures, statistics, said := downloaded(t, path, path.QUIC)
		if figures.Lost < 60 || statistics.RepairedInTime == 0 {
			t.Errorf("no repair in time: %s", said)
		}
		switch {
		// Who asks twice drops the second answer.
		case statistics.ControlDropped > 2:
			return figures.IsOnTime, "messages are dropped"
		// Some of the lost ones are control datagrams, repairs, or were lost before the session.
		case statistics.RepairedInTime*3 < figures.Lost:
			return figures.IsOnTime, "too few repairs in time"
		case (figures.Declared-min(figures.Dropped, figures.Declared))*3 > figures.Lost*2:
			return figures.IsOnTime, "the server noticed"
		}
		return figures.IsOnTime, ""
	})
}

func TestAcknowledgementsOfQUICGoLeaveTogether(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) {
		path := startPath(t)
		figures, statistics, _ := downloaded(t, path, path.Lossless)
		// As many as leave where each acknowledgement and each eACK is a datagram of its own.
		alone := statistics.SentDatagrams + statistics.Eacks
		if figures.LosslessSent+statistics.Eacks/4 > alone {
			return figures.IsOnTime, fmt.Sprintf("%d datagrams leave instead of %d", figures.LosslessSent, alone)
		}
		return figures.IsOnTime, ""
	})
}

func TestDatagramsComeRepairedAndInOrder(t *testing.T) {
	const count = 2000
	lastmile.Trials(t, func() (bool, string) {
		path := startPath(t)
		server := address(t, path.Datagrams)
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
		figures := path.end()
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
