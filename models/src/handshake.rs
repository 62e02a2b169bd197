//! The handshake, `Noise_NX` with a list of versions (docs/PROTOCOL.md, sections 4 to 6), in front
//! of an attacker who controls the network (Dolev83).
//!
//! ```text
//!   client                        attacker                           gateway
//!     | -- e, version, versions record --> |  anything it knows or can make --> |
//!     | <-- anything likewise ------------ |  <-- e, ee, s, es, secret -------- |
//!     | == sealed with the key ==========> |  =================================> |  established
//! ```
//!
//! Cryptography is perfect: a message is its content, the key of its payload is the set of private
//! keys of which one from each pair is needed, and a transcript is the list of messages. The
//! attacker forges Discover and Offer at will, so the client begins with any version of its list.
//! It has a gateway's key of its own, replays everything, and learns the gateway's static key at
//! any time.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::check::Mutated;

/// A rule of the protocol that is left out, to see that a property depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The gateway does not compare the version with the client's list.
    UncheckedVersions,
    /// The client's params are no part of the transcript.
    UnauthenticatedParams,
    /// The version is no part of the prologue.
    UnboundVersion,
    /// The pattern lacks `es`: the gateway's static key does not authenticate it.
    NoStaticKey,
    /// The pattern lacks `ee`.
    NoEphemeralKey,
    /// The client takes the answer of any gateway.
    UncheckedPin,
    /// A session takes over with its InitAck.
    NoProof,
    /// The client takes an InitAck of another question.
    UnboundQuestion,
}

impl Mutation {
    /// Each with the property that it breaks.
    pub const ALL: [(Self, &str); 8] = [
        (Self::UncheckedVersions, NO_DOWNGRADE),
        (Self::UnauthenticatedParams, NO_DOWNGRADE),
        (Self::UnboundVersion, ENDS_AGREE),
        (Self::NoStaticKey, ENDS_AGREE),
        (Self::NoEphemeralKey, KEEPS_SECRETS),
        (Self::UncheckedPin, PINNED_OWNER),
        (Self::NoProof, TAKES_OVER_ONCE),
        (Self::UnboundQuestion, ENDS_AGREE),
    ];
}

/// Name of the property that the attacker learns no secret.
const KEEPS_SECRETS: &str = "the attacker learns no secret of a gateway's session with a client";
/// Name of the property that both ends agree.
const ENDS_AGREE: &str = "a client and the gateway of its session agree on question and version";
/// Name of the property of a client that has pinned a key.
const PINNED_OWNER: &str = "a client that has pinned a key is with the owner of that key";
const NO_DOWNGRADE: &str = "a session has the best version that both ends know";
const TAKES_OVER_ONCE: &str = "one session takes over for one client, which has its key";

/// A key pair, by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The gateway's static key.
    Static,
    /// The attacker's, for everything.
    Attacker,
    /// The ephemeral key of a client's attempt.
    Client(u8),
    /// The ephemeral key of a gateway's answer.
    Answer(u8),
}

/// Version that both ends prefer.
const BEST_VERSION: u8 = 3;
/// Version that both ends know and do not prefer.
const WORSE_VERSION: u8 = 2;

/// Noise message 1 and its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question {
    /// The attempt's nonce.
    nonce: u8,
    /// The version in byte 4.
    version: u8,
    key: Key,
    /// The best version of the list in the params.
    best: u8,
}

/// Noise message 2: its contents, and the inputs of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    /// The question that it is part of a transcript with.
    question: Question,
    key: Key,
    static_key: Key,
    /// The number of the secret in the params, if a gateway has made it.
    secret: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    question: Option<Question>,
    /// The answer that it has accepted, and whether the gateway's static key was safe then.
    accepted: Option<(Answer, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Session {
    answer: Answer,
    established: bool,
}

/// The clients' attempts, the gateway's sessions, and the attacker's knowledge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    attempts: Vec<Attempt>,
    sessions: Vec<Session>,
    questions: BTreeSet<Question>,
    answers: BTreeSet<Answer>,
    leaked: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client asks for a session of this version.
    Ask(usize, u8),
    /// The gateway gets a question.
    Answer(Question),
    /// A client gets an answer.
    Accept(usize, Answer),
    /// The gateway gets a message sealed in this session.
    Sealed(usize),
    /// The attacker learns the gateway's static key.
    Leak,
}

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// Attempts of clients.
    pub attempts: u8,
    /// Answers of the gateway.
    pub sessions: usize,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

impl Mutated for Handshake {
    type Mutation = Mutation;

    fn with(&self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..*self }
    }
}

impl State {
    fn has_private(&self, key: Key) -> bool {
        key == Key::Attacker || (key == Key::Static && self.leaked)
    }

    /// True if the attacker can compute the shared secret of two key pairs.
    fn has_shared(&self, one: Key, other: Key) -> bool {
        self.has_private(one) || self.has_private(other)
    }
}

impl Handshake {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// True if the attacker can compute the keys of an answer: to read it, or to make it.
    fn can_open(&self, state: &State, answer: &Answer) -> bool {
        let Answer { question, key, static_key, .. } = *answer;
        let ee = self.has(Mutation::NoEphemeralKey) || state.has_shared(question.key, key);
        let es = self.has(Mutation::NoStaticKey) || state.has_shared(question.key, static_key);
        ee && es
    }

    /// True if both ends have the same transcript of a question.
    fn is_same_transcript(&self, one: &Question, other: &Question) -> bool {
        let mut other = *other;
        if self.has(Mutation::UnauthenticatedParams) {
            other.best = one.best;
        }
        if self.has(Mutation::UnboundVersion) {
            other.version = one.version;
        }
        if self.has(Mutation::UnboundQuestion) {
            other.nonce = one.nonce;
        }
        *one == other
    }

    /// Questions that the attacker can send: any client's with another nonce, version or record, and
    /// its own.
    fn forged_questions(state: &State) -> impl Iterator<Item = Question> {
        let nonces: BTreeSet<u8> = state.questions.iter().map(|question| question.nonce).collect();
        let keys: BTreeSet<Key> = state.questions.iter().map(|question| question.key).collect();
        let keys: Vec<Key> = keys.into_iter().chain([Key::Attacker]).collect();
        let of_nonce = move |nonce: u8| {
            let variants = [
                (BEST_VERSION, BEST_VERSION),
                (BEST_VERSION, WORSE_VERSION),
                (WORSE_VERSION, BEST_VERSION),
                (WORSE_VERSION, WORSE_VERSION),
            ];
            let of_key = move |key: Key| {
                variants.map(|(version, best)| Question { nonce, version, key, best })
            };
            keys.clone().into_iter().flat_map(of_key)
        };
        nonces.into_iter().flat_map(of_nonce)
    }

    /// Answers that the attacker can make for a client: with its own ephemeral key, in the name of
    /// any gateway whose shared secret it has.
    fn forged_answers(&self, state: &State, question: Question) -> Vec<Answer> {
        let made = |static_key| Answer { question, key: Key::Attacker, static_key, secret: None };
        let mut answers: Vec<Answer> = [Key::Static, Key::Attacker].map(made).into();
        answers.retain(|answer| self.can_open(state, answer));
        answers
    }
}

/// The attempts that have accepted an answer while the gateway's static key was safe.
fn safe(state: &State) -> impl Iterator<Item = (Question, Answer)> {
    let of = |attempt: &Attempt| match (attempt.question, attempt.accepted) {
        (Some(question), Some((answer, true))) => Some((question, answer)),
        _ => None,
    };
    state.attempts.iter().filter_map(of)
}

impl Model for Handshake {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let attempt = Attempt { question: None, accepted: None };
        vec![State {
            attempts: vec![attempt; usize::from(self.attempts)],
            sessions: Vec::new(),
            questions: BTreeSet::new(),
            answers: BTreeSet::new(),
            leaked: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for (index, attempt) in state.attempts.iter().enumerate() {
            let Some(question) = attempt.question else {
                // The Offer is not authenticated: it names any version of the client's list.
                actions.extend([Step::Ask(index, BEST_VERSION), Step::Ask(index, WORSE_VERSION)]);
                continue;
            };
            if attempt.accepted.is_none() {
                let forged = self.forged_answers(state, question);
                let answers = state.answers.iter().copied().chain(forged);
                actions.extend(answers.map(|answer| Step::Accept(index, answer)));
            }
        }
        if state.sessions.len() < self.sessions {
            actions.extend(Self::forged_questions(state).map(Step::Answer));
        }
        for (index, session) in state.sessions.iter().enumerate() {
            let has_key = |attempt: &Attempt| {
                let own = attempt.question.zip(attempt.accepted);
                own.is_some_and(|(question, (answer, _))| {
                    answer == session.answer
                        && question.key == answer.question.key
                        && self.is_same_transcript(&question, &answer.question)
                })
            };
            let is_sealed = state.attempts.iter().any(has_key)
                || self.can_open(state, &session.answer)
                    && session.answer.question.key == Key::Attacker;
            actions.extend((!session.established && is_sealed).then_some(Step::Sealed(index)));
        }
        actions.extend((!state.leaked).then_some(Step::Leak));
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Ask(index, version) => {
                let number = index as u8;
                let key = Key::Client(number);
                let question = Question { nonce: number, version, key, best: BEST_VERSION };
                state.attempts[index].question = Some(question);
                state.questions.insert(question);
            }
            Step::Answer(question) => {
                // The gateway knows both versions: it would have chosen the best of the list.
                if question.version != question.best && !self.has(Mutation::UncheckedVersions) {
                    return None;
                }
                let number = state.sessions.len() as u8;
                let (key, static_key) = (Key::Answer(number), Key::Static);
                let answer = Answer { question, key, static_key, secret: Some(number) };
                let established = self.has(Mutation::NoProof);
                state.sessions.push(Session { answer, established });
                state.answers.insert(answer);
            }
            Step::Accept(index, answer) => {
                let attempt = &mut state.attempts[index];
                let question = attempt.question?;
                // Without the client's own ephemeral key it could not compute the answer's keys.
                let is_pinned =
                    answer.static_key == Key::Static || self.has(Mutation::UncheckedPin);
                let is_mine = self.is_same_transcript(&question, &answer.question);
                if !is_pinned || !is_mine {
                    return None;
                }
                attempt.accepted = Some((answer, !state.leaked));
            }
            Step::Sealed(index) => state.sessions[index].established = true,
            Step::Leak => state.leaked = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEEPS_SECRETS, |model: &Self, state: &State| {
                let of_client =
                    |session: &&Session| matches!(session.answer.question.key, Key::Client(_));
                let mut answers = state.sessions.iter().filter(of_client);
                !answers.any(|session| model.can_open(state, &session.answer))
            }),
            Property::always(ENDS_AGREE, |_, state: &State| {
                let has_gateway = |(question, answer): (Question, Answer)| {
                    answer.static_key != Key::Static
                        || state.sessions.iter().any(|session| {
                            session.answer == answer && session.answer.question == question
                        })
                };
                safe(state).all(has_gateway)
            }),
            Property::always(PINNED_OWNER, |_, state: &State| {
                safe(state).all(|(_, answer)| answer.static_key == Key::Static)
            }),
            Property::always(NO_DOWNGRADE, |_, state: &State| {
                safe(state).all(|(question, _)| question.version == BEST_VERSION)
            }),
            Property::always(TAKES_OVER_ONCE, |_, state: &State| {
                let established = |number: u8| {
                    let key = Key::Client(number);
                    let is_of = move |session: &&Session| {
                        session.established && session.answer.question.key == key
                    };
                    state.sessions.iter().filter(is_of).collect::<Vec<_>>()
                };
                let has_key = |(number, attempt): (u8, &Attempt)| match established(number)[..] {
                    [] => true,
                    [session] => {
                        attempt.accepted.is_some_and(|(answer, _)| answer == session.answer)
                    }
                    _ => false,
                };
                (0..).zip(&state.attempts).all(has_key)
            }),
            Property::sometimes("two clients have sessions", |_, state: &State| {
                let of_client = |session: &&Session| {
                    session.established && session.answer.question.key != Key::Attacker
                };
                state.sessions.iter().filter(of_client).count() == 2
            }),
            Property::sometimes(
                "the attacker poses as the gateway with its key",
                |_, state: &State| {
                    let posed = |attempt: &Attempt| {
                        attempt.accepted.is_some_and(|(answer, _)| answer.secret.is_none())
                    };
                    state.attempts.iter().any(posed)
                },
            ),
        ]
    }
}
