//! Checks the models of packrat/2, and that each property depends on the rules that it should
//! depend on. `models [NAME]` checks only the models of one name.

mod check;
mod epochs;
mod handshake;
mod paths;

use std::process::ExitCode;

use check::Checks;
use epochs::{Budget, Epochs};
use handshake::Handshake;
use paths::Paths;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let mut checks = Checks::default();
    if is_wanted("epochs") {
        check_epochs(&mut checks);
    }
    if is_wanted("paths") {
        check_paths(&mut checks);
    }
    if is_wanted("handshake") {
        check_handshake(&mut checks);
    }
    if checks.conclude() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check_epochs(checks: &mut Checks) {
    let calm = Budget { datagrams: 2, losses: 0, copies: 0, failures: 0, resets: 0, moves: 0 };
    let lossy = Budget { losses: 2, failures: 1, resets: 1, ..calm };
    let copying = Budget { losses: 1, copies: 1, failures: 1, resets: 1, ..calm };
    let roaming = Budget { losses: 1, failures: 1, resets: 1, moves: 1, ..calm };
    let moving = Budget { losses: 1, resets: 1, moves: 2, ..calm };
    let dying = Budget { losses: 4, ..calm };
    for (name, budget) in [
        ("epochs, a path that loses", lossy),
        ("epochs, a path that loses and repeats", copying),
        ("epochs, a client that moves while epochs change", roaming),
        ("epochs, a client that moves twice", moving),
        ("epochs, a path that loses repairs", dying),
    ] {
        checks.holds(name, Epochs { budget, mutation: None });
    }
    for (mutation, property) in epochs::Mutation::ALL {
        let budget = match mutation {
            epochs::Mutation::UnclearedChallenges => moving,
            epochs::Mutation::EndlessRepairs => dying,
            _ => copying,
        };
        checks.fails("epochs", &Epochs { budget, mutation: None }, mutation, property);
    }
}

fn check_paths(checks: &mut Checks) {
    let paths = Paths { hostile: 4, honest: 2, mutation: None };
    checks.holds("paths", paths);
    for (mutation, property) in paths::Mutation::ALL {
        checks.fails("paths", &paths, mutation, property);
    }
}

fn check_handshake(checks: &mut Checks) {
    let handshake = Handshake { attempts: 2, sessions: 3, mutation: None };
    checks.holds("handshake", handshake);
    for (mutation, property) in handshake::Mutation::ALL {
        checks.fails("handshake", &handshake, mutation, property);
    }
}
