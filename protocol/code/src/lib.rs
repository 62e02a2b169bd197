//! Coded repair: repair symbols that stand for any datagram that is lost among many, so that a loss
//! is repaired without asking for it.
//!
//! ```text
//!   gateway                                                             client
//!   datagrams  a b c d e f g h  ------------------------------------->  a b - d e - g h
//!                 |  Encoder::encode: 3a + 7b + 9c + ... + 5h             |  Decoder::on_datagram
//!                 v                                                       v
//!   two symbols of the window [a, h]  ------------------------------->  Decoder::on_repair: two
//!                                                                       equations, two unknowns: c, f
//! ```
//!
//! The code is a systematic random linear code over a sliding window, as in RFC 8681, with the
//! self-contained coded packets of RFC 9407 (Tetrys): datagrams travel unchanged, and a symbol
//! contains the places of the forwarding order that it covers and the seed of its coefficients. Any
//! `k` symbols recover `k` losses of their windows in 99 of 100 cases. With the seed [`PARITY_SEED`] all
//! coefficients are 1: a parity, which recovers one loss and costs an exclusive or.
//!
//! docs/PROTOCOL.md, section "Coded repair", specifies symbols, coefficients and the message.
//!
//! ```
//! use packrat_code::{Decoder, DecoderLimits, Encoder, Half, Repair, Window};
//!
//! let datagrams: Vec<Vec<u8>> = (0..16).map(|place| vec![place; 1000 + usize::from(place)]).collect();
//! let mut decoder = Decoder::new(DecoderLimits::DEFAULT);
//! for (place, datagram) in datagrams.iter().enumerate() {
//!     if place != 5 {
//!         decoder.on_datagram(place as u64, datagram);
//!     }
//! }
//! let window = Window::newest(15, 16).ok_or("no datagram yet")?;
//! for half in Half::BOTH {
//!     let mut symbol = Vec::new();
//!     let cached = |place| Some((&datagrams[place as usize][..], &[][..]));
//!     Encoder::new().encode(window, half, 1, cached, &mut symbol)?;
//!     decoder.on_repair(&Repair { window, half, seed: 1, symbol: &symbol });
//! }
//! assert_eq!(decoder.next_recovered(), Some((5, &datagrams[5][..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Bytes from the network can at worst be refused. [`DecoderLimits`] bounds the decoder's memory,
//! and [`Decoder::take_work`] returns the cost of messages. A datagram recovered from hostile
//! symbols is recognised if its length or its padding is wrong; the transport's own authentication
//! recognises the rest.
//!
//! [`rate`] computes the number of symbols to send.
//!
//! # Sources
//!
//! RFC 8681 (sliding window, coefficients from a seed), RFC 8680 (length coded with the content),
//! RFC 9407 (self-contained coded packets); rQUIC23 of docs/REFERENCES.md (code rates).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "count-operations")]
extern crate std;

mod decoder;
mod encoder;
mod field;
mod framing;
mod kernels;
#[cfg(feature = "count-operations")]
pub mod operations;
pub mod rate;
mod system;
mod window;

pub use decoder::{Arrival, Decoder, DecoderLimits, Totals, Use};
pub use encoder::{EncodeError, Encoder};
pub use framing::{Half, MAXIMUM_DATAGRAM_BYTES, MAXIMUM_SYMBOL, Repair};
pub use window::{PARITY_SEED, Window};
