//! Responses to `packrat get`, one run after another: heads, ranges, bodies that break off, and the
//! resulting files.
//!
//! Input: byte 0 is the target's name (lower three bits) and the validator that distinguishes
//! versions of the file (bit 3: a date instead of an ETag). Then steps of one byte, the kind in the
//! lower three bits and a number in the upper five; some kinds take a length byte and as many
//! bytes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use packrat_fuzz_entry::take;
use sha2::{Digest, Sha256};
use url::Url;

use crate::http3::error::GetError;
use crate::http3::file::PartialFile;
use crate::http3::head::Head;
use crate::http3::resume::Resume;
use crate::http3::sink::Sink;

/// Names of targets. Names without a file are refused.
const NAMES: [&[u8]; 8] =
    [b"file", b".part", b"a\xff", b"a\xfe", b"..", b".", b"with space", b"file.part.validator"];
/// The content of a file beside the target.
const NEIGHBOUR: &[u8] = b"somebody else's";

/// A server's answer.
struct Response {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Bytes of the body after which the connection breaks.
    breaks_after: Option<usize>,
}

struct DownloadAttempts {
    directory: tempfile::TempDir,
    target: PathBuf,
    url: Url,
    has_dates: bool,
    /// Every version of the file so far has its own body.
    version: u16,
    length: usize,
    /// The server has only sent true statements.
    is_honest: bool,
    continues: bool,
}

/// Runs the steps. Panics when a file other than the target and its companions is written, when the
/// digest is not the file's, or when an honest server's file is not a whole version.
pub(crate) fn get_response(data: &[u8]) {
    let (&settings, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let directory = tempfile::tempdir().expect("a temporary folder");
    let name = OsStr::from_bytes(NAMES[usize::from(settings & 7)]);
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(directory.path().join("neighbour"), NEIGHBOUR).unwrap();
    let mut world = DownloadAttempts {
        target: inner.join(name),
        directory,
        url: Url::parse("https://host/file").unwrap(),
        has_dates: settings & 8 != 0,
        version: 0,
        length: 20,
        is_honest: true,
        continues: true,
    };
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = usize::from(step >> 3);
        match step & 7 {
            0 => world.run(&|world, resume| world.honest(resume, true, None)),
            1 => world.run(&|world, resume| world.honest(resume, true, Some(number))),
            // It does not heed If-Range.
            2 => world.run(&|world, resume| world.honest(resume, false, None)),
            3 => {
                world.version = world.version.wrapping_add(1);
                world.length = number * number;
            }
            4 => world.continues = !world.continues,
            5 => {
                let (head, body) = (take(&mut rest), take(&mut rest));
                world.is_honest = false;
                let breaks_after = (number < 16).then_some(number);
                world.run(&|_, _| arbitrary(head, body, breaks_after));
            }
            // An earlier run, or another user, has left something beside the target.
            6 => world.leave(number, take(&mut rest)),
            _ => {
                let _ = fs::remove_file(&world.target);
            }
        }
        world.check();
    }
}

/// Any head: a status, and headers of a byte for the name and a value with its length.
fn arbitrary(mut head: &[u8], body: &[u8], breaks_after: Option<usize>) -> Response {
    let names = [
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::ETAG,
        header::LAST_MODIFIED,
        header::LOCATION,
        header::CONTENT_TYPE,
    ];
    let status = match head.split_first_chunk::<2>() {
        Some((&number, rest)) => {
            head = rest;
            [200, 206, 416, 301][usize::from(number[0] & 3)] + u16::from(number[1] >> 6)
        }
        None => 200,
    };
    let mut headers = HeaderMap::new();
    while let Some((&name, rest)) = head.split_first() {
        head = rest;
        if let Ok(value) = HeaderValue::from_bytes(take(&mut head)) {
            headers.append(names[usize::from(name) % names.len()].clone(), value);
        }
    }
    Response { status, headers, body: body.to_vec(), breaks_after }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    headers.insert(name, HeaderValue::from_str(value).expect("visible characters"));
}

impl DownloadAttempts {
    fn body(&self) -> Vec<u8> {
        let byte = |at: usize| (usize::from(self.version) * 31 + at) as u8;
        (0..self.length).map(byte).collect()
    }

    fn validator(&self) -> String {
        let version = self.version;
        if !self.has_dates {
            return format!("\"version {version}\"");
        }
        let (hour, minute, second) = (version / 3600, version / 60 % 60, version % 60);
        format!("Sun, 06 Nov 1994 {hour:02}:{minute:02}:{second:02} GMT")
    }

    /// An answer that follows RFC 9110 (sections 13.1.5 and 14).
    fn honest(
        &self,
        resume: Option<&Resume>,
        heeds: bool,
        breaks_after: Option<usize>,
    ) -> Response {
        let (body, validator) = (self.body(), self.validator());
        let mut headers = HeaderMap::new();
        let name = if self.has_dates { header::LAST_MODIFIED } else { header::ETAG };
        put(&mut headers, name, &validator);
        let asked = resume.filter(|resume| {
            let condition = resume.validator.as_deref();
            !heeds || condition.is_none_or(|condition| condition == validator)
        });
        let (status, body) = match asked.map(|resume| resume.offset as usize) {
            None => (200, body),
            Some(offset) if offset < body.len() => {
                let range = format!("bytes {offset}-{}/{}", body.len() - 1, body.len());
                put(&mut headers, header::CONTENT_RANGE, &range);
                (206, body[offset..].to_vec())
            }
            Some(_) => {
                put(&mut headers, header::CONTENT_RANGE, &format!("bytes */{}", body.len()));
                (416, b"for humans".to_vec())
            }
        };
        put(&mut headers, header::CONTENT_LENGTH, &body.len().to_string());
        Response { status, headers, body, breaks_after }
    }

    /// Runs the command once, as `exchange` does it.
    fn run(&mut self, answer: &dyn Fn(&Self, Option<&Resume>) -> Response) {
        let opened = match self.continues {
            true => PartialFile::resume(&self.target),
            false => PartialFile::create(&self.target).map(|file| (file, None)),
        };
        let Ok((mut file, resume)) = opened else { return };
        let response = answer(self, resume.as_ref());
        let Ok((head, digest)) = self.take_in(&mut file, resume.as_ref(), &response) else {
            return;
        };
        let _not_forced_to_disk = file.complete().expect("room on the disk");
        file.publish().expect("the name was free");
        let content = fs::read(&self.target).expect("it was published");
        assert_eq!(Sha256::digest(&content), digest, "the digest is of something else");
        let expected = head.expected_bytes;
        assert!(expected.is_none_or(|expected| content.len() as u64 == expected), "not whole");
        if self.is_honest {
            assert!(content == self.body(), "no version of the file, or not the last one");
        }
    }

    fn take_in(
        &self,
        file: &mut PartialFile,
        resume: Option<&Resume>,
        response: &Response,
    ) -> Result<(Head, sha2::digest::Output<Sha256>), GetError> {
        let Response { status, headers, body, breaks_after } = response;
        let head = Head::read(&self.url, resume, *status, headers)?;
        let asked = resume.map_or(0, |resume| resume.offset);
        assert!(head.offset == 0 || head.offset == asked, "goes on where nothing is");
        assert!(!head.complete || head.expected_bytes == Some(asked));
        let mut digest = match resume {
            Some(resume) if head.offset > 0 => resume.digest.clone(),
            _ => Sha256::new(),
        };
        let unwritable = |source| GetError::Write { target: "the target".to_owned(), source };
        file.begin(head.offset, head.validator.as_deref()).map_err(unwritable)?;
        let body: &[u8] = if head.complete { &[] } else { body };
        let arrived = &body[..breaks_after.unwrap_or(body.len()).min(body.len())];
        for chunk in arrived.chunks(7) {
            digest.update(chunk);
            file.put(chunk).expect("room on the disk");
        }
        if arrived.len() < body.len() {
            let (bytes, reason) = (arrived.len() as u64, "the connection broke".to_owned());
            return Err(GetError::Transfer { bytes, reason });
        }
        head.check_length(arrived.len() as u64)?;
        Ok((head, digest.finalize()))
    }

    /// Another user leaves something under a name that the command uses.
    fn leave(&mut self, number: usize, bytes: &[u8]) {
        let Some(name) = self.target.file_name().map(OsStr::as_bytes) else { return };
        if self.target.is_dir() {
            return;
        }
        let suffix: &[u8] = if number & 1 == 0 { b".part" } else { b".part.validator" };
        let beside = self.target.with_file_name(OsStr::from_bytes(&[b".", name, suffix].concat()));
        let neighbour = self.directory.path().join("neighbour");
        let _ = fs::remove_file(&beside);
        let _ = match number >> 1 & 3 {
            0 => std::os::unix::fs::symlink(&neighbour, &beside),
            1 => fs::hard_link(&neighbour, &beside),
            2 => fs::create_dir(&beside),
            _ => {
                self.is_honest = false;
                fs::write(&beside, bytes)
            }
        };
    }

    /// Checks that only the target and its hidden companions have been created.
    fn check(&self) {
        let neighbour = fs::read(self.directory.path().join("neighbour")).expect("it is there");
        assert_eq!(neighbour, NEIGHBOUR, "a neighbour was changed");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("readable");
            entries.map(|entry| entry.expect("readable").file_name()).collect::<Vec<_>>()
        };
        let around = names(self.directory.path());
        assert_eq!(around.len(), 2, "something has left the folder: {around:?}");
        let name = self.target.file_name().map(OsStr::as_bytes).unwrap_or_default();
        for found in names(&self.directory.path().join("inner")) {
            let own = [b".", name, b".part"].concat();
            assert!(
                found.as_bytes() == name || found.as_bytes().starts_with(&own),
                "{found:?} has come into being"
            );
        }
    }
}
