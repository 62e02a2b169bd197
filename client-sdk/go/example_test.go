package packrat_test

import (
	"fmt"
	"log"
	"net"

	"packrat.dev/packrat"
)

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
