//! A gateway's key in the DNS: a private parameter of HTTPS records (docs/PROTOCOL.md, section 6;
//! RFC 9460), the question for these records, and the parsing of its answer.

use crate::hexadecimal;

/// Key of the parameter that announces a gateway, of the range for private use (RFC 9460, section
/// 14.3.2).
pub const GATEWAY_PARAMETER: u16 = 65_360;
/// Bytes of the longest answer over UDP (as most servers have it: RFC 9715, section 3).
pub const LONGEST_ANSWER_BYTES: usize = 1232;
/// Key of the parameter *mandatory* (RFC 9460, section 8).
const MANDATORY_PARAMETER: u16 = 0;
/// Key of the parameter *port* (RFC 9460, section 7.2).
const PORT_PARAMETER: u16 = 3;
/// Keys of parameters that are known, or irrelevant for a client that speaks HTTP/3 to all
/// addresses of a name: *mandatory*, *alpn*, *no-default-alpn*, *port*, *ipv4hint*, *ipv6hint*, and
/// ours. Another one may be *mandatory* (*ech*); the record is then ignored.
const UNDERSTOOD_PARAMETERS: [u16; 7] =
    [MANDATORY_PARAMETER, 1, 2, PORT_PARAMETER, 4, 6, GATEWAY_PARAMETER];

/// Type of a record with a canonical name (RFC 1035).
const CNAME_TYPE: u16 = 5;
/// Type of the pseudo-record of EDNS (RFC 6891).
const OPT_TYPE: u16 = 41;
/// Type of an HTTPS record (RFC 9460).
const HTTPS_TYPE: u16 = 65;
/// Class of records of the Internet (RFC 1035).
const INTERNET_CLASS: u16 = 1;
/// Bit of a header's flags that marks an answer (RFC 1035, section 4.1.1).
const ANSWER_FLAG: u16 = 0x8000;
/// Bits of a header's flags with the kind of the query (RFC 1035, section 4.1.1).
const OPCODE_MASK: u16 = 0x7800;
/// Bit of a header's flags that marks an answer that was cut off (RFC 1035, section 4.1.1).
const TRUNCATED_FLAG: u16 = 0x0200;
/// Bit of a header's flags that asks for recursion (RFC 1035, section 4.1.1).
const RECURSION_FLAG: u16 = 0x0100;
/// Bits of a header's flags with the response code (RFC 1035, section 4.1.1).
const OUTCOME_MASK: u16 = 0x000f;
/// Bytes of the longest name (RFC 1035, section 2.3.4).
const LONGEST_NAME_BYTES: usize = 253;
/// Bytes of the longest label of a name (RFC 1035, section 2.3.4).
const LONGEST_LABEL_BYTES: usize = 63;
/// Most pointers in a name, and most CNAMEs in an answer, that are followed.
const MOST_STEPS: usize = 16;

/// An HTTPS record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsRecord {
    /// SvcPriority: smaller is better; 0 is an alias.
    pub priority: u16,
    /// TargetName, in lower case, without the dot at its end; empty for the record's own name.
    pub target: String,
    /// SvcParams: keys, and the values as they are in a datagram.
    pub parameters: Vec<(u16, Vec<u8>)>,
}

/// The content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The records of the name.
    Records(Vec<HttpsRecord>),
    /// The records are under this name.
    Alias(String),
    /// There are no usable records.
    Nothing,
}

/// The place of a gateway, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedGateway {
    /// The host to connect to; `None`: the name that was asked for.
    pub host: Option<String>,
    /// The port to connect to; `None`: the URL's.
    pub port: Option<u16>,
    /// The static public key.
    pub key: [u8; 32],
}

/// Reads the key in a value of the parameter: 64 hexadecimal digits. Bytes after a comma belong to
/// a later version.
pub fn read_parameter(value: &[u8]) -> Option<[u8; 32]> {
    hexadecimal::decode_key(value.split(|byte| *byte == b',').next()?)
}

/// The question for the HTTPS records of a name; `None` if the name is invalid.
pub fn question(id: u16, name: &str) -> Option<Vec<u8>> {
    let words =
        |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    // One question, no records but one that allows longer answers.
    let mut datagram = words(&[id, RECURSION_FLAG, 1, 0, 0, 1]);
    let name = name.trim_end_matches('.');
    if name.is_empty() || name.len() > LONGEST_NAME_BYTES {
        return None;
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok()?;
        if label.is_empty() || label.len() > LONGEST_LABEL_BYTES || !label.is_ascii() {
            return None;
        }
        datagram.push(length);
        datagram.extend_from_slice(label.as_bytes());
    }
    datagram.push(0);
    datagram.extend(words(&[HTTPS_TYPE, INTERNET_CLASS]));
    datagram.push(0);
    datagram.extend(words(&[OPT_TYPE, LONGEST_ANSWER_BYTES as u16, 0, 0, 0]));
    Some(datagram)
}

/// The answer of a datagram to the question for `name`; `None` if it is no answer to that.
pub fn answer(datagram: &[u8], id: u16, name: &str) -> Option<Answer> {
    let mut reader = Reader { datagram, at: 0 };
    let (answered, flags) = (reader.word()?, reader.word()?);
    let (questions, records) = (reader.word()?, reader.word()?);
    reader.take(4)?;
    let is_answer = answered == id && flags & ANSWER_FLAG != 0 && flags & OPCODE_MASK == 0;
    if !is_answer || questions != 1 {
        return None;
    }
    let asked = name.trim_end_matches('.').to_ascii_lowercase();
    if reader.name(true)? != asked
        || (reader.word()?, reader.word()?) != (HTTPS_TYPE, INTERNET_CLASS)
    {
        return None;
    }
    if flags & (TRUNCATED_FLAG | OUTCOME_MASK) != 0 {
        return Some(Answer::Nothing);
    }
    // One malformed record spoils all of them (RFC 9460, section 2.2).
    Some(reader.answer(asked, records).unwrap_or(Answer::Nothing))
}

/// The gateway of the best record that names one. Malformed records, and records with unknown
/// mandatory parameters, are ignored.
pub fn named_gateway(records: &[HttpsRecord]) -> Option<NamedGateway> {
    let named = records.iter().filter_map(|record| Some((record.priority, of_record(record)?)));
    // The first of several that are equally good: servers give them in random order.
    named.min_by_key(|(priority, _)| *priority).map(|(_, gateway)| gateway)
}

fn of_record(record: &HttpsRecord) -> Option<NamedGateway> {
    let value = |key: u16| {
        let found = record.parameters.iter().find(|(other, _)| *other == key);
        found.map(|(_, value)| value.as_slice())
    };
    let understands = |key: &[u8]| match *key {
        [high, low] => UNDERSTOOD_PARAMETERS.contains(&u16::from_be_bytes([high, low])),
        _ => false,
    };
    let demands = value(MANDATORY_PARAMETER).unwrap_or_default();
    if record.priority == 0 || !demands.chunks(2).all(understands) {
        return None;
    }
    let port = match value(PORT_PARAMETER) {
        Some(&[0, 0]) => return None,
        Some(&[high, low]) => Some(u16::from_be_bytes([high, low])),
        Some(_) => return None,
        None => None,
    };
    let host = (!record.target.is_empty()).then(|| record.target.clone());
    Some(NamedGateway { host, port, key: read_parameter(value(GATEWAY_PARAMETER)?)? })
}

/// The rest of a datagram.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    datagram: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.datagram.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn word(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A name in lower case, without the dot at its end. `may_point`: its end may be elsewhere, before
    /// it.
    fn name(&mut self, may_point: bool) -> Option<String> {
        let (mut name, mut pointers) = (String::new(), 0);
        // Another reader continues behind the first pointer.
        let mut rest = *self;
        loop {
            let length = usize::from(rest.take(1)?[0]);
            match length {
                0 => break,
                1..=LONGEST_LABEL_BYTES => {
                    let label = rest.take(length)?;
                    // Names of hosts, and underlines of others: no characters with a meaning in
                    // texts.
                    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                    if !label.iter().all(is_plain) || name.len() + length >= LONGEST_NAME_BYTES {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                }
                0xc0.. if may_point && pointers < MOST_STEPS => {
                    let at = (length & 0x3f) << 8 | usize::from(rest.take(1)?[0]);
                    if pointers == 0 {
                        self.at = rest.at;
                    }
                    pointers += 1;
                    rest.at = at;
                }
                _ => return None,
            }
        }
        if pointers == 0 {
            self.at = rest.at;
        }
        Some(name)
    }

    fn answer(mut self, asked: String, records: u16) -> Option<Answer> {
        let (mut aliases, mut services) = (Vec::new(), Vec::new());
        for _ in 0..records {
            let (owner, kind, class) = (self.name(true)?, self.word()?, self.word()?);
            self.take(4)?;
            let length = usize::from(self.word()?);
            let mut data = Reader { datagram: self.datagram, at: self.at };
            self.take(length)?;
            data.datagram = &self.datagram[..self.at];
            match (kind, class) {
                (CNAME_TYPE, INTERNET_CLASS) => aliases.push((owner, data.name(true)?)),
                (HTTPS_TYPE, INTERNET_CLASS) => services.push((owner, data.service()?)),
                _ => {}
            }
        }
        let mut owner = asked;
        for _ in 0..MOST_STEPS {
            let Some((_, next)) = aliases.iter().find(|(name, _)| *name == owner) else { break };
            owner.clone_from(next);
        }
        let of_owner = services.into_iter().filter(|(name, _)| *name == owner);
        let records: Vec<HttpsRecord> = of_owner.map(|(_, record)| record).collect();
        Some(match records.iter().find(|record| record.priority == 0) {
            Some(alias) if !alias.target.is_empty() => Answer::Alias(alias.target.clone()),
            None if !records.is_empty() => Answer::Records(records),
            _ => Answer::Nothing,
        })
    }

    /// The data of an HTTPS record, to the end (RFC 9460, section 2.2).
    fn service(mut self) -> Option<HttpsRecord> {
        let (priority, target) = (self.word()?, self.name(false)?);
        let mut parameters: Vec<(u16, Vec<u8>)> = Vec::new();
        while self.at < self.datagram.len() {
            let key = self.word()?;
            let length = usize::from(self.word()?);
            let value = self.take(length)?;
            if parameters.last().is_some_and(|(before, _)| *before >= key) {
                return None;
            }
            parameters.push((key, value.to_vec()));
        }
        Some(HttpsRecord { priority, target, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: u16 = 0x1234;

    fn record(priority: u16, target: &str, parameters: &[(u16, &[u8])]) -> HttpsRecord {
        let parameters = parameters.iter().map(|(key, value)| (*key, value.to_vec())).collect();
        HttpsRecord { priority, target: target.to_owned(), parameters }
    }

    /// The value of the parameter.
    fn write_parameter(key: &[u8; 32]) -> String {
        hexadecimal::encode(key)
    }

    fn digits(byte: u8) -> Vec<u8> {
        write_parameter(&[byte; 32]).into_bytes()
    }

    fn name(text: &str) -> Vec<u8> {
        let labels = text.split('.').filter(|label| !label.is_empty());
        let labels = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        labels.chain([0]).collect()
    }

    fn data(record: &HttpsRecord) -> Vec<u8> {
        let mut data = [&record.priority.to_be_bytes()[..], &name(&record.target)].concat();
        for (key, value) in &record.parameters {
            data.extend(key.to_be_bytes());
            data.extend((value.len() as u16).to_be_bytes());
            data.extend(value);
        }
        data
    }

    /// An answer to the question for `asked`; owners as they are in a datagram.
    fn answered(asked: &str, records: &[(Vec<u8>, u16, Vec<u8>)]) -> Vec<u8> {
        let mut datagram = question(ID, asked).unwrap();
        // The question alone, which is followed by the records.
        datagram.truncate(datagram.len() - 11);
        datagram[2] |= 0x80;
        datagram[7] = records.len() as u8;
        datagram[11] = 0;
        for (owner, kind, data) in records {
            datagram.extend(owner);
            datagram.extend(kind.to_be_bytes());
            datagram.extend([0, 1, 0, 0, 0, 60]);
            datagram.extend((data.len() as u16).to_be_bytes());
            datagram.extend(data);
        }
        datagram
    }

    /// The name of the question.
    const ASKED: [u8; 2] = [0xc0, 12];

    #[test]
    fn the_best_record_with_a_key_is_taken() {
        let (first, second) = (digits(1), digits(2));
        let demands: &[u8] = &[0, 3, 0xff, 0x50];
        let records = [
            record(1, "cdn.example", &[(1, b"\x02h3")]),
            record(3, "later.example", &[(GATEWAY_PARAMETER, &first)]),
            record(
                2,
                "edge.example",
                &[
                    (MANDATORY_PARAMETER, demands),
                    (PORT_PARAMETER, &[1, 0xbb]),
                    (GATEWAY_PARAMETER, &second),
                ],
            ),
        ];
        let edge =
            NamedGateway { host: Some("edge.example".to_owned()), port: Some(443), key: [2; 32] };
        assert_eq!(named_gateway(&records), Some(edge));
        assert_eq!(named_gateway(&records[..1]), None);
        let here = record(1, "", &[(GATEWAY_PARAMETER, &first)]);
        let expected = NamedGateway { host: None, port: None, key: [1; 32] };
        assert_eq!(named_gateway(&[here]), Some(expected));
    }

    #[test]
    fn what_is_not_understood_or_malformed_is_left_alone() {
        let key = digits(7);
        let ours: (u16, &[u8]) = (GATEWAY_PARAMETER, &key);
        for (what, other) in [
            ("ech is mandatory", (MANDATORY_PARAMETER, &[0_u8, 5][..])),
            ("half a key is mandatory", (MANDATORY_PARAMETER, &[0, 3, 0][..])),
            ("a port of three bytes", (PORT_PARAMETER, &[0, 1, 2][..])),
            ("port 0", (PORT_PARAMETER, &[0, 0][..])),
        ] {
            assert_eq!(named_gateway(&[record(1, "", &[other, ours])]), None, "{what}");
        }
        for wrong in [&b""[..], b"ab", &key[1..], b",", &[0xff; 64]] {
            let parameters = [(GATEWAY_PARAMETER, wrong)];
            assert_eq!(named_gateway(&[record(1, "", &parameters)]), None, "{wrong:?}");
        }
        assert_eq!(read_parameter(&[key.as_slice(), b",later=1"].concat()), Some([7; 32]));
    }

    #[test]
    fn an_answer_is_read_through_pointers_and_cnames() {
        let wanted = record(1, "edge.example", &[(GATEWAY_PARAMETER, &digits(3))]);
        let other = record(1, "", &[]);
        let datagram = answered(
            "Shop.example",
            &[
                (ASKED.to_vec(), CNAME_TYPE, [&b"\x03web"[..], &[0xc0, 17]].concat()),
                (name("WEB.example"), HTTPS_TYPE, data(&wanted)),
                (ASKED.to_vec(), HTTPS_TYPE, data(&other)),
                (name("web.example"), 1, vec![192, 0, 2, 1]),
            ],
        );
        let said = answer(&datagram, ID, "shop.example.").unwrap();
        assert_eq!(said, Answer::Records(vec![wanted]));
        let alias = [(ASKED.to_vec(), HTTPS_TYPE, data(&record(0, "other.example", &[])))];
        let said = answer(&answered("shop.example", &alias), ID, "shop.example").unwrap();
        assert_eq!(said, Answer::Alias("other.example".to_owned()));
    }

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let good =
            answered("shop.example", &[(ASKED.to_vec(), HTTPS_TYPE, data(&record(1, "", &[])))]);
        let reads = |datagram: &[u8]| answer(datagram, ID, "shop.example");
        assert!(matches!(reads(&good), Some(Answer::Records(_))));
        assert_eq!(answer(&good, ID + 1, "shop.example"), None, "another number");
        assert_eq!(answer(&good, ID, "shop.examples"), None, "another name");
        assert_eq!(reads(&question(ID, "shop.example").unwrap()), None, "a question");
        let changed = |at: usize, byte: u8| {
            let mut datagram = good.clone();
            datagram[at] = byte;
            datagram
        };
        assert_eq!(reads(&changed(3, 3)), Some(Answer::Nothing), "no such name");
        assert_eq!(reads(&changed(2, 0x83)), Some(Answer::Nothing), "cut off");
        for length in 0..good.len() {
            let whole = matches!(reads(&good[..length]), Some(Answer::Records(_)));
            assert!(!whole, "{length} bytes of {}", good.len());
        }
        let key = digits(1);
        let twice = record(1, "", &[(GATEWAY_PARAMETER, &key), (GATEWAY_PARAMETER, &key)]);
        let twice = answered("shop.example", &[(ASKED.to_vec(), HTTPS_TYPE, data(&twice))]);
        assert_eq!(reads(&twice), Some(Answer::Nothing), "a parameter twice");
        // A name that points at itself.
        let start = good.len() as u8;
        let pointing = answered("shop.example", &[(vec![0xc0, start], HTTPS_TYPE, Vec::new())]);
        assert_eq!(reads(&pointing), Some(Answer::Nothing));
    }

    #[test]
    fn no_question_for_what_is_no_name() {
        for wrong in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(140), "ä.example"] {
            assert_eq!(question(ID, wrong), None, "{wrong}");
        }
    }

    fn any_record() -> impl Strategy<Value = HttpsRecord> {
        let value = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..6),
            any::<[u8; 32]>().prop_map(|key| write_parameter(&key).into_bytes()),
        ];
        let key = prop::sample::select(vec![
            MANDATORY_PARAMETER,
            1,
            PORT_PARAMETER,
            5,
            GATEWAY_PARAMETER,
        ]);
        let parameters = prop::collection::btree_map(key, value, 0..5);
        (1_u16..4, "([a-z]{1,8}(\\.[a-z]{1,8}){0,2})?", parameters).prop_map(
            |(priority, target, parameters)| HttpsRecord {
                priority,
                target,
                parameters: parameters.into_iter().collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn any_key_is_read_as_written(key: [u8; 32], rest in "(,.*)?") {
            let text = write_parameter(&key) + &rest;
            prop_assert_eq!(read_parameter(text.as_bytes()), Some(key));
        }

        #[test]
        fn records_are_read_as_written_and_name_no_foreign_gateway(
            records in prop::collection::vec(any_record(), 1..6),
        ) {
            let sent: Vec<_> =
                records.iter().map(|one| (ASKED.to_vec(), HTTPS_TYPE, data(one))).collect();
            let said = answer(&answered("shop.example", &sent), ID, "shop.example");
            prop_assert_eq!(said, Some(Answer::Records(records.clone())));
            if let Some(named) = named_gateway(&records) {
                let value = write_parameter(&named.key).into_bytes();
                let is_source = |one: &HttpsRecord| {
                    one.parameters.contains(&(GATEWAY_PARAMETER, value.clone()))
                        && one.target == named.host.as_deref().unwrap_or_default()
                };
                prop_assert!(records.iter().any(is_source), "{:?} of {:?}", named, records);
            }
        }

        /// Whatever comes, with an answer's first bytes or without: it ends, and without a panic.
        #[test]
        fn anything_is_read_or_refused(
            tail in prop::collection::vec(any::<u8>(), 0..200),
            is_answer: bool, records in 0_u8..4,
        ) {
            let mut datagram = if is_answer { answered("shop.example", &[]) } else { Vec::new() };
            if is_answer {
                datagram[7] = records;
            }
            datagram.extend(&tail);
            if let Some(Answer::Records(records)) = answer(&datagram, ID, "shop.example") {
                let _ = named_gateway(&records);
            }
        }
    }
}
