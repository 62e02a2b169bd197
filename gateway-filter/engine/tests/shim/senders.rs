//! Senders that tolerate losses, and what sessions find out about them and their networks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::Timestamp;
use packrat_engine::{FlowCounters, SenderAnswer, SenderMemory};

use super::{CALM, LONG, Outcome, Path, Setting, run};

#[test]
fn a_sender_that_tolerates_losses_is_shown_them() {
    let (long, short) = (Duration::from_millis(40), Duration::from_millis(5));
    let with = |sender, loss, delay| run(Setting { sender, loss, delay, ..CALM }, 7);
    for delay in [short, long] {
        let hidden = with(SenderAnswer::Always, 10, delay);
        assert!(hidden.counters.repairs + hidden.counters.symbols > 30, "{:?}", hidden.counters);
        // Datagrams before the first report wait; afterwards hardly any.
        let shown = with(SenderAnswer::AboveTolerance, 10, delay);
        assert!(shown.counters.repairs + shown.counters.symbols < 10, "{:?}", shown.counters);
        assert!(shown.kept * 10 < hidden.kept, "{} {}", shown.kept, hidden.kept);
        assert!(shown.counters.losses_tolerated > 20, "{:?}", shown.counters);
        assert_eq!(shown.counters.losses_shown, 0, "no queue stands");
        let beyond = with(SenderAnswer::AboveTolerance, 60, delay);
        assert!(beyond.counters.repairs + beyond.counters.symbols > 150, "{:?}", beyond.counters);
        let never = with(SenderAnswer::Never, 60, delay);
        assert_eq!((never.numbered, never.kept, never.counters.symbols), (0, 0, 0));
        assert!(never.counters.repairs < 5, "{:?}", never.counters);
    }
}

/// Sessions one after another, each with a client at another of these addresses, of an unconfigured
/// sender that is as fast as before whatever the losses.
fn sessions(loss: u32, clients: impl Iterator<Item = [u8; 4]>) -> Vec<FlowCounters> {
    let senders = Arc::new(SenderMemory::default());
    // A trial shows five losses in the second half.
    let setting = Setting { sender: SenderAnswer::Unknown, loss, datagrams: 9000, ..LONG };
    let run = |(seed, client)| {
        let client = SocketAddr::from((client, 5000));
        Path::new(setting, seed, client, Arc::clone(&senders)).run().counters
    };
    (1..).zip(clients).map(run).collect()
}

/// True if the sender was shown losses, at the end at least.
fn is_shown(counters: &FlowCounters) -> bool {
    counters.losses_tolerated > 20
}

#[test]
fn sessions_find_out_that_their_senders_tolerate_losses() {
    let sessions = sessions(10, (0..9).map(|network| [192, 0, network, 1]));
    let shown: Vec<bool> = sessions.iter().map(is_shown).collect();
    // Every second one is a trial, until three have found the same.
    let expected = [false, true, false, true, false, true, true, true, true];
    assert_eq!(shown, expected, "{sessions:?}");
    assert!(sessions[1].repairs + sessions[1].symbols > 20, "a trial repairs in its first half");
    assert!(sessions[8].repairs + sessions[8].symbols < 20 && sessions[8].senders_tolerant == 1);
}

#[test]
fn a_network_alone_does_not_decide_for_others() {
    // From the second session on its own findings count; every second session of others is a trial.
    // With the second of these, three networks have found the same.
    let others = (5..9).map(|network| [192, 0, network, 1]);
    let sessions = sessions(10, (0..5).map(|client| [192, 0, 2, client]).chain(others));
    let shown: Vec<bool> = sessions.iter().map(is_shown).collect();
    assert_eq!(shown, [false, true, true, true, true, true, false, true, true]);
}

#[test]
fn what_three_networks_say_ends_unless_others_find_the_same() {
    let senders = Arc::new(SenderMemory::default());
    let route = Setting { sender: SenderAnswer::Unknown, loss: 20, ..LONG };
    let session = |minute: u64, network: u8, datagrams| {
        let (at, client) = (Timestamp::from_millis(1000 + 60_000 * minute), [192, 0, network, 1]);
        let (setting, client) = (Setting { datagrams, ..route }, SocketAddr::from((client, 5000)));
        Path::at(at, setting, u64::from(network), client, Arc::clone(&senders)).run()
    };
    // Attackers: losses do not matter to their servers.
    let judged = (1..20).find(|&at| session(0, 100 + at % 3, 9000).tipped.is_some());
    assert!(judged.is_some_and(|at| at >= 5), "every second session is a trial: {judged:?}");
    // Others have short sessions, which lose datagrams and never have a finding.
    let short: Vec<_> = (0..12).map(|network| session(1, network, 150)).collect();
    let repaired = |outcome: &Outcome| outcome.counters.repairs + outcome.counters.symbols;
    assert!(short.iter().all(|outcome| repaired(outcome) < 20));
    assert!(short.iter().filter(|outcome| outcome.counters.losses_tolerated > 0).count() >= 8);
    assert!(short.iter().all(|outcome| outcome.tipped.is_none()), "ten minutes are not over");
    let ended = (12..40).find_map(|network| session(11, network, 150).tipped);
    assert_eq!(ended, Some(false));
    // For a day, the findings of the three do not count.
    let later = (1..20).find_map(|at| session(30, 100 + at % 3, 9000).tipped);
    assert_eq!(later, None);
    assert!((50..52).any(|network| repaired(&session(31, network, 4000)) > 20));
}

#[test]
fn more_than_such_senders_tolerate_is_repaired() {
    let sessions = sessions(60, (0..9).map(|network| [192, 0, network, 1]));
    assert!(sessions.iter().all(|counters| counters.repairs + counters.symbols > 100));
}

#[test]
fn repairs_that_a_sender_does_not_need_are_not_paused() {
    let delay = Duration::from_millis(100);
    let sender = SenderAnswer::AboveTolerance;
    // To the gateway, a policer's losses.
    let counters = run(Setting { sender, loses_one_of: Some(40), delay, ..CALM }, 1).counters;
    assert!(counters.losses_tolerated > 50, "{counters:?}");
    assert_eq!((counters.repair_pauses, counters.repairs_paused), (0, 0), "{counters:?}");
}

/// A session expects of its last mile the median of networks, and one customer is one network: its
/// /48 has 65,536 sources.
#[test]
fn one_network_does_not_say_what_the_last_miles_of_others_lose() {
    let senders = Arc::new(SenderMemory::default());
    let session_at = |client: &str, setting: Setting, at: u64| {
        let at = Timestamp::from_millis(at);
        Path::at(at, setting, 7, client.parse().unwrap(), Arc::clone(&senders)).run()
    };
    let short = Setting { datagrams: 60, ..CALM };
    let thin = Setting { datagrams: 220, interval: Duration::from_millis(33), length: 400, ..CALM };
    let early_copies =
        |client: &str, setting, at| session_at(client, setting, at).counters.early_copies;
    // Clients of as many networks, whose last miles lose no datagrams.
    for number in 0..200 {
        session_at(&format!("198.51.{number}.7:5000"), short, 1000);
    }
    assert_eq!(early_copies("203.0.113.1:5000", thin, 1000), 0, "before");
    // More sources than are remembered, of one network, claim losses.
    let lies = Setting { loss: 300, ..short };
    for number in 0..1100 {
        session_at(&format!("[2001:db8:bad:{number:x}::1]:5000"), lies, 60_000);
    }
    let download = Setting { datagrams: 300, ..CALM };
    let copies = [
        early_copies("203.0.113.2:5000", thin, 120_000),
        early_copies("203.0.113.3:5000", download, 120_000),
        // One of the 200.
        early_copies("198.51.7.7:5000", thin, 120_000),
    ];
    assert_eq!(copies, [0; 3]);
}
