//! Senders: how a route's servers answer to losses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Congestion control of a route's servers, as far as it matters to the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderKind {
    /// CUBIC, NewReno, or not known: losses of the last mile are repaired, and hidden meanwhile.
    #[default]
    Any,
    /// BBRv2 or BBRv3: up to 3 % of losses are left to the server, more are repaired and hidden.
    Bbr,
    /// BBRv1: losses are left to the server.
    Bbr1,
}

impl SenderKind {
    const ALL: [Self; 3] = [Self::Any, Self::Bbr, Self::Bbr1];

    /// The name in a route's configuration and in annotations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Bbr => "bbr",
            Self::Bbr1 => "bbr1",
        }
    }
}

impl fmt::Display for SenderKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The error of a text that is no kind of sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownSenderKind;

impl fmt::Display for UnknownSenderKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("write any, bbr (BBRv2, BBRv3) or bbr1 (BBRv1)")
    }
}

impl std::error::Error for UnknownSenderKind {}

impl FromStr for SenderKind {
    type Err = UnknownSenderKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownSenderKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_configuration() {
        for kind in SenderKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("BBR".parse::<SenderKind>(), Err(UnknownSenderKind));
    }
}
