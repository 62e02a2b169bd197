//! Instructions that the engine takes per datagram and per eACK, and the client per datagram received;
//! and the table that they are compared with.
//!
//! Counts do not depend on the other load of a machine, so that a test can assert them. Everything
//! that depends on the machine is kept out:
//!
//! - Valgrind shows every program the same processor, of the family of the Core i7-4910MQ: code
//!   that chooses its instructions at run time takes the same path (AVX2, AES, no AVX-512)
//!   wherever the real processor has AVX2.
//! - Only instructions of this program are counted, which is linked statically but for the C
//!   library. That library's `memcpy` differs from version to version; of the C library the
//!   *calls* are counted.
//! - Compiler (`rust-toolchain.toml`), third parties (`Cargo.lock`), features and optimisation are
//!   the same as in `cargo build --locked --release -p packrat-instructions`; time and randomness
//!   of the workload are arguments.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod client;
pub mod scene;
pub mod table;
