// Tunnels with repair of their own between a client and the gateway's place, as alternatives to compare Packrat with: Hysteria 2 (its core
// library, with its defaults), and kcptun's two libraries, KCP with forward error correction and smux, with kcptun's defaults.
//
//	tunnel serve hysteria LISTEN TARGET CHAIN KEY
//	tunnel serve kcp LISTEN TARGET
//	tunnel get hysteria ADDRESS FILE AUTHORITY SECONDS [MBIT/S]
//	tunnel get kcp ADDRESS FILE AUTHORITY SECONDS
//
// `serve` hands each stream to the TCP address TARGET. `get` downloads a file through the tunnel over plain HTTP, and prints its progress.
package main

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/apernet/hysteria/core/v2/client"
	"github.com/apernet/hysteria/core/v2/server"
	"github.com/xtaci/kcp-go/v5"
	"github.com/xtaci/smux"
	"golang.org/x/crypto/pbkdf2"
)

// The secret of both ends.
const secret = "packrat"

// A line about the download: how far it is, and at the end all of it.
type line struct {
	Bytes   int64   `json:"bytes"`
	Sum     string  `json:"sha256,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Status  int     `json:"status,omitempty"`
	Partial bool    `json:"partial,omitempty"`
}

// A function that opens a stream through the tunnel.
type dialer func() (net.Conn, error)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	usage := errors.New("usage: tunnel serve|get hysteria|kcp ADDRESS …")
	if len(arguments) < 4 {
		return usage
	}
	action, kind, address, rest := arguments[0], arguments[1], arguments[2], arguments[3:]
	switch {
	case action == "serve" && kind == "hysteria" && len(rest) == 3:
		return serveHysteria(address, rest[0], rest[1], rest[2])
	case action == "serve" && kind == "kcp" && len(rest) == 1:
		return serveKcp(address, rest[0])
	case action == "get" && len(rest) >= 3:
		var dial dialer
		var err error
		switch kind {
		case "hysteria":
			dial, err = dialHysteria(address, rest[1], rest[3:])
		case "kcp":
			dial, err = dialKcp(address)
		default:
			return usage
		}
		if err != nil {
			return err
		}
		return download(dial, rest[0], rest[2])
	}
	return usage
}

// Any client with the secret.
type authenticator struct{}

func (authenticator) Authenticate(_ net.Addr, auth string, _ uint64) (bool, string) {
	return auth == secret, "client"
}

// Leads every stream to one address.
type outbound struct{ target string }

func (o outbound) TCP(string) (net.Conn, error) { return net.Dial("tcp", o.target) }
func (outbound) UDP(string) (server.UDPConn, error) {
	return nil, errors.New("this tunnel carries no datagrams")
}
func (outbound) CheckUDP(string) error { return errors.New("this tunnel carries no datagrams") }

func serveHysteria(address, target, chain, key string) error {
	pair, err := tls.LoadX509KeyPair(chain, key)
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	tunnel, err := server.NewServer(&server.Config{
		TLSConfig:     server.TLSConfig{Certificates: []tls.Certificate{pair}},
		Conn:          conn,
		Outbound:      outbound{target},
		Authenticator: authenticator{},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return tunnel.Serve()
}

// A rate in Mbit/s makes Hysteria send at that rate whatever is lost (its "Brutal"), without one it uses BBR.
func dialHysteria(address, authority string, rate []string) (dialer, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", authority)
	}
	peer, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	bandwidth := client.BandwidthConfig{}
	if len(rate) > 0 {
		mbps, err := strconv.ParseFloat(rate[0], 64)
		if err != nil {
			return nil, err
		}
		bandwidth.MaxRx, bandwidth.MaxTx = uint64(mbps*1e6/8), uint64(mbps*1e6/8)
	}
	tunnel, _, err := client.NewClient(&client.Config{
		ServerAddr:      peer,
		Auth:            secret,
		TLSConfig:       client.TLSConfig{ServerName: "localhost", RootCAs: roots},
		BandwidthConfig: bandwidth,
	})
	if err != nil {
		return nil, err
	}
	return func() (net.Conn, error) { return tunnel.TCP("server:80") }, nil
}

// kcptun's defaults: mode "fast", AES, 10 data and 3 parity shards, datagrams of 1350 bytes.
const (
	kcpMode                                   = 0
	kcpInterval, kcpResend, kcpNoControl      = 30, 2, 1
	kcpDataShards, kcpParityShards, kcpMtu    = 10, 3, 1350
	kcpServerWindow                           = 1024
	kcpClientSend, kcpClientReceive           = 128, 512
	kcpSocketBuffer                           = 4194304
	smuxVersion, smuxBuffer, smuxStreamBuffer = 2, 4194304, 2097152
	smuxKeepAlive                             = 10 * time.Second
)

func kcpCipher() (kcp.BlockCrypt, error) {
	return kcp.NewAESBlockCrypt(pbkdf2.Key([]byte(secret), []byte("kcp-go"), 4096, 32, sha1.New))
}

func configureKcp(conn *kcp.UDPSession, send, receive int) {
	conn.SetStreamMode(true)
	conn.SetWriteDelay(false)
	conn.SetNoDelay(kcpMode, kcpInterval, kcpResend, kcpNoControl)
	conn.SetMtu(kcpMtu)
	conn.SetWindowSize(send, receive)
	conn.SetACKNoDelay(false)
}

func smuxConfiguration() *smux.Config {
	config := smux.DefaultConfig()
	config.Version = smuxVersion
	config.MaxReceiveBuffer = smuxBuffer
	config.MaxStreamBuffer = smuxStreamBuffer
	config.KeepAliveInterval = smuxKeepAlive
	return config
}

func serveKcp(address, target string) error {
	cipher, err := kcpCipher()
	if err != nil {
		return err
	}
	listener, err := kcp.ListenWithOptions(address, cipher, kcpDataShards, kcpParityShards)
	if err != nil {
		return err
	}
	listener.SetReadBuffer(kcpSocketBuffer)
	listener.SetWriteBuffer(kcpSocketBuffer)
	fmt.Println("ready")
	for {
		conn, err := listener.AcceptKCP()
		if err != nil {
			return err
		}
		configureKcp(conn, kcpServerWindow, kcpServerWindow)
		session, err := smux.Server(conn, smuxConfiguration())
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := session.AcceptStream()
				if err != nil {
					return
				}
				go forward(stream, target)
			}
		}()
	}
}

func forward(stream net.Conn, target string) {
	defer stream.Close()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		io.Copy(conn, stream)
		conn.Close()
	}()
	io.Copy(stream, conn)
}

func dialKcp(address string) (dialer, error) {
	cipher, err := kcpCipher()
	if err != nil {
		return nil, err
	}
	conn, err := kcp.DialWithOptions(address, cipher, kcpDataShards, kcpParityShards)
	if err != nil {
		return nil, err
	}
	configureKcp(conn, kcpClientSend, kcpClientReceive)
	conn.SetReadBuffer(kcpSocketBuffer)
	conn.SetWriteBuffer(kcpSocketBuffer)
	session, err := smux.Client(conn, smuxConfiguration())
	if err != nil {
		return nil, err
	}
	return func() (net.Conn, error) { return session.OpenStream() }, nil
}

func download(dial dialer, file, patience string) error {
	seconds, err := strconv.ParseFloat(patience, 64)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return dial() },
		DisableCompression: true,
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/"+file, nil)
	if err != nil {
		return err
	}
	output := json.NewEncoder(os.Stdout)
	begun := time.Now()
	sum, count, status, shown := sha256.New(), int64(0), 0, begun
	answer, err := transport.RoundTrip(request)
	if err == nil {
		defer answer.Body.Close()
		status = answer.StatusCode
		buffer := make([]byte, 1<<16)
		for err == nil {
			var length int
			length, err = answer.Body.Read(buffer)
			sum.Write(buffer[:length])
			count += int64(length)
			if time.Since(shown) > 100*time.Millisecond {
				shown = time.Now()
				output.Encode(line{Bytes: count})
			}
		}
	}
	partial := ctx.Err() != nil
	if !partial && !errors.Is(err, io.EOF) {
		return err
	}
	return output.Encode(line{
		Bytes:   count,
		Sum:     hex.EncodeToString(sum.Sum(nil)),
		Seconds: time.Since(begun).Seconds(),
		Status:  status,
		Partial: partial,
	})
}
