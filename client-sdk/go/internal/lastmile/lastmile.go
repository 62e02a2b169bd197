// Package lastmile runs tests over a last mile that loses datagrams, with the real gateways of the program packrat-path.
package lastmile

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Path is what packrat-path starts with a certificate's file as argument: servers, real gateways, and last miles that lose 4 %.
type Path struct {
	Name, QUIC, Lossless, SHA256, Datagrams string
	Bytes                                   int
	// Certificate is the file of the QUIC server's certificate.
	Certificate string `json:"-"`
	end         func(figures any)
}

// Figures are the last output of packrat-path.
type Figures struct {
	IsOnTime      bool   `json:"on_time"`
	LosslessSent  uint64 `json:"lossless_sent"`
	Sent          uint64 `json:"quic_sent"`
	Lost          uint64 `json:"quic_lost"`
	LostUpwards   uint64 `json:"quic_lost_upwards"`
	Dropped       uint64 `json:"quic_dropped"`
	Declared      uint64 `json:"declared_lost"`
	DatagramsLost uint64 `json:"datagrams_lost"`
}

// Address is the UDP address of a text such as 127.0.0.1:4433.
func Address(t testing.TB, text string) *net.UDPAddr {
	t.Helper()
	address, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// StartPath starts a path, as Start does.
func StartPath(t testing.TB) *Path {
	t.Helper()
	path := &Path{Certificate: filepath.Join(t.TempDir(), "certificate.pem")}
	path.end = Start(t, path, path.Certificate)
	return path
}

// End ends the path, and returns its figures.
func (p *Path) End() (figures Figures) {
	p.end(&figures)
	return figures
}

// mostTrials are those after which a figure is not judged: the machine has other things to do.
const mostTrials = 5

// Trials makes trials until the figures of one are good. Bad ones count if the path was on time: otherwise the
// machine was busy. A trial asserts the properties that hold on any machine, and returns whether its path was on
// time, and the fault of its figures; "": they are good.
func Trials(t *testing.T, trial func() (isOnTime bool, bad string)) {
	t.Helper()
	for range mostTrials {
		isOnTime, bad := trial()
		if isOnTime && bad != "" {
			t.Error(bad)
		}
		if bad == "" || t.Failed() {
			return
		}
		t.Logf("not on time, and %s", bad)
	}
	t.Logf("SKIPPED: figures of %s: the machine is too busy for an emulated path on time", t.Name())
}

// Start starts packrat-path, reads its first output into begun, and returns the function that ends it and reads its
// last output. The test is skipped if the environment's PACKRAT_PATH does not name the program.
func Start(t testing.TB, begun any, arguments ...string) (end func(figures any)) {
	t.Helper()
	program := os.Getenv("PACKRAT_PATH")
	if program == "" {
		t.Skip("PACKRAT_PATH does not name the program packrat-path: tools/test-go builds it")
	}
	command := exec.Command(program, arguments...)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := bufio.NewReader(output)
	read := func(into any) {
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, into)
		}
		if err != nil {
			t.Fatalf("%s says %q: %v", program, line, err)
		}
	}
	read(begun)
	return func(figures any) {
		t.Helper()
		input.Close()
		read(figures)
	}
}
