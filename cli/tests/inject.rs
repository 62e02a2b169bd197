//! `packrat inject` as users run it.

use std::process::Output;

use crate::piped;

fn inject(manifest: &str) -> Output {
    piped::packrat(&["inject", "-", "--image", "registry.example/gateway:1"], manifest)
}

const GAME: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: settings }
---
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: game }
spec:
  template:
    metadata: { annotations: { packrat.dev/inject: sidecar } }
    spec:
      containers:
      - name: server
        ports: [{ containerPort: 7777, hostPort: 7000, protocol: UDP }]
";

#[test]
fn a_manifest_gets_the_sidecar_once() {
    let first = inject(GAME);
    let (manifest, told) =
        (String::from_utf8(first.stdout).unwrap(), String::from_utf8(first.stderr).unwrap());
    assert!(first.status.success(), "{told}");
    assert_eq!(told, "DaemonSet game: sidecar for UDP port 7000\n");
    assert!(
        manifest.contains("registry.example/gateway:1") && manifest.contains("kind: ConfigMap"),
        "{manifest}"
    );
    let second = inject(&manifest);
    assert_eq!(
        String::from_utf8(second.stderr).unwrap(),
        "DaemonSet game: has the sidecar already\n"
    );
    assert_eq!(String::from_utf8(second.stdout).unwrap(), manifest);
}

#[test]
fn what_cannot_be_injected_is_said_and_the_manifest_stays() {
    let output = inject(&GAME.replace("UDP", "TCP"));
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told,
        "DaemonSet game: no sidecar: the Pod has no UDP port with a hostPort; give one of a container's ports protocol: UDP and a hostPort\n"
    );
    assert!(!String::from_utf8(output.stdout).unwrap().contains("packrat-gateway"));
    let output = inject("{ not: [yaml");
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("neither YAML nor JSON"));
}
