//! The sealed handshake: Noise NX over X25519, ChaCha20-Poly1305 and BLAKE2s (crate `snow`).
//!
//! The client is anonymous, the gateway shows its static key, which the client compares with a
//! pinned one or trusts on first use. The first message's payload (the client's params) travels in
//! the clear but is bound into the transcript: if an attacker changes it, the second message fails.
//! The second message's payload (the gateway params, with the secret that keys the sketch and the
//! identifiers) is encrypted.

use core::time::Duration;

use packrat_eack::{Encoding, SketchKey, SketchLimits};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::SessionId;
use crate::cipher::Key;
use crate::codec::{DecodeError, Reader, Write};
use crate::control::PROTOCOL_VERSION;
pub use crate::extension::{
    Live, LossClass, MOST_HEARD, Numbered, RouteHint, ServerTicket, TICKET_LENGTH,
};
use crate::extension::{
    find_bundles, find_distinct, find_stream, find_symbols, find_versions, put_bundles,
    put_distinct, put_grease, put_stream, put_symbols, put_versions,
};
use crate::identifier::{IdentifierKey, IdentifierScheme};
use crate::number::NumberKey;
use crate::registry::{choose_version, client_versions};
use crate::seal::{Opener, Sealer};
use crate::small_channel::SmallChannel;

/// Name of the Noise protocol.
const NOISE_PATTERN: &str = "Noise_NX_25519_ChaChaPoly_BLAKE2s";
/// Largest Noise message of the handshake.
const MAXIMUM_NOISE: usize = 512;

/// The reason for refusing a handshake message.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The Noise library refused it: forged, damaged, or meant for another attempt.
    #[error("handshake message refused: {0}")]
    Noise(#[from] snow::Error),
    /// The payload is malformed.
    #[error("handshake payload: {0}")]
    Payload(#[from] DecodeError),
    /// The gateway is not the one whose key was pinned.
    #[error("the gateway's static key is not the pinned one")]
    WrongGateway,
}

/// Names of one session.
pub const SESSION_NAMES: usize = 4;

/// Longest token that an Init carries.
pub const MAXIMUM_TOKEN: usize = 200;

/// The parameters that the client states in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientParams {
    /// The scheme that gives datagrams their identifiers.
    pub scheme: IdentifierScheme,
    /// The longest prefixes that the client can send.
    pub limits: SketchLimits,
    /// Longest time that the client waits for a repair: the gateway sends no repair that would
    /// arrive later.
    pub maximum_hold: Duration,
    /// The token that the gateway's token endpoint has issued; may be empty. At most
    /// [`MAXIMUM_TOKEN`] bytes; opaque here.
    pub token: Vec<u8>,
    /// The params of a live stream's receiver; `None`: this is no live stream.
    pub live: Option<Live>,
    /// The directions in which the client understands numbers; `None`: in neither.
    pub numbered: Option<Numbered>,
    /// The ticket of the server that the client had through the gateway before.
    pub ticket: Option<ServerTicket>,
    /// The client sends bundles ([`crate::bundle`]) if the gateway takes them apart.
    pub bundles: bool,
}

/// The parameters that the gateway states in the handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayParams {
    /// Names the session in sealed datagrams.
    pub session: SessionId,
    /// The scheme that gives datagrams their identifiers.
    pub scheme: IdentifierScheme,
    /// The longest prefixes that the client may send.
    pub limits: SketchLimits,
    /// Bytes that the gateway caches for this session.
    pub cache_bytes: u32,
    /// Keys the sketch and the identifiers.
    pub secret: Zeroizing<[u8; 32]>,
    /// The client is subscribed to a stream: the secret, the same for all who are, that keys its
    /// sketches and identifiers instead.
    pub stream: Option<Zeroizing<[u8; 32]>>,
    /// The client asked for the stream's symbols: the key, the same for all who did, that seals them
    /// ([`crate::group`]).
    pub symbols: Option<Zeroizing<[u8; 32]>>,
    /// The directions in which datagrams are numbered; `None`: in neither.
    pub numbered: Option<Numbered>,
    /// Knowledge of the gateway about the way from the client; sent only with `numbered`.
    pub hint: RouteHint,
    /// Names the client's server, for another gateway with the same key.
    pub ticket: Option<ServerTicket>,
    /// The client may send bundles ([`crate::bundle`]).
    pub bundles: bool,
    /// Set if each number towards the client belongs to one datagram of the server: another
    /// datagram with that number is a copy.
    pub distinct: bool,
}

impl core::fmt::Debug for GatewayParams {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The secrets stay out of logs.
        formatter
            .debug_struct("GatewayParams")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl ClientParams {
    /// Encodes the params. `nonce`: the attempt's; `random` chooses the meaningless record.
    fn encode(&self, nonce: u64, random: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.token.len());
        out.put_u8(self.scheme as u8);
        out.put_u8(self.limits.coded_symbols);
        out.put_u8(self.limits.power_sums);
        out.put_u32(u32::try_from(self.maximum_hold.as_micros()).unwrap_or(u32::MAX));
        let token = &self.token[..self.token.len().min(MAXIMUM_TOKEN)];
        out.put_u8(token.len() as u8);
        out.extend_from_slice(token);
        if let Some(live) = &self.live {
            live.encode(&mut out);
        }
        if let Some(numbered) = &self.numbered {
            numbered.encode(RouteHint::default(), &mut out);
        }
        if let Some(ticket) = &self.ticket {
            ticket.encode(&mut out);
        }
        if self.bundles {
            put_bundles(&mut out);
        }
        put_versions(&client_versions(nonce), &mut out);
        put_grease(random, &mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        // Of a scheme that this crate does not know, the client gets one that suits every transport.
        let scheme = IdentifierScheme::from_byte(reader.u8()?).unwrap_or(IdentifierScheme::Payload);
        let mut client_params = Self {
            scheme,
            limits: limits(&mut reader)?,
            maximum_hold: Duration::from_micros(u64::from(reader.u32()?)),
            token: {
                let length = usize::from(reader.u8()?);
                if length > MAXIMUM_TOKEN {
                    return Err(DecodeError::Field("token"));
                }
                reader.bytes(length)?.to_vec()
            },
            live: None,
            numbered: None,
            ticket: None,
            bundles: false,
        };
        let records = reader.rest();
        client_params.live = Live::find(records);
        client_params.numbered = Numbered::find(records);
        client_params.ticket = ServerTicket::find(records);
        client_params.bundles = find_bundles(records);
        // The Discover also lists the versions, but an attacker could have removed better ones
        // there.
        let versions = find_versions(records).ok_or(DecodeError::Field("versions"))?;
        match choose_version(versions) {
            Some(PROTOCOL_VERSION) => Ok(client_params),
            Some(better) => Err(DecodeError::Version(better)),
            None => Err(DecodeError::Field("versions")),
        }
    }
}

impl GatewayParams {
    /// Encodes the params. `random` chooses the meaningless record.
    fn encode(&self, random: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.put_u32(self.session.get());
        out.put_u8(self.scheme as u8);
        out.put_u8(self.limits.coded_symbols);
        out.put_u8(self.limits.power_sums);
        out.put_u32(self.cache_bytes);
        out.extend_from_slice(&*self.secret);
        if let Some(stream) = &self.stream {
            put_stream(stream, &mut out);
        }
        if let Some(symbols) = &self.symbols {
            put_symbols(symbols, &mut out);
        }
        if let Some(numbered) = &self.numbered {
            numbered.encode(self.hint, &mut out);
        }
        if let Some(ticket) = &self.ticket {
            ticket.encode(&mut out);
        }
        if self.bundles {
            put_bundles(&mut out);
        }
        if self.distinct {
            put_distinct(&mut out);
        }
        put_grease(random, &mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut gateway_params = Self {
            session: SessionId::new(reader.u32()?),
            scheme: IdentifierScheme::from_byte(reader.u8()?)?,
            limits: limits(&mut reader)?,
            cache_bytes: reader.u32()?,
            secret: Zeroizing::new(reader.array()?),
            stream: None,
            symbols: None,
            numbered: None,
            hint: RouteHint::default(),
            ticket: None,
            bundles: false,
            distinct: false,
        };
        let records = reader.rest();
        gateway_params.stream = find_stream(records).map(Zeroizing::new);
        gateway_params.symbols = find_symbols(records).map(Zeroizing::new);
        gateway_params.numbered = Numbered::find(records);
        gateway_params.hint = RouteHint::find(records);
        gateway_params.ticket = ServerTicket::find(records);
        gateway_params.bundles = find_bundles(records);
        gateway_params.distinct = find_distinct(records);
        Ok(gateway_params)
    }

    /// The names of the session in sealed datagrams, one for each path that its client takes: only
    /// holders of the secret can link them. A subscriber to a stream has one.
    pub fn names(&self) -> [SessionId; SESSION_NAMES] {
        core::array::from_fn(|index| match index {
            0 => self.session,
            _ if self.stream.is_some() => self.session,
            _ => {
                let [word, ..] =
                    derive(&self.secret, &[b"packrat/2 name ", &[b'0' + index as u8][..]].concat());
                SessionId::new((word >> 32) as u32)
            }
        })
    }

    /// The key of the sketches' hash: the session's, or the stream's.
    pub fn sketch_key(&self) -> SketchKey {
        let [first, second, ..] =
            derive(self.stream.as_ref().unwrap_or(&self.secret), b"packrat/2 sketch");
        SketchKey::new([first, second])
    }

    /// The key of the identifier mix: the session's, or the stream's.
    pub fn identifier_key(&self) -> IdentifierKey {
        let [first, second, third, _] =
            derive(self.stream.as_ref().unwrap_or(&self.secret), b"packrat/2 identifier");
        IdentifierKey::new([first, second, third])
    }

    /// The key of the mask of numbers towards the client.
    pub fn number_key(&self) -> NumberKey {
        let [first, second, ..] = derive(&self.secret, b"packrat/2 number");
        NumberKey::new([first, second])
    }

    /// The key of the mask of numbers towards the server.
    pub fn upward_number_key(&self) -> NumberKey {
        let [first, second, ..] = derive(&self.secret, b"packrat/2 number up");
        NumberKey::new([first, second])
    }
}

pub(crate) fn derive(secret: &[u8; 32], label: &[u8]) -> [u64; 4] {
    let digest = Sha256::new_with_prefix(secret).chain_update(label).finalize();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.chunks_exact(8)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

/// The client's half. Keeps its seed instead of Noise's state: a forged answer can then not leave
/// anything half changed.
#[derive(Clone)]
pub struct Initiator {
    seed: Zeroizing<[u8; 32]>,
    nonce: u64,
    client_params: ClientParams,
    pinned: Option<[u8; 32]>,
}

impl core::fmt::Debug for Initiator {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Initiator(..)")
    }
}

/// A finished handshake.
#[derive(Debug)]
pub struct Established {
    /// The params that the gateway has stated.
    pub gateway_params: GatewayParams,
    /// Seals this side's messages.
    pub sealer: Sealer,
    /// Opens the other side's messages.
    pub opener: Opener,
    /// The gateway's static public key, as shown to the client. `None` at the gateway, which need not
    /// compute it for each session.
    pub gateway_key: Option<[u8; 32]>,
}

impl Initiator {
    /// Begins a handshake. `seed`: 32 fresh random bytes. `nonce`: the Discover's. `pinned`: the
    /// gateway's static key, when known.
    pub fn new(
        seed: [u8; 32],
        nonce: u64,
        client_params: ClientParams,
        pinned: Option<[u8; 32]>,
    ) -> Self {
        Self { seed: Zeroizing::new(seed), nonce, client_params, pinned }
    }

    /// True if [`Self::message`] shows a token, in the clear.
    pub fn has_token(&self) -> bool {
        !self.client_params.token.is_empty()
    }

    /// The Noise message to put into the Init, the same each time.
    ///
    /// # Errors
    /// Only when the Noise library refuses its own parameters.
    pub fn message(&self) -> Result<Vec<u8>, HandshakeError> {
        Ok(self.start()?.1)
    }

    fn start(&self) -> Result<(HandshakeState, Vec<u8>), HandshakeError> {
        let mut noise = builder(*self.seed)?.prologue(&prologue(self.nonce))?.build_initiator()?;
        let mut message = vec![0; MAXIMUM_NOISE];
        let client_params = self.client_params.encode(self.nonce, grease_random(*self.seed));
        let length = noise.write_message(&client_params, &mut message)?;
        message.truncate(length);
        Ok((noise, message))
    }

    /// Takes the Noise message of an InitAck. After an error the handshake continues: the datagram
    /// may have been forged, and the real one may still come.
    ///
    /// # Errors
    /// The message is not the answer to this handshake, or comes from a gateway other than the
    /// pinned one.
    pub fn finish(&self, answer: &[u8]) -> Result<Established, HandshakeError> {
        let (mut noise, _) = self.start()?;
        let mut payload = [0; MAXIMUM_NOISE];
        let length = noise.read_message(answer, &mut payload)?;
        let gateway_key = noise
            .get_remote_static()
            .and_then(|key| <[u8; 32]>::try_from(key).ok())
            .filter(|key| self.pinned.is_none_or(|pinned| pinned == *key))
            .ok_or(HandshakeError::WrongGateway)?;
        let gateway_params = GatewayParams::decode(&payload[..length])?;
        Established::new(gateway_params, noise, Some(gateway_key))
    }
}

impl Established {
    fn new(
        gateway_params: GatewayParams,
        mut noise: HandshakeState,
        gateway_key: Option<[u8; 32]>,
    ) -> Result<Self, HandshakeError> {
        if !noise.is_handshake_finished() {
            return Err(snow::Error::State(snow::error::StateProblem::HandshakeNotFinished).into());
        }
        // Bare keys, and no state of the library's: there are many sessions.
        let (from_client, from_gateway) = noise.dangerously_get_raw_split();
        let (from_client, from_gateway) = (Key::new(from_client), Key::new(from_gateway));
        let (seals, opens) = if noise.is_initiator() {
            (from_client, from_gateway)
        } else {
            (from_gateway, from_client)
        };
        Ok(Self {
            sealer: Sealer::new(gateway_params.session, seals),
            opener: Opener::new(opens),
            gateway_params,
            gateway_key,
        })
    }

    /// The gateway's end of the channel in little memory, instead of [`Self::sealer`] and
    /// [`Self::opener`], which end here: no counter may be used by both.
    pub fn into_small_channel(self) -> SmallChannel {
        SmallChannel::new(
            self.gateway_params.session,
            self.opener.into_key(),
            self.sealer.into_key(),
        )
    }
}

/// The params in a client's first Noise message, before any work is done for it: in this pattern
/// the message is the client's ephemeral key and the payload in the clear. They are not
/// authenticated yet; [`respond`] binds them into the transcript.
///
/// # Errors
/// The message is too short, or its payload makes no sense.
pub fn client_params_in(message: &[u8]) -> Result<ClientParams, DecodeError> {
    let mut reader = Reader::new(message);
    let _ephemeral_key: [u8; 32] = reader.array()?;
    ClientParams::decode(reader.rest())
}

/// The gateway's half: reads a client's first message and answers it.
///
/// `seed`: 32 fresh random bytes; `static_key`: the gateway's private key. `grant` turns the
/// client's params into gateway params. Returns the Noise message for the InitAck beside the finished
/// handshake.
///
/// # Errors
/// The message is not a first message of this protocol.
pub fn respond(
    seed: [u8; 32],
    static_key: &[u8; 32],
    nonce: u64,
    message: &[u8],
    grant: impl FnOnce(&ClientParams, &mut dyn FnMut(&mut [u8])) -> GatewayParams,
) -> Result<(Established, ClientParams, Vec<u8>), HandshakeError> {
    // Four multiplications of points on the curve.
    #[cfg(feature = "count-operations")]
    packrat_eack::operations::count(150_000);
    let prologue = prologue(nonce);
    let mut noise =
        builder(seed)?.prologue(&prologue)?.local_private_key(static_key)?.build_responder()?;
    let mut payload = [0; MAXIMUM_NOISE];
    let length = noise.read_message(message, &mut payload)?;
    let client_params = ClientParams::decode(&payload[..length])?;
    // A separate random stream for the secret, so that it is independent of the ephemeral key.
    let mut random = ChaCha20Rng::from_seed(seed);
    random.set_stream(1);
    let gateway_params = grant(&client_params, &mut |bytes| random.fill_bytes(bytes));
    let mut answer = vec![0; MAXIMUM_NOISE];
    let length = noise.write_message(&gateway_params.encode(grease_random(seed)), &mut answer)?;
    answer.truncate(length);
    let established = Established::new(gateway_params, noise, None)?;
    Ok((established, client_params, answer))
}

/// The public key that belongs to a private one.
///
/// # Errors
/// Only when the Noise library lacks its own algorithm.
pub fn public_key(static_key: &[u8; 32]) -> Result<[u8; 32], HandshakeError> {
    let mut dh = DefaultResolver
        .resolve_dh(&DHChoice::Curve25519)
        .ok_or(snow::Error::Init(snow::error::InitStage::GetDhImpl))?;
    dh.set(static_key);
    dh.pubkey().try_into().map_err(|_| HandshakeError::Noise(snow::Error::Dh))
}

/// Limits that allow at least one prefix.
fn limits(reader: &mut Reader<'_>) -> Result<SketchLimits, DecodeError> {
    let limits = SketchLimits { coded_symbols: reader.u8()?, power_sums: reader.u8()? };
    if limits.coded_symbols < Encoding::MIN_CODED_SYMBOLS
        && limits.power_sums < Encoding::MIN_POWER_SUMS
    {
        return Err(DecodeError::Field("limits"));
    }
    Ok(limits)
}

/// Randomness of meaningless values: a stream of the seed without another use.
fn grease_random(seed: [u8; 32]) -> u64 {
    let mut random = ChaCha20Rng::from_seed(seed);
    random.set_stream(2);
    random.next_u64()
}

fn prologue(nonce: u64) -> Vec<u8> {
    let mut prologue = b"packrat/2".to_vec();
    prologue.put_u64(nonce);
    prologue
}

pub(crate) fn builder(seed: [u8; 32]) -> Result<Builder<'static>, HandshakeError> {
    let resolver: BoxedCryptoResolver = Box::new(SeededResolver(Zeroizing::new(seed)));
    Ok(Builder::with_resolver(NOISE_PATTERN.parse()?, resolver))
}

/// Noise's algorithms with randomness that is passed in, so that the cores stay deterministic.
struct SeededResolver(Zeroizing<[u8; 32]>);

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(ChaCha20Rng::from_seed(*self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct SeededRandom(ChaCha20Rng);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_params() -> ClientParams {
        ClientParams {
            scheme: IdentifierScheme::Trailer,
            limits: SketchLimits { coded_symbols: 160, power_sums: 12 },
            maximum_hold: Duration::from_millis(120),
            token: Vec::new(),
            live: None,
            numbered: None,
            ticket: None,
            bundles: false,
        }
    }

    fn grant(client_params: &ClientParams, random: &mut dyn FnMut(&mut [u8])) -> GatewayParams {
        let mut secret = [0; 32];
        random(&mut secret);
        GatewayParams {
            session: SessionId::new(7),
            scheme: client_params.scheme,
            limits: client_params.limits,
            cache_bytes: 1 << 20,
            secret: secret.into(),
            stream: None,
            symbols: None,
            numbered: None,
            hint: RouteHint::default(),
            ticket: None,
            bundles: false,
            distinct: false,
        }
    }

    #[test]
    fn wishes_can_be_read_before_the_answer_is_worked_out() {
        let message = Initiator::new([1; 32], 99, client_params(), None).message().unwrap();
        assert_eq!(client_params_in(&message).unwrap(), client_params());
        // Cut inside the mandatory part; a meaningless record follows it.
        for length in 0..message.len() - 6 {
            assert!(client_params_in(&message[..length]).is_err(), "{length}");
        }
    }

    /// A first message with another payload, as an attacker or another implementation may make it.
    fn first_message_with(payload: &[u8]) -> Vec<u8> {
        let prologue = prologue(99);
        let noise = builder([1; 32]).unwrap().prologue(&prologue).unwrap();
        let mut message = vec![0; MAXIMUM_NOISE];
        let length = noise.build_initiator().unwrap().write_message(payload, &mut message).unwrap();
        message.truncate(length);
        message
    }

    #[test]
    fn an_unknown_scheme_is_answered_with_a_universal_one() {
        let mut payload = client_params().encode(99, 0);
        payload[0] = 77;
        let (gateway, ..) =
            respond([2; 32], &[5; 32], 99, &first_message_with(&payload), grant).unwrap();
        assert_eq!(gateway.gateway_params.scheme, IdentifierScheme::Payload);
    }

    #[test]
    fn limits_that_allow_no_sketch_begin_no_session() {
        let limits = SketchLimits { coded_symbols: 3, power_sums: 1 };
        let payload = ClientParams { limits, ..client_params() }.encode(99, 0);
        assert!(respond([2; 32], &[5; 32], 99, &first_message_with(&payload), grant).is_err());
        // Likewise with a gateway that grants no sketch.
        let initiator = Initiator::new([1; 32], 99, client_params(), None);
        let none = |client_params: &ClientParams, random: &mut dyn FnMut(&mut [u8])| {
            GatewayParams { limits, ..grant(client_params, random) }
        };
        let (_, _, answer) =
            respond([2; 32], &[5; 32], 99, &initiator.message().unwrap(), none).unwrap();
        assert!(initiator.finish(&answer).is_err());
    }

    #[test]
    fn versions_that_an_attacker_takes_out_are_missed() {
        let mut payload = client_params().encode(99, 0);
        let at = payload.len() - 6;
        assert_eq!(payload[at..at + 2], [3, 2], "the record of the versions");
        // An unknown version. A better gateway likewise refuses one that it would not choose.
        payload[at + 3] = PROTOCOL_VERSION + 1;
        assert!(respond([2; 32], &[5; 32], 99, &first_message_with(&payload), grant).is_err());
        // The client's own list is part of the transcript.
        let initiator = Initiator::new([1; 32], 99, client_params(), None);
        let mut message = initiator.message().unwrap();
        let length = message.len();
        let at = (0..length - 4).find(|&at| message[at..at + 2] == [3, 2]).unwrap();
        message[at + 2] ^= 1;
        let (_, _, answer) = respond([2; 32], &[5; 32], 99, &message, grant).unwrap();
        assert!(initiator.finish(&answer).is_err());
    }

    #[test]
    fn records_without_meaning_are_there_and_are_skipped() {
        for seed in 0..=255 {
            let live = Live { selective: true, ..Live::default() };
            let client_params = ClientParams { live: Some(live), ..client_params() };
            let initiator = Initiator::new([seed; 32], 99, client_params.clone(), None);
            let stream = |client_params: &ClientParams, random: &mut dyn FnMut(&mut [u8])| {
                GatewayParams { stream: Some([3; 32].into()), ..grant(client_params, random) }
            };
            let message = initiator.message().unwrap();
            let (gateway, seen, answer) =
                respond([seed; 32], &[5; 32], 99, &message, stream).unwrap();
            assert_eq!(seen, client_params);
            let client = initiator.finish(&answer).unwrap();
            assert_eq!(client.gateway_params, gateway.gateway_params);
            assert!((32 + 8 + 11 + 4 + 2..=32 + 8 + 11 + 4 + 6).contains(&message.len()));
            assert!((173 + 2..=173 + 6).contains(&answer.len()), "{}", answer.len());
        }
    }

    /// The gateway seals the ticket; the client shows it in the clear.
    #[test]
    fn a_ticket_comes_sealed_and_is_shown_in_the_clear() {
        let wish = Numbered { to_client: true, to_server: true, coded: true, largest: 1400 };
        let ticket = ServerTicket::new([0xa7; TICKET_LENGTH]);
        let with_all = |client_params: &ClientParams, random: &mut dyn FnMut(&mut [u8])| {
            let numbered = client_params.numbered;
            let distinct = true;
            GatewayParams {
                ticket: Some(ticket),
                numbered,
                distinct,
                ..grant(client_params, random)
            }
        };
        let has_ticket =
            |bytes: &[u8]| bytes.windows(TICKET_LENGTH).any(|part| part == ticket.as_bytes());
        for seed in 0..=255 {
            let client_params = ClientParams { numbered: Some(wish), ..client_params() };
            let first = Initiator::new([seed; 32], 99, client_params.clone(), None);
            let (_, seen, answer) =
                respond([seed; 32], &[5; 32], 99, &first.message().unwrap(), with_all).unwrap();
            assert_eq!(seen.ticket, None);
            assert!(!has_ticket(&answer) && 13 + answer.len() <= 192, "{}", answer.len());
            let agreed = first.finish(&answer).unwrap().gateway_params;
            assert_eq!((agreed.ticket, agreed.distinct), (Some(ticket), true));
            let shown = ClientParams { ticket: Some(ticket), ..client_params };
            let next = Initiator::new([seed; 32], 98, shown, None).message().unwrap();
            assert_eq!(client_params_in(&next).unwrap().ticket, Some(ticket));
        }
    }

    #[test]
    fn both_ends_agree_and_the_client_learns_the_gateways_key() {
        let initiator = Initiator::new([1; 32], 99, client_params(), None);
        let (mut gateway, seen, answer) =
            respond([2; 32], &[5; 32], 99, &initiator.message().unwrap(), grant).unwrap();
        let mut client = initiator.finish(&answer).unwrap();
        assert_eq!(seen, client_params());
        assert_eq!(client.gateway_params, gateway.gateway_params);
        assert_eq!(client.gateway_key, public_key(&[5; 32]).ok());
        assert_eq!(gateway.gateway_key, None);
        let mut datagram = Vec::new();
        client.sealer.seal(b"hello", &mut datagram).unwrap();
        let mut plaintext = Vec::new();
        gateway.opener.open(&datagram, &mut plaintext).unwrap();
        assert_eq!(plaintext, b"hello");
        assert!(
            client.opener.open(&datagram, &mut plaintext).is_err(),
            "a message opened in its own direction"
        );
    }

    #[test]
    fn subscribers_of_a_stream_share_its_keys_and_nothing_else() {
        let live = Live { selective: true, subscribe: true, ..Live::default() };
        let [one, other] = [1, 2].map(|seed| {
            let client_params = ClientParams { live: Some(live), ..client_params() };
            let initiator = Initiator::new([seed; 32], 99, client_params, None);
            let message = initiator.message().unwrap();
            let (_, seen, answer) =
                respond([seed + 10; 32], &[5; 32], 99, &message, |client_params, random| {
                    GatewayParams { stream: Some([8; 32].into()), ..grant(client_params, random) }
                })
                .unwrap();
            assert_eq!(seen.live, Some(live));
            initiator.finish(&answer).unwrap().gateway_params
        });
        let datagram = [9; 60];
        let identify = |gateway_params: &GatewayParams| {
            gateway_params.identifier_key().identify(IdentifierScheme::Trailer, &datagram)
        };
        assert_eq!(identify(&one), identify(&other));
        assert_ne!(identify(&one), identify(&GatewayParams { stream: None, ..one }));
    }

    #[test]
    fn questions_are_longer_than_answers() {
        let client_params = ClientParams { live: Some(Live::default()), ..client_params() };
        let grant = |client_params: &ClientParams, random: &mut dyn FnMut(&mut [u8])| {
            GatewayParams { stream: Some([3; 32].into()), ..grant(client_params, random) }
        };
        let initiator = Initiator::new([1; 32], 99, client_params, None);
        let noise = initiator.message().unwrap();
        let (mut init, mut init_ack) = (Vec::new(), Vec::new());
        crate::control::Control::Init { nonce: 99, cookie_time: 0, cookie: [0; 16], noise: &noise }
            .encode(&mut init);
        let (_, _, answer) = respond([2; 32], &[5; 32], 99, &noise, grant).unwrap();
        crate::control::Control::InitAck { nonce: 99, noise: &answer }.encode(&mut init_ack);
        assert!(init_ack.len() <= init.len(), "{} > {}", init_ack.len(), init.len());
    }

    #[test]
    fn the_names_of_a_session_follow_from_its_secret() {
        let mut random = |bytes: &mut [u8]| bytes.fill(7);
        let one = grant(&client_params(), &mut random);
        let names = one.names();
        assert_eq!(names[0], one.session);
        assert!((0..SESSION_NAMES).all(|at| !names[..at].contains(&names[at])), "{names:?}");
        let other = GatewayParams { secret: [8; 32].into(), ..one.clone() }.names();
        assert!(names[1..].iter().all(|name| !other.contains(name)));
        let subscriber = GatewayParams { stream: Some([9; 32].into()), ..one.clone() };
        assert_eq!(subscriber.names(), [one.session; SESSION_NAMES]);
    }

    #[test]
    fn another_gateway_than_the_pinned_one_is_refused() {
        let pinned = public_key(&[6; 32]).unwrap();
        let initiator = Initiator::new([1; 32], 99, client_params(), Some(pinned));
        let message = initiator.message().unwrap();
        let (_, _, answer) = respond([2; 32], &[5; 32], 99, &message, grant).unwrap();
        assert!(matches!(initiator.finish(&answer), Err(HandshakeError::WrongGateway)));
        let (_, _, answer) = respond([2; 32], &[6; 32], 99, &message, grant).unwrap();
        assert!(initiator.finish(&answer).is_ok());
    }

    #[test]
    fn a_bent_byte_anywhere_is_noticed_and_harms_nothing() {
        let initiator = Initiator::new([1; 32], 99, client_params(), None);
        let message = initiator.message().unwrap();
        let (_, _, answer) = respond([2; 32], &[5; 32], 99, &message, grant).unwrap();
        for position in (0..answer.len()).step_by(7) {
            let mut bent = answer.clone();
            bent[position] ^= 0x40;
            assert!(initiator.finish(&bent).is_err(), "byte {position}");
        }
        assert!(initiator.finish(&answer).is_ok());
        // The params travel in the clear: changing them must break the answer.
        let mut bent = message.clone();
        let last = bent.len() - 2;
        bent[last] ^= 1;
        let (_, _, answer) = respond([2; 32], &[5; 32], 99, &bent, grant).unwrap();
        assert!(initiator.finish(&answer).is_err());
        // So does another nonce.
        assert!(
            matches!(respond([2; 32], &[5; 32], 98, &message, grant), Ok((_, _, answer)) if initiator.finish(&answer).is_err())
        );
    }

    #[test]
    fn random_first_messages_never_panic() {
        for length in 0..200usize {
            let noise: Vec<u8> = (0..length).map(|i| (i * 31 + length) as u8).collect();
            let _ = respond([2; 32], &[5; 32], 1, &noise, grant);
        }
    }

    #[test]
    fn seeds_and_secrets_are_overwritten_when_they_are_dropped() {
        fn is_wiped<In, T: zeroize::ZeroizeOnDrop>(_: fn(&In) -> Option<&T>) {}
        is_wiped(|initiator: &Initiator| Some(&initiator.seed));
        is_wiped(|resolver: &SeededResolver| Some(&resolver.0));
        is_wiped(|params: &GatewayParams| Some(&params.secret));
        is_wiped(|params: &GatewayParams| params.stream.as_ref());
    }
}
