//! Finds the context of mallocng in the data of a module.
//!
//! `struct malloc_context` begins with a secret of 8 bytes. A few words behind it stand the first and the last area of
//! metas. Each area begins with the secret, too. So a word that leads to a page which begins with what stands a few words
//! before it is the pointer to the first area.

use super::layout::{Layout, AREA};
use crate::cached_reader::CachedReader;
use crate::control::Control;
use crate::image::Image;
use crate::words::{grow_to, USER_END};
use std::collections::HashSet;

/// Bytes of data that are read at once.
const BLOCK: usize = 1 << 18;
/// How many words may stand between the beginning of the context and the pointer to the first area. It is 7 where words
/// have 8 bytes and the size of a page is fixed, 8 where it is not, and 9 or 10 where words have 4 bytes.
const MOST_BEFORE: usize = 12;
/// How many words that may lead to an area are tried.
const MOST_TRIED: u32 = 1 << 22;
/// How many contexts are returned. A process has one for each libc.
const MOST_FOUND: usize = 16;

/// The context of one mallocng.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its address.
    pub at: u64,
    /// The secret, with which every area begins.
    pub secret: u64,
    /// The first area (`meta_area_head`).
    pub head: u64,
    /// The last area (`meta_area_tail`).
    pub tail: u64,
}

/// The areas of a context.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    /// Their addresses, in the order of the list.
    pub all: Vec<u64>,
    /// Whether the list leads from the first area to the last one.
    pub whole: bool,
}

/// Returns the contexts in the ranges, which are the writable data of modules.
pub fn find(image: &Image, ranges: &[(u64, u64)], layout: Layout, control: &Control) -> Vec<Context> {
    let mut reader = CachedReader::new(image);
    let mut found: Vec<Context> = Vec::new();
    let mut tried = 0;
    let mut buffer = Vec::new();
    for &(start, end) in ranges {
        for (from, to) in image.covered(start, end.min(USER_END)) {
            let mut at = from.next_multiple_of(layout.word);
            while at < to && found.len() < MOST_FOUND && tried < MOST_TRIED && !control.cancelled() {
                let want = (to - at).min(BLOCK as u64) as usize;
                grow_to(&mut buffer, want);
                let got = image.read(at, &mut buffer[..want]);
                for (place, value) in page_pointers(&buffer[..got], at, layout.word) {
                    tried += 1;
                    if let Some(context) = context(&mut reader, place, value, layout) {
                        if found.len() < MOST_FOUND && !found.iter().any(|one| one.secret == context.secret) {
                            found.push(context);
                        }
                    }
                }
                if got < want {
                    break;
                }
                // Holes of a sparse file are zeros.
                at = image.data_from(at + want as u64, to).next_multiple_of(layout.word);
            }
        }
    }
    found
}

/// Yields the words of the bytes that may be the address of an area, with their places.
fn page_pointers(bytes: &[u8], at: u64, word: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let words = bytes.chunks_exact(word as usize).enumerate();
    words.filter_map(move |(index, part)| {
        let mut full = [0; 8];
        full[..part.len()].copy_from_slice(part);
        let value = u64::from_le_bytes(full);
        (value != 0 && value % AREA == 0 && value < USER_END).then_some((at + index as u64 * word, value))
    })
}

/// Returns the context whose pointer to its first area, `head`, stands at `place`.
fn context(reader: &mut CachedReader, place: u64, head: u64, layout: Layout) -> Option<Context> {
    let secret = reader.word(head, 8).filter(|&secret| secret != 0)?;
    let metas = reader.word(head.checked_add(8 + layout.word)?, 4)?;
    if metas != layout.metas() {
        return None;
    }
    let tail = reader.word(place.checked_add(layout.word)?, layout.word)?;
    let begins = (2..=MOST_BEFORE as u64).filter_map(|words| place.checked_sub(words * layout.word));
    let mut begins = begins.filter(|&at| reader.word(at, 8) == Some(secret));
    let at = begins.next()?;
    // The second of two pointers to the same area is the last area. Then the first one was found before.
    Some(Context { at, secret, head, tail })
}

/// Follows the list of areas. Where it breaks, the areas are searched in `inside`, the memory that may hold one.
pub fn areas(image: &Image, context: &Context, layout: Layout, inside: &[(u64, u64)], control: &Control) -> Areas {
    let mut areas = Areas::default();
    let mut seen = HashSet::new();
    let mut at = context.head;
    while at != 0 && is_area(image, at, context.secret) && seen.insert(at) && !control.cancelled() {
        areas.all.push(at);
        match image.word(at + 8, layout.word as usize) {
            Some(next) => at = next,
            None => break,
        }
    }
    areas.whole = at == 0 && areas.all.last() == Some(&context.tail);
    if !areas.whole {
        for &(start, end) in inside {
            for (from, to) in image.covered(start, end.min(USER_END)) {
                let mut at = from.next_multiple_of(AREA);
                while at < to && !control.cancelled() {
                    if is_area(image, at, context.secret) && seen.insert(at) {
                        areas.all.push(at);
                    }
                    at = image.data_from(at + AREA, to).next_multiple_of(AREA);
                }
            }
        }
    }
    areas
}

fn is_area(image: &Image, at: u64, secret: u64) -> bool {
    at % AREA == 0 && at < USER_END && image.word(at, 8) == Some(secret)
}
