//! Arbitrary bytes as the answer of a token endpoint.
#![no_main]

#[path = "../../client-sdk/token/src/document.rs"]
#[allow(dead_code, unreachable_pub)]
mod token_document;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(token) = token_document::parse(data, "asked") {
        assert!(token.endpoint.is_none_or(|(host, port)| !host.is_empty() && port > 0));
        assert!(token.maximum_hold.is_none_or(|hold| hold <= token_document::MAXIMUM_HOLD));
    }
});
