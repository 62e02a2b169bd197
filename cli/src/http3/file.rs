//! Files that are never half-written.
//!
//! The body goes into a temporary file next to the target, is forced to disk when it is complete,
//! and takes the target's name in one step. Until then the target is unchanged.

use super::resume::Resume;
use super::sink::Sink;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile, TempPath};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A file that appears under its name only when it is complete.
#[derive(Debug)]
pub(crate) struct PartialFile {
    target: PathBuf,
    writer: BufWriter<File>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Removed when dropped.
    Temporary(TempPath),
    /// Kept when dropped, for the next `--continue`.
    Resumable { part: PathBuf, validator: PathBuf },
    /// A target that is no regular file (a device, a pipe): written in place, because it cannot be
    /// renamed over.
    Direct,
}

impl PartialFile {
    /// A temporary file next to `target`, removed unless it is finished.
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        refuse_folder(target)?;
        // A name given through a symbolic link means the file behind it.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(&target)?;
            return Ok(Self {
                target,
                writer: BufWriter::with_capacity(BUFFER_BYTES, file),
                place: Place::Direct,
            });
        }
        let temporary = Builder::new()
            .prefix(&hidden(&target, ".part-")?)
            .permissions(permissions_of_new_files())
            .tempfile_in(folder(&target))
            .map(NamedTempFile::into_parts)?;
        let (file, path) = temporary;
        Ok(Self {
            target,
            writer: BufWriter::with_capacity(BUFFER_BYTES, file),
            place: Place::Temporary(path),
        })
    }

    /// The part that an earlier run left behind, and the point at which to resume; without one, a
    /// new part.
    pub(crate) fn resume(target: &Path) -> io::Result<(Self, Option<Resume>)> {
        refuse_folder(target)?;
        let part = folder(target).join(hidden(target, ".part")?);
        let validator = folder(target).join(hidden(target, ".part.validator")?);
        let mut file = open_own(
            &part,
            OpenOptions::new().read(true).write(true).create(true).truncate(false),
        )?;
        let (offset, digest) = digest_of(&mut file)?;
        let validator_text = open_own(&validator, OpenOptions::new().read(true)).and_then(text);
        let validator_text = validator_text.ok();
        // Without a validator the client cannot tell whether the server still has the same file.
        let resume = validator_text
            .filter(|text| offset > 0 && !text.is_empty())
            .map(|text| Resume { offset, validator: Some(text), digest });
        let partial = Self {
            target: target.to_owned(),
            writer: BufWriter::with_capacity(BUFFER_BYTES, file),
            place: Place::Resumable { part, validator },
        };
        Ok((partial, resume))
    }

    /// Hands the content to the operating system. The returned function forces it to disk, which
    /// may take long: it can be run elsewhere.
    pub(crate) fn complete(
        &mut self,
    ) -> io::Result<impl FnOnce() -> io::Result<()> + Send + use<>> {
        self.writer.flush()?;
        let file = match self.place {
            Place::Direct => None,
            Place::Temporary(_) | Place::Resumable { .. } => {
                Some(self.writer.get_ref().try_clone()?)
            }
        };
        Ok(move || file.map_or(Ok(()), |file| file.sync_all()))
    }

    /// Gives the file, which is complete and on disk, its name.
    pub(crate) fn publish(self) -> io::Result<()> {
        match self.place {
            Place::Direct => return Ok(()),
            Place::Temporary(temporary) => {
                temporary.persist(&self.target).map_err(|error| error.error)?;
            }
            Place::Resumable { part, validator } => {
                fs::rename(part, &self.target)?;
                remove_if_there(&validator)?;
            }
        }
        // The new name is safe only when the folder is on disk; a folder that cannot be opened is
        // no failure.
        if let Ok(folder) = File::open(folder(&self.target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// Path of the received bytes, when they are kept after a failure.
    pub(crate) fn kept_part(&self) -> Option<&Path> {
        match &self.place {
            Place::Resumable { part, .. } => Some(part),
            _ => None,
        }
    }
}

impl Sink for PartialFile {
    fn begin(&mut self, offset: u64, version: Option<&str>) -> io::Result<()> {
        if matches!(self.place, Place::Direct) {
            return Ok(());
        }
        self.writer.flush()?;
        // The validator never stands beside bytes of another version, whenever this process is
        // stopped: it is removed before the old bytes, and written before the new ones. A continued
        // download keeps the validator that the server was asked with.
        let validator = match &self.place {
            Place::Resumable { validator, .. } if offset == 0 => Some(validator),
            _ => None,
        };
        if let Some(validator) = validator {
            remove_if_there(validator)?;
        }
        let file = self.writer.get_mut();
        file.set_len(offset)?;
        file.seek(SeekFrom::Start(offset))?;
        if let (Some(validator), Some(version)) = (validator, version) {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true);
            open_own(validator, options)?.write_all(version.as_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        self.writer.write_all(data)
    }

    fn name(&self) -> String {
        self.target.display().to_string()
    }
}

/// Opens a file whose name others can guess. In a shared folder another user may have put a link
/// there: it is not followed, and the file must be a regular one of this user.
fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = |what: &str| {
        io::Error::other(format!("{} {what}; remove it, or choose another folder", path.display()))
    };
    let file =
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path).map_err(|error| {
            if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
                refused("is a symbolic link")
            } else {
                error
            }
        })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.uid() != geteuid().as_raw() {
        return Err(refused("is not a file of this user alone"));
    }
    Ok(file)
}

fn text(mut file: File) -> io::Result<String> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn refuse_folder(target: &Path) -> io::Result<()> {
    if target.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
}

/// Name of a hidden file beside the target, different for each target, also if names are not UTF-8.
fn hidden(target: &Path, suffix: &str) -> io::Result<OsString> {
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is not a file name"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(suffix);
    Ok(hidden)
}

fn folder(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Permissions of a new file: `rw-rw-rw-` without the process's umask, as for any file that is
/// created; temporary files are private otherwise.
fn permissions_of_new_files() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn digest_of(file: &mut File) -> io::Result<(u64, Sha256)> {
    let mut digest = Sha256::new();
    let mut length = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    file.seek(SeekFrom::Start(0))?;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((length, digest));
        }
        digest.update(&buffer[..count]);
        length += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn finish(mut file: PartialFile) -> io::Result<()> {
        file.complete()?()?;
        file.publish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_target_appears_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "old").unwrap();
        let mut file = PartialFile::create(&target).unwrap();
        file.begin(0, None).unwrap();
        file.put(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        let during = names(folder.path());
        assert!(during.iter().any(|name| name.starts_with(".file.part-")), "{during:?}");
        finish(file).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["file"]);
        // Readable like any new file, not private like a temporary one (as far as the umask
        // allows).
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&target), mode(&plain));
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = PartialFile::create(&folder.path().join("file")).unwrap();
        file.put(b"half").unwrap();
        drop(file);
        assert_eq!(names(folder.path()), [] as [String; 0]);
    }

    #[test]
    fn a_part_is_resumed_only_when_its_version_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        let (mut file, resume) = PartialFile::resume(&target).unwrap();
        assert!(resume.is_none());
        file.begin(0, Some("\"v1\"")).unwrap();
        file.put(b"first ").unwrap();
        drop(file);

        let (mut file, resume) = PartialFile::resume(&target).unwrap();
        let resume = resume.unwrap();
        assert_eq!((resume.offset, resume.validator.as_deref()), (6, Some("\"v1\"")));
        assert_eq!(resume.digest.finalize(), Sha256::digest(b"first "));
        file.begin(6, Some("\"v1\"")).unwrap();
        file.put(b"second").unwrap();
        finish(file).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"first second");
        assert_eq!(names(folder.path()), ["file"]);

        let (mut file, _) = PartialFile::resume(&target).unwrap();
        file.begin(0, None).unwrap();
        file.put(b"other").unwrap();
        drop(file);
        assert!(PartialFile::resume(&target).unwrap().1.is_none());
    }

    #[test]
    fn an_interrupted_new_version_is_not_mistaken_for_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(folder.path().join(".file.part"), "old version").unwrap();
        fs::write(folder.path().join(".file.part.validator"), "\"v1\"").unwrap();
        for (version, resumed) in [(Some("\"v2\""), Some("\"v2\"")), (None, None)] {
            let (mut file, resume) = PartialFile::resume(&target).unwrap();
            assert!(resume.is_some_and(|resume| resume.offset > 0));
            file.begin(0, version).unwrap();
            let validator = fs::read_to_string(folder.path().join(".file.part.validator")).ok();
            assert_eq!(validator.as_deref(), version, "before the first byte");
            assert_eq!(fs::read(folder.path().join(".file.part")).unwrap(), b"");
            file.put(b"new").unwrap();
            drop(file);
            let resume = PartialFile::resume(&target).unwrap().1;
            assert_eq!(resume.and_then(|resume| resume.validator).as_deref(), resumed);
        }
        // Stopped between creating the validator and writing it.
        fs::write(folder.path().join(".file.part.validator"), "").unwrap();
        assert!(PartialFile::resume(&target).unwrap().1.is_none());
    }

    #[test]
    fn a_part_that_leads_to_another_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, victim) = (folder.path().join("file"), folder.path().join("victim"));
        let part = folder.path().join(".file.part");
        fs::write(&victim, "precious").unwrap();
        let refused = |what: &str| {
            let error = PartialFile::resume(&target).unwrap_err().to_string();
            assert!(error.contains(".file.part") && error.contains("remove it"), "{what}: {error}");
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{what}");
        };
        std::os::unix::fs::symlink(&victim, &part).unwrap();
        refused("a symbolic link");
        fs::remove_file(&part).unwrap();
        fs::hard_link(&victim, &part).unwrap();
        refused("a hard link");
        fs::remove_file(&part).unwrap();

        // Files written beside it are refused in the same way.
        let validator = folder.path().join(".file.part.validator");
        std::os::unix::fs::symlink(&victim, &validator).unwrap();
        let (mut file, resume) = PartialFile::resume(&target).unwrap();
        assert!(resume.is_none());
        fs::remove_file(&validator).unwrap();
        file.begin(0, Some("\"v1\"")).unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("link")).unwrap();
        assert_eq!(fs::read(&validator).unwrap(), b"\"v1\"");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_full_device_is_an_error() {
        let mut file = PartialFile::create(Path::new("/dev/full")).unwrap();
        file.put(b"data").unwrap();
        let error = finish(file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = PartialFile::create(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
