//! The kernel's own symbol table, found by its shape: kernels before 6.0 do not say where it is.
//!
//! scripts/kallsyms.c (4.20 to 6.3) writes the arrays one behind the other, each at a multiple of eight bytes: offsets,
//! relative_base, num_syms, names, markers, seqs_of_names, token_table, token_index. seqs_of_names (three bytes a symbol)
//! came with 6.2; Debian's 6.1 has it as well. A character that is in some name stands for itself in the table of tokens,
//! and every kernel has names with digits: "0" to "9" lie there one behind the other. All else follows from there, and
//! each array must agree with the one behind it.

use super::kallsyms::{symbols, tokens, Arrays, Symbol, MOST_SYMBOLS, PIECES};

/// The tokens from '0' to '9'.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
/// Memory has these bytes elsewhere, too, but not often.
const MOST_PLACES: usize = 100;
/// Bytes of all tokens.
const LARGEST_TOKENS: usize = 16384;
/// Bytes of a token, as long as a name may be.
const LONGEST_TOKEN: usize = 512;
/// A marker has the place of every 256th name.
const MARKED: usize = 256;
/// Bytes of a name with its count (KSYM_NAME_LEN is 128 up to 6.0, 512 later).
const LONGEST_ENTRY: usize = 514;
/// Bytes that an entry of `seqs_of_names` has.
const SEQUENCE: usize = 3;
/// Words, names and places that the whole search looks at.
const MOST_STEPS: usize = 1 << 26;

/// Returns the symbols of a kernel, out of a part of its image that begins at the address `at`. `stext` is the address of
/// its `_stext`. Ok(None) if no table is there. The error says why what looks like one is not it.
pub fn find(image: &[u8], at: u64, stext: u64) -> Result<Option<Vec<Symbol>>, String> {
    let mut search = Search { image, at, left: MOST_STEPS };
    let mut reason = None;
    for digits in memchr::memmem::find_iter(image, DIGITS).take(MOST_PLACES) {
        let Some(tokens) = search.tokens(digits) else { continue };
        match search.symbols(&tokens, stext) {
            Ok(found) => return Ok(Some(found)),
            Err(error) => reason = Some(format!("{error} (its tokens are at {:#x})", at.wrapping_add(tokens.0 as u64))),
        }
    }
    reason.map_or(Ok(None), Err)
}

struct Search<'a> {
    image: &'a [u8],
    at: u64,
    left: usize,
}

/// Where the tokens begin, and where their index does.
type Tokens = (usize, usize);

/// Where the names begin, and how many there are.
type Names = (usize, usize);

impl Search<'_> {
    /// Returns the tokens around the digits. 48 others come before these.
    fn tokens(&self, digits: usize) -> Option<Tokens> {
        let before = self.image.get(digits.saturating_sub(LARGEST_TOKENS)..digits)?;
        let first_end = digits - before.len() + memchr::memrchr_iter(0, before).nth(usize::from(b'0') - 1)?;
        let starts = (first_end.saturating_sub(LONGEST_TOKEN)..=first_end).rev();
        let starts = starts.take_while(|&start| start == first_end || self.image[start] != 0);
        let mut aligned = starts.filter(|&start| self.is_aligned(start));
        aligned.find_map(|start| Some((start, self.token_index(start)?)))
    }

    /// Returns where the index is that lies behind the tokens, and has the place of each.
    fn token_index(&self, start: usize) -> Option<usize> {
        let mut places = Vec::with_capacity(2 * PIECES);
        let (mut end, most) = (start, self.image.len().min(start + LARGEST_TOKENS));
        for _ in 0..PIECES {
            places.extend(u16::try_from(end - start).ok()?.to_le_bytes());
            end += memchr::memchr(0, self.image.get(end..most)?)? + 1;
        }
        let index = self.aligned(end);
        (self.image.get(index..index + places.len())? == places).then_some(index)
    }

    fn symbols(&mut self, &(start, index): &Tokens, stext: u64) -> Result<Vec<Symbol>, String> {
        let (first, (names, count)) = self.marked(start)?;
        let offsets = self.offsets(names, count).ok_or("its offsets are not in the dump")?;
        let base = self.image[names - 16..names - 8].try_into().map_err(|_| "its base is not in the dump")?;
        let found = symbols(&Arrays {
            count,
            names: &self.image[names..first],
            token_table: &self.image[start..index],
            token_index: &self.image[index..],
            offsets: &self.image[offsets..],
            offsets_at: self.at.wrapping_add(offsets as u64),
            base: Some(u64::from_le_bytes(base)),
        })?;
        if !found.is_sorted_by_key(|symbol| symbol.address) {
            return Err("its addresses are not sorted".to_string());
        }
        if !found.iter().any(|symbol| symbol.address == stext && symbol.name == "_stext") {
            return Err(format!("it has no _stext at {stext:#x}"));
        }
        Ok(found)
    }

    /// Returns where the names end, and the names: their markers stand before the tokens, or before the sequences there.
    /// Sequences may look like markers, so each place is tried.
    fn marked(&mut self, tokens: usize) -> Result<(usize, Names), &'static str> {
        let mut reason = "no markers are before its tokens";
        for sequences in (0..=tokens.min(SEQUENCE * MOST_SYMBOLS)).step_by(8) {
            let end = tokens - sequences;
            // The padding to eight bytes leaves up to three numbers of symbols possible.
            for count in [sequences / SEQUENCE, sequences.saturating_sub(7) / SEQUENCE] {
                self.left = self.left.checked_sub(1).ok_or("the search takes too long")?;
                if sequences > 0 && !self.may_end(end, count) {
                    continue;
                }
                let Some((first, markers)) = self.ascending(end) else { continue };
                reason = "its names do not agree with its markers";
                let fits = |&(_, count): &Names| sequences == 0 || (SEQUENCE * count).next_multiple_of(8) == sequences;
                if let Some(names) = self.names(first, &markers).filter(fits) {
                    return Ok((first, names));
                }
            }
        }
        Err(reason)
    }

    /// Whether the markers of so many symbols may end there: the first is 0, and the second is not.
    fn may_end(&self, end: usize, count: usize) -> bool {
        let start = end.checked_sub(4 * count.div_ceil(MARKED).next_multiple_of(2));
        start.is_some_and(|start| self.word(start) == Some(0) && self.word(start + 4) != Some(0))
    }

    /// Returns where words begin that ascend from 0 and end at `end`, and the words.
    fn ascending(&mut self, end: usize) -> Option<(usize, Vec<usize>)> {
        let mut at = end.checked_sub(4)?;
        if self.word(at)? == 0 {
            at = at.checked_sub(4)?; // bytes up to a multiple of eight
        }
        let mut last = self.word(at)?;
        let mut found = vec![last];
        while last > 0 {
            self.left = self.left.checked_sub(1)?;
            at = at.checked_sub(4)?;
            last = self.word(at).filter(|&next| next < last)?;
            found.push(last);
            if found.len() > MOST_SYMBOLS / MARKED {
                return None;
            }
        }
        found.reverse();
        (self.is_aligned(at) && found.len() > 1).then_some((at, found))
    }

    /// Returns the names that end where the markers begin. Their number stands before them.
    fn names(&mut self, end: usize, markers: &[usize]) -> Option<Names> {
        let last = end.checked_sub(*markers.last()?)?;
        let least = last.saturating_sub(MARKED * LONGEST_ENTRY).max(16);
        let most = MARKED * markers.len();
        for start in (least..=last).rev() {
            let count = self.word(start - 8)?;
            let fits = count > most - MARKED && count <= most && self.word(start - 4) == Some(0);
            if fits && self.is_aligned(start) && self.agree(start, end, count, markers) {
                return Some((start, count));
            }
        }
        None
    }

    /// Whether so many names lie between `start` and `end`, and the markers have the places of some.
    fn agree(&mut self, start: usize, end: usize, count: usize, markers: &[usize]) -> bool {
        let mut names = &self.image[start..end];
        for number in 0..count {
            let place = end - start - names.len();
            if self.left == 0 || (number % MARKED == 0 && markers[number / MARKED] != place) {
                return false;
            }
            self.left -= 1;
            if tokens(&mut names).is_none_or(<[u8]>::is_empty) {
                return false;
            }
        }
        names.len() < 8 && names.iter().all(|&byte| byte == 0)
    }

    /// Returns where the offsets are. The base lies between them and the number of names.
    fn offsets(&self, names: usize, count: usize) -> Option<usize> {
        names.checked_sub(16)?.checked_sub(4 * count)?.checked_sub(4 * (count % 2))
    }

    fn word(&self, at: usize) -> Option<usize> {
        let bytes = self.image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    }

    fn is_aligned(&self, place: usize) -> bool {
        self.at.wrapping_add(place as u64) % 8 == 0
    }

    /// The first place from this one on that is a multiple of eight bytes.
    fn aligned(&self, place: usize) -> usize {
        place + (self.at.wrapping_add(place as u64).wrapping_neg() % 8) as usize
    }
}
