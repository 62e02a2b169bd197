//! Ten thousand sessions: the settings of Packrat26, in which no session may end in a Reset, and
//! worse ones, in which hardly any may.

use std::time::Duration;

use crate::reconciliation::world::{Outcome, Scenario, WIFI, Weather, run};

/// Totals of a family of sessions.
#[derive(Default)]
struct Tally {
    sessions: u64,
    resets: u64,
    eacks: u64,
    failed: u64,
    lost: u64,
    missing: u64,
    repaired: u64,
    late: u64,
    evicted: u64,
    expired: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        let gateway = &outcome.gateway;
        self.sessions += 1;
        self.resets += gateway.resets_gateway + gateway.resets_client;
        self.eacks += gateway.eacks_received;
        self.failed += gateway.eacks_failed;
        self.lost += outcome.lost;
        self.missing += gateway.datagrams_missing;
        self.repaired += gateway.repairs_arrived;
        self.late += gateway.repairs_late;
        self.evicted += gateway.repairs_evicted;
        self.expired += outcome.client.expired;
    }

    fn print(&self, name: &str) {
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.sessions,
            self.lost,
            self.missing,
            self.repaired,
            self.late,
            self.evicted,
            self.expired,
            self.eacks,
            self.failed,
            self.resets
        );
    }
}

/// Runs `sessions` sessions of a family on two threads; session `n` gets seed `n`.
fn family(name: &str, sessions: u64, scenario: impl Fn(u64) -> Scenario + Sync) -> Tally {
    let outcomes: Vec<Vec<Outcome>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let scenario = &scenario;
                scope.spawn(move || {
                    (worker..sessions).step_by(2).map(|seed| run(&scenario(seed), seed)).collect()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut tally = Tally::default();
    for outcome in outcomes.iter().flatten() {
        tally.add(outcome);
    }
    tally.print(name);
    tally
}

/// A last mile of Packrat26, table 3: one-way delay, loss both ways.
fn paper(delay_millis: u64, loss: f64, burst: f64) -> Scenario {
    let weather = Weather { loss, burst, ..Weather::calm(Duration::from_millis(delay_millis)) };
    Scenario { down: weather, up: Weather { burst: 1.0, ..weather }, datagrams: 400, ..WIFI }
}

fn heading() {
    println!(
        "| sessions of | number | lost | found missing | repaired | late | evicted | revealed | eACKs | failed | Resets |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

#[test]
fn no_session_of_the_papers_settings_ends_in_a_reset() {
    heading();
    let mut resets = 0;
    for (name, delay, loss, burst) in [
        ("WiFi 4 %", 2, 0.04, 1.0),
        ("WiFi 10 %", 2, 0.10, 1.0),
        ("WiFi 24 %", 2, 0.24, 1.0),
        ("WiFi 10 %, bursts of 5", 2, 0.10, 5.0),
        ("cellular 4 %", 10, 0.04, 1.0),
        ("cellular 10 %", 10, 0.10, 1.0),
        ("satellite 4 %", 30, 0.04, 1.0),
        ("satellite 10 %", 30, 0.10, 1.0),
    ] {
        let tally = family(name, 750, |_| paper(delay, loss, burst));
        resets += tally.resets;
        assert!(
            tally.failed * 50 < tally.eacks,
            "{name}: {} of {} eACKs failed",
            tally.failed,
            tally.eacks
        );
    }
    assert_eq!(resets, 0);
}

#[test]
fn hardly_any_session_of_hostile_settings_ends_in_a_reset() {
    heading();
    let (mut resets, mut sessions) = (0, 0);
    for (name, scenario) in [
        ("bursts of 64", paper(2, 0.10, 64.0)),
        ("bursts of 64, satellite", paper(30, 0.10, 64.0)),
        (
            "a cache a tenth of the right size",
            Scenario { cache_bytes: 4800, ..paper(2, 0.04, 1.0) },
        ),
        (
            "a cache a tenth of the right size, satellite",
            Scenario { cache_bytes: 15_000, ..paper(30, 0.10, 1.0) },
        ),
        ("reordering and duplicates", {
            let weather = Weather {
                duplication: 0.05,
                reordering: 0.10,
                lateness: Duration::from_millis(20),
                ..paper(10, 0.04, 1.0).down
            };
            Scenario { down: weather, up: weather, ..paper(10, 0.04, 1.0) }
        }),
        ("random control datagrams", Scenario { hostile: true, ..paper(2, 0.04, 1.0) }),
        ("lost before the gateway", Scenario { far_loss: 0.05, ..paper(10, 0.04, 1.0) }),
        ("an uplink that loses half", {
            let bad = paper(10, 0.04, 1.0);
            Scenario { up: Weather { loss: 0.5, ..bad.up }, ..bad }
        }),
    ] {
        let tally = family(name, 500, |_| scenario);
        resets += tally.resets;
        sessions += tally.sessions;
    }
    assert!(resets * 1000 <= sessions, "{resets} Resets in {sessions} sessions");
}
