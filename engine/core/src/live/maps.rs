//! The mappings of a live process.

const DELETED: &[u8] = b" (deleted)";

/// A line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// "rw-p" and the like.
    pub flags: String,
    /// The offset in the file.
    pub offset: u64,
    /// The device that has the file.
    pub device: u64,
    /// The number of the file on its device; 0 for memory without one.
    pub inode: u64,
    /// The file, or a name of memory such as `[heap]`.
    pub path: Vec<u8>,
}

/// What the flags of a mapping in /proc/PID/smaps say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// It is no memory, or the program excluded it from its core (io, pf, dd).
    pub excluded: bool,
    /// It has huge pages of hugetlbfs (ht).
    pub huge: bool,
}

/// Returns the mappings of a text of /proc/PID/maps or smaps, and what the flags of the latter say.
pub fn parse(text: &[u8]) -> Vec<(Mapping, Kind)> {
    let mut found: Vec<(Mapping, Kind)> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        if let Some(mapping) = mapping(line) {
            found.push((mapping, Kind::default()));
        } else if let (Some(flags), Some((_, kind))) = (line.strip_prefix(b"VmFlags:"), found.last_mut()) {
            for flag in flags.split(|&byte| byte == b' ') {
                kind.excluded |= matches!(flag, b"io" | b"pf" | b"dd");
                kind.huge |= flag == b"ht";
            }
        }
    }
    found
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut next = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let flags = next()?.to_owned();
    let offset = u64::from_str_radix(next()?, 16).ok()?;
    let (major, minor) = next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = next()?.parse().ok()?;
    let path = fields.next().unwrap_or_default();
    let blanks = path.iter().take_while(|&&byte| byte == b' ').count();
    (flags.len() == 4 && start < end).then(|| Mapping {
        start,
        end,
        flags,
        offset,
        device,
        inode,
        path: path[blanks..].to_vec(),
    })
}

impl Mapping {
    /// Returns whether the process can read it.
    pub fn readable(&self) -> bool {
        self.flags.starts_with('r')
    }

    /// Returns whether a file is behind it. The kernel gives memory of no file the number 0.
    pub fn has_file(&self) -> bool {
        self.inode != 0 && !(self.private() && self.path.starts_with(b"/dev/zero"))
    }

    /// Returns whether the process can execute it.
    pub fn executable(&self) -> bool {
        self.flags.contains('x')
    }

    /// Returns whether its file was deleted: no path leads to it any more.
    pub fn deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// Returns whether what the process writes there is its own.
    pub fn private(&self) -> bool {
        self.flags.ends_with('p')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_and_its_flags() {
        let text = b"7f00-8000 rw-p 00001000 fe:00 77                         /tmp/a b (deleted)\nRss:   4 kB\n\
            VmFlags: rd wr mr mw me dd ac \n8000-9000 ---s 00000000 00:00 0 \nVmFlags: mr ht\nnonsense\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        let (first, kind) = &found[0];
        assert_eq!((first.start, first.end, first.offset, first.inode), (0x7f00, 0x8000, 0x1000, 77));
        assert_eq!((first.device, first.deleted(), first.executable()), (0xfe00, true, false));
        assert_eq!((first.flags.as_str(), first.path.as_slice()), ("rw-p", b"/tmp/a b (deleted)".as_slice()));
        assert_eq!(*kind, Kind { excluded: true, huge: false });
        assert_eq!((found[1].0.readable(), found[1].0.has_file(), found[1].1.huge), (false, false, true));
    }
}
