//! `packrat render` as users run it.

use std::process::Output;

use serde_json::Value;

use crate::piped;

fn render(manifest: &str) -> Output {
    piped::packrat(&["render", "-", "--namespace", "shop"], manifest)
}

fn routes(output: &Output) -> Value {
    serde_saphyr::from_str(&String::from_utf8(output.stdout.clone()).unwrap()).unwrap()
}

const MANIFEST: &str = "
apiVersion: packrat.dev/v1alpha1
kind: EdgeGateway
metadata: { name: default }
spec: { repair: { budgetPercent: 30 } }
---
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: { packrat.dev/assist: enabled, packrat.dev/port: \"8443:quic\", packrat.dev/config.repair-budget-percent: \"20\" }
spec:
  ports: [{ name: quic, port: 443, protocol: UDP }]
";

#[test]
fn annotations_become_routes_without_a_cluster() {
    let output = render(MANIFEST);
    let found = routes(&output);
    let listener = &found["edgeGateways"][0]["listeners"][0];
    assert_eq!(found["edgeGateways"][0]["edgeGateway"], "shop/default", "{found:#}");
    assert_eq!((&listener["port"], &listener["route"]), (&8443.into(), &"shop/web/443".into()));
    assert_eq!(listener["endpoints"][0], "192.0.2.1:443");
    assert_eq!(listener["settings"]["repair_budget"], 0.2, "{found:#}");
    assert_eq!(found["services"][0]["assisted"], true, "{found:#}");
    assert!(output.status.success());

    // A mistake has its remedy, and an exit code for CI.
    let output = render(&MANIFEST.replace("assist: enabled", "assist: maybe"));
    let found = routes(&output);
    let message = found["services"][0]["message"].as_str().unwrap();
    assert!(message.contains("write enabled or disabled"), "{found:#}");
    assert!(!output.status.success());
    let output = render("kind: EdgeGateway\nmetadata: { name: a }\nspec: { drain: soon }");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("packrat render: EdgeGateway shop/a: "), "{error}");
}

#[test]
fn udp_routes_become_listeners_of_their_gateways() {
    let manifest = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: packrat }
spec: { controllerName: packrat.dev/gateway-controller }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: edge }
spec: { gatewayClassName: packrat, listeners: [{ name: quic, port: 443, protocol: UDP }] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: { name: web }
spec:
  parentRefs: [{ name: edge }]
  rules: [{ backendRefs: [{ name: NAME, port: 443 }] }]
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec: { ports: [{ name: quic, port: 443, protocol: UDP }] }
";
    let output = render(&manifest.replace("NAME", "web"));
    let found = routes(&output);
    assert_eq!(
        found["edgeGateways"][0]["listeners"][0]["endpoints"][0], "192.0.2.1:443",
        "{found:#}"
    );
    assert!(found["udpRoutes"][0]["Accepted"].as_str().unwrap().starts_with("True"), "{found:#}");
    assert!(output.status.success(), "{found:#}");
    let output = render(&manifest.replace("NAME", "other"));
    let found = routes(&output);
    let resolved = found["udpRoutes"][0]["ResolvedRefs"].as_str().unwrap();
    assert!(resolved.starts_with("False BackendNotFound"), "{found:#}");
    assert!(!output.status.success());
}
