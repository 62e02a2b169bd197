//! The urgency of a line.

/// The urgency of a line to an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Details.
    Debug = 0,
    /// Normal life of sessions and routes.
    Info = 1,
    /// A loss or a refusal; forwarding continues.
    Warning = 2,
    /// Something is broken and needs an operator.
    Error = 3,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warning, Self::Error];

    /// The text in a log line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| format!("{text:?} is no log level; use debug, info, warning or error"))
    }
}
