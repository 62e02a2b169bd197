//! Finding a gateway in band, and agreeing with it.
//!
//! Without a gateway the questions reach the server, which drops them: they are valid packets of no transport. So they are few: six
//! within two seconds, and then one at a time, half a minute apart, for a client that has moved behind a gateway meanwhile.

use core::time::Duration;

use packrat_estimate::Timestamp;
use packrat_wire::control::{Control, RefusalReason, VERSION};
use packrat_wire::cookie::COOKIE_LENGTH;
use packrat_wire::handshake::{Established, Initiator, Wishes};

/// First distance between repetitions; doubles each time.
const FIRST_RETRY: Duration = Duration::from_millis(25);
/// Questions of one attempt.
const TRIES: u32 = 6;
/// Distance between attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(30);

/// How an attempt stands.
#[derive(Debug)]
enum Step {
    Discovering,
    Initiating { cookie_time: u32, cookie: [u8; COOKIE_LENGTH], initiator: Box<Initiator> },
    Waiting { refused: bool },
    Done,
}

/// The handshake's client side.
#[derive(Debug)]
pub(crate) struct Discovery {
    wishes: Wishes,
    pinned: Option<[u8; 32]>,
    step: Step,
    nonce: u64,
    seed: [u8; 32],
    tries: u32,
    sent_at: Timestamp,
    next_at: Timestamp,
}

/// What a handshake datagram led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Not for this handshake, or wrong.
    Dropped,
    /// One step further.
    Progress,
    /// Finished; the sample is a round trip of the last mile when the question was not repeated.
    Established(Box<Established>, Option<Duration>),
}

impl Discovery {
    /// `nonce`, `seed`: fresh randomness of this attempt.
    pub(crate) fn new(
        wishes: Wishes,
        pinned: Option<[u8; 32]>,
        nonce: u64,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Self {
        Self { wishes, pinned, step: Step::Discovering, nonce, seed, tries: 0, sent_at: now, next_at: now }
    }

    pub(crate) fn is_initiating(&self) -> bool {
        matches!(self.step, Step::Initiating { .. })
    }

    /// Between attempts; true inside: a gateway has refused.
    pub(crate) fn is_waiting(&self) -> Option<bool> {
        match self.step {
            Step::Waiting { refused } => Some(refused),
            _ => None,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        (!matches!(self.step, Step::Done)).then_some(self.next_at)
    }

    /// Starts again, `delay` from now, with fresh randomness.
    pub(crate) fn restart(&mut self, nonce: u64, seed: [u8; 32], at: Timestamp) {
        *self = Self::new(self.wishes.clone(), self.pinned, nonce, seed, at);
    }

    /// The question that is due, if one is. `random` gives fresh randomness for a new attempt.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Timestamp,
        random: impl FnOnce() -> (u64, [u8; 32]),
    ) -> Option<Vec<u8>> {
        if now < self.next_at {
            return None;
        }
        if let Step::Waiting { .. } = self.step {
            let (nonce, seed) = random();
            self.restart(nonce, seed, now);
            // One question only: nobody answered the last time.
            self.tries = TRIES - 1;
        }
        let mut datagram = Vec::new();
        match &self.step {
            Step::Discovering => {
                Control::Discover { nonce: self.nonce, versions: &[VERSION] }.encode(&mut datagram);
            }
            Step::Initiating { cookie_time, cookie, initiator } => {
                let noise = initiator.message().ok()?;
                Control::Init {
                    nonce: self.nonce,
                    cookie_time: *cookie_time,
                    cookie: *cookie,
                    noise: &noise,
                }
                .encode(&mut datagram);
            }
            Step::Waiting { .. } | Step::Done => return None,
        }
        self.sent_at = now;
        self.tries += 1;
        if self.tries > TRIES {
            self.wait(false, now);
            return None;
        }
        self.next_at = now + FIRST_RETRY * (1 << (self.tries - 1).min(10));
        Some(datagram)
    }

    fn wait(&mut self, refused: bool, now: Timestamp) {
        self.step = Step::Waiting { refused };
        self.next_at = now + BETWEEN_ATTEMPTS;
    }

    /// A handshake datagram arrived.
    pub(crate) fn on_control(&mut self, control: &Control<'_>, now: Timestamp) -> Outcome {
        let fresh = self.tries == 1;
        match (control, &self.step) {
            (Control::Offer { nonce, version, cookie_time, cookie }, Step::Discovering)
                if *nonce == self.nonce && *version == VERSION =>
            {
                let initiator = Initiator::new(self.seed, self.nonce, self.wishes.clone(), self.pinned);
                self.step = Step::Initiating {
                    cookie_time: *cookie_time,
                    cookie: *cookie,
                    initiator: Box::new(initiator),
                };
                self.tries = 0;
                self.next_at = now;
                Outcome::Progress
            }
            (Control::InitAck { nonce, noise }, Step::Initiating { initiator, .. })
                if *nonce == self.nonce =>
            {
                match initiator.finish(noise) {
                    Ok(established) => {
                        self.step = Step::Done;
                        let sample = fresh.then(|| now.saturating_since(self.sent_at));
                        Outcome::Established(Box::new(established), sample)
                    }
                    Err(_) => Outcome::Dropped,
                }
            }
            // Not authenticated, so a refusal only ends this attempt, and an expired cookie only starts it again.
            (Control::Refusal { nonce, reason, .. }, Step::Discovering | Step::Initiating { .. })
                if *nonce == self.nonce =>
            {
                if *reason == RefusalReason::Cookie && self.is_initiating() {
                    self.step = Step::Discovering;
                    self.next_at = now + FIRST_RETRY;
                } else {
                    self.wait(true, now);
                }
                Outcome::Progress
            }
            _ => Outcome::Dropped,
        }
    }
}
