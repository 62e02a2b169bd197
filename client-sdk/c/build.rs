//! Names the shared library for the dynamic linker, as packrat.pc and the symbolic links have it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpackrat.so.0");
    }
}
