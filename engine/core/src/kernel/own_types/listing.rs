//! A listing of a kernel's symbols: System.map, or what /proc/kallsyms gives.
//!
//! A line is an address in hexadecimal digits, the type as `nm` shows it, and the name. In /proc/kallsyms the name of a
//! module may follow, in brackets. Those are left out: the dump has its own modules.

use super::kallsyms::{text_of, Symbol, MOST_SYMBOLS};

/// A listing with fewer symbols is not that of a kernel. (Debian's System.map is one line that says where the real one is.)
const LEAST: usize = 1000;

/// Returns the symbols, sorted by address. The error says what is wrong with the listing.
pub fn symbols(text: &[u8]) -> Result<Vec<Symbol>, String> {
    let mut out = Vec::new();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let read = symbol(line).ok_or_else(|| format!("line {} is no symbol", number + 1))?;
        out.extend(read);
        if out.len() > MOST_SYMBOLS {
            return Err(format!("it has more than {MOST_SYMBOLS} symbols"));
        }
    }
    if out.len() < LEAST {
        return Err(match out.first() {
            Some(first) if out.len() == 1 => format!("it has one symbol, {}", first.name),
            _ => format!("it has {} symbols, and a kernel has tens of thousands", out.len()),
        });
    }
    if out.iter().all(|symbol| symbol.address == 0) {
        return Err("all its addresses are 0 (the kernel shows them to root)".to_string());
    }
    out.sort_by_key(|symbol: &Symbol| symbol.address);
    Ok(out)
}

/// Returns the symbol of a line; Some(None) for that of a module, None for a line of another form.
fn symbol(line: &[u8]) -> Option<Option<Symbol>> {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    let &[kind] = kind else { return None };
    let name = name.strip_suffix(b"\r").unwrap_or(name);
    if let Some(tab) = memchr::memchr(b'\t', name) {
        return name[tab + 1..].starts_with(b"[").then_some(None);
    }
    // The note in Debian's System.map has spaces in its name, and labels of arm64's hypervisor a control character.
    let name = text_of(name)
        .or_else(|| String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty() && !name.contains('\0')))?;
    // Marks of code and data within functions of arm64, which the kernel's own table leaves out (scripts/kallsyms.c).
    let marks = name.starts_with('$') || name.starts_with(".L");
    Some((!marks).then_some(Symbol { address, kind, name, size: 0 }))
}
