//! The error of a field with a value outside its range.

use std::fmt;

/// A field of a configuration with a value outside its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// The configuration, as part of a sentence.
    pub document: &'static str,
    /// Name of the field.
    pub field: &'static str,
    /// The rest of a sentence: the mistake, and its correction.
    pub problem: String,
}

impl InvalidField {
    /// A field of a route's configuration.
    pub fn of_route(field: &'static str, problem: impl Into<String>) -> Self {
        Self { document: "the route configuration", field, problem: problem.into() }
    }

    /// A field of a token endpoint's configuration.
    pub fn of_token_endpoint(field: &'static str, problem: impl Into<String>) -> Self {
        let document = "the configuration of the token endpoint";
        Self { document, field, problem: problem.into() }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "field `{}` of {} {}", self.field, self.document, self.problem)
    }
}

impl std::error::Error for InvalidField {}
