package packrat_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"
	"packrat.dev/packrat"
)

func download(ctx context.Context, server *net.UDPAddr, trust *tls.Config) ([]byte, error) {
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

var _ = download

func TestTheLinesOfTheREADMEAreCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
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

// A socket asks for a gateway with the first datagram that it sends; without one it is a socket.
func ExampleWrap() {
	server := echoing()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := packrat.Wrap(udp, packrat.Settings{})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.WriteTo([]byte("hello"), server); err != nil {
		log.Fatal(err)
	}
	buffer := make([]byte, 1500)
	n, _, err := conn.ReadFrom(buffer)
	if err != nil {
		log.Fatal(err)
	}
	statistics, _ := conn.Statistics(server)
	fmt.Printf("%s, %d datagram sent\n", buffer[:n], statistics.SentDatagrams)
	// Output: hello, 1 datagram sent
}

// echoing is a server that answers each datagram with itself.
func echoing() net.Addr {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buffer[:n], from)
		}
	}()
	return server.LocalAddr()
}
