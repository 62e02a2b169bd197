package packrat

import (
	"fmt"
	"log/slog"
	"math"
	"time"
)

const (
	// DefaultMaximumHold is the longest time that a datagram waits for the repair of an earlier one, unless Settings has
	// another. The actual time follows the measured last mile.
	DefaultMaximumHold = time.Second

	maximumToken = 200
	ourPowerSums = 129
)

// Settings of a client. The zero value asks any gateway, for a transport of any kind.
type Settings struct {
	// Scheme of identifiers; 0: Payload. QUIC's is Trailer.
	Scheme Scheme
	// MaximumHold is the longest time that a datagram waits for the repair of an earlier one; 0: DefaultMaximumHold,
	// negative: datagrams never wait.
	MaximumHold time.Duration
	// GatewayKey is the key of the gateway to accept; nil: any, on first use.
	GatewayKey *[32]byte
	// Token is the token that a token endpoint has issued; nil: no token. SetAccess takes the next one.
	Token []byte
	// Uploads repairs the program's own datagrams as well, if the gateway agrees.
	Uploads bool
	// Logger gets a record whenever the Condition of a peer changes, at the level Info, or Error for Failed; nil: no
	// records. Its handler must not call the Conn.
	Logger *slog.Logger
}

func (s Settings) params() (clientParams, error) {
	p := clientParams{scheme: s.Scheme, powerSums: ourPowerSums, maximumHold: s.MaximumHold, token: s.Token,
		bundles:  true,
		numbered: numbered{toClient, math.MaxUint16}}
	if s.Uploads {
		p.numbered.flags |= toServer
	}
	if p.scheme == 0 {
		p.scheme = Payload
	}
	if p.scheme != Trailer && p.scheme != Payload {
		return p, fmt.Errorf("%w %d: set Trailer, Payload, or 0", ErrScheme, s.Scheme)
	}
	if err := checkToken(s.Token); err != nil {
		return p, err
	}
	if p.maximumHold == 0 {
		p.maximumHold = DefaultMaximumHold
	}
	p.maximumHold = max(p.maximumHold, 0)
	return p, nil
}

func checkToken(token []byte) error {
	if len(token) > maximumToken {
		return fmt.Errorf("%w: it has %d bytes, a gateway issues at most %d; ask for another one", ErrTokenTooLong, len(token), maximumToken)
	}
	return nil
}

// Condition is the state of the assistance for a peer.
type Condition string

const (
	// Assisted: a gateway repairs.
	Assisted Condition = "assisted"
	// Asking: a gateway is asked for.
	Asking Condition = "asking"
	// NoGateway: no gateway answers; it is asked again now and then.
	NoGateway Condition = "no_gateway"
	// Refused: a gateway will not assist.
	Refused Condition = "refused"
	// Failed: the shim has failed, and was put away; datagrams pass.
	Failed Condition = "failed"
)

// Statistics are the figures of a peer, the same in every SDK.
type Statistics struct {
	Condition Condition
	// RoundTrip to the gateway; 0: not measured yet.
	RoundTrip time.Duration
	// SentDatagrams and SentBytes are the program's (UDP payload).
	SentDatagrams, SentBytes uint64
	// DeliveredDatagrams and DeliveredBytes count the datagrams that the program got (UDP payload).
	DeliveredDatagrams, DeliveredBytes uint64
	// Sessions with gateways that were begun.
	Sessions uint64
	// Holes are datagrams that were missing when a later one arrived.
	Holes uint64
	// RepairedInTime are missing datagrams that were repaired before the program could notice.
	RepairedInTime uint64
	// RepairedLate are missing datagrams that were repaired after a later one had been passed on.
	RepairedLate uint64
	// GivenUp are missing datagrams whose wait ended without a repair.
	GivenUp uint64
	// Kept are datagrams that waited for a repair of an earlier one.
	Kept uint64
	// Duplicates are datagrams that came more than once.
	Duplicates uint64
	// ControlDropped are control datagrams that were dropped as malformed, forged or replayed.
	ControlDropped uint64
	// Eacks are reports to gateways, of EackBytes bytes (UDP payload).
	Eacks, EackBytes uint64
	// UpwardNumbered are datagrams to the gateway that had a number, UpwardMissing the numbered ones that it missed,
	// UpwardRepairs the datagrams that were sent again, with UpwardRepairBytes (UDP payload).
	UpwardNumbered, UpwardMissing, UpwardRepairs, UpwardRepairBytes uint64
	// ControlBytesSent and ControlBytesReceived are the bytes of all control datagrams (UDP payload).
	ControlBytesSent, ControlBytesReceived uint64
}
