// Package quicgo_test tests the socket below quic-go. It is a module of its own, so that the SDK raises no user's quic-go.
package quicgo_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"packrat.dev/packrat"
	"packrat.dev/packrat/internal/lastmile"
)

var _ quic.OOBCapablePacketConn = (*packrat.Conn)(nil)

const patience = 5 * time.Minute

func wrapped(t *testing.T, settings packrat.Settings) *packrat.Conn {
	t.Helper()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packrat.Wrap(udp, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connected has a connection of quic-go's with the server.
func connected(conn net.PacketConn, path *lastmile.Path, server net.Addr,
	run func(context.Context, *quic.Conn) ([]byte, error)) ([]byte, error) {
	certificate, err := os.ReadFile(path.Certificate)
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

func download(conn *packrat.Conn, path *lastmile.Path, server net.Addr) ([]byte, error) {
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
func upload(conn net.PacketConn, path *lastmile.Path, server net.Addr, contents []byte) ([]byte, error) {
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
		path := lastmile.StartPath(t)
		server := lastmile.Address(t, path.QUIC)
		conn := wrapped(t, packrat.Settings{Scheme: packrat.Trailer, Uploads: true})
		contents := make([]byte, path.Bytes)
		for at := range contents {
			contents[at] = byte(at * at >> 7)
		}
		answer, err := upload(conn, path, server, contents)
		statistics, _ := conn.Statistics(server)
		figures := path.End()
		said := fmt.Sprintf("%+v %+v", figures, statistics)
		t.Log(said)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(contents); !bytes.Equal(answer, sum[:]) {
			t.Errorf("another file: %s", said)
		}
		if statistics.Condition != packrat.Assisted || statistics.Sessions != 1 {
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
func downloaded(t *testing.T, path *lastmile.Path, of string) (lastmile.Figures, packrat.Statistics, string) {
	t.Helper()
	server := lastmile.Address(t, of)
	conn := wrapped(t, packrat.Settings{Scheme: packrat.Trailer})
	contents, err := download(conn, path, server)
	statistics, _ := conn.Statistics(server)
	figures := path.End()
	said := fmt.Sprintf("%+v %+v", figures, statistics)
	t.Log(said)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(contents); hex.EncodeToString(sum[:]) != path.SHA256 {
		t.Errorf("%d bytes are another file: %s", len(contents), said)
	}
	if statistics.Condition != packrat.Assisted || statistics.Sessions != 1 {
		t.Errorf("not one session: %s", said)
	}
	return figures, statistics, said
}

func TestQUICGoDownloadsAndTheServerDoesNotNoticeTheLosses(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) {
		path := lastmile.StartPath(t)
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
		path := lastmile.StartPath(t)
		figures, statistics, _ := downloaded(t, path, path.Lossless)
		// As many as leave where each acknowledgement and each eACK is a datagram of its own.
		alone := statistics.SentDatagrams + statistics.Eacks
		if figures.LosslessSent+statistics.Eacks/4 > alone {
			return figures.IsOnTime, fmt.Sprintf("%d datagrams leave instead of %d", figures.LosslessSent, alone)
		}
		return figures.IsOnTime, ""
	})
}
