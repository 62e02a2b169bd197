package packrat

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Scheme is the source of datagrams' identifiers (docs/PROTOCOL.md, section 8).
type Scheme byte

const (
	// Trailer takes the last 16 bytes of a datagram: for transports whose packets end with an
	// authentication tag, such as QUIC.
	Trailer Scheme = 1
	// Payload takes all of a datagram: for any other transport.
	Payload Scheme = 2
)

// identifier stands for a datagram: 1 to prime - 1; 0: no identifier.
type identifier uint32

// prime is the order of the field of identifiers.
const prime = 1<<32 - 5

func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// derive makes four words from a secret and a label.
func derive(secret [32]byte, label string) [4]uint64 {
	digest := sha256.Sum256(append(secret[:len(secret):len(secret)], label...))
	var words [4]uint64
	for at := range words {
		words[at] = binary.BigEndian.Uint64(digest[8*at:])
	}
	return words
}

// material is the part of a datagram that its identifier is made of.
type material struct {
	first, second uint64
	length        int
}

// materialOf takes it without the SCONE packet in front, which the path may rewrite.
func materialOf(scheme Scheme, datagram []byte) material {
	datagram = behindScone(datagram)
	length := len(datagram)
	if scheme == Trailer && length >= 16 {
		tail := datagram[length-16:]
		second := binary.LittleEndian.Uint64(tail[8:])
		if second != 0 {
			return material{binary.LittleEndian.Uint64(tail), second, length}
		}
	}
	hash := xxh3.Hash128(datagram)
	return material{hash.Lo, hash.Hi, length}
}

// identifierKey keys the identifiers of a session.
type identifierKey [3]uint64

func identifierKeyOf(secret [32]byte) identifierKey {
	words := derive(secret, "packrat/2 identifier")
	return identifierKey(words[:3])
}

func (k identifierKey) identify(m material) identifier {
	mixed := fold(m.first^k[0], m.second^k[1])
	mixed = fold(mixed^k[2], uint64(m.length)^0x9e3779b97f4a7c15)
	return identifier((mixed>>32)*(prime-1)>>32) + 1
}

// numberKey masks the numbers of a session.
type numberKey [2]uint64

func numberKeyOf(secret [32]byte) numberKey {
	words := derive(secret, "packrat/2 number")
	return numberKey(words[:2])
}

// upwardNumberKeyOf is the key of the numbers towards the server.
func upwardNumberKeyOf(secret [32]byte) numberKey {
	words := derive(secret, "packrat/2 number up")
	return numberKey(words[:2])
}

func (k numberKey) mask(value identifier) uint32 {
	return uint32(fold(uint64(value)^k[0], k[1])) % numberModulus
}

// place is the place next to expected, ahead or behind, that a number stands for.
func (k numberKey) place(number uint32, value identifier, expected uint64) uint64 {
	low := (number - k.mask(value)) % numberModulus
	ahead := uint64((low - uint32(expected)) % numberModulus)
	behind := numberModulus - ahead
	if ahead < behind || behind > expected { // there are no places before the first
		return expected + ahead
	}
	return expected - behind
}

// powerSums is the sketch of a set of identifiers (section 9).
type powerSums struct {
	size uint16
	sums []uint32
}

func newPowerSums(count int) *powerSums {
	return &powerSums{sums: make([]uint32, count)}
}

func (s *powerSums) insert(value identifier) {
	s.size++
	power := uint64(1)
	for at := range s.sums {
		power = power * uint64(value) % prime
		s.sums[at] = uint32((uint64(s.sums[at]) + power) % prime)
	}
}

func (s *powerSums) prefix(count int) []byte {
	out := make([]byte, 0, 2+4*count)
	out = binary.BigEndian.AppendUint16(out, s.size)
	for _, sum := range s.sums[:count] {
		out = binary.BigEndian.AppendUint32(out, sum)
	}
	return out
}
