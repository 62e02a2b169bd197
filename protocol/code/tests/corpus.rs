//! The fuzz target's corpus through the same entry function, so that every test run covers it.

use packrat_fuzz_entry::corpus;

#[test]
fn code() {
    let expected = [
        "empty",
        "genuine_losses_are_recovered",
        "late_source_after_its_own_repair",
        "mixed_sizes",
        "overlapping_windows",
        "forged_symbols_pollute",
        "forged_far_ahead",
        "contradicting_datagram",
        "windows_slide_past",
        "no_memory",
        "length_beyond_its_half",
    ];
    corpus::run("code", &expected, packrat_fuzz_entry::code);
}
