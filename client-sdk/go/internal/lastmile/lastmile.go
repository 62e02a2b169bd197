// Package lastmile runs tests over a last mile that loses datagrams, with the real gateways of the program packrat-path.
package lastmile

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

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
