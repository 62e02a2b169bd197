// Downloads with quic-go over HTTP/3: unmodified, through its public interface.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// A line about the download: how far it is, and at the end all of it.
type line struct {
	Bytes   int64   `json:"bytes"`
	Sum     string  `json:"sha256,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Status  int     `json:"status,omitempty"`
	Partial bool    `json:"partial,omitempty"`
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: download ADDRESS FILE AUTHORITY SECONDS")
		os.Exit(2)
	}
	if err := download(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func download(address, file, authority, patience string) error {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate", authority)
	}
	seconds, err := strconv.ParseFloat(patience, 64)
	if err != nil {
		return err
	}
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/"+file, nil)
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
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return err
	}
	return output.Encode(line{
		Bytes:   count,
		Sum:     hex.EncodeToString(sum.Sum(nil)),
		Seconds: time.Since(begun).Seconds(),
		Status:  status,
		Partial: !errors.Is(err, io.EOF),
	})
}
