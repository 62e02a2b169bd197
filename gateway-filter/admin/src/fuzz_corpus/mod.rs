//! The entry function of a fuzz target, and its corpus through the same function, so that every
//! test run covers it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub)] // public for the fuzzer alone

mod admin_requests;

#[cfg(fuzzing)]
pub use admin_requests::admin_requests;

#[cfg(test)]
mod tests {
    use packrat_fuzz_entry::corpus;

    #[test]
    fn admin_requests() {
        let expected = [
            "empty",
            "status",
            "sessions_with_a_limit",
            "events_of_a_session",
            "log_changed_on_purpose",
            "log_changed_before_what_is_no_text",
            "log_changed_by_a_page",
            "log_changed_by_a_name_that_leads_here",
            "overview",
            "head_too_long",
            "no_http",
        ];
        corpus::run("admin_requests", &expected, super::admin_requests::admin_requests);
    }
}
