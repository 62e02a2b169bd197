package packrat

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// FuzzDatagramsFromOutside gives a shim with a session any datagrams, numbers and messages, between genuine ones.
// Each step of the input is a kind, a length, and that number of bytes.
func FuzzDatagramsFromOutside(f *testing.F) {
	step := func(kind byte, content []byte) []byte {
		content = content[:min(len(content), 255)]
		return append([]byte{kind, byte(len(content))}, content...)
	}
	var datagrams []struct{ Datagram hexBytes }
	load(f, "control", &datagrams)
	var all []byte
	for _, seed := range datagrams {
		f.Add(step(0, seed.Datagram))
		all = append(all, step(0, seed.Datagram)...)
	}
	var messages []struct{ Plaintext hexBytes }
	load(f, "messages", &messages)
	for _, seed := range messages {
		f.Add(step(2, seed.Plaintext))
		all = append(append(all, step(2, seed.Plaintext)...), step(1, seed.Plaintext)...)
	}
	f.Add(append(all, step(4, []byte{5})...))
	f.Add(append(step(3, []byte{3, 1}), step(4, []byte{250})...))
	f.Add(bytes.Repeat(append(step(5, acknowledgement(1, 0)), step(4, []byte{1})...), 90))
	f.Fuzz(func(t *testing.T, input []byte) {
		uploads := settings()
		uploads.Uploads = true
		w := newWorld(t, 1, uploads)
		w.forged = true
		w.gateway.withCookie = len(input)%2 == 1
		w.run(100 * time.Millisecond)
		index := 0
		for len(input) >= 2 && index < 200 {
			kind, length := input[0], min(int(input[1]), len(input)-2)
			content := input[2 : 2+length]
			input = input[2+length:]
			switch kind % 6 {
			case 0:
				w.receive(content)
			case 1:
				w.receive(append(header(typeNumbered), content...))
			case 2: // of a gateway that has turned against its client
				if datagram, _, err := w.gateway.seals.seal(content); err == nil {
					w.receive(datagram)
				}
			case 3: // a number at a distance
				place := uint64(len(w.gateway.places))
				if length >= 2 {
					place += uint64(int64(int16(binary.BigEndian.Uint16(content))))
				}
				index++
				payload := datagramOf(index)
				value := w.gateway.key.identify(materialOf(Trailer, payload))
				masked := (uint32(place) + w.gateway.numbers.mask(value)) % numberModulus
				w.receive(append(append(header(typeNumbered), byte(masked>>16), byte(masked>>8), byte(masked)), payload...))
			case 4:
				w.run(time.Duration(length) * time.Millisecond)
			case 5:
				w.send(content)
			}
			index++
			w.forward(index)
			w.upload(index)
			if waiting := len(w.shim.release.waiting); waiting > mostWaiting || len(w.shim.hold.holes) > mostHoles {
				t.Fatalf("%d wait for %d holes", waiting, len(w.shim.hold.holes))
			}
		}
		w.run(3 * time.Second)
		w.assertNothingIsLost(testHold)
		if len(w.shim.release.waiting) > 0 {
			t.Errorf("%d wait for ever", len(w.shim.release.waiting))
		}
	})
}
