//! The datagrams of the golden vectors, which everybody knows.

use std::sync::LazyLock;

const FILES: [&str; 2] = [
    include_str!("../../../../protocol/vectors/control.json"),
    include_str!("../../../../protocol/vectors/handshake.json"),
];

static DATAGRAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let quoted = FILES.iter().flat_map(|file| file.split('"'));
    let datagrams = quoted.filter(|text| text.starts_with("0b506b72"));
    datagrams.filter_map(|text| bytes(text.as_bytes())).collect()
});

fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    text.chunks(2).map(byte).collect()
}

/// The datagram with this number.
pub(super) fn datagram(number: usize) -> Vec<u8> {
    assert!(DATAGRAMS.len() > 5, "the vectors have control datagrams");
    DATAGRAMS[number % DATAGRAMS.len()].clone()
}
