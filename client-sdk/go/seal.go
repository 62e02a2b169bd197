package packrat

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"
)

// Sealed datagrams (docs/PROTOCOL.md, section 7).
const (
	sealedHeader = 13
	tagLength    = chacha20poly1305.Overhead
	replayWindow = 1024
	lastCounter  = 1<<32 - 1 // not used
)

var (
	errExhausted = errors.New("the counter is exhausted")
	errReplayed  = errors.New("replayed")
)

// direction holds the key of one direction of a session.
type direction struct {
	key  [32]byte
	aead cipher.AEAD
}

func newDirection(key [32]byte) (direction, error) {
	aead, err := chacha20poly1305.New(key[:])
	return direction{key, aead}, err
}

// mask hides the counter from the path.
func (d *direction) mask(tag []byte) (uint32, error) {
	nonce := append([]byte("mask"), tag[4:12]...)
	stream, err := chacha20.NewUnauthenticatedCipher(d.key[:], nonce)
	if err != nil {
		return 0, err
	}
	stream.SetCounter(binary.LittleEndian.Uint32(tag))
	var block [4]byte
	stream.XORKeyStream(block[:], block[:])
	return binary.BigEndian.Uint32(block[:]), nil
}

func nonceOf(counter uint32) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 4, 12), uint64(counter))
}

func sealedHeaderOf(session, counter uint32) []byte {
	out := binary.BigEndian.AppendUint32(header(typeSealed), session)
	return binary.BigEndian.AppendUint32(out, counter)
}

// sealer seals a client's messages.
type sealer struct {
	direction
	session uint32
	next    uint32
}

// seal returns the datagram and its counter.
func (s *sealer) seal(plaintext []byte) ([]byte, uint32, error) {
	counter := s.next
	if counter == lastCounter {
		return nil, 0, errExhausted
	}
	s.next++
	head := sealedHeaderOf(s.session, counter)
	out := s.aead.Seal(head, nonceOf(counter), plaintext, head)
	mask, err := s.mask(out[len(out)-tagLength:])
	if err != nil {
		return nil, 0, err
	}
	binary.BigEndian.PutUint32(out[9:], counter^mask)
	return out, counter, nil
}

// opener opens a gateway's messages, each once.
type opener struct {
	direction
	// The counter behind the highest accepted one.
	expected uint64
	seen     [replayWindow / 64]uint64
}

func (o *opener) open(datagram []byte) ([]byte, error) {
	if len(datagram) > longest || len(datagram) < sealedHeader+tagLength {
		return nil, errMalformed
	}
	mask, err := o.mask(datagram[len(datagram)-tagLength:])
	if err != nil {
		return nil, err
	}
	session := binary.BigEndian.Uint32(datagram[5:])
	counter := binary.BigEndian.Uint32(datagram[9:]) ^ mask
	if counter == lastCounter || o.isKnown(uint64(counter)) {
		return nil, errReplayed
	}
	plaintext, err := o.aead.Open(nil, nonceOf(counter), datagram[sealedHeader:], sealedHeaderOf(session, counter))
	if err != nil {
		return nil, err
	}
	o.accept(uint64(counter))
	return plaintext, nil
}

func (o *opener) isKnown(counter uint64) bool {
	if counter >= o.expected {
		return false
	}
	slot, bit := counter%replayWindow/64, uint64(1)<<(counter%64)
	return counter+replayWindow < o.expected || o.seen[slot]&bit != 0
}

func (o *opener) accept(counter uint64) {
	if counter >= o.expected+replayWindow {
		clear(o.seen[:])
		o.expected = counter
	}
	for ; o.expected <= counter; o.expected++ {
		o.seen[o.expected%replayWindow/64] &^= 1 << (o.expected % 64)
	}
	o.seen[counter%replayWindow/64] |= 1 << (counter % 64)
}
