//! Writes the sources in Kotlin, Swift or Python: `bindings generate --language kotlin --library FILE --out-dir FOLDER`.
fn main() {
    uniffi::uniffi_bindgen_main();
}
