//! The module as a file.

use std::process::Command;

use packrat_real_envoy::module_directory;

#[test]
fn the_module_stays_in_memory_when_it_is_unloaded() {
    let module = module_directory().join("libpackrat_envoy.so");
    let output = Command::new("readelf").arg("-d").arg(&module).output();
    let output = output.expect("readelf, which comes with the C compiler's binutils");
    let dynamic = String::from_utf8(output.stdout).unwrap();
    assert!(dynamic.contains("NODELETE"), "{}: {dynamic}", module.display());
}
