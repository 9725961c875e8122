//! The symbols of an ELF file, for addresses that only one of them contains. Nobody has to choose among several then, so
//! all debuggers give the same name, and a table that is read once answers for a debugger that reads its own each time.
//!
//! The extents are kept. Names stay in the file: few are asked for, and the string table of vmlinux has megabytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache};

const MAX_SYMBOLS: u64 = 1 << 24;
/// Symbols that are read at a time.
const STEP: usize = 4096;
/// Longer names are not read. Those of the kernel have less than KSYM_NAME_LEN (512) bytes.
const MAX_NAME: usize = 1024;

/// The symbols of .symtab that have a size, in the file's order.
#[derive(Debug, Default)]
pub struct SoleSymbols {
    /// (address, size) of each.
    extents: Vec<(u64, u64)>,
    /// Where the name of each begins in the string table.
    names: Vec<u32>,
    strings: Option<Strings>,
}

/// The string table in the file.
#[derive(Debug)]
struct Strings {
    file: File,
    start: u64,
    size: u64,
}

impl SoleSymbols {
    /// Reads the first .symtab of a file. A file that cannot be read or parsed has no symbols.
    pub fn load(path: &Path) -> SoleSymbols {
        let mut symbols = SoleSymbols::default();
        if symbols.read(path).is_none() {
            return SoleSymbols::default();
        }
        symbols
    }

    /// Returns (name, address, size) of the symbol that contains the address, if there is exactly one.
    pub fn at(&self, address: u64) -> Option<(Vec<u8>, u64, u64)> {
        let index = self.index(address)?;
        let (start, size) = self.extents[index];
        Some((self.strings.as_ref()?.name(*self.names.get(index)?)?, start, size))
    }

    fn index(&self, address: u64) -> Option<usize> {
        let contains = |&(start, size): &(u64, u64)| address.wrapping_sub(start) < size;
        let index = self.extents.iter().position(contains)?;
        (!self.extents[index + 1..].iter().any(contains)).then_some(index)
    }

    fn read(&mut self, path: &Path) -> Option<()> {
        let file = File::open(path).ok()?;
        let cache = ReadCache::new(file.try_clone().ok()?);
        let header = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &cache).ok()?;
        let section = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB)?;
        let strings = sections.section(object::SectionIndex(section.sh_link(endian) as usize)).ok()?;
        let size = size_of::<elf::Sym64<Endianness>>();
        let count = (section.sh_size(endian) / size as u64).min(MAX_SYMBOLS) as usize;
        let mut bytes = vec![0; STEP * size];
        let mut next = section.sh_offset(endian);
        for first in (0..count).step_by(STEP) {
            let chunk = &mut bytes[..size * STEP.min(count - first)];
            file.read_exact_at(chunk, next).ok()?;
            next = next.checked_add(chunk.len() as u64)?;
            self.add(object::slice_from_all_bytes(chunk).ok()?, endian);
        }
        self.strings = Some(Strings { file, start: strings.sh_offset(endian), size: strings.sh_size(endian) });
        Some(())
    }

    fn add(&mut self, table: &[elf::Sym64<Endianness>], endian: Endianness) {
        for symbol in table {
            let other = matches!(symbol.st_type(), elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS);
            if !other && symbol.st_shndx(endian) != elf::SHN_UNDEF && symbol.st_size(endian) != 0 {
                self.extents.push((symbol.st_value(endian), symbol.st_size(endian)));
                self.names.push(symbol.st_name(endian));
            }
        }
    }
}

impl Strings {
    /// Returns the name that begins there and ends in the table.
    fn name(&self, at: u32) -> Option<Vec<u8>> {
        let left = usize::try_from(self.size.checked_sub(u64::from(at))?).unwrap_or(MAX_NAME);
        let mut name = vec![0; left.min(MAX_NAME)];
        self.file.read_exact_at(&mut name, self.start.checked_add(u64::from(at))?).ok()?;
        name.truncate(name.iter().position(|&byte| byte == 0)?);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn some(extents: &[(u64, u64)]) -> SoleSymbols {
        SoleSymbols { extents: extents.to_vec(), names: vec![0; extents.len()], strings: None }
    }

    #[test]
    fn an_address_in_one_symbol_has_its_index() {
        let symbols = some(&[(0x100, 0x10), (0x200, 0x40), (0x220, 8)]);
        assert_eq!((symbols.index(0x100), symbols.index(0x10f)), (Some(0), Some(0)));
        assert_eq!((symbols.index(0x21f), symbols.index(0x228)), (Some(1), Some(1)));
        for outside in [0, 0xff, 0x110, 0x240, u64::MAX] {
            assert_eq!(symbols.index(outside), None);
        }
    }

    #[test]
    fn an_address_in_two_symbols_has_none() {
        let symbols = some(&[(0x100, 0x10), (0x200, 0x40), (0x220, 8), (0x100, 0x10)]);
        assert_eq!((symbols.index(0x220), symbols.index(0x104)), (None, None));
    }

    fn strings(bytes: &[u8], start: u64, size: u64) -> Strings {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Strings { file, start, size }
    }

    #[test]
    fn a_name_that_does_not_end_in_the_table_is_none() {
        let name = |start, size, at| strings(b"head\0name\0without an end", start, size).name(at);
        let whole = [name(0, 10, 5), name(5, 5, 0), name(5, 19, 2)];
        assert_eq!(whole, [&b"name"[..], b"name", b"me"].map(|name| Some(name.to_vec())));
        let cut = [name(0, 9, 5), name(0, 24, 10), name(0, 4, 5), name(0, 99, 0)];
        let outside = [name(0, u64::MAX, u32::MAX), name(u64::MAX, 9, 1), name(24, 9, 0)];
        assert_eq!((cut, outside), ([const { None }; 4], [const { None }; 3]));
    }

    #[test]
    fn a_file_that_is_no_elf_file_has_no_symbols() {
        assert!(SoleSymbols::load(Path::new("/nothing/there")).extents.is_empty());
        assert!(SoleSymbols::load(Path::new(file!())).extents.is_empty());
    }
}
