package packrat

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/flynn/noise"
)

// hexBytes are written as hexadecimal digits in the vectors.
type hexBytes []byte

func (b *hexBytes) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	*b = decoded
	return err
}

// word is a 64-bit integer as 16 hexadecimal digits.
type word uint64

func (w *word) UnmarshalText(text []byte) error {
	value, err := strconv.ParseUint(string(text), 16, 64)
	*w = word(value)
	return err
}

func load(t testing.TB, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "protocol", "vectors", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func equal(t *testing.T, what string, made, expected []byte) {
	t.Helper()
	if !bytes.Equal(made, expected) {
		t.Errorf("%s:\n  made     %x\n  expected %x", what, made, expected)
	}
}

func TestVectorsOfControlDatagrams(t *testing.T) {
	var cases []struct {
		Name       string
		Nonce      hexBytes
		Versions   []int
		Noise      hexBytes
		Version    byte
		CookieTime uint32 `json:"cookie_time"`
		Cookie     hexBytes
		Reason     byte
		Session    uint32
		Counter    uint32
		Ciphertext hexBytes
		Datagram   hexBytes
	}
	load(t, "control", &cases)
	for _, want := range cases {
		c, err := decodeControl(want.Datagram)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		equal(t, want.Name, c.encode(), want.Datagram)
		r := reader{rest: want.Nonce}
		var versions []byte
		for _, listed := range want.Versions {
			versions = append(versions, byte(listed))
		}
		expected := control{kind: c.kind, noise: want.Noise, versions: versions, version: want.Version,
			cookieTime: want.CookieTime, reason: want.Reason, session: want.Session, counter: want.Counter, ciphertext: want.Ciphertext}
		if len(want.Nonce) > 0 {
			expected.nonce = r.u64()
		}
		copy(expected.cookie[:], want.Cookie)
		equal(t, want.Name+", of its fields", expected.encode(), want.Datagram)
	}
	if len(cases) < 9 {
		t.Errorf("only %d control datagrams", len(cases))
	}
}

type encoding struct{ Form, Count byte }

func TestVectorsOfMessages(t *testing.T) {
	var cases []struct {
		Name      string
		Epoch     uint16
		Reason    byte
		Data      hexBytes
		Holes     int
		Newest    identifier
		NewestAge int64 `json:"newest_age_microseconds"`
		Anchor    identifier
		Encoding  encoding
		Prefix    hexBytes
		Plaintext hexBytes
		Missing   uint16
		Settled   identifier
		Wanted    json.RawMessage
		RoundTrip uint32 `json:"round_trip_microseconds"`
		EchoAge   uint32 `json:"echo_age_microseconds"`
		Loss      uint16
		Queueing  uint32 `json:"queueing_microseconds"`
		Totals    []uint32
		Echo      json.RawMessage
	}
	load(t, "messages", &cases)
	for _, want := range cases {
		switch want.Plaintext[0] {
		case messageEack:
			made := eack{epoch: want.Epoch, echo: string(want.Echo) == "true", holes: want.Holes, newest: want.Newest,
				newestAge: time.Duration(want.NewestAge) * time.Microsecond, anchor: want.Anchor,
				form: want.Encoding.Form, count: want.Encoding.Count, prefix: want.Prefix}
			equal(t, want.Name, made.encode(), want.Plaintext)
			fallthrough
		case messageBaseline, messageCoded, messageRecovered, messageGroupCoded:
			if _, err := decodeMessage(want.Plaintext); err != errMalformed {
				t.Errorf("%s is no message for this client, but gives %v", want.Name, err)
			}
			continue
		}
		m, err := decodeMessage(want.Plaintext)
		if err != nil {
			t.Errorf("%s: %v", want.Name, err)
			continue
		}
		if m.kind == messageHoles {
			compareHoles(t, want.Name, &m.holes, want.Plaintext)
			continue
		}
		epoch, data := m.epoch, want.Data
		if m.kind == messageReport {
			r := m.report
			var wanted encoding
			if err := json.Unmarshal(want.Wanted, &wanted); err != nil {
				t.Errorf("%s: %v", want.Name, err)
			}
			echo, _ := strconv.ParseUint(string(want.Echo), 10, 32)
			expected := report{epoch: want.Epoch, echo: uint32(echo), echoAge: uint16(want.EchoAge / 16), missing: want.Missing,
				settled: want.Settled, form: wanted.Form, count: wanted.Count, roundTrip: want.RoundTrip,
				loss: want.Loss, queueing: uint16(want.Queueing / 16), totals: [6]uint32(want.Totals)}
			if r != expected {
				t.Errorf("%s:\n  made     %+v\n  expected %+v", want.Name, r, expected)
			}
			continue
		}
		if epoch != want.Epoch || m.reason != want.Reason {
			t.Errorf("%s: %+v", want.Name, m)
		}
		if data != nil {
			equal(t, want.Name, m.data[:], data)
		}
	}
	if _, err := decodeMessage([]byte{200, 1}); err != errUnknownMessage {
		t.Errorf("a message without meaning gives %v", err)
	}
}

func compareHoles(t *testing.T, name string, made *holes, plaintext []byte) {
	t.Helper()
	var cases []struct {
		Name     string
		Wanted   json.RawMessage
		Expected uint32
		Age      int64 `json:"age_microseconds"`
		Runs     []struct {
			First uint32
			Count uint16
		}
	}
	load(t, "messages", &cases)
	for _, want := range cases {
		if want.Name != name {
			continue
		}
		expected := holes{wanted: string(want.Wanted) == "true", expected: want.Expected, age: uint16(want.Age / 16)}
		for _, run := range want.Runs {
			expected.runs = append(expected.runs, holeRun{run.First, run.Count})
		}
		if !reflect.DeepEqual(*made, expected) {
			t.Errorf("%s:\n  made     %+v\n  expected %+v", name, *made, expected)
		}
	}
	for _, wrong := range [][]byte{append(bytes.Clone(plaintext), 1), append(bytes.Clone(plaintext), 0, 9, 0, 0)} {
		if _, err := decodeMessage(wrong); err != errMalformed {
			t.Errorf("%x gives %v", wrong, err)
		}
	}
}

type handshakeVector struct {
	Nonce            hexBytes
	ClientEphemeral  hexBytes `json:"client_ephemeral_private_key"`
	GatewayEphemeral hexBytes `json:"gateway_ephemeral_private_key"`
	GatewayStatic    hexBytes `json:"gateway_static_private_key"`
	GatewayKey       hexBytes `json:"gateway_static_public_key"`
	ClientParams     struct {
		Scheme       Scheme
		CodedSymbols byte  `json:"coded_symbols"`
		PowerSums    byte  `json:"power_sums"`
		MaximumHold  int64 `json:"maximum_hold_microseconds"`
		Token        hexBytes
		Versions     []int
	} `json:"client_params"`
	Message1      hexBytes `json:"noise_message_1"`
	GatewayParams struct {
		Session      uint32
		Scheme       Scheme
		CodedSymbols byte   `json:"coded_symbols"`
		PowerSums    byte   `json:"power_sums"`
		CacheBytes   uint32 `json:"cache_bytes"`
		Secret       hexBytes
	} `json:"gateway_params"`
	Names    [4]uint32
	Message2 hexBytes `json:"noise_message_2"`
	Messages []struct {
		Direction string
		Counter   uint32
		Plaintext hexBytes
		Datagram  hexBytes
	}
}

func (v *handshakeVector) initiator() *initiator {
	r := reader{rest: v.Nonce}
	wish := v.ClientParams
	var versions []byte
	for _, listed := range wish.Versions {
		versions = append(versions, byte(listed))
	}
	params := clientParams{scheme: wish.Scheme, codedSymbols: wish.CodedSymbols, powerSums: wish.PowerSums,
		maximumHold: time.Duration(wish.MaximumHold) * time.Microsecond, token: wish.Token, versions: versions}
	payload := params.encode()
	// A meaningless record follows.
	params.grease = v.Message1[32+len(payload):]
	return &initiator{nonce: r.u64(), ephemeral: [32]byte(v.ClientEphemeral), payload: params.encode()}
}

func TestVectorsOfTheHandshakeAndSealedDatagrams(t *testing.T) {
	var want handshakeVector
	load(t, "handshake", &want)
	initiator := want.initiator()
	message, err := initiator.message()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "message 1", message, want.Message1)

	forged := bytes.Clone(want.Message2)
	forged[len(forged)-1] ^= 1
	if _, err := initiator.finish(forged); err == nil {
		t.Error("a forged message 2 is accepted")
	}
	other := [32]byte{1}
	pinned := *initiator
	pinned.pinned = &other
	if _, err := pinned.finish(want.Message2); err != errOtherGateway {
		t.Errorf("another gateway's answer gives %v", err)
	}
	e, err := initiator.finish(want.Message2)
	if err != nil {
		t.Fatalf("the genuine message 2, after forged ones: %v", err)
	}
	equal(t, "the gateway's key", e.gatewayKey[:], want.GatewayKey)
	agreed := want.GatewayParams
	if e.params != (gatewayParams{agreed.Session, agreed.Scheme, agreed.CodedSymbols, agreed.PowerSums, agreed.CacheBytes,
		[32]byte(agreed.Secret), numbered{}, serverTicket{}, false, false}) {
		t.Errorf("gateway params: %+v", e.params)
	}
	if e.params.names() != want.Names {
		t.Errorf("names: %v", e.params.names())
	}
	for _, side := range []struct {
		name string
		key  [32]byte
	}{{"client to gateway", e.sealing}, {"gateway to client", e.opening}} {
		one, err := newDirection(side.key)
		if err != nil {
			t.Fatal(err)
		}
		seals, opens := sealer{direction: one, session: agreed.Session}, opener{direction: one}
		for _, sent := range want.Messages {
			if sent.Direction != side.name {
				continue
			}
			datagram, counter, err := seals.seal(sent.Plaintext)
			if err != nil || counter != sent.Counter {
				t.Fatal(counter, err)
			}
			equal(t, "sealed", datagram, sent.Datagram)
			broken := bytes.Clone(sent.Datagram)
			broken[5] ^= 1
			if _, err := opens.open(broken); err == nil {
				t.Error("the header is not authenticated")
			}
			plaintext, err := opens.open(sent.Datagram)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "opened", plaintext, sent.Plaintext)
			if _, err := opens.open(sent.Datagram); err != errReplayed {
				t.Errorf("a replayed datagram gives %v", err)
			}
		}
	}
}

func TestVectorsOfIdentifiers(t *testing.T) {
	var want struct {
		Key         [3]word
		Identifiers []struct {
			Name             string
			Datagram         hexBytes
			Trailer, Payload identifier
		}
		OfTheSession struct {
			Datagram hexBytes
			Trailer  identifier
		} `json:"of_the_session_in_handshake_json"`
	}
	load(t, "identifiers", &want)
	key := identifierKey{uint64(want.Key[0]), uint64(want.Key[1]), uint64(want.Key[2])}
	for _, entry := range want.Identifiers {
		if made := key.identify(materialOf(Trailer, entry.Datagram)); made != entry.Trailer {
			t.Errorf("%s: %d as a trailer", entry.Name, made)
		}
		if made := key.identify(materialOf(Payload, entry.Datagram)); made != entry.Payload {
			t.Errorf("%s: %d as a payload", entry.Name, made)
		}
	}
	var session handshakeVector
	load(t, "handshake", &session)
	key = identifierKeyOf([32]byte(session.GatewayParams.Secret))
	if made := key.identify(materialOf(Trailer, want.OfTheSession.Datagram)); made != want.OfTheSession.Trailer {
		t.Errorf("of the session: %d", made)
	}
}

func TestVectorsOfNumbers(t *testing.T) {
	var want struct {
		ClientParams  struct{ Flags, Largest int } `json:"client_params"`
		Message1      hexBytes                     `json:"noise_message_1"`
		GatewayParams struct {
			Secret   hexBytes
			Numbered struct{ Flags, Largest int }
		} `json:"gateway_params"`
		Message2  hexBytes `json:"noise_message_2"`
		Distinct  hexBytes `json:"noise_message_2_of_distinct_numbers"`
		Datagrams []struct {
			Name           string
			Place          uint64
			Base, Datagram hexBytes
			Identifier     identifier
		}
	}
	load(t, "numbers", &want)
	var session handshakeVector
	load(t, "handshake", &session)
	// The handshake differs from the other one's in the record and the meaningless one.
	i := session.initiator()
	i.payload = want.Message1[32:]
	e, err := i.finish(want.Message2)
	if err != nil {
		t.Fatal(err)
	}
	if int(e.params.numbered.flags) != want.GatewayParams.Numbered.Flags || int(e.params.numbered.largest) != want.GatewayParams.Numbered.Largest {
		t.Errorf("agreed: %+v", e.params.numbered)
	}
	if i = session.initiator(); e.params.distinct {
		t.Error("distinct without a record")
	}
	i.payload = want.Message1[32:]
	if e, err = i.finish(want.Distinct); err != nil || !e.params.distinct {
		t.Errorf("distinct numbers: %+v, %v", e, err)
	}
	wish := clientParams{numbered: numbered{byte(want.ClientParams.Flags), uint16(want.ClientParams.Largest)}}
	if !bytes.Contains(want.Message1, wish.encode()[8:8+5]) {
		t.Errorf("the wish is not %x", wish.encode()[8:8+5])
	}
	numbers, identifiers := numberKeyOf([32]byte(want.GatewayParams.Secret)), identifierKeyOf([32]byte(want.GatewayParams.Secret))
	for _, entry := range want.Datagrams {
		masked, base, ok := splitNumber(entry.Datagram)
		if !ok {
			t.Fatalf("%s has no number", entry.Name)
		}
		equal(t, entry.Name, base, entry.Base)
		value := identifiers.identify(materialOf(Trailer, base))
		if value != entry.Identifier {
			t.Errorf("%s: identifier %d", entry.Name, value)
		}
		for _, distance := range []uint64{0, 5, 1000} {
			if place := numbers.place(masked, value, entry.Place+distance); place != entry.Place {
				t.Errorf("%s, %d behind: place %d", entry.Name, distance, place)
			}
			if before := entry.Place - min(distance, entry.Place); numbers.place(masked, value, before) != entry.Place {
				t.Errorf("%s, ahead of %d", entry.Name, before)
			}
		}
	}
}

func TestVectorsOfBundles(t *testing.T) {
	var want struct {
		Message1 hexBytes `json:"noise_message_1"`
		Message2 hexBytes `json:"noise_message_2"`
		Bundles  []struct {
			Name            string
			Datagrams       []hexBytes
			Message, Bundle hexBytes
		}
	}
	load(t, "bundles", &want)
	var session handshakeVector
	load(t, "handshake", &session)
	i := session.initiator()
	params := clientParams{scheme: Trailer, powerSums: 129, bundles: true}
	without := params
	without.bundles = false
	if record := params.encode()[8:]; len(record) != len(without.encode()[8:])+2 || !bytes.Contains(want.Message1, record[:2]) {
		t.Errorf("the wish is not %x", record)
	}
	i.payload = want.Message1[32:]
	e, err := i.finish(want.Message2)
	if err != nil || !e.params.bundles {
		t.Errorf("agreed: %+v, %v", e.params, err)
	}
	for _, entry := range want.Bundles {
		var datagrams [][]byte
		for _, datagram := range entry.Datagrams {
			datagrams = append(datagrams, datagram)
		}
		made := joinBundle(datagrams, entry.Message)
		equal(t, entry.Name, made, entry.Bundle)
		if apart, message, ok := splitBundle(made); !ok || len(apart) != len(datagrams) || !bytes.Equal(message, entry.Message) {
			t.Errorf("%s comes apart into %x and %x", entry.Name, apart, message)
		}
	}
	short, long := bytes.Repeat([]byte{0x41}, 21), bytes.Repeat([]byte{0x41}, 255)
	for _, wrong := range [][][]byte{nil, {short[1:]}, {append(long, 0x41)}, slices.Repeat([][]byte{short}, 17), {long, long, long, long, long},
		{want.Bundles[0].Bundle[:40]}} {
		if made := joinBundle(wrong, nil); made != nil {
			t.Errorf("%d datagrams are joined", len(wrong))
		}
	}
}

// splitBundle is the gateway's side of bundles.
func splitBundle(datagram []byte) (datagrams [][]byte, message []byte, ok bool) {
	if !isBundle(datagram) {
		return nil, nil, false
	}
	r := reader{rest: datagram[controlLength:]}
	for _, length := range r.take(int(r.u8())) {
		datagrams = append(datagrams, r.take(int(length)))
	}
	return datagrams, r.rest, r.err == nil
}

func TestVectorsOfPowerSums(t *testing.T) {
	type prefix struct {
		encoding
		Prefix hexBytes
	}
	var want struct {
		Sketches []struct {
			Name        string
			Identifiers []identifier
			Prefixes    []prefix
		}
		OfTheSession struct {
			Identifiers []identifier
			prefix
		} `json:"of_the_session_in_handshake_json"`
	}
	load(t, "sketches", &want)
	compared := 0
	for _, entry := range want.Sketches {
		set := newPowerSums(255)
		for _, value := range entry.Identifiers {
			set.insert(value)
		}
		for _, made := range entry.Prefixes {
			if made.Form == formPowerSums {
				equal(t, entry.Name, set.prefix(int(made.Count)), made.Prefix)
				compared++
			}
		}
	}
	if compared < 4 {
		t.Errorf("only %d prefixes", compared)
	}
}

// respond is the gateway's side of a handshake.
func respond(t testing.TB, static noise.DHKey, nonce uint64, message []byte, payload func(params []byte) []byte) (answer []byte, opening, sealing [32]byte) {
	state, err := noise.NewHandshakeState(noise.Config{CipherSuite: suite, Pattern: noise.HandshakeNX, Prologue: prologue(nonce), StaticKeypair: static})
	if err != nil {
		t.Fatal(err)
	}
	params, _, _, err := state.ReadMessage(nil, message)
	if err != nil {
		t.Fatal(err)
	}
	answer, first, second, err := state.WriteMessage(nil, payload(params))
	if err != nil {
		t.Fatal(err)
	}
	return answer, first.UnsafeKey(), second.UnsafeKey()
}
