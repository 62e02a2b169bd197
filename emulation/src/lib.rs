//! The emulated network of Packrat's tests and demonstration.
//!
//! [`path`] is a network path with delay, rate, queue and loss in each direction: [`path::Link`] is
//! the sans-IO model, which runs in virtual time, and [`path::UdpPath`] puts the same model between
//! real UDP sockets on the loopback interface. Neither needs root or kernel modules. [`scenario`]
//! reads the networks of trials from TOML files, [`schedule`] orders events in virtual time, and
//! [`flood`] is an attack to test gateways with. [`port`] finds ports for servers. [`choices!`]
//! gives the values of an enum their names.
#![forbid(unsafe_code)]

pub mod choices;
pub mod flood;
pub mod path;
pub mod port;
pub mod scenario;
pub mod schedule;
