//! Finding a gateway in band, and agreeing with it.
//!
//! Without a gateway the questions reach the server, which drops them: they are valid packets of no
//! transport. Therefore they are few: six within two seconds, and then one every half minute, for a
//! client that has moved behind a gateway. If the connection had a gateway, questions are a second
//! apart for a minute, until the gateway has restarted or is replaced.
//!
//! The first question carries the first Noise message, so that a gateway that is not busy can
//! answer with the second one. A client with a token waits for an Offer: it shows its token only to
//! an endpoint that has identified itself as a gateway.

use core::time::Duration;

use packrat_wire::control::{Control, PROTOCOL_VERSION, RefusalReason};
use packrat_wire::cookie::COOKIE_LENGTH;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Established, Initiator, ServerTicket};
use packrat_wire::registry::client_versions;

use crate::token::Token;

/// First distance between repetitions; doubles each time.
const FIRST_RETRY: Duration = Duration::from_millis(25);
/// Questions of one attempt.
const ATTEMPT_QUESTIONS: u32 = 6;
/// Distance between attempts.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(30);
/// First interval between attempts while a gateway has no room; doubles each time up to
/// [`BETWEEN_ATTEMPTS`], half of it at random.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// Time after a fruitless question while the successor of a lost gateway is looked for.
const SUCCESSOR_RETRY: Duration = Duration::from_millis(400);
/// Questions to a successor before it is given up: about a minute of silence, or the time during
/// which a draining gateway refuses.
const SUCCESSOR_QUESTIONS: u32 = 100;
/// Interval between attempts if a gateway demands another token than the shown one, unless a new
/// one arrives sooner.
const TOKEN_RETRY: Duration = Duration::from_secs(300);
/// Interval between attempts of a client that is left without assistance for comparison: it behaves
/// like a client without the SDK.
const HOLDOUT_RETRY: Duration = Duration::from_secs(3600);

/// Progress of an attempt.
#[derive(Debug)]
enum Step {
    Discovering,
    Initiating { cookie_time: u32, cookie: [u8; COOKIE_LENGTH] },
    Waiting { refused: Option<RefusalReason> },
    Done,
}

/// The handshake's client side.
#[derive(Debug)]
pub(crate) struct Discovery {
    client_params: ClientParams,
    pinned: Option<[u8; 32]>,
    step: Step,
    nonce: u64,
    initiator: Initiator,
    tries: u32,
    /// Attempts in a row that ended because there was no room.
    full: u32,
    /// Remaining questions at short intervals: there was a gateway here, so that another one is
    /// likely to come.
    successor_questions: u32,
    /// Questions that follow the first one at this interval, because some are likely to be lost.
    copies: u32,
    spacing: Duration,
    /// True if a newer token than the current attempt's exists.
    has_new_token: bool,
    asked_at: Timestamp,
    next_at: Timestamp,
}

/// Progress of the search for a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The client asks whether a gateway is there.
    Discovering,
    /// A gateway has offered.
    Initiating,
    /// Between two attempts: no gateway answered the last one.
    NoAnswer,
    /// Between two attempts: a gateway refused the last one.
    Refused(RefusalReason),
    /// A session exists.
    Done,
}

/// Outcome of a handshake datagram.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Not for this handshake, or wrong.
    Dropped,
    /// The handshake has advanced.
    Progress,
    /// Finished; the sample is a round trip of the last mile when the question was not repeated.
    Established(Box<Established>, Option<Duration>),
}

impl Discovery {
    /// Begins a search. `nonce`, `seed`: fresh randomness of this attempt.
    pub(crate) fn new(
        client_params: ClientParams,
        pinned: Option<[u8; 32]>,
        nonce: u64,
        seed: [u8; 32],
        now: Timestamp,
    ) -> Self {
        let initiator = Initiator::new(seed, nonce, client_params.clone(), pinned);
        let step = Step::Discovering;
        Self {
            client_params,
            pinned,
            step,
            nonce,
            initiator,
            tries: 0,
            full: 0,
            successor_questions: 0,
            copies: 0,
            spacing: FIRST_RETRY,
            has_new_token: false,
            asked_at: now,
            next_at: now,
        }
    }

    /// Sets another gateway key and token. If a gateway has demanded a token, the new one is tried
    /// at once. Returns true if the key has changed: an attempt in progress is then out of date,
    /// and [`Self::restart`] has to follow.
    pub(crate) fn set_access(
        &mut self,
        pinned: Option<[u8; 32]>,
        token: &Token,
        now: Timestamp,
    ) -> bool {
        self.client_params.token = token.as_bytes().to_vec();
        self.has_new_token = true;
        if matches!(self.step, Step::Waiting { refused: Some(RefusalReason::Token) }) {
            self.next_at = now;
        }
        core::mem::replace(&mut self.pinned, pinned) != pinned
    }

    /// Sets the server's ticket for the next attempts, from the current gateway.
    pub(crate) fn set_ticket(&mut self, ticket: Option<ServerTicket>) {
        self.client_params.ticket = ticket;
    }

    /// The attempt's nonce.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    fn is_initiating(&self) -> bool {
        matches!(self.step, Step::Initiating { .. })
    }

    /// Progress of the search for a gateway.
    pub(crate) fn progress(&self) -> Progress {
        match self.step {
            Step::Discovering => Progress::Discovering,
            Step::Initiating { .. } => Progress::Initiating,
            Step::Waiting { refused: None } => Progress::NoAnswer,
            Step::Waiting { refused: Some(reason) } => Progress::Refused(reason),
            Step::Done => Progress::Done,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        (!matches!(self.step, Step::Done)).then_some(self.next_at)
    }

    /// Starts again at `at`, with fresh randomness.
    pub(crate) fn restart(&mut self, nonce: u64, seed: [u8; 32], at: Timestamp) {
        let (full, successor_questions) = (self.full, self.successor_questions);
        let (copies, spacing) = (self.copies, self.spacing);
        *self = Self::new(self.client_params.clone(), self.pinned, nonce, seed, at);
        self.full = full;
        self.successor_questions = successor_questions;
        (self.copies, self.spacing) = (copies, spacing);
    }

    /// Sets the number of copies that follow a question, and their spacing.
    pub(crate) fn set_copies(&mut self, copies: u32, spacing: Duration) {
        (self.copies, self.spacing) = (copies, spacing);
    }

    /// Called when there was a gateway on this path: its successor may come at any moment.
    pub(crate) fn expect_successor(&mut self) {
        self.successor_questions = SUCCESSOR_QUESTIONS;
    }

    /// Called when the path begins to carry datagrams. Earlier questions were lost.
    pub(crate) fn on_path_alive(&mut self, now: Timestamp) {
        if matches!(self.step, Step::Waiting { refused: None }) {
            self.next_at = now;
        }
    }

    /// Time until the next attempt, without better information.
    fn wait(&mut self) -> Duration {
        if self.successor_questions == 0 {
            return BETWEEN_ATTEMPTS;
        }
        self.successor_questions -= 1;
        SUCCESSOR_RETRY
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
        if let Step::Waiting { refused } = self.step {
            let (nonce, seed) = random();
            self.restart(nonce, seed, now);
            if refused.is_none() {
                // One question only: the last attempt got no answer.
                self.tries = ATTEMPT_QUESTIONS + self.copies - 1;
            }
        }
        let mut datagram = Vec::new();
        match &self.step {
            Step::Discovering => {
                let has_token = self.initiator.has_token();
                let noise = if has_token { Vec::new() } else { self.initiator.message().ok()? };
                Control::Discover {
                    nonce: self.nonce,
                    versions: &client_versions(self.nonce),
                    noise: &noise,
                }
                .encode(&mut datagram);
            }
            Step::Initiating { cookie_time, cookie } => {
                let noise = self.initiator.message().ok()?;
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
        self.tries += 1;
        if self.tries > ATTEMPT_QUESTIONS + self.copies {
            self.step = Step::Waiting { refused: None };
            self.next_at = now + self.wait();
            return None;
        }
        self.next_at = match self.tries.checked_sub(self.copies + 1) {
            Some(tries) => now + FIRST_RETRY * (1 << tries.min(10)),
            None => now + self.spacing,
        };
        if self.tries == 1 {
            self.asked_at = now;
        }
        Some(datagram)
    }

    /// Ends the attempt; the reason determines the time of the next one. A Refusal is not
    /// authenticated, and gateways are reconfigured, so no Refusal is final.
    fn on_refusal(&mut self, reason: RefusalReason, now: Timestamp, random: impl FnOnce() -> u32) {
        let wait = match reason {
            RefusalReason::Token if self.has_new_token => Duration::ZERO,
            RefusalReason::Token => TOKEN_RETRY,
            RefusalReason::Holdout => HOLDOUT_RETRY,
            RefusalReason::Full => {
                let most = (FULL_RETRY * (1 << self.full.min(5))).min(BETWEEN_ATTEMPTS);
                self.full += 1;
                // Many clients may have been refused at the same moment; they must not return at
                // the same moment.
                most / 2 + (most / 2).mul_f64(f64::from(random()) / f64::from(u32::MAX))
            }
            // The same for a gateway that is about to end.
            _ => self.wait(),
        };
        self.step = Step::Waiting { refused: Some(reason) };
        self.next_at = now + wait;
    }

    /// Processes a handshake datagram. `random` is called if many clients should not act at the
    /// same time.
    pub(crate) fn on_control(
        &mut self,
        control: &Control<'_>,
        now: Timestamp,
        random: impl FnOnce() -> u32,
    ) -> Outcome {
        // Probably the first of the questions that leave together was answered.
        let fresh = self.tries <= 1 + self.copies;
        match (control, &self.step) {
            (Control::Offer { nonce, version, cookie_time, cookie }, Step::Discovering)
                if *nonce == self.nonce && *version == PROTOCOL_VERSION =>
            {
                self.step = Step::Initiating { cookie_time: *cookie_time, cookie: *cookie };
                self.tries = 0;
                self.next_at = now;
                Outcome::Progress
            }
            // Also while discovering: the gateway is not busy, or the answer to an earlier question
            // was late.
            (Control::InitAck { nonce, noise }, Step::Discovering | Step::Initiating { .. })
                if *nonce == self.nonce =>
            {
                match self.initiator.finish(noise) {
                    Ok(established) => {
                        self.step = Step::Done;
                        self.full = 0;
                        self.successor_questions = 0;
                        let sample = fresh.then(|| now.saturating_since(self.asked_at));
                        Outcome::Established(Box::new(established), sample)
                    }
                    Err(_) => Outcome::Dropped,
                }
            }
            // Not authenticated, so a refusal only ends this attempt, and an expired cookie only
            // starts it again.
            (
                Control::Refusal { nonce, reason, .. },
                Step::Discovering | Step::Initiating { .. },
            ) if *nonce == self.nonce => {
                if *reason == RefusalReason::Cookie && self.is_initiating() {
                    self.step = Step::Discovering;
                    self.next_at = now + FIRST_RETRY;
                } else {
                    self.on_refusal(*reason, now, random);
                }
                Outcome::Progress
            }
            _ => Outcome::Dropped,
        }
    }
}
