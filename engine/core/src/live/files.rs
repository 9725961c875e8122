//! The files behind the mappings of a process.
//!
//! Pages that the process did not touch are read from its files: to read them from the process would make pages there.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::maps::Mapping;

/// The most descriptors of the process that are looked at.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// A file, by its device and its number there.
type Key = (u64, u64);

/// Files that were opened, each once.
#[derive(Debug)]
pub struct Files {
    pid: i32,
    /// Their places in `opened`. None is for a file that cannot be opened.
    known: HashMap<Key, Option<usize>>,
    opened: Vec<File>,
    /// The regular files that the process has open, by their number, once somebody asked for them.
    descriptors: Option<HashMap<u64, Vec<PathBuf>>>,
}

impl Files {
    /// Begins without a file.
    pub fn new(pid: i32) -> Files {
        Files { pid, known: HashMap::new(), opened: Vec::new(), descriptors: None }
    }

    /// Returns the place of the file behind a mapping, or None where it has no file, or the file cannot be opened.
    pub fn place(&mut self, mapping: &Mapping) -> Option<usize> {
        let key = mapping.has_file().then_some((mapping.device, mapping.inode))?;
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let place = self.open(mapping).map(|file| {
            self.opened.push(file);
            self.opened.len() - 1
        });
        self.known.insert(key, place);
        place
    }

    /// Returns the file at a place.
    pub fn at(&self, place: usize) -> Option<&File> {
        self.opened.get(place)
    }

    /// Opens the file by the mapping, which takes a capability (CAP_CHECKPOINT_RESTORE). Without it: by its path, as the
    /// program of the process, or by a descriptor of the process. The last two lead to files that were deleted.
    fn open(&mut self, mapping: &Mapping) -> Option<File> {
        let pid = self.pid;
        let by_mapping = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        if let Some(file) = open_regular(Path::new(&by_mapping), |_| true) {
            return Some(file);
        }
        let mut path = PathBuf::from(format!("/proc/{pid}/root"));
        path.push(std::ffi::OsStr::from_bytes(mapping.path.strip_prefix(b"/")?));
        let program = PathBuf::from(format!("/proc/{pid}/exe"));
        if let Some(file) = open_regular(&path, |about| is_of(mapping, about, !mapping.deleted())) {
            return Some(file);
        }
        let descriptors = self.descriptors().get(&mapping.inode).map_or(&[][..], Vec::as_slice);
        [program].iter().chain(descriptors).find_map(|path| {
            let named = fs::read_link(path).is_ok_and(|name| name.as_os_str().as_bytes() == mapping.path);
            open_regular(path, |about| is_of(mapping, about, named))
        })
    }

    fn descriptors(&mut self) -> &HashMap<u64, Vec<PathBuf>> {
        let pid = self.pid;
        self.descriptors.get_or_insert_with(|| {
            let mut found: HashMap<u64, Vec<PathBuf>> = HashMap::new();
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().take(MOST_DESCRIPTORS);
            for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
                if let Some(about) = fs::metadata(&path).ok().filter(fs::Metadata::is_file) {
                    found.entry(about.ino()).or_default().push(path);
                }
            }
            found
        })
    }
}

/// Returns whether a file is the one behind a mapping. Overlays and btrfs have a number of a device for mappings, and
/// another for files, neither with a major number. So there it counts whether the name is the same.
fn is_of(mapping: &Mapping, about: &fs::Metadata, same_name: bool) -> bool {
    let anonymous = |device| rustix::fs::major(device) == 0;
    let same_device = about.dev() == mapping.device || same_name && anonymous(about.dev()) && anonymous(mapping.device);
    about.ino() == mapping.inode && same_device
}

/// Opens a regular file that fits. Nothing else is opened: to open a pipe or a device does something.
fn open_regular(path: &Path, fits: impl Fn(&fs::Metadata) -> bool) -> Option<File> {
    let is = |about: &fs::Metadata| about.is_file() && fits(about);
    fs::metadata(path).ok().filter(is)?;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    file.metadata().is_ok_and(|about| is(&about)).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::live::maps::parse;

    /// Maps a file, and returns the mapping as the kernel lists it.
    fn mapped(file: &File) -> (memmap2::Mmap, Mapping) {
        let memory = crate::hw::map_file(file, 0, 4).unwrap();
        let text = fs::read("/proc/self/maps").unwrap();
        let start = memory.as_ptr() as u64;
        let found = parse(&text).into_iter().find(|(mapping, _)| mapping.start == start).unwrap();
        (memory, found.0)
    }

    fn content(mapping: &Mapping) -> Option<Vec<u8>> {
        let mut files = Files::new(std::process::id() as i32);
        let place = files.place(mapping)?;
        assert_eq!(files.place(mapping), Some(place));
        let mut bytes = [0; 4];
        files.at(place)?.read_exact_at(&mut bytes, 0).unwrap();
        Some(bytes.to_vec())
    }

    #[test]
    fn a_file_is_found_by_its_path_and_a_deleted_one_by_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a b"), folder.path().join("other"));
        fs::write(&path, b"here").unwrap();
        let file = File::open(&path).unwrap();
        let (_memory, mut mapping) = mapped(&file);
        mapping.end += 1; // so that no capability helps
        assert_eq!(content(&mapping).unwrap(), b"here");
        fs::write(&other, b"else").unwrap();
        fs::rename(&other, &path).unwrap();
        mapping.path.extend_from_slice(b" (deleted)");
        assert_eq!(content(&mapping).unwrap(), b"here");
        drop(file);
        assert_eq!(content(&mapping), None);
    }
}
