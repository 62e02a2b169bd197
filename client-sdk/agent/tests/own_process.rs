//! Tests that need a process of their own, because its limit of descriptors is a part of them.

/// Runs an ignored test of this program, named with its module, in a process with this limit of
/// descriptors.
pub(crate) fn with_descriptors(limit: u32, test: &str) {
    let inside = std::process::Command::new("sh")
        .args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout) + String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success() && said.contains("1 passed"), "{said}");
}
