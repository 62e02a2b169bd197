//! The versions of a configuration that a gateway may have without being late. Pure: the time is an
//! argument.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time that a gateway has to acknowledge a newer version.
pub const ACKNOWLEDGEMENT_GRACE: Duration = Duration::from_secs(5);

/// The newest version of a gateway's configuration, and the versions that were the newest within
/// [`ACKNOWLEDGEMENT_GRACE`]: endpoints change often, and each change takes a moment to arrive.
#[derive(Debug, Default)]
pub struct RecentVersions {
    newest: Option<String>,
    /// Former versions, each with the time at which its grace ends.
    former: BTreeMap<String, Duration>,
}

impl RecentVersions {
    /// Takes over the version that is the newest at `now`.
    pub fn see(&mut self, newest: Option<&String>, now: Duration) {
        if self.newest.as_ref() != newest {
            let before = std::mem::replace(&mut self.newest, newest.cloned());
            self.former.extend(before.map(|version| (version, now + ACKNOWLEDGEMENT_GRACE)));
        }
        self.former.retain(|version, until| *until > now && Some(version) != newest);
    }

    /// True if there are former versions whose grace has not ended: a later look is needed.
    pub fn is_changing(&self) -> bool {
        !self.former.is_empty()
    }

    /// The versions that a gateway may have.
    pub fn versions(&self) -> impl Iterator<Item = &String> {
        self.newest.iter().chain(self.former.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_version_will_do_for_a_while() {
        let seconds = Duration::from_secs;
        let mut recent = RecentVersions::default();
        let mut see = |version: &str, now| {
            recent.see(Some(&version.to_owned()), seconds(now));
            let versions: Vec<String> = recent.versions().cloned().collect();
            (versions.concat(), recent.is_changing())
        };
        let of = |versions: &str, changing| (versions.to_owned(), changing);
        assert_eq!(see("a", 0), of("a", false));
        assert_eq!(see("b", 100), of("ba", true));
        assert_eq!(see("c", 103), of("cab", true));
        assert_eq!(see("c", 104), of("cab", true));
        assert_eq!(see("c", 105), of("cb", true));
        // An earlier version that is the newest again.
        assert_eq!(see("b", 106), of("bc", true));
        assert_eq!(see("b", 111), of("b", false));
    }
}
