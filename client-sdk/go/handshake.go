package packrat

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/flynn/noise"
)

var (
	suite = noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashBLAKE2s)

	errOtherGateway = errors.New("the answer of a gateway with another key")
)

const longestNoise = 512

func prologue(nonce uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("packrat/2"), nonce)
}

// initiator is the client's side of one handshake (docs/PROTOCOL.md, section 6). It sends the same message on each
// request, and a refused answer has no effect: the genuine one may still come.
type initiator struct {
	nonce     uint64
	ephemeral [32]byte
	payload   []byte
	pinned    *[32]byte
}

// established is the outcome of a handshake.
type established struct {
	params     gatewayParams
	gatewayKey [32]byte
	sealing    [32]byte
	opening    [32]byte
}

func (i *initiator) begin() (*noise.HandshakeState, []byte, error) {
	state, err := noise.NewHandshakeState(noise.Config{
		CipherSuite: suite,
		Random:      bytes.NewReader(i.ephemeral[:]),
		Pattern:     noise.HandshakeNX,
		Initiator:   true,
		Prologue:    prologue(i.nonce),
	})
	if err != nil {
		return nil, nil, err
	}
	out, _, _, err := state.WriteMessage(nil, i.payload)
	return state, out, err
}

// message is Noise message 1.
func (i *initiator) message() ([]byte, error) {
	_, out, err := i.begin()
	return out, err
}

// finish reads Noise message 2.
func (i *initiator) finish(answer []byte) (established, error) {
	if len(answer) > longestNoise {
		return established{}, errMalformed
	}
	state, _, err := i.begin()
	if err != nil {
		return established{}, err
	}
	payload, sealing, opening, err := state.ReadMessage(nil, answer)
	if err != nil {
		return established{}, err
	}
	e := established{gatewayKey: [32]byte(state.PeerStatic()), sealing: sealing.UnsafeKey(), opening: opening.UnsafeKey()}
	if i.pinned != nil && *i.pinned != e.gatewayKey {
		return established{}, errOtherGateway
	}
	e.params, err = decodeGatewayParams(payload)
	return e, err
}
