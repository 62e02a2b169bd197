//! Senders: how a route's servers answer to losses.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// Congestion control of a route's servers, as far as it matters to the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderKind {
    /// Unknown: losses of the last mile are repaired and not shown to the servers, unless sessions
    /// find that these tolerate losses.
    #[default]
    Any,
    /// CUBIC, NewReno, or any other that reduces its rate after each loss: losses are repaired and
    /// not shown, regardless of the sessions' findings.
    #[serde(rename = "loss-based")]
    LossBased,
    /// BBRv2 or BBRv3: up to 3 % of losses are left to the server, more are repaired and hidden.
    Bbr,
    /// BBRv1: losses are left to the server.
    Bbr1,
}

words! {
    SenderKind,
    /// The error of a text that is no kind of sender.
    UnknownSenderKind "write any, loss-based (CUBIC, NewReno), bbr (BBRv2, BBRv3) or bbr1 (BBRv1)",
    [Any "any" "Any", LossBased "loss-based" "LossBased", Bbr "bbr" "BBR", Bbr1 "bbr1" "BBR1"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_configuration() {
        for &kind in SenderKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("BBR".parse::<SenderKind>(), Err(UnknownSenderKind));
    }
}
