//! Logins and passwords of hosts in a `.netrc` file, as curl and ftp read it.

/// The entries of a file.
#[derive(Clone, Default)]
pub(crate) struct Netrc(Vec<Entry>);

#[derive(Clone, Default)]
struct Entry {
    /// `None`: `default`, for every host that has no entry before it.
    machine: Option<String>,
    login: String,
    password: String,
}

impl std::fmt::Debug for Netrc {
    /// Shows no entry: they are secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Netrc of {} entries", self.0.len())
    }
}

impl Netrc {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The line with the fault, and the fault.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines = text.lines().enumerate();
        let mut keyword: Option<String> = None;
        while let Some((index, line)) = lines.next() {
            let fault = |what: &str| format!("line {}: {what}", index + 1);
            for word in words(line).map_err(fault)? {
                match (keyword.take().as_deref(), entries.last_mut()) {
                    (Some("machine"), _) => {
                        entries.push(Entry { machine: Some(word), ..Entry::default() });
                    }
                    (Some("login"), Some(entry)) => entry.login = word,
                    (Some("password"), Some(entry)) => entry.password = word,
                    (Some("account"), _) => {}
                    (Some("macdef"), _) => {
                        // A macro ends with an empty line.
                        let _ = lines.find(|(_, line)| line.trim().is_empty());
                        break;
                    }
                    (Some(_), _) => return Err(fault("no machine before it")),
                    (None, _) if word == "default" => entries.push(Entry::default()),
                    (None, _) if KEYWORDS.contains(&word.as_str()) => keyword = Some(word),
                    // The word itself may be a password.
                    (None, _) => {
                        return Err(fault(
                            "expected machine, default, login, password, account or macdef",
                        ));
                    }
                }
            }
        }
        match keyword {
            Some(keyword) => Err(format!("nothing follows the last {keyword}")),
            None => Ok(Self(entries)),
        }
    }

    /// Login and password for a host. `with_default`: those of `default` also.
    pub(crate) fn find(&self, host: &str, with_default: bool) -> Option<(&str, &str)> {
        let entry = self.0.iter().find(|entry| match &entry.machine {
            Some(machine) => machine.eq_ignore_ascii_case(host),
            None => with_default,
        })?;
        Some((&entry.login, &entry.password))
    }
}

const KEYWORDS: [&str; 5] = ["machine", "login", "password", "account", "macdef"];

/// The words of a line: separated by blanks, or in quotes with `\` before a quote. A word that begins
/// with `#` where the line begins makes it a comment.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    if line.trim_start().starts_with('#') {
        return Ok(words);
    }
    let mut rest = line.chars().peekable();
    while let Some(first) = rest.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut word = String::new();
        if first != '"' {
            word.push(first);
            word.extend(std::iter::from_fn(|| rest.next_if(|next| !next.is_whitespace())));
            words.push(word);
            continue;
        }
        loop {
            match rest.next().ok_or("a quote is not closed")? {
                '"' => break,
                '\\' => word.push(match rest.next().ok_or("a quote is not closed")? {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                }),
                other => word.push(other),
            }
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# machine comment login no password no
machine one.example login me password pass#word
machine two.example
  login \"you \\\"there\"
  password \"a b\" account x
macdef init
  machine three.example login no password no

default login anonymous password guest
";

    #[test]
    fn entries_are_found_by_their_host() {
        let netrc = Netrc::parse(TEXT).unwrap();
        assert_eq!(netrc.find("ONE.example", true), Some(("me", "pass#word")));
        assert_eq!(netrc.find("two.example", false), Some(("you \"there", "a b")));
        assert_eq!(netrc.find("three.example", true), Some(("anonymous", "guest")));
        assert_eq!(netrc.find("three.example", false), None);
        assert!(!format!("{netrc:?}").contains("word"));
        assert_eq!(Netrc::parse("").unwrap().find("one.example", true), None);
    }

    #[test]
    fn a_fault_is_named_by_its_line_without_secrets() {
        for (text, words) in [
            ("machine a login b\nsecret", "line 2"),
            ("login secret", "no machine"),
            ("machine a password \"secret", "not closed"),
            ("machine", "nothing follows"),
        ] {
            let error = Netrc::parse(text).unwrap_err();
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
        }
    }
}
