//! The entry functions of fuzz targets, and their corpora through the same functions, so that every
//! test run covers them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub)] // public for the fuzzer alone

mod client_shell;

#[cfg(fuzzing)]
pub use client_shell::client_shell;

#[cfg(test)]
mod tests {
    use super::client_shell;
    use packrat_fuzz_entry::corpus;

    #[test]
    fn client_shell() {
        let expected = [
            "empty",
            "repaired_while_others_wait",
            "hold_expires",
            "forged_numbers_above_a_hole",
            "closed_while_datagrams_wait",
            "followed_by_another_path",
        ];
        corpus::run("client_shell", &expected, client_shell::client_shell);
    }
}
