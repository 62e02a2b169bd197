//! The datagram shim for apps in Kotlin and Swift, by UniFFI: a guarded shim, without a socket, a
//! clock or a thread. It belongs into the app's code for a program's datagrams: into the VPN
//! service of Android or the packet tunnel provider of iOS, or below a transport of the app's own.
//!
//! Times are microseconds of any one monotonic clock. Every method may be called from every thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use packrat_client::{
    ClientConfig, GuardedShim, IdentifierScheme, Input, Released, Shim, Timestamp, Token,
    Verdict as CoreVerdict,
};

uniffi::setup_scaffolding!();

/// Bytes of a seed and of a key.
const KEY_LENGTH: usize = 32;

/// The bytes of a datagram that identify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Scheme {
    /// All bytes: right for every transport.
    Payload,
    /// The last 16, which is faster: for QUIC alone, whose packets end with a tag.
    Trailer,
}

/// Settings of a shim.
#[derive(Debug, Clone, uniffi::Record)]
pub struct Settings {
    /// The bytes that identify a datagram.
    #[uniffi(default = None)]
    pub scheme: Option<Scheme>,
    /// Longest time that a datagram waits for the repair of an earlier one, in microseconds; 0:
    /// datagrams never wait. Defaults to 1 s; the actual time follows the measured last mile.
    #[uniffi(default = None)]
    pub maximum_hold: Option<u64>,
    /// The gateway's public key, 32 bytes: another gateway is refused. By default the first one is
    /// trusted.
    #[uniffi(default = None)]
    pub gateway_key: Option<Vec<u8>>,
    /// The permission that a token endpoint has issued.
    #[uniffi(default = None)]
    pub token: Option<Vec<u8>>,
    /// Repairs the program's own datagrams as well: for transports that reduce their rate after
    /// each loss (CUBIC, NewReno), not for BBR.
    #[uniffi(default = false)]
    pub uploads: bool,
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, uniffi::Error)]
pub enum SettingError {
    /// A seed or a key of another length.
    #[error("a {name} has 32 bytes, not {length}")]
    Length {
        /// The setting.
        name: String,
        /// Bytes that it has.
        length: u64,
    },
    /// The token's own error.
    #[error("the token cannot be used: {reason}")]
    Token {
        /// The reason.
        reason: String,
    },
}

/// The fate of a datagram that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Verdict {
    /// The datagram is the transport's now, without its first bytes.
    Now {
        /// Bytes in front that are not the transport's.
        skip: u32,
    },
    /// The datagram comes out of `deliver` later.
    Later,
    /// The datagram is not the transport's, or a second copy of one that the transport has or gets
    /// later.
    Never,
}

/// A datagram that has waited, for the transport now.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Delivered {
    /// The transport's bytes.
    pub datagram: Vec<u8>,
    /// The number that came with it: the app's own, such as the ECN mark.
    pub tag: u64,
}

/// A figure of a shim.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Figure {
    /// Name of the counter, the same in every SDK.
    pub name: String,
    /// Explanation for people.
    pub help: String,
    /// Value so far.
    pub value: u64,
}

/// The assistance of one peer's datagrams over one socket.
#[derive(uniffi::Object)]
pub struct DatagramShim(Mutex<GuardedShim<u64>>);

fn exact(name: &str, bytes: &[u8]) -> Result<[u8; KEY_LENGTH], SettingError> {
    let wrong = |_| SettingError::Length { name: name.to_owned(), length: bytes.len() as u64 };
    bytes.try_into().map_err(wrong)
}

fn token_of(bytes: Option<Vec<u8>>) -> Result<Token, SettingError> {
    Token::new(bytes.unwrap_or_default())
        .map_err(|error| SettingError::Token { reason: error.to_string() })
}

impl DatagramShim {
    fn shim(&self) -> MutexGuard<'_, GuardedShim<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[uniffi::export]
impl DatagramShim {
    /// A shim that asks for a gateway at once. `seed`: 32 bytes of the system's randomness, for this
    /// shim alone.
    #[uniffi::constructor]
    pub fn new(settings: Settings, seed: Vec<u8>, now: u64) -> Result<Arc<Self>, SettingError> {
        let key =
            settings.gateway_key.as_deref().map(|key| exact("gateway key", key)).transpose()?;
        let scheme = match settings.scheme {
            None | Some(Scheme::Payload) => IdentifierScheme::Payload,
            Some(Scheme::Trailer) => IdentifierScheme::Trailer,
        };
        let mut config = ClientConfig::default()
            .with_scheme(scheme)
            .with_gateway_key(key)
            .with_token(token_of(settings.token)?)
            .with_uploads(settings.uploads);
        if let Some(hold) = settings.maximum_hold {
            config = config.with_maximum_hold(Duration::from_micros(hold));
        }
        let shim = Shim::new(config, exact("seed", &seed)?, Timestamp::of_caller(now));
        Ok(Arc::new(Self(Mutex::new(GuardedShim::new(Some(Box::new(shim)))))))
    }

    /// A datagram has come from the peer. `tag`: a number that comes out with it.
    pub fn receive(&self, datagram: Vec<u8>, tag: u64, now: u64) -> Verdict {
        match self.shim().on_datagram(&datagram, tag, Timestamp::of_caller(now)) {
            CoreVerdict::Now { skip, .. } => Verdict::Now { skip: skip as u32 },
            CoreVerdict::Later => Verdict::Later,
            CoreVerdict::Never => Verdict::Never,
        }
    }

    /// The next datagram for the transport, after each call that has a time.
    pub fn deliver(&self) -> Option<Delivered> {
        let Released { datagram, metadata } = self.shim().poll_deliver()?;
        Some(Delivered { datagram, tag: metadata })
    }

    /// Call before the transport sends a datagram, and before `send`: true if the datagram leaves
    /// with others, in a datagram of `transmit`, as acknowledgements of a download may.
    pub fn bundle(&self, datagram: Vec<u8>, now: u64) -> bool {
        self.shim().bundle(&datagram, Timestamp::of_caller(now))
    }

    /// The transport is about to send a datagram: the bytes to put in front of it, if any.
    pub fn send(&self, datagram: Vec<u8>, now: u64) -> Option<Vec<u8>> {
        let number = self.shim().on_send(&datagram, Timestamp::of_caller(now))?;
        Some(number.to_vec())
    }

    /// Counts a datagram of this size that the transport has sent, for the figures.
    pub fn sent(&self, bytes: u64) {
        self.shim().on_sent(1, bytes);
    }

    /// The next datagram to send to the peer, from the transport's own socket, after each call that has
    /// a time.
    pub fn transmit(&self, now: u64) -> Option<Vec<u8>> {
        self.shim().poll_transmit(Timestamp::of_caller(now))
    }

    /// The time at which `handle_timeout` is to be called at the latest, if at all.
    pub fn timeout(&self) -> Option<u64> {
        self.shim().next_timeout().map(|at| at.as_micros())
    }

    /// Time has passed.
    pub fn handle_timeout(&self, now: u64) {
        self.shim().handle(Input::Timeout, Timestamp::of_caller(now));
    }

    /// The device has another network: before anything else is sent from there.
    pub fn network_changed(&self, now: u64) {
        self.shim().handle(Input::NetworkChange, Timestamp::of_caller(now));
    }

    /// Sets another token, and the gateway to accept.
    pub fn set_access(
        &self,
        gateway_key: Option<Vec<u8>>,
        token: Option<Vec<u8>>,
        now: u64,
    ) -> Result<(), SettingError> {
        let gateway_key =
            gateway_key.as_deref().map(|key| exact("gateway key", key)).transpose()?;
        let input = Input::Access { gateway_key, token: &token_of(token)? };
        self.shim().handle(input, Timestamp::of_caller(now));
        Ok(())
    }

    /// Ends the connection: `deliver` then returns all waiting datagrams, and `transmit` the
    /// message for the gateway.
    pub fn close(&self, now: u64) {
        self.shim().handle(Input::Close, Timestamp::of_caller(now));
    }

    /// A word for the state of the assistance: `assisted`, `asking`, `no_gateway`, `refused` or
    /// `failed`.
    pub fn condition(&self) -> String {
        self.shim().condition().name().to_owned()
    }

    /// The figures that every SDK has.
    pub fn figures(&self) -> Vec<Figure> {
        let counters = self.shim().counters();
        let figure = |(name, help, value): (&str, &str, u64)| Figure {
            name: name.to_owned(),
            help: help.trim().to_owned(),
            value,
        };
        counters.described().map(figure).collect()
    }
}
