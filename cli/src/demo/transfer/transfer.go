// Package transfer downloads a file and prints how far it is, for the programs that the demo and the laboratory start.
package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// A line about the download: how far it is, and at the end all of it.
type line struct {
	Bytes   int64   `json:"bytes"`
	Sum     string  `json:"sha256,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Status  int     `json:"status,omitempty"`
	Partial bool    `json:"partial,omitempty"`
}

// Download gets url over the transport within a limit of seconds, and prints lines of JSON. A download that is not finished by then is
// partial, and no error.
func Download(transport http.RoundTripper, url, patience string) error {
	seconds, err := strconv.ParseFloat(patience, 64)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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
