//! Arbitrary datagrams of programs at the agent's TURN server, and requests as a client's, in any
//! order.
#![no_main]

#[path = "../../client-sdk/agent/src/allow.rs"]
#[allow(dead_code, unreachable_pub)]
mod allow;
#[path = "../../client-sdk/agent/src/turn/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod turn;

libfuzzer_sys::fuzz_target!(|data: &[u8]| turn::check(data));
