//! The symbol table that a module has in the kernel's memory (struct mod_kallsyms): ELF's own, with final addresses.

use super::kallsyms::{text_of, Symbol, MOST_SYMBOLS};

const ENTRY: usize = 24; // Elf64_Sym

/// Returns the symbols, sorted by address. Entries without a name or an address are left out, as those whose name is no
/// text. `letters`: st_info is the type as `nm` shows it (up to kernel 5.1).
pub fn symbols(table: &[u8], strings: &[u8], letters: bool) -> Vec<Symbol> {
    let mut out: Vec<Symbol> =
        table.chunks_exact(ENTRY).take(MOST_SYMBOLS).filter_map(|entry| symbol(entry, strings, letters)).collect();
    out.sort_by_key(|symbol| symbol.address);
    out
}

fn symbol(entry: &[u8], strings: &[u8], letters: bool) -> Option<Symbol> {
    let number = |from: usize| u64::from_le_bytes(entry[from..from + 8].try_into().unwrap_or_default());
    let (address, size) = (number(8), number(16));
    let rest = strings.get(number(0) as u32 as usize..)?;
    let name = text_of(rest.get(..memchr::memchr(0, rest)?)?)?;
    let info = entry[4];
    let kind = if letters { info } else { letter(info) };
    (address != 0 && kind.is_ascii_alphabetic()).then_some(Symbol { address, kind, name, size })
}

/// The letter of `nm` for a binding and a type. Sections and files are no symbols.
fn letter(info: u8) -> u8 {
    let letter = match info & 0xf {
        0 | 1 => b'd',  // STT_NOTYPE, STT_OBJECT
        2 | 10 => b't', // STT_FUNC, STT_GNU_IFUNC
        _ => return 0,
    };
    match (info >> 4, letter) {
        (1, _) => letter.to_ascii_uppercase(),
        (2, b't') => b'W',
        (2, _) => b'V',
        _ => letter,
    }
}
