// The command sfu forwards one page's video to another page, as media servers do: `sfu READY` writes its UDP port and its HTTP port to the
// file READY. Pages send their offers to /publish, and to /subscribe?at=HOST:PORT with the address at which they reach it.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

const longestOffer = 1 << 20

// sfu is a call with one publisher.
type sfu struct {
	api   *webrtc.API
	mutex sync.Mutex
	track *webrtc.TrackLocalStaticRTP
	// wanted asks the publisher for a picture that needs no other one.
	wanted func()
}

func main() {
	loopback := net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	media, err := net.ListenUDP("udp4", &loopback)
	check(err)
	pages, err := net.Listen("tcp4", "127.0.0.1:0")
	check(err)
	var engine webrtc.SettingEngine
	engine.SetLite(true)
	engine.SetIncludeLoopbackCandidate(true)
	engine.SetICEUDPMux(webrtc.NewICEUDPMux(nil, media))
	call := &sfu{api: webrtc.NewAPI(webrtc.WithSettingEngine(engine))}
	http.HandleFunc("POST /publish", call.answer(call.publish))
	http.HandleFunc("POST /subscribe", call.answer(call.subscribe))
	http.HandleFunc("GET /{$}", func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(writer, "<!doctype html><title>call</title>")
	})
	ports := fmt.Sprintf("%d %d\n", media.LocalAddr().(*net.UDPAddr).Port, pages.Addr().(*net.TCPAddr).Port)
	check(os.WriteFile(os.Args[1]+".new", []byte(ports), 0o600))
	check(os.Rename(os.Args[1]+".new", os.Args[1]))
	check(http.Serve(pages, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// answer reads an offer, and writes the answer of a new peer that `prepare` has prepared.
func (call *sfu) answer(prepare func(*webrtc.PeerConnection) error) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		offer, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, longestOffer))
		var answer string
		if err == nil {
			answer, err = call.negotiate(string(offer), prepare)
		}
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		if host, port, err := net.SplitHostPort(request.URL.Query().Get("at")); err == nil {
			// The emulated network stands before the server.
			candidates := regexp.MustCompile(`(a=candidate:\S+ \d+ udp \d+) \S+ \d+ typ`)
			answer = candidates.ReplaceAllString(answer, "$1 "+host+" "+port+" typ")
		}
		_, _ = io.WriteString(writer, answer)
	}
}

func (call *sfu) negotiate(offer string, prepare func(*webrtc.PeerConnection) error) (string, error) {
	peer, err := call.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return "", err
	}
	peer.OnConnectionStateChange(func(state webrtc.PeerConnectionState) { log.Print(state) })
	if err := prepare(peer); err != nil {
		return "", err
	}
	description := webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}
	if err := peer.SetRemoteDescription(description); err != nil {
		return "", err
	}
	answer, err := peer.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(peer)
	if err := peer.SetLocalDescription(answer); err != nil {
		return "", err
	}
	<-gathered
	return peer.LocalDescription().SDP, nil
}

func (call *sfu) publish(peer *webrtc.PeerConnection) error {
	peer.OnTrack(func(remote *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		local, err := webrtc.NewTrackLocalStaticRTP(remote.Codec().RTPCodecCapability, "video", "call")
		check(err)
		call.mutex.Lock()
		call.track = local
		call.wanted = func() {
			_ = peer.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(remote.SSRC())}})
		}
		call.mutex.Unlock()
		for {
			packet, _, err := remote.ReadRTP()
			if err != nil {
				return
			}
			// Extensions are numbered anew for each peer.
			packet.Extension, packet.Extensions = false, nil
			_ = local.WriteRTP(packet)
		}
	})
	return nil
}

func (call *sfu) subscribe(peer *webrtc.PeerConnection) error {
	call.mutex.Lock()
	track, wanted := call.track, call.wanted
	call.mutex.Unlock()
	if track == nil {
		return fmt.Errorf("there is no publisher")
	}
	sender, err := peer.AddTrack(track)
	if err != nil {
		return err
	}
	go func() {
		for {
			packets, _, err := sender.ReadRTCP()
			if err != nil {
				return
			}
			for _, packet := range packets {
				switch packet.(type) {
				case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
					wanted()
				}
			}
		}
	}()
	return nil
}
