//! Arbitrary bytes of a program at the agent's SOCKS listener: on its control connection, and in a
//! datagram.
#![no_main]

#[path = "../../client-sdk/agent/src/socks/message.rs"]
#[allow(dead_code, unreachable_pub)]
mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check(data));
