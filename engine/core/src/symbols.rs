//! The functions and objects that an ELF file names, by address and by name.
//!
//! The tables are read whole and the names stay in the string table. So 300,000 symbols cost two sorts of small records.
//! Memory is bounded by the file's size. Section data cannot exceed it, and the names together may take a few times the
//! size of the string tables. An honest table shares only the ends of its names.

use std::cmp::Reverse;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::OnceLock;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

/// Larger section data is not read. The largest symbol tables in use have less than a tenth of it.
const MAX_SECTION: u64 = 1 << 30;
const MAX_SYMBOLS: usize = 1 << 24;
/// How many enclosing symbols are tried for one address. Real ones nest two or three deep.
const MAX_NESTING: usize = 64;

/// The sections of a file by their numbers, as (start, end, flags), and those that are memory by their addresses.
struct Extents<'a> {
    all: &'a [(u64, u64, u64)],
    by_address: Vec<(u64, u64, u64)>,
}

impl<'a> Extents<'a> {
    fn of(all: &'a [(u64, u64, u64)]) -> Self {
        let is_memory = |flags: u64| flags & u64::from(elf::SHF_ALLOC) != 0 && flags & u64::from(elf::SHF_TLS) == 0;
        let mut by_address: Vec<_> = all.iter().copied().filter(|one| is_memory(one.2) && one.0 < one.1).collect();
        by_address.sort_unstable();
        Extents { all, by_address }
    }

    /// Returns the section of a symbol: the one that it names, or, where that does not have the address, the one that does.
    /// Tools that add or drop sections leave old numbers in the dynamic symbols (Deno 2.9). The loader does not look at them.
    fn of_symbol(&self, number: usize, address: u64, thread_local: bool) -> Option<(u64, u64, u64)> {
        let named = *self.all.get(number)?;
        let is_other = number != 0 && !thread_local && !(named.0..=named.1).contains(&address);
        let before = self.by_address.partition_point(|one| one.0 <= address).checked_sub(1);
        let holder = before.map(|index| self.by_address[index]).filter(|one| is_other && address < one.1);
        Some(holder.unwrap_or(named))
    }
}

/// A symbol as it was read. A symbol of size 0 ends with its section until `arranged` finds the next symbol.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    end: u64,
    size: u64,
    name: Name,
    rank: Rank,
}

/// A part of `Symbols::names`.
#[derive(Clone, Copy, Debug)]
struct Name {
    at: u32,
    len: u32,
}

/// The order of several names for one place: the least one is shown. The order is mdb's: functions before the rest,
/// global and weak before local, fewer leading underscores first, then shorter names. So `abort` wins over `__GI_abort`,
/// and `puts` over `_IO_puts`. A version that is not the default one (`memcpy@GLIBC_2.2.5`) comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    old_version: bool,
    not_code: bool,
    local: bool,
    dollar: bool,
    underscores: u8,
    length: u32,
}

/// A symbol in the order of addresses. `parent` is the nearest symbol before it that began earlier and may reach further.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: u64,
    end: u64,
    size: u64,
    name: Name,
    parent: u32,
}

/// The symbols of one ELF file.
#[derive(Debug, Default)]
pub struct Symbols {
    names: Vec<u8>,
    entries: Vec<Entry>,
    tls: Vec<Entry>,
    /// The entries by address. Many files are only asked for names.
    places: OnceLock<Vec<Place>>,
    by_name: OnceLock<Vec<(u64, u32)>>,
}

/// A symbol that `at`, `lookup` or `tls` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The name as the file has it.
    pub name: &'a [u8],
    /// The address in the file.
    pub address: u64,
    /// The size in bytes; 0 where the file does not say.
    pub size: u64,
}

impl Symbols {
    /// Reads the symbols of all files and images as one table. A file that cannot be read or parsed adds nothing.
    pub fn load<P: AsRef<Path>>(files: &[P], images: &[&[u8]]) -> Symbols {
        let mut symbols = Symbols::default();
        for path in files {
            if let Ok(file) = File::open(path) {
                let cache = ReadCache::new(file);
                let _ = symbols.add(&cache);
            }
        }
        for image in images {
            let _ = symbols.add(*image);
        }
        symbols
    }

    /// Returns how many places have a name.
    pub fn len(&self) -> usize {
        self.places().len()
    }

    /// Returns whether no place has a name.
    pub fn is_empty(&self) -> bool {
        self.places().is_empty()
    }

    /// Returns the symbol whose extent holds the address.
    pub fn at(&self, address: u64) -> Option<Symbol<'_>> {
        let places = self.places();
        let mut index = places.partition_point(|p| p.address <= address).checked_sub(1)?;
        for _ in 0..MAX_NESTING {
            let place = places.get(index)?;
            if address < place.end {
                return Some(Symbol { name: self.text(place.name), address: place.address, size: place.size });
            }
            index = place.parent as usize;
        }
        None
    }

    /// Returns the function or object of that name. Among several, the one that is shown first wins.
    pub fn lookup(&self, name: &[u8]) -> Option<Symbol<'_>> {
        let index = self.by_name.get_or_init(|| {
            let mut index: Vec<(u64, u32)> =
                self.entries.iter().zip(0u32..).map(|(e, i)| (hash(self.text(e.name)), i)).collect();
            index.sort_unstable();
            index
        });
        let wanted = hash(name);
        let from = index.partition_point(|&(h, _)| h < wanted);
        index[from..]
            .iter()
            .take_while(|&&(h, _)| h == wanted)
            .map(|&(_, i)| &self.entries[i as usize])
            .filter(|e| self.text(e.name) == name)
            .min_by_key(|e| (e.rank, e.size == 0, e.address))
            .map(|e| Symbol { name: self.text(e.name), address: e.address, size: e.size })
    }

    /// Returns up to `most` symbols with one of the parts in their names, as the file has them. A place with several names
    /// comes several times.
    pub fn with_part(&self, parts: &[&[u8]], most: usize) -> Vec<Symbol<'_>> {
        let finders: Vec<_> = parts.iter().filter(|part| !part.is_empty()).map(memchr::memmem::Finder::new).collect();
        let has = |name: &[u8]| finders.iter().any(|finder| finder.find(name).is_some());
        self.each().map(|(symbol, _)| symbol).filter(|symbol| has(symbol.name)).take(most).collect()
    }

    /// Returns a thread-local variable. Its address is the offset in the module's TLS block.
    pub fn tls(&self, name: &[u8]) -> Option<Symbol<'_>> {
        let entry = self.tls.iter().filter(|e| self.text(e.name) == name).min_by_key(|e| (e.rank, e.address))?;
        Some(Symbol { name: self.text(entry.name), address: entry.address, size: entry.size })
    }

    /// Every function and object, with whether it has an old version of its name (`memcpy@GLIBC_2.2.5`).
    pub(crate) fn each(&self) -> impl Iterator<Item = (Symbol<'_>, bool)> {
        self.entries
            .iter()
            .map(|e| (Symbol { name: self.text(e.name), address: e.address, size: e.size }, e.rank.old_version))
    }

    fn text(&self, name: Name) -> &[u8] {
        &self.names[name.at as usize..][..name.len as usize]
    }

    fn add<'data, R: ReadRef<'data>>(&mut self, data: R) -> object::Result<()> {
        match object::FileKind::parse(data)? {
            object::FileKind::Elf32 => self.add_elf::<elf::FileHeader32<Endianness>, R>(data),
            object::FileKind::Elf64 => self.add_elf::<elf::FileHeader64<Endianness>, R>(data),
            _ => Ok(()),
        }
    }

    fn add_elf<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        &mut self,
        data: R,
    ) -> object::Result<()> {
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut extents: Vec<(u64, u64, u64)> = Vec::with_capacity(sections.len());
        for section in sections.iter() {
            let start: u64 = section.sh_addr(endian).into();
            let size: u64 = section.sh_size(endian).into();
            extents.push((start, start.saturating_add(size), section.sh_flags(endian).into()));
        }
        for (index, section) in sections.enumerate() {
            let kind = section.sh_type(endian);
            let too_large = Into::<u64>::into(section.sh_size(endian)) > MAX_SECTION;
            if !matches!(kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM) || too_large {
                continue;
            }
            let Ok(table) = section.data_as_array::<Elf::Sym, R>(endian, data) else { continue };
            let Ok(strings) = sections.section(object::SectionIndex(section.sh_link(endian) as usize)) else {
                continue;
            };
            if Into::<u64>::into(strings.sh_size(endian)) > MAX_SECTION {
                continue;
            }
            let Ok(strings) = strings.data(endian, data) else { continue };
            let versions = match sections.gnu_versym(endian, data) {
                Ok(Some((versions, of))) if of == index => versions,
                _ => &[],
            };
            self.add_table::<Elf>(endian, table, strings, &Extents::of(&extents), versions);
        }
        Ok(())
    }

    fn add_table<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        endian: Endianness,
        table: &[Elf::Sym],
        strings: &[u8],
        sections: &Extents<'_>,
        versions: &[elf::Versym<Endianness>],
    ) {
        let base = self.names.len();
        if base + strings.len() > u32::MAX as usize {
            return;
        }
        self.names.extend_from_slice(strings);
        let mut budget = strings.len().saturating_mul(4) + (1 << 16);
        for (index, symbol) in table.iter().enumerate() {
            let kind = symbol.st_type();
            let address: u64 = symbol.st_value(endian).into();
            let thread_local = kind == elf::STT_TLS;
            let section = sections.of_symbol(usize::from(symbol.st_shndx(endian)), address, thread_local);
            let (Some((start, end, flags)), true) = (section, is_named_place(kind)) else { continue };
            let Some(name) = name_of(strings, symbol.st_name(endian)) else { continue };
            if symbol.st_shndx(endian) == elf::SHN_UNDEF || flags & u64::from(elf::SHF_ALLOC) == 0 || is_mapping(name) {
                continue;
            }
            let Some(left) = budget.checked_sub(name.len()) else { break };
            budget = left;
            let size: u64 = symbol.st_size(endian).into();
            if !thread_local && !(start..=end).contains(&address) || self.entries.len() >= MAX_SYMBOLS {
                continue;
            }
            let entry = Entry {
                address,
                end: if size == 0 { end } else { address.saturating_add(size).min(end) },
                size,
                name: Name { at: (base + symbol.st_name(endian) as usize) as u32, len: name.len() as u32 },
                rank: Rank {
                    old_version: versions.get(index).is_some_and(|v| v.0.get(endian) & elf::VERSYM_HIDDEN != 0),
                    not_code: !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC),
                    local: symbol.st_bind() == elf::STB_LOCAL,
                    dollar: name[0] == b'$',
                    underscores: name.iter().take(255).take_while(|&&c| c == b'_').count() as u8,
                    length: name.len() as u32,
                },
            };
            if thread_local {
                self.tls.push(entry);
            } else {
                self.entries.push(entry);
            }
        }
    }

    fn places(&self) -> &[Place] {
        self.places.get_or_init(|| self.arranged())
    }

    /// Returns the entries by address. An outer symbol precedes its inner ones, and each extent has one name. A symbol of
    /// size 0 inside a symbol with a size is dropped: it is a label in assembler code, and gdb hides these too.
    fn arranged(&self) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        let names = &self.names;
        let entries = &self.entries;
        order.sort_unstable_by_key(|&i| {
            let e = &entries[i as usize];
            (e.address, e.size == 0, Reverse(e.end), e.rank, &names[e.name.at as usize..][..e.name.len as usize])
        });
        let mut open: Vec<u32> = Vec::new();
        for index in order {
            let entry = self.entries[index as usize];
            while open.last().is_some_and(|&i| places[i as usize].end <= entry.address) {
                open.pop();
            }
            let last = places.last_mut();
            if entry.end <= entry.address || entry.size == 0 && !open.is_empty() {
                continue;
            }
            if let Some(last) = last {
                if last.address == entry.address && (last.end == entry.end || entry.size == 0) {
                    continue;
                }
                if last.size == 0 {
                    last.end = last.end.min(entry.address);
                }
            }
            let place = Place {
                address: entry.address,
                end: entry.end,
                size: entry.size,
                name: entry.name,
                parent: open.last().copied().unwrap_or(u32::MAX),
            };
            if entry.size != 0 {
                open.push(places.len() as u32);
            }
            places.push(place);
        }
        places
    }
}

fn is_named_place(kind: u8) -> bool {
    matches!(kind, elf::STT_NOTYPE | elf::STT_OBJECT | elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_TLS)
}

/// Returns whether the name is `$x`, `$d`, `$a`, `$t` or like `$x.foo`. These mark code and data for disassemblers (ELF
/// for the Arm Architecture, 5.5.5).
fn is_mapping(name: &[u8]) -> bool {
    matches!(name, [b'$', b'a' | b'd' | b't' | b'x'] | [b'$', b'a' | b'd' | b't' | b'x', b'.', ..])
}

/// Returns the name at `at`, without the version that a linker appends in .symtab (`stdout@GLIBC_2.2.5`).
fn name_of(strings: &[u8], at: u32) -> Option<&[u8]> {
    let from = strings.get(at as usize..)?;
    let name = &from[..from.iter().position(|&c| c == 0)?];
    let name = match name.iter().skip(1).position(|&c| c == b'@') {
        Some(position) => &name[..position + 1],
        None => name,
    };
    (!name.is_empty()).then_some(name)
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Returns the bytes of a section. None if there is no such section, or if it is larger than 64 MiB.
pub fn section<P: AsRef<Path>>(path: P, name: &[u8]) -> Option<Vec<u8>> {
    use object::{Object, ObjectSection};
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let section = file.section_by_name_bytes(name)?;
    (section.size() <= 1 << 26).then(|| section.data().ok().map(<[u8]>::to_vec)).flatten()
}

/// Returns a C++ or Rust name as written, without parameters or hash. None for other names, and for names that are too
/// complex.
pub fn demangle(name: &str) -> Option<String> {
    demangle_as(name, Detail::Short)
}

/// How much of a mangled name is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// C++ without parameters, Rust without hash.
    Short,
    /// C++ with parameters.
    Parameters,
    /// Rust with its hash.
    Hash,
}

/// A C++ or Rust name as written; None for any other, or one that is too complex.
pub fn demangle_as(name: &str, detail: Detail) -> Option<String> {
    const MOST: usize = 1 << 14;
    if name.len() > MOST {
        return None;
    }
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        let mut out = Bounded { text: String::new(), most: MOST };
        let written = match detail {
            Detail::Hash => std::fmt::write(&mut out, format_args!("{name}")),
            _ => std::fmt::write(&mut out, format_args!("{name:#}")),
        };
        return written.ok().map(|()| out.text);
    }
    if !name.starts_with("_Z") || detail == Detail::Hash {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parse).ok()?;
    let mut options = cpp_demangle::DemangleOptions::new().no_return_type().recursion_limit(96);
    if detail == Detail::Short {
        options = options.no_params();
    }
    let mut out = Bounded { text: String::new(), most: MOST };
    symbol.structured_demangle(&mut out, &options).ok().map(|()| out.text)
}

/// Stops a name that grows without end. Substitutions can double it at every step.
struct Bounded {
    text: String,
    most: usize,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        if self.text.len() + s.len() > self.most {
            return Err(std::fmt::Error);
        }
        self.text.push_str(s);
        Ok(())
    }
}
