//! One ELF file: its build-id, its links to other files, and its sections, decompressed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gimli::RunTimeEndian;
use object::elf;
use object::read::elf::{CompressionHeader, FileHeader, SectionHeader};
use object::{Endianness, ReadCache};

use crate::hw;

/// Programs have fewer than a hundred sections.
const MAX_SECTIONS: usize = 1 << 16;
/// The section names, a note, or a link to another file.
const MAX_SMALL: u64 = 1 << 20;
/// Larger sections are mapped: reading them would take as much memory, and most of them is not looked at once what they say is
/// kept. Smaller ones are read, because a mapping of a file that shrinks kills the process (SIGBUS).
const MAX_READ: u64 = 8 << 20;
/// All sections of a file together may decompress to this many times the file's size. DWARF compresses to a third or a fifth.
const MAX_RATIO: u64 = 16;
const RATIO_FREE: u64 = 1 << 20;
/// A file whose checksum would take longer than some ten seconds is not checked, and so not used.
const MAX_CHECKED: u64 = 8 << 30;

/// The bytes of a section.
pub(crate) enum Bytes {
    Read(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl Bytes {
    /// Gives back the memory of what is mapped. What is looked at again is read from the file.
    pub(crate) fn release(&self) {
        if let Bytes::Mapped(map) = self {
            hw::release(map);
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Read(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Zlib,
    Zstd,
}

/// Where a section's bytes lie in the file.
#[derive(Debug)]
struct Section {
    name: Vec<u8>,
    offset: u64,
    stored: u64,
    size: u64,
    packing: Packing,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    stored: u64,
    size: u64,
    packing: Packing,
}

impl Section {
    fn place(&self) -> Place {
        let &Section { offset, stored, size, packing, .. } = self;
        Place { offset, stored, size, packing }
    }
}

/// A name of another file, with what identifies that file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link<T> {
    pub(crate) name: PathBuf,
    pub(crate) id: T,
}

/// An open ELF file: a program, a library, or a file with their debug information.
#[derive(Debug)]
pub(crate) struct ElfFile {
    pub(crate) path: PathBuf,
    pub(crate) endian: RunTimeEndian,
    pub(crate) build_id: Option<Vec<u8>>,
    linked: bool,
    file: File,
    length: u64,
    sections: Vec<Section>,
    /// How many bytes may still be decompressed.
    decompress: u64,
}

impl ElfFile {
    /// Opens a program, a library or their debug information, and reads the section headers. The error is a phrase that does not
    /// name the file.
    pub(crate) fn open(path: &Path) -> Result<ElfFile, String> {
        match ElfFile::open_unlinked(path) {
            Ok(file) if !file.linked => Err("it is an object file that is not linked".to_string()),
            file => file,
        }
    }

    /// Opens any ELF file: .dwo and .dwp files are not linked, but need no relocation either.
    pub(crate) fn open_unlinked(path: &Path) -> Result<ElfFile, String> {
        // A FIFO must not block, and a device must not be read.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(message)?;
        let metadata = file.metadata().map_err(message)?;
        if !metadata.is_file() {
            return Err("it is not a regular file".to_string());
        }
        let mut elf = ElfFile {
            path: path.to_path_buf(),
            endian: RunTimeEndian::Little,
            build_id: None,
            linked: true,
            file,
            length: metadata.len(),
            sections: Vec::new(),
            decompress: metadata.len().saturating_mul(MAX_RATIO).saturating_add(RATIO_FREE),
        };
        let mut ident = [0; 16];
        elf.file.read_exact_at(&mut ident, 0).map_err(|_| "it is not an ELF file".to_string())?;
        match (&ident[..4], ident[4]) {
            (b"\x7fELF", 1) => elf.read_headers::<elf::FileHeader32<Endianness>>(),
            (b"\x7fELF", 2) => elf.read_headers::<elf::FileHeader64<Endianness>>(),
            _ => Err("it is not an ELF file".to_string()),
        }?;
        Ok(elf)
    }

    fn read_headers<Elf: FileHeader<Endian = Endianness>>(&mut self) -> Result<(), String> {
        let damaged = |error: object::Error| format!("its headers are damaged ({error})");
        let cache = ReadCache::new(self.file.try_clone().map_err(message)?);
        let header = Elf::parse(&cache).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        self.linked = header.e_type(endian) != elf::ET_REL;
        self.endian = if endian == Endianness::Big { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let count = header.shnum(endian, &cache).map_err(damaged)?;
        if count > MAX_SECTIONS {
            return Err(format!("its headers are damaged ({count} sections)"));
        }
        let headers = header.section_headers(endian, &cache).map_err(damaged)?;
        let strings = header.shstrndx(endian, &cache).map_err(damaged)?;
        let range = headers.get(strings as usize).and_then(|section| section.file_range(endian));
        let names = range.map_or(Ok(Vec::new()), |(offset, size)| self.read(offset, size, MAX_SMALL))?;
        for section in headers {
            let Some((offset, stored)) = section.file_range(endian) else { continue };
            if section.sh_type(endian) == elf::SHT_NOTE && self.build_id.is_none() {
                let notes = self.read(offset, stored, MAX_SMALL).unwrap_or_default();
                self.build_id = build_id(&notes, self.endian);
            }
            let name = names.get(section.sh_name(endian) as usize..).unwrap_or_default();
            let name = &name[..name.iter().position(|&c| c == 0).unwrap_or(name.len())];
            let Some(packed) = name.strip_prefix(b".z") else {
                if name.starts_with(b".debug_") || name.starts_with(b".gnu_debug") {
                    let Ok(section) = place::<Elf, _>(section, endian, &cache, name) else { continue };
                    self.sections.push(section);
                }
                continue;
            };
            // GNU's older form: "ZLIB" and the size, big-endian, before the data.
            let mut head = [0; 12];
            if packed.starts_with(b"debug_") && stored >= 12 && self.file.read_exact_at(&mut head, offset).is_ok() {
                let size = u64::from_be_bytes(head[4..].try_into().unwrap_or_default());
                let name = [b".", packed].concat();
                let (offset, stored) = (offset.saturating_add(12), stored - 12);
                if head.starts_with(b"ZLIB") {
                    self.sections.push(Section { name, offset, stored, size, packing: Packing::Zlib });
                }
            }
        }
        Ok(())
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name.as_bytes() && section.size > 0)
    }

    /// Returns whether functions and lines may be found here (in a .dwo file the names end in `.dwo`).
    pub(crate) fn has_debug_info(&self) -> bool {
        self.section(".debug_info").is_some()
    }

    /// Returns the separate file with the debug information that `.gnu_debuglink` names, and that file's checksum.
    pub(crate) fn debuglink(&self) -> Option<Link<u32>> {
        let data = self.small(".gnu_debuglink")?;
        let (name, _) = split_name(&data)?;
        let crc = data.get((name.len() + 1).next_multiple_of(4)..)?.get(..4)?.try_into().ok()?;
        let id = if self.endian == RunTimeEndian::Big { u32::from_be_bytes(crc) } else { u32::from_le_bytes(crc) };
        // A name, not a path: what a file says must not lead out of the folders that are searched.
        (!name.contains(&b'/')).then(|| Link { name: path_of(name), id })
    }

    /// Returns the supplementary file that dwz made (`.gnu_debugaltlink`, or `.debug_sup` of DWARF 5), and its build-id.
    pub(crate) fn supplementary(&self) -> Option<Link<Vec<u8>>> {
        if let Some(data) = self.small(".gnu_debugaltlink") {
            let (name, id) = split_name(&data)?;
            return Some(Link { name: path_of(name), id: id.to_vec() });
        }
        let data = self.small(".debug_sup")?;
        // Version (2 bytes), is_supplementary, the name, the length of the build-id (LEB128), the build-id.
        let (is_supplementary, rest) = data.get(2..)?.split_first()?;
        let (name, rest) = split_name(rest)?;
        let (&length, id) = rest.split_first()?;
        (*is_supplementary == 0 && length < 0x80)
            .then(|| Some(Link { name: path_of(name), id: id.get(..length.into())?.to_vec() }))?
    }

    /// Returns what tells the file, as it is, from all others. A file that somebody else puts in its place, or that is written
    /// anew, differs at least in the time of its last change, which nobody can set.
    pub(crate) fn stamp(&self) -> Option<String> {
        let status = self.file.metadata().ok()?;
        let times = (status.mtime(), status.mtime_nsec(), status.ctime(), status.ctime_nsec());
        Some(format!("{} {} {} {times:?}", status.dev(), status.ino(), status.size()))
    }

    /// Returns how many bytes of debug information the file has, as they are stored.
    pub(crate) fn stored(&self) -> u64 {
        self.sections.iter().fold(0, |sum, section| sum.saturating_add(section.stored))
    }

    /// Returns the checksum of the whole file as `.gnu_debuglink` has it.
    pub(crate) fn checksum(&self) -> Result<u32, String> {
        if self.length > MAX_CHECKED {
            return Err("it is too large to compute its checksum".to_string());
        }
        let mut crc = flate2::Crc::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0u64;
        while at < self.length {
            match self.file.read_at(&mut buffer, at) {
                Ok(0) => break,
                Ok(count) => {
                    crc.update(&buffer[..count]);
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(message(error)),
            }
        }
        Ok(crc.sum())
    }

    /// Returns the bytes of a section, decompressed. A section that the file does not have is empty.
    pub(crate) fn load(&mut self, name: &str) -> Result<Bytes, String> {
        let named = |section: &&Section| section.name == name.as_bytes() && section.size > 0;
        let mut parts = self.sections.iter().filter(named).map(Section::place);
        let Some(first) = parts.next() else { return Ok(Bytes::Read(Vec::new())) };
        let more: Vec<Place> = if self.linked { Vec::new() } else { parts.collect() };
        let bytes = self.load_place(name, first)?;
        if more.is_empty() {
            return Ok(bytes);
        }
        // In a .dwo file each type unit has a section of its own, all with one name (System V ABI, section groups).
        let mut whole = bytes.to_vec();
        for place in more {
            // They may overlap in a damaged file.
            self.decompress = self
                .decompress
                .checked_sub(place.size)
                .ok_or_else(|| format!("its sections {name} have more bytes than the file"))?;
            whole.extend_from_slice(&self.load_place(name, place)?);
        }
        Ok(Bytes::Read(whole))
    }

    fn load_place(&mut self, name: &str, place: Place) -> Result<Bytes, String> {
        let Place { offset, stored, size, packing } = place;
        if offset.checked_add(stored).is_none_or(|end| end > self.length) {
            return Err(format!("its section {name} ends beyond the end of the file"));
        }
        let failed = |error: io::Error| format!("its section {name} cannot be read ({})", message(error));
        let bytes = if stored > MAX_READ {
            Bytes::Mapped(hw::map_file(&self.file, offset, stored).map_err(failed)?)
        } else {
            Bytes::Read(self.read(offset, stored, MAX_READ).map_err(|why| format!("its section {name}: {why}"))?)
        };
        if packing == Packing::Plain {
            return Ok(bytes);
        }
        self.decompress = self.decompress.checked_sub(size).ok_or_else(|| {
            format!("its section {name} claims to decompress to {size} bytes, too much for this file")
        })?;
        unpack(&bytes, size, packing).map(Bytes::Read).map_err(failed)
    }

    fn small(&self, name: &str) -> Option<Vec<u8>> {
        let section = self.section(name).filter(|section| section.packing == Packing::Plain)?;
        self.read(section.offset, section.stored, MAX_SMALL).ok()
    }

    fn read(&self, offset: u64, size: u64, most: u64) -> Result<Vec<u8>, String> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.length);
        if size > most || !inside {
            return Err("its headers are damaged (a section that does not fit)".to_string());
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset).map_err(message)?;
        Ok(bytes)
    }
}

fn place<'data, Elf: FileHeader<Endian = Endianness>, R: object::ReadRef<'data>>(
    section: &Elf::SectionHeader,
    endian: Endianness,
    data: R,
    name: &[u8],
) -> object::Result<Section> {
    let name = name.to_vec();
    let (offset, stored) = section.file_range(endian).unwrap_or_default();
    let Some((header, offset, stored)) = section.compression(endian, data)? else {
        return Ok(Section { name, offset, stored, size: stored, packing: Packing::Plain });
    };
    let packing = match header.ch_type(endian) {
        elf::ELFCOMPRESS_ZLIB => Packing::Zlib,
        elf::ELFCOMPRESS_ZSTD => Packing::Zstd,
        // Kept as if it were empty, so that the answer is "no debug information" and not nonsense.
        _ => return Ok(Section { name, offset, stored: 0, size: 0, packing: Packing::Plain }),
    };
    Ok(Section { name, offset, stored, size: header.ch_size(endian).into(), packing })
}

fn unpack(bytes: &[u8], size: u64, packing: Packing) -> io::Result<Vec<u8>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let mut out = Vec::new();
    out.try_reserve_exact(usize::try_from(size).map_err(|_| wrong("too large"))?)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    match packing {
        Packing::Plain => out.extend_from_slice(bytes),
        // One byte more than there should be shows that the size is wrong.
        Packing::Zlib => {
            flate2::read::ZlibDecoder::new(bytes).take(size.saturating_add(1)).read_to_end(&mut out)?;
        }
        Packing::Zstd => {
            let mut rest = bytes;
            // LLVM writes several frames.
            while !rest.is_empty() && (out.len() as u64) <= size {
                let decoder = ruzstd::decoding::StreamingDecoder::new(&mut rest);
                let decoder = decoder.map_err(|error| wrong(&error.to_string()))?;
                decoder.take(size.saturating_add(1) - out.len() as u64).read_to_end(&mut out)?;
            }
        }
    }
    if out.len() as u64 != size {
        return Err(wrong("it does not decompress to the size in its header"));
    }
    Ok(out)
}

/// Returns the build-id among the notes of one section.
fn build_id(notes: &[u8], endian: RunTimeEndian) -> Option<Vec<u8>> {
    let word = |at: usize| {
        let bytes: [u8; 4] = notes.get(at..)?.get(..4)?.try_into().ok()?;
        let value = if endian == RunTimeEndian::Big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        usize::try_from(value).ok()
    };
    let mut at = 0usize;
    loop {
        let (name, size, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let data = at.checked_add(12)?.checked_add(name)?.checked_next_multiple_of(4)?;
        let end = data.checked_add(size)?;
        if kind == elf::NT_GNU_BUILD_ID as usize && notes.get(at + 12..)?.get(..name)? == b"GNU\0" && size > 0 {
            return Some(notes.get(data..end)?.to_vec());
        }
        at = end.checked_next_multiple_of(4)?;
    }
}

fn split_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = data.iter().position(|&c| c == 0)?;
    (end > 0).then(|| (&data[..end], &data[end + 1..]))
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Returns what the operating system says of an error, without its number.
fn message(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_string(),
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => error.to_string(),
    }
}
