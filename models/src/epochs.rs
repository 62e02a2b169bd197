//! Epochs, Resets and moves of one session over a path that loses, delays, reorders and repeats
//! (docs/PROTOCOL.md, sections 11 and 12).
//!
//! ```text
//!   server --- Forward ---> gateway === down: base datagrams, repairs, Reset, challenges ===> client
//!                           gateway <== up: eACKs, Reset, responses, each with a counter ==== client
//! ```
//!
//! Datagrams are numbers, sets are bits, and a sketch is its set: a decode yields the exact
//! difference, or fails. Authentication is left out, as each end only sees messages that the other
//! one has sealed; the model of the handshake is about keys. The paths of the client are numbered
//! in the order in which it visits them.

mod properties;

use stateright::{Model, Property};

use crate::check::Mutated;

/// Number of epochs that a check can come to, with one to spare.
const EPOCH_COUNT: usize = 5;
/// Transmissions of one repair.
const MOST_REPAIRS: u8 = 2;
/// Rounds of an idle session within which both ends must have come together.
const MOST_ROUNDS: u8 = 8;

/// A bit for each datagram.
type Set = u8;

/// Steps that a path and its ends may still take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Datagrams of the server.
    pub datagrams: u8,
    /// Datagrams and messages that the path loses.
    pub losses: u8,
    /// Datagrams that the path delivers twice.
    pub copies: u8,
    /// Decodes that fail although the prefix is the longest.
    pub failures: u8,
    /// Resets by the client.
    pub resets: u8,
    /// Moves of the client to another path.
    pub moves: u8,
}

/// A rule of the protocol that is left out, to see that a property depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A Reset of the client begins a new set under the same number.
    ReusedEpoch,
    /// The gateway takes eACKs of other epochs.
    AnyEpoch,
    /// The client forgets at a Reset which datagrams it has had.
    ForgetfulClient,
    /// The gateway takes an eACK that is older than one it has decoded.
    StaleEacks,
    /// The gateway sends its Reset once.
    UnrepeatedReset,
    /// A new epoch's set begins with the first datagram of the session.
    NoAnchor,
    /// The gateway pauses forwarding while its Reset is unanswered.
    ForwardingWaits,
    /// The gateway repairs a datagram for as long as it is missing.
    EndlessRepairs,
    /// Challenges stay valid after a move.
    UnclearedChallenges,
}

impl Mutation {
    /// Each with the property that it breaks.
    pub const ALL: [(Self, &str); 9] = [
        (Self::ReusedEpoch, RECEIVED_STAYS_RECEIVED),
        (Self::AnyEpoch, CREDITED_WAS_COUNTED),
        (Self::ForgetfulClient, COUNTED_ONCE),
        (Self::StaleEacks, RECEIVED_STAYS_RECEIVED),
        (Self::UnrepeatedReset, ENDS_CONVERGE),
        (Self::NoAnchor, NOTHING_BEFORE_THE_ANCHOR),
        (Self::ForwardingWaits, FORWARDED_AT_ONCE),
        (Self::EndlessRepairs, REPAIRS_END),
        (Self::UnclearedChallenges, MOVES_DO_NOT_CROSS),
    ];
}

const COUNTED_ONCE: &str = "the client counts each datagram in one epoch";
const CREDITED_WAS_COUNTED: &str = "the gateway credits to an epoch what the client counted in it";
const RECEIVED_STAYS_RECEIVED: &str = "within an epoch, what has arrived is never found missing";
const NOTHING_BEFORE_THE_ANCHOR: &str = "nothing from before the anchor is found missing";
const FORWARDED_AT_ONCE: &str = "each datagram leaves for the client when it comes";
const ENDS_CONVERGE: &str = "both ends come to one epoch, one set and one path";
const REPAIRS_END: &str = "a datagram is repaired so many times in an epoch at most";
const MOVES_DO_NOT_CROSS: &str = "a session never goes back to a path that its client has left";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum UpMessage {
    Eack { epoch: u8, set: Set, newest: Option<u8>, anchor: Option<u8> },
    Reset { epoch: u8 },
    Response { data: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Up {
    from: u8,
    counter: u8,
    message: UpMessage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum DownMessage {
    /// A datagram of the base connection: a repair is the same bytes.
    Base(u8),
    Reset {
        epoch: u8,
    },
    Challenge {
        data: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Down {
    to: u8,
    message: DownMessage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    epoch: u8,
    set: Set,
    /// The identifiers that it remembers.
    known: Set,
    /// The last datagram that came, and the newest in order.
    last: Option<u8>,
    newest: Option<u8>,
    anchor: Option<u8>,
    path: u8,
    next_counter: u8,
    eack_due: bool,
    /// Datagrams that it has counted, by epoch. No rule looks at it.
    counted: [Set; EPOCH_COUNT],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    Unknown,
    Received,
    Missing { transmissions: u8 },
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gateway {
    epoch: u8,
    resetting: bool,
    anchored: bool,
    sketch: Set,
    horizon: u8,
    fates: Vec<Fate>,
    newest_eack: Option<u8>,
    /// Counters accepted: the replay window.
    accepted: u32,
    path: u8,
    /// Path and data of each challenge that may still be answered.
    challenges: Vec<(u8, u8)>,
    next_data: u8,
    /// Datagrams that it has credited, by epoch, and that have left for the client. No rule looks at
    /// them.
    credited: [Set; EPOCH_COUNT],
    sent: Set,
    /// Something received was found missing. No rule looks at it.
    contradicted: bool,
}

/// Both ends, and the datagrams in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    client: Client,
    gateway: Gateway,
    up: Vec<Up>,
    down: Vec<Down>,
    left: Budget,
    rounds: u8,
    /// The session went back to a path that its client had left.
    crossed: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server's next datagram comes.
    Forward,
    /// A message from the client arrives; a decode of it fails.
    Up(usize, bool),
    /// The datagram is lost.
    LoseUp(usize),
    /// The datagram arrives again later.
    CopyUp(usize),
    /// A datagram or message to the client arrives.
    Down(usize),
    /// The datagram is lost.
    LoseDown(usize),
    /// The datagram arrives again later.
    CopyDown(usize),
    /// The client sends the eACK that is due.
    Eack,
    /// No datagram is in flight: the client sends an eACK, the gateway probes the tail.
    Idle,
    /// The client begins a new epoch.
    ClientReset,
    /// The client is at another path.
    Move,
}

/// The model, with the limits of one check.
#[derive(Clone, Copy, Debug)]
pub struct Epochs {
    /// Limits.
    pub budget: Budget,
    /// The rule that is left out.
    pub mutation: Option<Mutation>,
}

impl Mutated for Epochs {
    type Mutation = Mutation;

    fn with(&self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..*self }
    }
}

fn bit(number: u8) -> Set {
    1 << number
}

/// Inserts in order: messages in flight are unordered.
fn insert<T: Ord>(list: &mut Vec<T>, item: T) {
    let at = list.partition_point(|other| *other < item);
    list.insert(at, item);
}

fn copy<T: Ord + Copy>(list: &mut Vec<T>, index: usize) {
    insert(list, list[index]);
}

impl Epochs {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn send_up(state: &mut State, message: UpMessage) {
        let Client { path, next_counter, .. } = &mut state.client;
        let up = Up { from: *path, counter: *next_counter, message };
        *next_counter += 1;
        insert(&mut state.up, up);
    }

    fn send_down(state: &mut State, to: u8, message: DownMessage) {
        insert(&mut state.down, Down { to, message });
    }

    fn send_eack(state: &mut State) {
        state.client.eack_due = false;
        let Client { epoch, set, newest, anchor, .. } = state.client;
        Self::send_up(state, UpMessage::Eack { epoch, set, newest, anchor });
    }

    fn client_enters(&self, client: &mut Client, epoch: u8) {
        client.epoch = epoch;
        client.set = 0;
        client.anchor = client.last;
        client.eack_due = true;
        if self.has(Mutation::ForgetfulClient) {
            client.known = 0;
        }
    }

    fn client_receives(&self, state: &mut State, message: DownMessage) {
        let client = &mut state.client;
        match message {
            DownMessage::Base(number) => {
                client.eack_due = true;
                if client.known & bit(number) == 0 {
                    client.known |= bit(number);
                    client.set |= bit(number);
                    client.counted[usize::from(client.epoch)] |= bit(number);
                    client.last = Some(number);
                    client.newest = client.newest.max(Some(number));
                }
            }
            DownMessage::Reset { epoch } if epoch > client.epoch => {
                self.client_enters(client, epoch);
            }
            DownMessage::Reset { .. } => {}
            DownMessage::Challenge { data } => {
                Self::send_up(state, UpMessage::Response { data });
            }
        }
    }

    fn gateway_receives(&self, state: &mut State, up: Up, fails: bool) {
        let gateway = &mut state.gateway;
        if gateway.accepted & 1 << up.counter != 0 {
            return;
        }
        gateway.accepted |= 1 << up.counter;
        if up.from != gateway.path {
            return self.on_new_path(state, up);
        }
        match up.message {
            UpMessage::Response { .. } => gateway.challenges.clear(),
            UpMessage::Reset { epoch } if epoch > gateway.epoch => Self::enter(gateway, epoch),
            UpMessage::Reset { .. } => {}
            UpMessage::Eack { epoch, set, newest, anchor } => {
                let any = self.has(Mutation::AnyEpoch);
                if epoch > gateway.epoch && !any {
                    Self::enter(gateway, epoch);
                } else if !any && (epoch < gateway.epoch || gateway.resetting) {
                    if gateway.resetting && !self.has(Mutation::UnrepeatedReset) {
                        let reset = DownMessage::Reset { epoch: gateway.epoch + 1 };
                        let to = gateway.path;
                        Self::send_down(state, to, reset);
                    }
                    return;
                }
                let stale = gateway.newest_eack.is_some_and(|newest| up.counter <= newest);
                if stale && !self.has(Mutation::StaleEacks) {
                    return;
                }
                self.anchor(gateway, newest, anchor);
                if fails {
                    gateway.resetting = true;
                    let reset = DownMessage::Reset { epoch: gateway.epoch + 1 };
                    let to = gateway.path;
                    return Self::send_down(state, to, reset);
                }
                gateway.newest_eack = gateway.newest_eack.max(Some(up.counter));
                self.decoded(state, set);
            }
        }
    }

    fn on_new_path(&self, state: &mut State, up: Up) {
        let gateway = &mut state.gateway;
        if let UpMessage::Response { data } = up.message
            && gateway.challenges.contains(&(up.from, data))
        {
            if !self.has(Mutation::UnclearedChallenges) {
                gateway.challenges.clear();
            }
            state.crossed |= up.from < gateway.path;
            gateway.path = up.from;
            return;
        }
        // Its content is ignored.
        let data = gateway.next_data;
        gateway.next_data += 1;
        gateway.challenges.push((up.from, data));
        Self::send_down(state, up.from, DownMessage::Challenge { data });
    }

    fn enter(gateway: &mut Gateway, epoch: u8) {
        gateway.epoch = epoch;
        gateway.resetting = false;
        gateway.anchored = false;
        gateway.newest_eack = None;
        gateway.sketch = 0;
    }

    /// Finds where the client's set begins, and takes everything up to its newest datagram into the
    /// sketch.
    fn anchor(&self, gateway: &mut Gateway, newest: Option<u8>, anchor: Option<u8>) {
        let forwarded = gateway.fates.len() as u8;
        if !gateway.anchored {
            gateway.anchored = true;
            let start = match anchor {
                _ if self.has(Mutation::NoAnchor) => 0,
                Some(anchor) => anchor + 1,
                None if gateway.epoch == 0 => 0,
                None => newest.unwrap_or(forwarded),
            };
            for (number, fate) in (0..).zip(&mut gateway.fates) {
                if number >= start {
                    *fate = Fate::Unknown;
                } else if *fate != Fate::Received {
                    *fate = Fate::GivenUp;
                }
            }
            gateway.horizon = start;
        }
        if let Some(newest) = newest {
            for number in gateway.horizon..=newest {
                gateway.sketch |= bit(number);
            }
            gateway.horizon = gateway.horizon.max(newest + 1);
        }
    }

    /// Draws the consequences of a difference, and repairs.
    fn decoded(&self, state: &mut State, set: Set) {
        let gateway = &mut state.gateway;
        let (only_there, only_here) = (set & !gateway.sketch, gateway.sketch & !set);
        gateway.sketch |= only_there;
        gateway.credited[usize::from(gateway.epoch)] |= set;
        let mut repairs = Vec::new();
        for (number, fate) in (0..).zip(&mut gateway.fates) {
            if only_there & bit(number) != 0 {
                *fate = Fate::Received;
            } else if only_here & bit(number) != 0 {
                gateway.contradicted |= *fate == Fate::Received;
                let before = match *fate {
                    Fate::Missing { transmissions } => transmissions,
                    _ => 0,
                };
                let again = DownMessage::Base(number);
                let under_way = state.down.iter().any(|down| down.message == again);
                if before == MOST_REPAIRS && !under_way && !self.has(Mutation::EndlessRepairs) {
                    *fate = Fate::GivenUp;
                    gateway.sketch &= !bit(number);
                } else {
                    let transmissions = before + u8::from(!under_way);
                    *fate = Fate::Missing { transmissions };
                    repairs.extend((!under_way).then_some(again));
                }
            } else if number < gateway.horizon && *fate != Fate::GivenUp {
                *fate = Fate::Received;
            }
        }
        let to = gateway.path;
        for repair in repairs {
            Self::send_down(state, to, repair);
        }
    }

    fn is_idle(state: &State) -> bool {
        state.up.is_empty() && state.down.is_empty() && !state.client.eack_due
    }

    /// True if both ends agree on everything.
    fn is_settled(&self, state: &State) -> bool {
        let (client, gateway) = (&state.client, &state.gateway);
        let forwarded = gateway.fates.len() as u8;
        let known = |(number, fate): (u8, &Fate)| match fate {
            Fate::Received => client.known & bit(number) != 0,
            Fate::GivenUp => true,
            Fate::Unknown | Fate::Missing { .. } => false,
        };
        forwarded == self.budget.datagrams
            && client.epoch == gateway.epoch
            && !gateway.resetting
            && gateway.anchored
            && gateway.sketch == client.set
            && gateway.path == client.path
            && gateway.horizon == forwarded
            && (0..).zip(&gateway.fates).all(known)
    }
}

impl Model for Epochs {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            epoch: 0,
            set: 0,
            known: 0,
            last: None,
            newest: None,
            anchor: None,
            path: 0,
            next_counter: 0,
            eack_due: false,
            counted: [0; EPOCH_COUNT],
        };
        let gateway = Gateway {
            epoch: 0,
            resetting: false,
            anchored: false,
            sketch: 0,
            horizon: 0,
            fates: Vec::new(),
            newest_eack: None,
            accepted: 0,
            path: 0,
            challenges: Vec::new(),
            next_data: 0,
            credited: [0; EPOCH_COUNT],
            sent: 0,
            contradicted: false,
        };
        let (up, down) = (Vec::new(), Vec::new());
        vec![State { client, gateway, up, down, left: self.budget, rounds: 0, crossed: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        let left = &state.left;
        if (state.gateway.fates.len() as u8) < self.budget.datagrams {
            actions.push(Step::Forward);
        }
        for (index, up) in state.up.iter().enumerate() {
            actions.push(Step::Up(index, false));
            if left.failures > 0 && matches!(up.message, UpMessage::Eack { .. }) {
                actions.push(Step::Up(index, true));
            }
            actions.extend((left.losses > 0).then_some(Step::LoseUp(index)));
            actions.extend((left.copies > 0).then_some(Step::CopyUp(index)));
        }
        for index in 0..state.down.len() {
            actions.push(Step::Down(index));
            actions.extend((left.losses > 0).then_some(Step::LoseDown(index)));
            actions.extend((left.copies > 0).then_some(Step::CopyDown(index)));
        }
        actions.extend(state.client.eack_due.then_some(Step::Eack));
        let is_all = state.gateway.fates.len() as u8 == self.budget.datagrams;
        if is_all && Self::is_idle(state) && !self.is_settled(state) && state.rounds <= MOST_ROUNDS
        {
            actions.push(Step::Idle);
        }
        actions.extend((left.resets > 0).then_some(Step::ClientReset));
        actions.extend((left.moves > 0).then_some(Step::Move));
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Forward => {
                let number = state.gateway.fates.len() as u8;
                state.gateway.fates.push(Fate::Unknown);
                if !(self.has(Mutation::ForwardingWaits) && state.gateway.resetting) {
                    state.gateway.sent |= bit(number);
                    let to = state.gateway.path;
                    Self::send_down(&mut state, to, DownMessage::Base(number));
                }
            }
            Step::Up(index, fails) => {
                let up = state.up.remove(index);
                state.left.failures -= u8::from(fails);
                self.gateway_receives(&mut state, up, fails);
            }
            Step::LoseUp(index) => {
                state.left.losses -= 1;
                state.up.remove(index);
            }
            Step::CopyUp(index) => {
                state.left.copies -= 1;
                copy(&mut state.up, index);
            }
            Step::Down(index) => {
                let down = state.down.remove(index);
                // The client's former address is unused.
                if down.to == state.client.path {
                    self.client_receives(&mut state, down.message);
                }
            }
            Step::LoseDown(index) => {
                state.left.losses -= 1;
                state.down.remove(index);
            }
            Step::CopyDown(index) => {
                state.left.copies -= 1;
                copy(&mut state.down, index);
            }
            Step::Eack => Self::send_eack(&mut state),
            Step::Idle => {
                state.rounds += 1;
                Self::send_eack(&mut state);
                let Gateway { horizon, path, .. } = state.gateway;
                if horizon < self.budget.datagrams {
                    let tail = DownMessage::Base(self.budget.datagrams - 1);
                    Self::send_down(&mut state, path, tail);
                }
            }
            Step::ClientReset => {
                state.left.resets -= 1;
                let epoch = state.client.epoch + u8::from(!self.has(Mutation::ReusedEpoch));
                Self::send_up(&mut state, UpMessage::Reset { epoch });
                self.client_enters(&mut state.client, epoch);
            }
            Step::Move => {
                state.left.moves -= 1;
                state.client.path += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
