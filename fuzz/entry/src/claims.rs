//! A client's end of a session, which claims to have received the datagrams that a fuzz input
//! names.

use core::time::Duration;

use packrat_eack::{Encoding, Identifier, Sketch, SketchLimits};
use packrat_wire::Epoch;
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::handshake::{ClientParams, Established, Initiator};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::{Eack, Message};

/// A client's end of a session, and its claims.
pub(crate) struct Claims {
    pub(crate) client: Established,
    claimed: Sketch,
    /// Identifiers of the forwarded datagrams, in forwarding order.
    identifiers: Vec<Identifier>,
    pub(crate) epoch: Epoch,
}

/// Params of a client that takes repairs of downloads, and nothing else.
pub(crate) fn plain_params(scheme: IdentifierScheme, maximum_hold: Duration) -> ClientParams {
    ClientParams {
        scheme,
        limits: SketchLimits { coded_symbols: 191, power_sums: 129 },
        maximum_hold,
        token: Vec::new(),
        live: None,
        numbered: None,
        ticket: None,
        bundles: false,
    }
}

impl Claims {
    /// A session that has just begun. `ask` sends a datagram to the gateway and returns its answer.
    pub(crate) fn begin(
        initiator: Initiator,
        nonce: u64,
        mut ask: impl FnMut(&[u8]) -> Vec<u8>,
    ) -> Self {
        Self::try_begin(initiator, nonce, |question| Some(ask(question))).expect("no refusal")
    }

    /// Begins a session; `None` if the gateway refuses, or does not answer.
    pub(crate) fn try_begin(
        initiator: Initiator,
        nonce: u64,
        mut ask: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let (mut discover, mut init) = (Vec::new(), Vec::new());
        Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise: &[] }
            .encode(&mut discover);
        let offer = ask(&discover)?;
        let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(&offer) else {
            return None;
        };
        let noise = initiator.message().expect("the first message");
        Control::Init { nonce, cookie_time, cookie, noise: &noise }.encode(&mut init);
        let init_ack = ask(&init)?;
        let Ok(Control::InitAck { noise, .. }) = Control::decode(&init_ack) else { return None };
        let client = initiator.finish(noise).expect("the end of the handshake");
        let claimed = Sketch::new(client.gateway_params.sketch_key(), client.gateway_params.limits);
        Some(Self { client, claimed, identifiers: Vec::new(), epoch: Epoch::FIRST })
    }

    /// Records a datagram that was forwarded to the client.
    pub(crate) fn forwarded(&mut self, datagram: &[u8]) {
        let gateway_params = &self.client.gateway_params;
        self.identifiers
            .push(gateway_params.identifier_key().identify(gateway_params.scheme, datagram));
    }

    /// Claims the datagram that was forwarded `back` before the last.
    pub(crate) fn claim(&mut self, back: usize) {
        let identifier =
            self.identifiers.len().checked_sub(back + 1).map(|at| self.identifiers[at]);
        self.claimed.insert(identifier.unwrap_or(Identifier::from_hash(back as u64)));
    }

    /// Claims a datagram that was never forwarded.
    #[cfg(feature = "arena")]
    pub(crate) fn invent(&mut self, hash: u64) {
        self.claimed.insert(Identifier::from_hash(hash));
    }

    /// Begins a new epoch, with no claims.
    #[cfg(feature = "arena")]
    pub(crate) fn enter(&mut self, epoch: Epoch) {
        let params = &self.client.gateway_params;
        self.claimed = Sketch::new(params.sketch_key(), params.limits);
        self.epoch = epoch;
    }

    /// An eACK of the claimed set. `details`: the distance of the newest datagram and of the
    /// anchor, the choice of the encoding, the holes, the age.
    pub(crate) fn eack(
        &self,
        number: usize,
        details: &[u8],
        encoding: impl FnOnce(u8) -> Encoding,
    ) -> Option<Vec<u8>> {
        let detail = |at: usize| details.get(at).copied().unwrap_or_default();
        let back = |at: u8| self.identifiers.iter().rev().nth(usize::from(at)).copied();
        let encoding = Encoding::from_wire(encoding(detail(2)).to_wire());
        let encoding = encoding.unwrap_or(Encoding::PowerSums { count: 2 });
        let mut prefix = Vec::new();
        self.claimed.write_prefix(encoding, &mut prefix).ok()?;
        let eack = Eack {
            epoch: self.epoch,
            echo: number & 2 != 0,
            newest: back(detail(0)).filter(|_| number & 4 == 0),
            newest_age: Duration::from_millis(u64::from(detail(4))),
            holes: detail(3),
            anchor: back(detail(1)).filter(|_| number & 8 != 0),
            encoding,
            prefix: &prefix,
        };
        let mut plaintext = Vec::new();
        Message::Eack(eack).encode(&mut plaintext);
        Some(plaintext)
    }

    /// Seals a message of the client.
    pub(crate) fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.client.sealer.seal(plaintext, &mut datagram).expect("short enough");
        datagram
    }
}
