//! Attackers who use all that they know, against gateway, session table and clients together: the
//! corpus of the fuzz target, and random inputs.

use packrat_fuzz_entry::arena::{self, Margins};
use packrat_fuzz_entry::corpus;

#[test]
fn every_known_attack_breaks_no_promise() {
    let expected = [
        "empty",
        "path_challenge_guessed",
        "path_challenge_guessed_at_a_clients_address",
        "path_challenge_seen_elsewhere",
        "claim_forwards_nothing",
        "claim_of_a_moving_clients_address",
        "eacks_that_decode_are_charged",
        "eacks_that_fail_are_the_attackers_own",
        "sessions_of_many_hosts_fail_to_decode",
        "forged_datagrams_enter_no_set",
        "forged_numbers_steer_no_hold",
        "sessions_of_forged_sources_leave_first",
        "answers_are_no_longer_than_questions",
        "another_listener_turns_nothing_away",
        "path_prepared_that_a_nat_gives",
        "connection_begun_where_a_nat_takes_a_client",
        "first_datagrams_forged",
        "numbers_that_leap_ahead",
        "holes_that_there_is_no_credit_for",
        "address_proved_by_what_came_from_it",
        "symbols_without_end",
        "unnumbered_datagrams_forged_twice",
        "answers_to_another_in_a_clients_name",
        "told_to_be_held_out",
        "server_that_sends_before_sessions_are_proven",
    ];
    corpus::run("knowing_attacker", &expected, packrat_fuzz_entry::knowing_attacker);
}

#[test]
fn no_random_attack_breaks_a_promise() {
    let wanted = std::env::var("PACKRAT_ATTACKS").unwrap_or_else(|_| SEEDS.to_string());
    let (first, end) = wanted.split_once("..").unwrap_or(("0", &wanted));
    let (first, end): (u64, u64) = (first.parse().unwrap(), end.parse().unwrap());
    let mut margins = Margins::default();
    for seed in first..end {
        match arena::run(&arena::input(seed, 120)) {
            Ok(run) => margins.add(&run),
            Err(violation) => panic!("input {} breaks a promise: {violation}", seed + 1),
        }
    }
    println!("{margins:?}");
    if first > 0 {
        return;
    }
    assert!(margins.sessions > end && margins.repairs > end * 5, "{margins:?}");
    assert!(margins.amplification > 0.5 && margins.work > 0.5, "nothing came near: {margins:?}");
}

/// Inputs of [`no_random_attack_breaks_a_promise`], unless the environment names another number.
const SEEDS: u64 = 200;

/// `tools/find-weaknesses` takes a while: here each of its patches is compared with what it changes.
#[test]
fn each_weakness_can_be_put_back() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut patches = 0;
    for entry in std::fs::read_dir(root.join("fuzz/weakened")).unwrap() {
        let path = entry.unwrap().path();
        let patch = std::fs::read_to_string(&path).unwrap();
        let mut source = String::new();
        for (number, part) in patch.split("\n@@ ").enumerate() {
            let (_, lines) = part.split_once('\n').unwrap();
            let (hunk, next) = lines.split_once("diff --git ").unwrap_or((lines, part));
            if number > 0 {
                let kept = hunk.lines().filter_map(|line| line.strip_prefix([' ', '-']));
                let before: String = kept.map(|line| format!("{line}\n")).collect();
                assert!(
                    source.contains(&before),
                    "{}: not there any more:\n{before}",
                    path.display()
                );
            }
            if let Some(file) = next.lines().find_map(|line| line.strip_prefix("+++ b/")) {
                source = std::fs::read_to_string(root.join(file)).unwrap();
            }
        }
        patches += 1;
    }
    assert!(patches >= 6, "{patches}");
}
