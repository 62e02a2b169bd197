//! Path validation with a hostile client (docs/PROTOCOL.md, section 12): two sessions at one
//! gateway, one of them an attacker's.
//!
//! The attacker has all keys of its session, sends in the name of any address, and copies, delays
//! and repeats the honest client's datagrams, also under its own address. It receives at its own
//! address and reads the datagrams to the honest client's addresses, as it may be on their path. At
//! the victim's address it neither receives nor reads. Every datagram of the gateway to the honest
//! client arrives, and so do the answers, unless the client has moved.

use stateright::{Model, Property};

use crate::check::Mutated;

/// A rule of the protocol that is left out, to see that a property depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// An authentic message moves its session.
    NoChallenge,
    /// The client can compute the data of a challenge.
    PredictableData,
    /// The data of a challenge proves any path.
    UnboundData,
    /// A session takes a path that it has proved, even if another session has the path.
    TakesOccupied,
    /// Another session may be at the same path.
    SharedPath,
    /// The gateway repeats a challenge that is not answered.
    RepeatedChallenges,
}

impl Mutation {
    /// Each with the property that it breaks.
    pub const ALL: [(Self, &str); 6] = [
        (Self::NoChallenge, ONLY_PROVEN),
        (Self::PredictableData, NOTHING_TO_A_VICTIM),
        (Self::UnboundData, NOTHING_TO_A_VICTIM),
        (Self::TakesOccupied, SPEAKER_STAYS),
        (Self::SharedPath, ONE_SESSION),
        (Self::RepeatedChallenges, NO_AMPLIFICATION),
    ];
}

const NOTHING_TO_A_VICTIM: &str = "no session is at an address that answers nothing";
const ONLY_PROVEN: &str = "a session is at a path to which a challenge of its own has gone";
const ONE_SESSION: &str = "no two sessions are at one path";
const SPEAKER_STAYS: &str = "a session whose client answers at its path is there";
const NO_AMPLIFICATION: &str = "an unproven address gets no more messages than came in its name";

/// An address of a client; there is one address of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The attacker's own.
    Attacker,
    /// The honest client's, before and after its move.
    Honest,
    /// See there.
    Moved,
    /// A host that takes no part in it.
    Victim,
}

/// Places that datagrams come from.
const ALL_PLACES: [Place; 4] = [Place::Attacker, Place::Honest, Place::Moved, Place::Victim];

/// The attacker's session and the honest client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The attacker.
    Hostile,
    /// The honest client.
    Honest,
}

/// Owners of sessions.
const ALL_OWNERS: [Owner; 2] = [Owner::Hostile, Owner::Honest];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Any,
    Response(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    path: Place,
    /// Set until the session's client proves its address: another client is at its path.
    displaced: bool,
    challenges: Vec<(Place, u8)>,
    /// Set if the session's client was asked whether it is still at its path, and has answered
    /// since.
    asked: bool,
    spoken: bool,
    /// Paths to which a challenge of this session has gone and at which someone reads. No rule
    /// looks at it.
    proven: u8,
}

/// The gateway's sessions, and the messages in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sessions: [Session; 2],
    next_data: u8,
    /// Data that the attacker has read.
    known: u16,
    /// Messages of the honest client, with their place, that the attacker may copy or delay;
    /// messages that the gateway has accepted are removed.
    under_way: Vec<(Place, Message)>,
    honest_at: Place,
    /// Steps that are left.
    hostile_left: u8,
    honest_left: u8,
    /// Messages in the name of the victim's address, and messages to it.
    from_victim: u8,
    to_victim: u8,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The attacker sends something sealed in its session from a place, or in its name.
    Hostile(Place),
    /// The attacker answers a challenge from there.
    HostileResponse(Place, u8),
    /// The honest client seals something.
    Honest,
    /// The honest client is at another address.
    Move,
    /// A message of the honest client arrives, from there or copied by the attacker.
    Deliver(usize, Place),
    /// A client was asked and has been silent until it is considered gone.
    PatienceOver(Owner),
    /// A challenge is repeated, if the gateway does that.
    Repeat(Owner),
}

/// The model, with the limits of one check.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    /// Messages of the attacker.
    pub hostile: u8,
    /// Messages of the honest client that are not answers.
    pub honest: u8,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

impl Mutated for Paths {
    type Mutation = Mutation;

    fn with(&self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..*self }
    }
}

fn bit(place: Place) -> u8 {
    1 << place as u8
}

fn other(owner: Owner) -> Owner {
    match owner {
        Owner::Hostile => Owner::Honest,
        Owner::Honest => Owner::Hostile,
    }
}

impl State {
    fn session(&mut self, owner: Owner) -> &mut Session {
        &mut self.sessions[owner as usize]
    }

    /// The honest client seals a message at its current path.
    fn seal(&mut self, message: Message) {
        let sealed = (self.honest_at, message);
        let at = self.under_way.partition_point(|other| *other < sealed);
        self.under_way.insert(at, sealed);
    }

    /// A challenge with this data goes to a place.
    fn challenge(&mut self, owner: Owner, to: Place, data: u8) {
        if to == Place::Victim {
            self.to_victim += 1;
            return;
        }
        self.session(owner).proven |= bit(to);
        match owner {
            Owner::Hostile => self.known |= 1 << data,
            // A host at the attacker's address can pass the challenge on to the client, which
            // answers from its own address.
            Owner::Honest if to == self.honest_at || to == Place::Attacker => {
                self.seal(Message::Response(data));
            }
            Owner::Honest => {}
        }
    }
}

impl Paths {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The gateway gets an authentic message with a fresh counter.
    fn receive(&self, state: &mut State, owner: Owner, from: Place, message: Message) {
        let unbound = self.has(Mutation::UnboundData);
        let no_challenge = self.has(Mutation::NoChallenge);
        let data = state.next_data;
        let session = state.session(owner);
        if session.path == from && !session.displaced {
            session.spoken |= session.asked;
            if matches!(message, Message::Response(_)) {
                session.challenges.clear();
            }
            return;
        }
        let is_answer = |(path, data): &(Place, u8)| {
            message == Message::Response(*data) && (unbound || *path == from)
        };
        if no_challenge || session.challenges.iter().any(is_answer) {
            session.challenges.clear();
            return self.proved(state, owner, from);
        }
        session.challenges.push((from, data));
        state.next_data += 1;
        state.challenge(owner, from, data);
    }

    /// A session's client has proved to be at a path.
    fn proved(&self, state: &mut State, owner: Owner, path: Place) {
        let occupant = state.session(other(owner));
        let is_occupied = occupant.path == path && !occupant.displaced;
        if is_occupied && !self.has(Mutation::SharedPath) {
            if occupant.asked && occupant.spoken {
                // Refused; it may be asked again later.
                (occupant.asked, occupant.spoken) = (false, false);
                return;
            }
            if !self.has(Mutation::TakesOccupied) {
                if !occupant.asked {
                    occupant.asked = true;
                    let data = state.next_data;
                    state.next_data += 1;
                    state.challenge(other(owner), path, data);
                }
                return;
            }
            occupant.displaced = true;
        }
        let session = state.session(owner);
        session.path = path;
        session.displaced = false;
        (session.asked, session.spoken) = (false, false);
    }
}

impl Model for Paths {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let session = |path| Session {
            path,
            displaced: false,
            challenges: Vec::new(),
            asked: false,
            spoken: false,
            proven: bit(path),
        };
        vec![State {
            sessions: [session(Place::Attacker), session(Place::Honest)],
            next_data: 0,
            known: 0,
            under_way: Vec::new(),
            honest_at: Place::Honest,
            hostile_left: self.hostile,
            honest_left: self.honest,
            from_victim: 0,
            to_victim: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        if state.hostile_left > 0 {
            actions.extend(ALL_PLACES.map(Step::Hostile));
            let predictable = self.has(Mutation::PredictableData);
            for data in 0..state.next_data {
                if predictable || state.known & 1 << data != 0 {
                    actions.extend(ALL_PLACES.map(|place| Step::HostileResponse(place, data)));
                }
            }
        }
        actions.extend((state.honest_left > 0).then_some(Step::Honest));
        actions.extend((state.honest_at == Place::Honest).then_some(Step::Move));
        for (index, (from, _)) in state.under_way.iter().enumerate() {
            actions.push(Step::Deliver(index, *from));
            if state.hostile_left > 0 {
                actions.push(Step::Deliver(index, Place::Attacker));
            }
        }
        for owner in ALL_OWNERS {
            let session = &state.sessions[owner as usize];
            let answers = match owner {
                // The attacker may answer, or not.
                Owner::Hostile => false,
                Owner::Honest => {
                    session.path == state.honest_at
                        || state.under_way.iter().any(|(from, _)| *from == session.path)
                }
            };
            if session.asked && !session.spoken && !session.displaced && !answers {
                actions.push(Step::PatienceOver(owner));
            }
            if self.has(Mutation::RepeatedChallenges) && !session.challenges.is_empty() {
                actions.push(Step::Repeat(owner));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Hostile(from) => {
                state.hostile_left -= 1;
                state.from_victim += u8::from(from == Place::Victim);
                self.receive(&mut state, Owner::Hostile, from, Message::Any);
            }
            Step::HostileResponse(from, data) => {
                state.hostile_left -= 1;
                state.from_victim += u8::from(from == Place::Victim);
                self.receive(&mut state, Owner::Hostile, from, Message::Response(data));
            }
            Step::Honest => {
                state.honest_left -= 1;
                state.seal(Message::Any);
            }
            Step::Move => state.honest_at = Place::Moved,
            Step::Deliver(index, from) => {
                let (place, message) = state.under_way.remove(index);
                state.hostile_left -= u8::from(place != from);
                self.receive(&mut state, Owner::Honest, from, message);
            }
            Step::PatienceOver(owner) => {
                let session = state.session(owner);
                session.displaced = true;
                (session.asked, session.spoken) = (false, false);
            }
            Step::Repeat(owner) => {
                let (to, data) = *state.sessions[owner as usize].challenges.last()?;
                if to != Place::Victim || state.to_victim > state.from_victim {
                    return None;
                }
                state.challenge(owner, to, data);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_TO_A_VICTIM, |_, state: &State| {
                state.sessions.iter().all(|session| session.path != Place::Victim)
            }),
            Property::always(ONLY_PROVEN, |_, state: &State| {
                state.sessions.iter().all(|session| session.proven & bit(session.path) != 0)
            }),
            Property::always(ONE_SESSION, |_, state: &State| {
                let [one, other] = &state.sessions;
                one.path != other.path || one.displaced || other.displaced
            }),
            Property::always(SPEAKER_STAYS, |_, state: &State| {
                let session = &state.sessions[Owner::Honest as usize];
                session.path != state.honest_at || !session.displaced
            }),
            Property::always(NO_AMPLIFICATION, |_, state: &State| {
                state.to_victim <= state.from_victim
            }),
            Property::sometimes("the honest client moves", |_, state: &State| {
                state.sessions[Owner::Honest as usize].path == Place::Moved
            }),
            Property::sometimes("a path changes hands", |_, state: &State| {
                state.sessions[Owner::Hostile as usize].path == Place::Honest
            }),
            Property::sometimes("a proven path is refused", |_, state: &State| {
                let [hostile, honest] = &state.sessions;
                honest.path == Place::Honest
                    && !honest.asked
                    && hostile.proven & bit(Place::Honest) != 0
                    && hostile.challenges.is_empty()
                    && state.next_data > 1
            }),
        ]
    }
}
