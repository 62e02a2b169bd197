//! Questions to the other gateways: which of them has the session that a client has named?
//!
//! ```text
//!              one asks: Inquiry to each          the first says Mine
//!   unknown --------------------------> open --------------------------> over: relayed to that gateway
//!                                         | all say NotMine, or one says
//!                                         | nothing for 250 ms
//!                                         +------------------------------> over: the client is refused
//! ```
//!
//! Anyone can write a sealed datagram that names a session. So a path asks at most once a second, a
//! route at most [`MOST_QUESTIONS`] times, and all routes of a process share the messages of its
//! [`InquiryBudget`]. Above that a client is refused at once, as without other gateways, and has
//! its ticket.

use std::collections::VecDeque;
use std::time::Duration;

use packrat_engine::NetworkPath;
use packrat_wire::estimate::Timestamp;

use crate::context::InquiryBudget;
use crate::session::ClientPath;
use crate::sync::Mutex;

/// Most questions of a route within [`QUESTION_MEMORY`].
const MOST_QUESTIONS: usize = 256;
/// Time for which a question is remembered.
const QUESTION_MEMORY: Duration = Duration::from_secs(1);
/// Time after which a gateway that has not answered is taken to have no session: the gateways are
/// in one network, but may be busy, and a session that is begun anew is another path for the
/// server.
pub(crate) const GATEWAY_SILENCE: Duration = Duration::from_millis(250);
/// Bytes of the longest datagram that is kept: more than an eACK has. A longer one is refused, and
/// a shorter one follows.
const LONGEST_KEPT_BYTES: usize = 1500;

/// The questions of a route that are open or were, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Inquiries(Mutex<VecDeque<Inquiry>>);

#[derive(Debug)]
struct Inquiry {
    nonce: u64,
    since: Timestamp,
    network: NetworkPath,
    /// `None`: it is over.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    question: Answered,
    /// Gateways that have not answered no.
    left: usize,
}

/// The next step when a client has named a session that is not known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The other gateways have to be asked, with the nonce that was given.
    Ask,
    /// The question stays open.
    Wait,
    /// The client is to be refused: its session is not known.
    Refuse,
}

/// A question that an answer has ended, or silence.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The client's path.
    pub(crate) path: ClientPath,
    /// The client's sealed datagram.
    pub(crate) datagram: Vec<u8>,
}

impl Inquiries {
    /// Begins the question about a client whose sealed datagram names an unknown session.
    /// `gateways`: number of the other gateways to ask; `budget`: the source of their messages;
    /// `nonce`: random.
    pub(crate) fn begin(
        &self,
        path: &ClientPath,
        datagram: &[u8],
        (gateways, budget): (usize, &InquiryBudget),
        nonce: u64,
        now: Timestamp,
    ) -> Step {
        let mut all = self.0.lock();
        while all
            .front()
            .is_some_and(|oldest| now.saturating_since(oldest.since) >= QUESTION_MEMORY)
        {
            all.pop_front();
        }
        let network = path.network();
        if let Some(known) = all.iter().find(|known| known.network == network) {
            return if known.open.is_some() { Step::Wait } else { Step::Refuse };
        }
        let is_refused =
            gateways == 0 || all.len() >= MOST_QUESTIONS || datagram.len() > LONGEST_KEPT_BYTES;
        if is_refused || !budget.take(gateways, now) {
            return Step::Refuse;
        }
        let question = Answered { path: path.clone(), datagram: datagram.to_vec() };
        let open = Open { question, left: gateways };
        all.push_back(Inquiry { nonce, since: now, network, open: Some(open) });
        Step::Ask
    }

    /// A gateway has the session: the question, if it is open.
    pub(crate) fn found(&self, nonce: u64) -> Option<Answered> {
        let mut all = self.0.lock();
        let known = all.iter_mut().find(|known| known.nonce == nonce)?;
        Some(known.open.take()?.question)
    }

    /// The question about the client at a path, if it has been open for [`GATEWAY_SILENCE`]: a gateway that
    /// has not answered by then is taken to have no session.
    pub(crate) fn unanswered(&self, network: NetworkPath, now: Timestamp) -> Option<Answered> {
        let mut all = self.0.lock();
        let known = all.iter_mut().find(|known| known.network == network)?;
        let is_over = now.saturating_since(known.since) >= GATEWAY_SILENCE;
        Some(known.open.take_if(|_| is_over)?.question)
    }

    /// A gateway does not have it: the question, if it is open and no other gateway can have it.
    pub(crate) fn denied(&self, nonce: u64) -> Option<Answered> {
        let mut all = self.0.lock();
        let known = all.iter_mut().find(|known| known.nonce == nonce)?;
        let open = known.open.as_mut()?;
        open.left = open.left.saturating_sub(1);
        if open.left > 0 {
            return None;
        }
        Some(known.open.take()?.question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{ClientAddress, ListenerAddress, Slot};
    use std::sync::Arc;

    fn path(number: u16) -> ClientPath {
        let client = ([192, 0, 2, 1], 1000 + number).into();
        let listener = ListenerAddress::new("192.0.2.9:443".parse().unwrap());
        let slot = Arc::new(Slot::new(listener));
        ClientPath { client: ClientAddress::new(client), slot, local: None }
    }

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_millis(milliseconds)
    }

    #[test]
    fn the_first_that_has_the_session_ends_the_question() {
        let (inquiries, budget) = <(Inquiries, InquiryBudget)>::default();
        assert_eq!(inquiries.begin(&path(1), b"sealed", (3, &budget), 77, at(0)), Step::Ask);
        assert_eq!(inquiries.begin(&path(1), b"again", (3, &budget), 78, at(249)), Step::Wait);
        assert!(inquiries.denied(77).is_none() && inquiries.found(78).is_none());
        let found = inquiries.found(77).unwrap();
        assert_eq!(found.datagram, b"sealed");
        assert_eq!(found.path.network(), path(1).network());
        assert!(inquiries.found(77).is_none() && inquiries.denied(77).is_none());
    }

    #[test]
    fn an_unknown_client_is_refused_after_the_last_gateways_answer() {
        let (inquiries, budget) = <(Inquiries, InquiryBudget)>::default();
        assert_eq!(inquiries.begin(&path(1), b"sealed", (2, &budget), 77, at(0)), Step::Ask);
        assert!(inquiries.denied(77).is_none());
        assert_eq!(inquiries.denied(77).unwrap().datagram, b"sealed");
        assert_eq!(inquiries.begin(&path(1), b"sealed", (2, &budget), 78, at(999)), Step::Refuse);
        assert_eq!(inquiries.begin(&path(1), b"sealed", (2, &budget), 79, at(1000)), Step::Ask);
    }

    #[test]
    fn gateways_that_are_silent_are_not_waited_for() {
        let (inquiries, budget) = <(Inquiries, InquiryBudget)>::default();
        assert_eq!(inquiries.begin(&path(1), b"sealed", (2, &budget), 77, at(0)), Step::Ask);
        assert!(inquiries.unanswered(path(1).network(), at(249)).is_none());
        let over = inquiries.unanswered(path(1).network(), at(250)).unwrap();
        assert_eq!(
            (over.datagram.as_slice(), over.path.network()),
            (&b"sealed"[..], path(1).network())
        );
        assert!(inquiries.unanswered(path(1).network(), at(251)).is_none(), "once");
        assert_eq!(inquiries.begin(&path(1), b"sealed", (2, &budget), 78, at(251)), Step::Refuse);
        assert!(inquiries.found(77).is_none(), "it has been refused");
        assert_eq!(inquiries.begin(&path(2), b"sealed", (0, &budget), 79, at(250)), Step::Refuse);
    }

    #[test]
    fn a_flood_of_names_asks_so_often_and_is_refused_beyond() {
        let (inquiries, budget) = <(Inquiries, InquiryBudget)>::default();
        let steps = (0..1000).map(|number| {
            inquiries.begin(
                &path(number),
                b"sealed",
                (2, &budget),
                u64::from(number),
                at(number.into()),
            )
        });
        assert_eq!(steps.filter(|step| *step == Step::Ask).count(), MOST_QUESTIONS);
        assert_eq!(
            inquiries.begin(&path(1), &[0; LONGEST_KEPT_BYTES + 1], (2, &budget), 1, at(5000)),
            Step::Refuse
        );
        assert_eq!(
            inquiries.begin(&path(1), &[0; LONGEST_KEPT_BYTES], (2, &budget), 1, at(5000)),
            Step::Ask
        );
    }

    #[test]
    fn all_routes_together_send_so_many_messages() {
        let (routes, budget) = <([Inquiries; 20], InquiryBudget)>::default();
        let flood = |begun: u64| {
            let asked = routes.iter().map(|route| {
                let step = |number: u16| {
                    let nonce = u64::from(number);
                    route.begin(&path(number), b"sealed", (63, &budget), nonce, at(begun))
                };
                (0..500).filter(|number| step(*number) == Step::Ask).count()
            });
            asked.sum::<usize>()
        };
        assert_eq!([flood(0), flood(1000)], [65_536 / 63; 2], "each second");
    }
}
