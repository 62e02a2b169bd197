// Package token fetches the tokens by which a gateway assists a client, from its token endpoint over HTTPS.
package token

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// WellKnownPath is the path of a host's token endpoint.
const WellKnownPath = "/.well-known/packrat"

const (
	longestDocument = 16 * 1024
	longestHold     = time.Second
	longestToken    = 200
)

// ErrDocument is the error for an answer that is not a token endpoint's document.
var ErrDocument = errors.New("packrat: the answer is not that of a token endpoint")

// Token is a permission with the gateway that it is for: the fields of packrat.Settings, and the arguments of
// Conn.SetAccess.
type Token struct {
	Token      []byte
	GatewayKey [32]byte
	// MaximumHold is the hold that the endpoint asks for, at most a second, as in packrat.Settings; 0: none asked for.
	MaximumHold time.Duration
	// Expires is the end of the permission; zero: unknown.
	Expires time.Time
}

// Fetch asks the token endpoint at an https URL, and follows no redirection. nil: http.DefaultClient.
func Fetch(ctx context.Context, client *http.Client, url string) (Token, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Token{}, err
	}
	if request.URL.Scheme != "https" {
		return Token{}, fmt.Errorf("packrat: the URL of the token endpoint is %s: it must begin with https://", request.URL.Redacted())
	}
	if client == nil {
		client = http.DefaultClient
	}
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := direct.Do(request)
	if err != nil {
		return Token{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Token{}, fmt.Errorf("packrat: the token endpoint %s answers with %s", request.URL.Redacted(), response.Status)
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, longestDocument+1))
	if err != nil {
		return Token{}, err
	}
	if len(document) > longestDocument {
		return Token{}, fmt.Errorf("%w: it has more than %d bytes", ErrDocument, longestDocument)
	}
	return parse(document)
}

func parse(document []byte) (Token, error) {
	var fields struct {
		Version    int    `json:"version"`
		GatewayKey string `json:"gateway_key"`
		Token      string `json:"token"`
		Expires    *int64 `json:"expires"`
		Parameters struct {
			MaximumHold *uint64 `json:"maximum_hold_ms"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(document, &fields); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if fields.Version != 1 {
		return Token{}, fmt.Errorf("%w: its version is %d, and 1 is the only one known here", ErrDocument, fields.Version)
	}
	key, err := hex.DecodeString(fields.GatewayKey)
	if err != nil || len(key) != 32 {
		return Token{}, fmt.Errorf("%w: gateway_key is not 64 hexadecimal digits", ErrDocument)
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(fields.Token)
	if err != nil || len(token) > longestToken {
		return Token{}, fmt.Errorf("%w: its token is not base64url of at most %d bytes", ErrDocument, longestToken)
	}
	out := Token{Token: token, GatewayKey: [32]byte(key)}
	if fields.Expires != nil {
		out.Expires = time.Unix(*fields.Expires, 0)
	}
	switch hold := fields.Parameters.MaximumHold; {
	case hold == nil:
	case *hold == 0:
		out.MaximumHold = -1
	default:
		out.MaximumHold = time.Duration(min(*hold, uint64(longestHold/time.Millisecond))) * time.Millisecond
	}
	return out, nil
}
