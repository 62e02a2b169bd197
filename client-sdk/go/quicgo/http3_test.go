package quicgo_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"packrat.dev/packrat"
)

// assistedTransport is an http.RoundTripper whose connections share one assisted socket. Close it, and then the Conn.
func assistedTransport(conn *packrat.Conn, trust *tls.Config) *http3.Transport {
	sockets := &quic.Transport{Conn: conn}
	return &http3.Transport{
		TLSClientConfig: trust,
		Dial: func(ctx context.Context, addr string, trust *tls.Config, config *quic.Config) (*quic.Conn, error) {
			server, err := net.ResolveUDPAddr("udp", addr)
			if err != nil {
				return nil, err
			}
			return sockets.DialEarly(ctx, server, trust, config)
		},
	}
}

func TestHTTP3RunsOverAnAssistedSocket(t *testing.T) {
	certificate, pool := selfSigned(t)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	server := &http3.Server{
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		Handler: http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			_, _ = response.Write([]byte("the file"))
		}),
	}
	defer server.Close()
	go func() { _ = server.Serve(udp) }()

	conn := wrapped(t, packrat.Settings{Scheme: packrat.Trailer})
	transport := assistedTransport(conn, &tls.Config{RootCAs: pool})
	defer transport.Close()
	response, err := (&http.Client{Transport: transport}).Get("https://" + udp.LocalAddr().String() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	statistics, isPeer := conn.Statistics(udp.LocalAddr())
	if err != nil || string(body) != "the file" || !isPeer || statistics.DeliveredDatagrams == 0 {
		t.Errorf("%q, %v, %+v", body, err, statistics)
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
