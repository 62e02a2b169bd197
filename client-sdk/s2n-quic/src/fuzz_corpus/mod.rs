//! The entry functions of fuzz targets, and their corpora through the same functions, so that every
//! test run covers them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub)] // public for the fuzzer alone

#[cfg(test)]
mod acknowledgements;
mod client_shell;
#[cfg(test)]
mod packet_numbers;

#[cfg(fuzzing)]
pub use client_shell::client_shell;

#[cfg(test)]
mod tests {
    use super::{acknowledgements, client_shell, packet_numbers};
    use packrat_fuzz_entry::corpus;

    #[test]
    fn packet_numbers() {
        let expected = [
            "empty",
            "numbers_of_all_lengths",
            "forged_long_headers",
            "identifier_changes",
            "next_to_the_highest",
        ];
        corpus::run("packet_numbers", &expected, packet_numbers::packet_numbers);
    }

    #[test]
    fn acknowledgements() {
        let expected = ["empty", "completed", "no_room", "not_understood", "ranges_that_touch"];
        corpus::run("acknowledgements", &expected, acknowledgements::acknowledgements);
    }

    #[test]
    fn client_shell() {
        let expected = [
            "empty",
            "repaired_before_the_window_moves",
            "hold_expires",
            "forged_numbers_above_a_hole",
            "closed_while_datagrams_wait",
            "keys_come_late",
        ];
        corpus::run("client_shell", &expected, client_shell::client_shell);
    }
}
