//! The names that programs send to through SOCKS, and the addresses that they lead to.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use packrat_client::Timestamp;

use super::AssociationId;
use crate::network::choose;

/// Most names that are known at the same time.
const MOST_NAMES: usize = 1024;
/// Most datagrams that wait for a name.
const WAITING_DATAGRAMS: usize = 16;
/// Threads that ask the system's resolver.
const RESOLVER_THREADS: usize = 4;
/// Most questions that wait for the resolver's threads.
const MOST_QUESTIONS: usize = 64;
/// Most addresses that associations keep.
const MOST_ADDRESSES: usize = 4096;
/// Age of an answer after which a name is resolved again.
const FRESH_TIME: Duration = Duration::from_secs(60);
/// Time without use after which an association drops its address, so that connections stay at
/// theirs.
const UNUSED_TIME: Duration = Duration::from_secs(60);
/// Age of a failed answer after which a name is resolved again.
const FAILURE_TIME: Duration = Duration::from_secs(5);

/// A host's name and a port.
pub(crate) type Name = (String, u16);

/// Resolves names in its own threads. `W`: a request that waits for an answer.
pub(super) struct Names<W> {
    known: HashMap<Name, Known<W>>,
    /// The addresses that associations use, and when they did last.
    kept: HashMap<(AssociationId, Name), (SocketAddr, Timestamp)>,
    questions: SyncSender<Name>,
}

enum Known<W> {
    Asked(Vec<W>),
    /// The address, if there is one, and the time of the answer.
    Found(Option<SocketAddr>, Timestamp),
}

/// The answer of [`Names::find`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    At(SocketAddr),
    /// The name is being resolved; the passed request waits.
    Later,
    Nowhere,
}

impl<W> Names<W> {
    /// Starts the threads. `answer` is called in one of them for each name.
    pub(super) fn new(answer: impl Fn(Name, Option<SocketAddr>) + Clone + Send + 'static) -> Self {
        let (questions, asked) = sync_channel(MOST_QUESTIONS);
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..RESOLVER_THREADS {
            let (asked, answer) = (Arc::clone(&asked), answer.clone());
            // With fewer threads names take longer.
            let _ = std::thread::Builder::new()
                .name("packrat-names".to_owned())
                .spawn(move || resolve(&asked, &answer));
        }
        Self { known: HashMap::new(), kept: HashMap::new(), questions }
    }

    /// Returns the address of a name for an association. `waits`: the request to keep until it is
    /// known.
    pub(super) fn find(
        &mut self,
        association: AssociationId,
        name: Name,
        waits: impl FnOnce() -> W,
        now: Timestamp,
    ) -> Answer {
        let user = (association, name);
        if let Some((address, used)) =
            self.kept.get_mut(&user).filter(|kept| now < kept.1 + UNUSED_TIME)
        {
            *used = now;
            return Answer::At(*address);
        }
        let answer = self.shared(user.1.clone(), waits, now);
        if let Answer::At(address) = answer {
            if self.kept.len() >= MOST_ADDRESSES {
                self.kept.retain(|_, (_, used)| now < *used + UNUSED_TIME);
            }
            // One that is too many follows the name's answers.
            if self.kept.len() < MOST_ADDRESSES {
                self.kept.insert(user, (address, now));
            }
        }
        answer
    }

    /// The address of a name for associations without one.
    fn shared(&mut self, name: Name, waits: impl FnOnce() -> W, now: Timestamp) -> Answer {
        match self.known.get_mut(&name) {
            Some(Known::Asked(waiting)) if waiting.len() < WAITING_DATAGRAMS => {
                waiting.push(waits());
                return Answer::Later;
            }
            Some(Known::Asked(_)) => return Answer::Nowhere,
            Some(Known::Found(Some(address), since)) if now < *since + FRESH_TIME => {
                return Answer::At(*address);
            }
            Some(Known::Found(None, since)) if now < *since + FAILURE_TIME => {
                return Answer::Nowhere;
            }
            _ => {}
        }
        if self.known.len() >= MOST_NAMES {
            self.known.retain(|_, known| match known {
                Known::Asked(_) => true,
                Known::Found(address, at) => {
                    now < *at + if address.is_some() { FRESH_TIME } else { FAILURE_TIME }
                }
            });
        }
        let has_room = self.known.len() < MOST_NAMES || self.known.contains_key(&name);
        if !has_room || self.questions.try_send(name.clone()).is_err() {
            return Answer::Nowhere;
        }
        self.known.insert(name, Known::Asked(vec![waits()]));
        Answer::Later
    }

    /// Called for an answer: returns the requests that have waited for it.
    pub(super) fn on_answer(
        &mut self,
        name: Name,
        address: Option<SocketAddr>,
        now: Timestamp,
    ) -> Vec<W> {
        match self.known.insert(name, Known::Found(address, now)) {
            Some(Known::Asked(waiting)) => waiting,
            _ => Vec::new(),
        }
    }
}

fn resolve(asked: &Mutex<Receiver<Name>>, answer: &impl Fn(Name, Option<SocketAddr>)) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        // The agent has ended.
        let Ok(name) = next else { return };
        let found = (name.0.as_str(), name.1).to_socket_addrs();
        answer(name, found.ok().and_then(choose));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// A name is resolved again, and an association keeps its address while it uses it.
    #[test]
    fn a_name_is_resolved_again_but_used_addresses_stay() {
        let (sender, answers) = channel();
        let answer = move |name: Name, address| drop(sender.send((name, address)));
        let mut names = Names::<u32>::new(answer);
        let name = || ("localhost".to_owned(), 443);
        let second = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(names.find(7, name(), || 1, second(1)), Answer::Later);
        assert_eq!(names.find(8, name(), || 2, second(1)), Answer::Later);
        let (answered, address) = answers.recv().unwrap();
        assert_eq!(answered, name());
        assert!(address.unwrap().ip().is_loopback());
        assert_eq!(names.on_answer(answered, address, second(2)), [1, 2]);
        let found = Answer::At(address.unwrap());
        for at in [3, 50, 100] {
            assert_eq!(names.find(7, name(), || 3, second(at)), found, "used every now and then");
        }
        // However often others use it.
        assert_eq!(names.find(8, name(), || 4, second(61)), found);
        assert_eq!(names.find(9, name(), || 4, second(62)), Answer::Later);
        assert!(answers.recv().is_ok());
        let other: SocketAddr = "192.0.2.1:443".parse().unwrap();
        assert_eq!(names.on_answer(name(), Some(other), second(63)), [4]);
        assert_eq!(names.find(9, name(), || 5, second(64)), Answer::At(other));
        assert_eq!(names.find(7, name(), || 5, second(110)), found, "its connections stay");
        assert_eq!(names.find(7, name(), || 5, second(170)), Answer::Later, "unused");
        assert!(answers.recv().is_ok());

        let nowhere = || ("no-such-host.invalid".to_owned(), 443);
        assert_eq!(names.find(7, nowhere(), || 5, second(1)), Answer::Later);
        let (answered, address) = answers.recv().unwrap();
        assert_eq!(address, None);
        names.on_answer(answered, address, second(2));
        assert_eq!(names.find(7, nowhere(), || 6, second(3)), Answer::Nowhere);
        assert_eq!(names.find(7, nowhere(), || 6, second(7)), Answer::Later);
    }

    #[test]
    fn what_waits_for_a_name_is_bounded() {
        let mut names = Names::<usize>::new(|_, _| {});
        let now = Timestamp::from_millis(1000);
        let name = || ("localhost".to_owned(), 1);
        let answers =
            (0..WAITING_DATAGRAMS + 1).map(|number| names.find(7, name(), || number, now));
        let answers: Vec<_> = answers.collect();
        assert!(answers[..WAITING_DATAGRAMS].iter().all(|answer| *answer == Answer::Later));
        assert_eq!(answers[WAITING_DATAGRAMS], Answer::Nowhere);
    }
}
