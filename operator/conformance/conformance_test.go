// Package conformance runs the Gateway API's own tests (its profile GATEWAY-UDP) against a cluster with the operator.
package conformance

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/gateway-api/conformance"
)

// The path of the suite's base objects, which every run begins with.
const base = "base/manifests.yaml"

// TestConformance runs the suite with its base objects but the Gateways among them: all of these have HTTP listeners, and no test of UDPRoutes
// uses them. Its DNS server answers by the plugin template in the place of whoami, which small builds of CoreDNS do not have; the suite wants
// any answer.
func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	text, err := fs.ReadFile(&conformance.Manifests, base)
	if err != nil {
		t.Fatal(err)
	}
	answer := "template ANY ANY {\n        rcode NOERROR\n      }"
	var kept []string
	for _, object := range strings.Split(strings.ReplaceAll(string(text), "whoami", answer), "\n---\n") {
		if !strings.Contains("\n"+object, "\nkind: Gateway\n") {
			kept = append(kept, object)
		}
	}
	own := fstest.MapFS{"packrat/base.yaml": {Data: []byte(strings.Join(kept, "\n---\n"))}}
	options.BaseManifests = "packrat/base.yaml"
	options.ManifestFS = []fs.FS{own, &conformance.Manifests}
	conformance.RunConformanceWithOptions(t, options)
}
