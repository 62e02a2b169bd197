//! Link options of the module.

fn main() {
    // The module's threads must never outlive its code: it stays in memory when Envoy unloads it,
    // whatever the value of `do_not_close`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
