package pion

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"packrat.dev/packrat"
	"packrat.dev/packrat/internal/lastmile"
)

const (
	packets  = 2000
	interval = 1500 * time.Microsecond
	patience = 5 * time.Minute
	// Time without a packet after which no more are expected.
	longestGap = 10 * time.Second
)

type pathFigures struct {
	IsOnTime bool   `json:"on_time"`
	Lost     uint64 `json:"server_lost"`
}

// lossyPath starts packrat-path: a real gateway in front of the server, and a last mile that loses 4 %. The function ends it, and returns
// its figures.
func lossyPath(t *testing.T, server net.Addr) (string, func() pathFigures) {
	t.Helper()
	var begun struct{ Server string }
	end := lastmile.Start(t, &begun, filepath.Join(t.TempDir(), "certificate.pem"), server.String())
	return begun.Server, func() (figures pathFigures) {
		end(&figures)
		return figures
	}
}

func peer(t *testing.T, conn net.PacketConn) *webrtc.PeerConnection {
	t.Helper()
	// No packet is requested end to end: every arriving packet has been repaired below.
	api, err := NewAPI(conn, webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	return peer
}

// withoutCandidates leaves the addresses out: both ends are on this host, and would find each other without the gateway.
func withoutCandidates(description *webrtc.SessionDescription) webrtc.SessionDescription {
	var lines []string
	for line := range strings.Lines(description.SDP) {
		if !strings.HasPrefix(line, "a=candidate:") && !strings.HasPrefix(line, "a=end-of-candidates") {
			lines = append(lines, line)
		}
	}
	return webrtc.SessionDescription{Type: description.Type, SDP: strings.Join(lines, "")}
}

func describe(t *testing.T, peer *webrtc.PeerConnection, make func() (webrtc.SessionDescription, error)) webrtc.SessionDescription {
	t.Helper()
	description, err := make()
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(description); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return withoutCandidates(peer.LocalDescription())
}

func TestVideoComesRepairedAndInOrder(t *testing.T) {
	lastmile.Trials(t, func() (bool, string) { return video(t) })
}

// video sends packets from one peer to another over the last mile. It returns whether the path was on time, and how the figures are bad.
func video(t *testing.T) (isOnTime bool, bad string) {
	loopback := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	plain, err := net.ListenUDP("udp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	gateway, end := lossyPath(t, plain.LocalAddr())
	conn, err := Assisted(loopback)
	if err != nil {
		t.Fatal(err)
	}
	server, client := peer(t, plain), peer(t, conn)

	video := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8, ClockRate: 90000}
	track, err := webrtc.NewTrackLocalStaticRTP(video, "video", "server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.AddTrack(track); err != nil {
		t.Fatal(err)
	}
	arrived := make(chan uint16, packets)
	client.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			arrived <- packet.SequenceNumber
		}
	})
	connected := make(chan struct{})
	var once sync.Once
	server.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			once.Do(func() { close(connected) })
		}
	})

	offer := describe(t, server, func() (webrtc.SessionDescription, error) { return server.CreateOffer(nil) })
	if err := client.SetRemoteDescription(offer); err != nil {
		t.Fatal(err)
	}
	answer := describe(t, client, func() (webrtc.SessionDescription, error) { return client.CreateAnswer(nil) })
	if err := server.SetRemoteDescription(answer); err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(gateway)
	if err != nil {
		t.Fatal(err)
	}
	candidate := webrtc.ICECandidateInit{Candidate: "candidate:1 1 udp 2130706431 " + host + " " + port + " typ host"}
	if err := client.AddICECandidate(candidate); err != nil {
		t.Fatal(err)
	}
	select {
	case <-connected:
	case <-time.After(patience):
		t.Fatal("the peers do not connect")
	}

	payload := make([]byte, 1000)
	for number := range packets {
		header := rtp.Header{Version: 2, SequenceNumber: uint16(number), Timestamp: uint32(number) * 135}
		if err := track.WriteRTP(&rtp.Packet{Header: header, Payload: payload}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(interval)
	}
	seen := make(map[uint16]bool)
	var last uint16
	overtaken := uint64(0)
	for waiting := true; waiting && !seen[packets-1]; {
		select {
		case number := <-arrived:
			if !seen[number] && number < last {
				overtaken++
			}
			seen[number], last = true, max(last, number)
		case <-time.After(longestGap):
			waiting = false
		}
	}
	peerAddress, err := net.ResolveUDPAddr("udp", gateway)
	if err != nil {
		t.Fatal(err)
	}
	statistics, _ := conn.Statistics(peerAddress)
	figures, missing := end(), uint64(packets-len(seen))
	lost := figures.Lost
	said := fmt.Sprintf("%d of %d received, %d lost, %d overtaken: %+v", len(seen), packets, lost, overtaken, statistics)
	t.Log(said)
	if statistics.Condition != packrat.Assisted || statistics.Sessions != 1 {
		t.Errorf("not one session: %s", said)
	}
	if lost < 40 || statistics.RepairedInTime == 0 {
		t.Errorf("no repair in time: %s", said)
	}
	switch {
	case statistics.RepairedInTime*3 < lost || missing*3 > lost:
		return figures.IsOnTime, "too few repairs in time"
	case overtaken > statistics.RepairedLate+statistics.GivenUp+lost/10:
		return figures.IsOnTime, "out of order"
	}
	return figures.IsOnTime, ""
}
