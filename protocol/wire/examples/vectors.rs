//! Writes the golden vectors to protocol/vectors/. Only a change of the protocol changes them: the
//! test `vectors` compares.
//!
//! `cargo run -p packrat-wire --example vectors`
#![allow(clippy::expect_used)]

#[path = "../tests/vectors_generator/mod.rs"]
mod vectors_generator;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    for (name, value) in vectors_generator::files() {
        std::fs::write(folder.join(name), serde_json::to_string_pretty(&value)? + "\n")?;
        println!("protocol/vectors/{name}");
    }
    Ok(())
}
