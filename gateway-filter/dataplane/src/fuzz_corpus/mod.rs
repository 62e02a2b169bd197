//! The entry function of a fuzz target, and its corpus through the same function, so that every
//! test run covers it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub)] // public for the fuzzer alone

mod session_table;

#[cfg(fuzzing)]
pub use session_table::session_table;

#[cfg(test)]
mod tests {
    use packrat_fuzz_entry::corpus;

    #[test]
    fn session_table() {
        let expected = [
            "empty",
            "one_client_at_all_listeners",
            "moves_round_in_a_circle",
            "a_path_that_speaks_is_kept",
            "an_assisted_client_is_asked_and_gives_way",
            "a_displaced_client_comes_back",
            "unassured_sessions_make_room",
            "a_question_without_cookie_assures_nothing",
        ];
        corpus::run("session_table", &expected, super::session_table::session_table);
    }
}
