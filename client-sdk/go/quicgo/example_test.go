package quicgo_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
	"packrat.dev/packrat"
)

func downloadOfREADME(ctx context.Context, server *net.UDPAddr, trust *tls.Config) ([]byte, error) {
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	conn, err := packrat.Wrap(udp, packrat.Settings{Scheme: packrat.Trailer}) // QUIC's packets end with a tag
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	transport := &quic.Transport{Conn: conn}
	defer transport.Close()
	connection, err := transport.Dial(ctx, server, trust, nil)
	if err != nil {
		return nil, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	stream.Write([]byte("the file"))
	stream.Close()
	file, err := io.ReadAll(stream)
	statistics, _ := conn.Statistics(server)
	log.Printf("%d repaired in time", statistics.RepairedInTime)
	return file, err
}

var _ = downloadOfREADME

func TestTheLinesOfTheREADMEAreCompiled(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	lines, _, found := strings.Cut(rest, "```")
	lines = strings.Join(strings.Fields(lines), " ")
	if !found || !strings.Contains(strings.Join(strings.Fields(string(source)), " "), lines) {
		t.Errorf("README.md has other lines than example_test.go:\n%s", lines)
	}
}
