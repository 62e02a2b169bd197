//! The shim as a class of Python: `packrat._packrat.Shim`, a guarded shim whose times are
//! microseconds of any one monotonic clock. The package `packrat` puts sockets around it.

use std::time::Duration;

use packrat_client::{
    ClientConfig, GuardedShim, IdentifierScheme, Input, Shim as ClientShim, Timestamp, Token,
    Verdict,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The assistance of one peer's datagrams over one socket.
#[pyclass(module = "packrat")]
struct Shim {
    shim: GuardedShim<()>,
}

fn token_of(bytes: &[u8]) -> PyResult<Token> {
    Token::new(bytes.to_vec()).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn key_of(bytes: Option<&[u8]>) -> PyResult<Option<[u8; 32]>> {
    let invalid = |_| PyValueError::new_err("a gateway's key has 32 bytes");
    bytes.map(|key| key.try_into().map_err(invalid)).transpose()
}

#[pymethods]
impl Shim {
    #[new]
    #[pyo3(signature = (seed, now, *, scheme="payload", maximum_hold=1.0, gateway_key=None, token=None, uploads=false))]
    fn new(
        seed: &[u8],
        now: u64,
        scheme: &str,
        maximum_hold: f64,
        gateway_key: Option<&[u8]>,
        token: Option<&[u8]>,
        uploads: bool,
    ) -> PyResult<Self> {
        let invalid = |text: &str| PyValueError::new_err(text.to_owned());
        let seed = seed.try_into().map_err(|_| invalid("a seed has 32 random bytes"))?;
        let scheme = match scheme {
            "payload" => IdentifierScheme::Payload,
            "trailer" => IdentifierScheme::Trailer,
            _ => return Err(invalid("scheme is \"payload\", or \"trailer\" for QUIC alone")),
        };
        let hold = Duration::try_from_secs_f64(maximum_hold)
            .map_err(|_| invalid("maximum_hold is a number of seconds, 0 or more"))?;
        let config = ClientConfig::default()
            .with_scheme(scheme)
            .with_maximum_hold(hold)
            .with_gateway_key(key_of(gateway_key)?)
            .with_token(token_of(token.unwrap_or_default())?)
            .with_uploads(uploads);
        let shim = ClientShim::new(config, seed, Timestamp::of_caller(now));
        Ok(Self { shim: GuardedShim::new(Some(Box::new(shim))) })
    }

    /// Processes a datagram that has arrived. Returns the number of bytes in front that are not the
    /// transport's, or `None` if the datagram is not to be delivered now, or is a second copy.
    fn receive(&mut self, datagram: &[u8], now: u64) -> Option<usize> {
        match self.shim.on_datagram(datagram, (), Timestamp::of_caller(now)) {
            Verdict::Now { skip, .. } => Some(skip),
            Verdict::Later | Verdict::Never => None,
        }
    }

    /// The next datagram for the transport.
    fn deliver<'py>(&mut self, python: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let released = self.shim.poll_deliver()?;
        Some(PyBytes::new(python, &released.datagram))
    }

    /// Call before the program sends a datagram: True if it leaves with others, in a datagram of
    /// transmit. Otherwise the program passes it to send, and sends it.
    fn bundle(&mut self, datagram: &[u8], now: u64) -> bool {
        self.shim.bundle(datagram, Timestamp::of_caller(now))
    }

    /// Call before the program sends a datagram. Returns the number to put in front of it, or
    /// `None`.
    fn send<'py>(
        &mut self,
        python: Python<'py>,
        datagram: &[u8],
        now: u64,
    ) -> Option<Bound<'py, PyBytes>> {
        let number = self.shim.on_send(datagram, Timestamp::of_caller(now))?;
        Some(PyBytes::new(python, &number))
    }

    /// Counts a datagram of this size that the program has sent, for the figures.
    fn sent(&mut self, bytes: u64) {
        self.shim.on_sent(1, bytes);
    }

    /// The next datagram for the peer: a control datagram, or datagrams that bundle has taken.
    fn transmit<'py>(&mut self, python: Python<'py>, now: u64) -> Option<Bound<'py, PyBytes>> {
        let control = self.shim.poll_transmit(Timestamp::of_caller(now))?;
        Some(PyBytes::new(python, &control))
    }

    /// Latest time for the next call of on_timeout.
    fn timeout(&mut self) -> Option<u64> {
        self.shim.next_timeout().map(|at| at.as_micros())
    }

    /// Time has passed.
    fn on_timeout(&mut self, now: u64) {
        self.shim.handle(Input::Timeout, Timestamp::of_caller(now));
    }

    /// The gateway to accept and another token.
    #[pyo3(signature = (gateway_key, token, now))]
    fn set_access(&mut self, gateway_key: Option<&[u8]>, token: &[u8], now: u64) -> PyResult<()> {
        let (gateway_key, token) = (key_of(gateway_key)?, &token_of(token)?);
        self.shim.handle(Input::Access { gateway_key, token }, Timestamp::of_caller(now));
        Ok(())
    }

    /// The program's address changes.
    fn network_changed(&mut self, now: u64) {
        self.shim.handle(Input::NetworkChange, Timestamp::of_caller(now));
    }

    /// Everything that waits is to be had from deliver.
    fn release(&mut self, now: u64) {
        self.shim.handle(Input::Crowded { most: 0 }, Timestamp::of_caller(now));
    }

    /// The connection ends.
    fn close(&mut self, now: u64) {
        self.shim.handle(Input::Close, Timestamp::of_caller(now));
    }

    /// Bytes that wait for repairs now.
    fn waiting_bytes(&mut self) -> usize {
        self.shim.waiting_bytes()
    }

    /// The figures that every SDK has.
    fn statistics<'py>(&mut self, python: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = PyDict::new(python);
        figures.set_item("condition", self.shim.condition().name())?;
        let round_trip = self.shim.stats().0.round_trip;
        figures.set_item("round_trip", round_trip.map(|time| time.as_secs_f64()))?;
        for (name, _, value) in self.shim.counters().described() {
            figures.set_item(name, value)?;
        }
        Ok(figures)
    }
}

/// Returns a datagram without the number in front, for a gateway whose session has ended here;
/// `None` for a message of the gateway.
#[pyfunction]
fn base_of<'py>(python: Python<'py>, datagram: &[u8]) -> Option<Bound<'py, PyBytes>> {
    packrat_client::base_of(datagram).map(|base| PyBytes::new(python, base))
}

/// The part of the package that is written in Rust.
#[pymodule]
fn _packrat(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Shim>()?;
    module.add_function(wrap_pyfunction!(base_of, module)?)?;
    module.add("PROTOCOL_VERSION", packrat_wire::control::PROTOCOL_VERSION)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
