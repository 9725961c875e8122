//! Tables that are kept in the user's cache folder: debug information is read once, and not again by each command.
//!
//! A file begins with lines of text: the form with the version of this program, the path of the debug information, its identity
//! (device, inode, size, times), and the checksum of the rest. The rest is the table, as `postcard` writes
//! it. A file that differs in anything is not used, and is written anew.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file::Files;
use super::table::Table;

/// The first word of a file. What follows it tells programs apart that read debug information in different ways.
const FORM: &str = concat!("dmods-types ", env!("DMODS_SOURCES"));
/// The name of a file ends with it.
const SUFFIX: &str = ".types";
/// A file that is still written ends with it, behind the number of the process.
const PART: &str = ".part";
/// Bytes of all files together: the one that was not used for longest goes first.
const MOST: u64 = 2 << 30;
/// Bytes of one file.
const MOST_OF_ONE: u64 = MOST / 4;

/// The folder of the tables.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Its path. It is the user's own.
    pub path: PathBuf,
    /// Debug information is kept if it has so many bytes in its file. Less is read again as fast.
    pub at_least: u64,
}

/// The place of one table.
pub(super) struct Place<'f> {
    folder: &'f Folder,
    path: PathBuf,
    head: String,
}

impl Folder {
    /// Returns the place of a table. None: it is not worth it, or parts of the debug information lie in further files.
    pub(super) fn place(&self, files: &Files, build_id: Option<&[u8]>, word: u64) -> Option<Place<'_>> {
        let (identity, stored) = files.identity()?;
        if stored < self.at_least {
            return None;
        }
        let path = files.path().to_string_lossy().replace(char::is_control, "?");
        let head = format!("{FORM}\n{path}\n{word} {identity}\n");
        let mut hasher = DefaultHasher::new();
        head.hash(&mut hasher);
        let id: String = build_id.unwrap_or_default().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}-{:016x}{SUFFIX}", if id.is_empty() { "no-build-id" } else { &id }, hasher.finish());
        Some(Place { folder: self, path: self.path.join(name), head })
    }
}

impl Place<'_> {
    /// Returns the table that is kept, if it is there and whole.
    pub(super) fn load(&self) -> Option<Table> {
        let file =
            File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&self.path).ok()?;
        let size = file.metadata().ok().filter(|metadata| metadata.is_file())?.len();
        if size > MOST_OF_ONE {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size as usize).ok()?;
        (&file).take(size).read_to_end(&mut bytes).ok()?;
        let rest = bytes.strip_prefix(self.head.as_bytes())?;
        let (sum, rest) = rest.split_at_checked(CHECKSUM)?;
        if sum != checksum(rest).as_bytes() {
            return None;
        }
        let table = postcard::from_bytes(rest).ok()?;
        // The time says which one was not used for longest.
        let _ = file.set_modified(SystemTime::now());
        Some(table)
    }

    /// Keeps a table. Where that fails, the next command reads the debug information again.
    pub(super) fn store(&self, table: &Table) {
        let Ok(bytes) = postcard::to_allocvec(table) else { return };
        if (bytes.len() + self.head.len()) as u64 >= MOST_OF_ONE {
            return;
        }
        let part = self.path.with_extension(format!("{}{PART}", std::process::id()));
        // Another thread may be writing the same: its file is not ours to remove.
        let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part) else { return };
        let written = (|| {
            file.write_all(self.head.as_bytes())?;
            file.write_all(checksum(&bytes).as_bytes())?;
            file.write_all(&bytes)?;
            fs::rename(&part, &self.path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        make_room(&self.folder.path, MOST, &self.path);
    }
}

/// Removes what was not used for longest until the rest has fewer than `most` bytes, and what a process that ended left behind.
/// The file `but` stays.
fn make_room(folder: &Path, most: u64, but: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if is_left_over(&path) {
            let _ = fs::remove_file(&path);
        } else if path.to_string_lossy().ends_with(SUFFIX) {
            kept.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.blocks() * 512, path));
        }
    }
    kept.sort_by(|a, b| b.cmp(a));
    let mut room = most;
    for (_, size, path) in kept {
        room = room.saturating_sub(size);
        if room == 0 && path != but {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns whether a file was not finished by a process that has ended.
fn is_left_over(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let process = name.strip_suffix(PART).and_then(|name| name.rsplit('.').next());
    process.is_some_and(|process| !Path::new("/proc").join(process).exists())
}

/// Characters of [`checksum`].
const CHECKSUM: usize = 9;

/// Returns the checksum of some bytes as a line of text.
fn checksum(bytes: &[u8]) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    format!("{:08x}\n", crc.sum())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_file_that_was_not_used_for_longest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, age: u64| {
            let path = folder.path().join(name);
            fs::write(&path, vec![1; 64 << 10]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(age);
            File::options().write(true).open(&path).unwrap().set_modified(used).unwrap();
            path
        };
        let (new, middle, old) = (file("new.types", 1), file("middle.types", 20), file("old.types", 300));
        // 4194304 is the limit of process numbers (PID_MAX_LIMIT).
        let (left, other) = (file("a.4194305.part", 1), file("notes", 1));
        let writing = file(&format!("b.{}.part", std::process::id()), 1);
        make_room(folder.path(), 200 << 10, &new);
        assert_eq!(
            [&new, &middle, &old, &left, &other, &writing].map(|path| path.exists()),
            [true, true, true, false, true, true]
        );
        make_room(folder.path(), 100 << 10, &new);
        assert_eq!([&new, &middle, &old].map(|path| path.exists()), [true, false, false]);
        make_room(folder.path(), 1, &new);
        assert!(new.exists());
    }
}
