//! The kernel's own symbol table (kernel/kallsyms.c, scripts/kallsyms.c).
//!
//! A name is a count and so many bytes, each of which stands for a piece of text. The count is one byte, or two where
//! its upper bit is set: seven bits each, the lower ones first. The first character of the text is the symbol's type as
//! `nm` shows it.

/// A kernel has some 100,000 to 300,000.
pub(super) const MOST_SYMBOLS: usize = 1 << 22;
/// KSYM_NAME_LEN is 512 (kernel 6.1 and later).
const LONGEST_NAME: usize = 1024;
pub(super) const PIECES: usize = 256;

/// The arrays of the table as they lie in memory. Each may go on behind its end.
pub struct Arrays<'a> {
    /// `kallsyms_num_syms`.
    pub count: usize,
    /// `kallsyms_names`.
    pub names: &'a [u8],
    /// Text that ends with a zero byte, one for each value of a byte.
    pub token_table: &'a [u8],
    /// Where each piece begins in `token_table`, 16 bits each.
    pub token_index: &'a [u8],
    /// 32 bits a symbol.
    pub offsets: &'a [u8],
    /// The address of `offsets`.
    pub offsets_at: u64,
    /// `kallsyms_relative_base`, up to kernel 6.19.
    pub base: Option<u64>,
}

/// A symbol of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address in the running kernel, or an offset for each processor.
    pub address: u64,
    /// The letter that `nm` prints: upper case for a global symbol.
    pub kind: u8,
    /// Its name.
    pub name: String,
    /// Its bytes, 0 where the table does not say them: then it ends where the next one begins.
    pub size: u64,
}

/// Returns the symbols in the table's order, which is that of addresses. The error says what is wrong with the table.
pub fn symbols(arrays: &Arrays) -> Result<Vec<Symbol>, String> {
    if arrays.count == 0 || arrays.count > MOST_SYMBOLS {
        return Err(format!("it claims {} symbols", arrays.count));
    }
    let offsets = arrays.offsets.get(..4 * arrays.count).ok_or("its offsets are cut")?;
    let offsets: Vec<i32> =
        offsets.chunks_exact(4).map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let pieces = pieces(arrays)?;
    let address = encoding(arrays, &offsets);
    let (mut names, mut text) = (arrays.names, Vec::new());
    let mut out = Vec::with_capacity(arrays.count);
    for (index, &offset) in offsets.iter().enumerate() {
        name(&mut names, &pieces, &mut text).ok_or_else(|| format!("name {index} of {} is broken", arrays.count))?;
        let (&kind, name) = text.split_first().ok_or_else(|| format!("name {index} is empty"))?;
        let name = text_of(name).filter(|_| kind.is_ascii_alphabetic());
        let name = name.ok_or_else(|| format!("name {index} is no text"))?;
        out.push(Symbol { address: address(index, offset), kind, name, size: 0 });
    }
    Ok(out)
}

/// Returns how an offset becomes an address.
///
/// Up to 6.19 there is a base. Where per-CPU symbols are absolute (x86-64, CONFIG_KALLSYMS_ABSOLUTE_PERCPU), an offset
/// that is not negative is the address itself, and the others count down from the base. Without per-CPU symbols an
/// offset is unsigned. Later kernels count from the offset's own place.
fn encoding(arrays: &Arrays, offsets: &[i32]) -> impl Fn(usize, i32) -> u64 {
    let (at, base) = (arrays.offsets_at, arrays.base);
    let down = offsets.iter().filter(|&&offset| offset < 0).count() > offsets.len() / 2;
    move |index, offset| match base {
        Some(base) if down && offset < 0 => base.wrapping_sub(1).wrapping_sub(offset as i64 as u64),
        Some(_) if down => offset as u64,
        Some(base) => base.wrapping_add(u64::from(offset as u32)),
        None => at.wrapping_add(4 * index as u64).wrapping_add(offset as i64 as u64),
    }
}

fn pieces<'a>(arrays: &Arrays<'a>) -> Result<Vec<&'a [u8]>, String> {
    let index = arrays.token_index.get(..2 * PIECES).ok_or("its token index is cut")?;
    let piece = |place: &[u8]| {
        let rest = arrays.token_table.get(usize::from(u16::from_le_bytes([place[0], place[1]]))..)?;
        rest.get(..memchr::memchr(0, rest)?)
    };
    index.chunks_exact(2).map(|place| piece(place).ok_or_else(|| "its tokens are cut".to_string())).collect()
}

/// Takes a name off the front of `names`: the bytes that stand for its pieces.
pub(super) fn tokens<'a>(names: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&first, mut rest) = names.split_first()?;
    let mut count = usize::from(first);
    if first & 0x80 != 0 {
        let (&second, behind) = rest.split_first()?;
        count = usize::from(first & 0x7f) | usize::from(second) << 7;
        rest = behind;
    }
    let (tokens, behind) = rest.split_at_checked(count)?;
    *names = behind;
    Some(tokens)
}

/// Takes a name off the front of `names`, and leaves its text in `text`.
fn name(names: &mut &[u8], pieces: &[&[u8]], text: &mut Vec<u8>) -> Option<()> {
    text.clear();
    for &token in tokens(names)? {
        text.extend_from_slice(pieces[usize::from(token)]);
        if text.len() > LONGEST_NAME {
            return None;
        }
    }
    Some(())
}

/// Returns a symbol's name as text. None for what cannot be one.
pub(super) fn text_of(name: &[u8]) -> Option<String> {
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8(name.to_vec()).ok())?
}
