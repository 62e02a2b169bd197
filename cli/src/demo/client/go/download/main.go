// Downloads with quic-go over HTTP/3: unmodified, through its public interface.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/quic-go/quic-go/http3"

	"packrat.dev/packrat/transfer"
)

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
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.Close()
	return transfer.Download(transport, "https://"+address+"/"+file, patience)
}
