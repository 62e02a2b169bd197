// Package pion is an example: a peer of pion's WebRTC on an assisted socket. Losses on the last mile are repaired
// below it, before the peer notices.
package pion

import (
	"net"

	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"

	"packrat.dev/packrat"
)

// NewAPI returns pion's API with all of its datagrams on the socket, an assisted one or any other. Without options it
// has pion's own interceptors, including its requests for missing packets end to end.
func NewAPI(conn net.PacketConn, options ...func(*webrtc.API)) (*webrtc.API, error) {
	codecs := &webrtc.MediaEngine{}
	if err := codecs.RegisterDefaultCodecs(); err != nil {
		return nil, err
	}
	settings := webrtc.SettingEngine{}
	settings.SetICEUDPMux(webrtc.NewICEUDPMux(logging.NewDefaultLoggerFactory().NewLogger("packrat"), conn))
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetIncludeLoopbackCandidate(true)
	options = append(options, webrtc.WithSettingEngine(settings), webrtc.WithMediaEngine(codecs))
	return webrtc.NewAPI(options...), nil
}

// Assisted opens the socket of a peer whose other end is behind a gateway.
func Assisted(local *net.UDPAddr) (*packrat.Conn, error) {
	udp, err := net.ListenUDP("udp4", local)
	if err != nil {
		return nil, err
	}
	// RTP and DTLS need not end in a tag: the whole payload identifies a datagram.
	return packrat.Wrap(udp, packrat.Settings{Scheme: packrat.Payload})
}
