package token

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func document() string {
	return `{"version":1,"gateway_key":"` + strings.Repeat("0a", 32) +
		`","token":"AQID","expires":9,"parameters":{"maximum_hold_ms":80,"later":1},"later":[]}`
}

func TestATokenIsFetchedFromItsEndpoint(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case WellKnownPath:
			_, _ = response.Write([]byte(document()))
		case "/moved":
			http.Redirect(response, request, WellKnownPath, http.StatusFound)
		default:
			http.NotFound(response, request)
		}
	}))
	defer server.Close()
	token, err := Fetch(t.Context(), server.Client(), server.URL+WellKnownPath)
	if err != nil || string(token.Token) != "\x01\x02\x03" || token.GatewayKey[31] != 10 ||
		token.MaximumHold != 80*time.Millisecond || !token.Expires.Equal(time.Unix(9, 0)) {
		t.Errorf("%+v, %v", token, err)
	}
	for url, part := range map[string]string{
		server.URL + "/other": "404",
		server.URL + "/moved": "302",
		"http://127.0.0.1/":   "must begin with https://",
	} {
		if _, err := Fetch(t.Context(), server.Client(), url); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAnEndpointAsksForAHoldOfAtMostASecond(t *testing.T) {
	for text, hold := range map[string]time.Duration{"0": -1, "1000": time.Second, "18446744073709551615": time.Second} {
		token, err := parse([]byte(strings.Replace(document(), "80", text, 1)))
		if err != nil || token.MaximumHold != hold {
			t.Errorf("%s: %v, %v", text, token.MaximumHold, err)
		}
	}
	if token, err := parse([]byte(strings.Replace(document(), "maximum_hold_ms", "other", 1))); err != nil || token.MaximumHold != 0 {
		t.Errorf("%+v, %v", token, err)
	}
}

func TestWrongDocumentsAreRefused(t *testing.T) {
	for _, wrong := range [][2]string{
		{`"version":1`, `"version":2`}, {`"version":1,`, ""}, {"0a0a", "0a"}, {"0a0a", "xx0a"}, {"AQID", "AQ+D"},
		{"AQID", strings.Repeat("A", 400)}, {"{", "<html>"},
	} {
		if _, err := parse([]byte(strings.Replace(document(), wrong[0], wrong[1], 1))); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", wrong[1], err)
		}
	}
}
