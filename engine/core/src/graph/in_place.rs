//! Which surviving blocks hold other content in a later core: their memory was used again, or filled anew in place.

use crate::blocks::model::{Heap, State};
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;

const IN_USE: [State; 3] = [State::Live, State::LeakedDirectly, State::LeakedIndirectly];
/// Parts of the heap from which blocks are taken.
const PLACES: u64 = 32;
/// Blocks of a part.
const BATCH: usize = 512;
/// Bytes of a block that are compared.
const MOST_BYTES: u64 = 128;

/// One core.
pub struct Side<'a> {
    /// Its heap.
    pub heap: &'a dyn Heap,
    /// Its memory.
    pub image: &'a Image,
}

/// Returns how many surviving blocks were compared, and in how many most words have changed.
///
/// A block that is linked elsewhere, or counts, changes a word or two. Words that are 0 in both cores do not count. All
/// blocks of a small heap are compared, else those of parts that lie evenly in it. `owned` is the memory of the older
/// heap: ranges in order. A word has `word` (4 or 8) bytes.
pub fn changed(
    old: &Side,
    new: &Side,
    owned: &[(u64, u64)],
    word: u64,
    control: &Control,
) -> Result<(u64, u64), Stopped> {
    let bytes = owned.iter().map(|(start, end)| end.saturating_sub(*start)).fold(0, u64::saturating_add);
    let step = (bytes / PLACES).max(1);
    let mut readers = [CachedReader::new(old.image), CachedReader::new(new.image)];
    let (mut compared, mut other, mut seen) = (0, 0, 0);
    for &(start, end) in owned {
        let mut place = start;
        while place < end {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            for (block, ..) in old.heap.blocks(&IN_USE, place.max(seen), BATCH) {
                if block.address >= end {
                    break;
                }
                seen = block.address + 1;
                if !survives(new.heap, block.address, block.size) {
                    continue;
                }
                if let Some(changed) = has_changed(&mut readers, block.address, block.size, word) {
                    compared += 1;
                    other += u64::from(changed);
                }
            }
            place = place.saturating_add(step);
        }
    }
    Ok((compared, other))
}

/// Returns whether the heap has a block in use of that address and size.
fn survives(heap: &dyn Heap, address: u64, size: u64) -> bool {
    heap.find(address)
        .is_some_and(|(block, state, ..)| (block.address, block.size) == (address, size) && IN_USE.contains(&state))
}

/// Returns whether most words of a block are others. None where a dump lacks one, and where all are 0.
fn has_changed([old, new]: &mut [CachedReader; 2], address: u64, size: u64, word: u64) -> Option<bool> {
    let (mut told, mut differ) = (0, 0);
    for offset in (0..size.min(MOST_BYTES) / word * word).step_by(word as usize) {
        let at = address.checked_add(offset)?;
        let (before, after) = (old.word(at, word)?, new.word(at, word)?);
        told += u32::from(before | after != 0);
        differ += u32::from(before != after);
    }
    (told > 0).then_some(2 * differ > told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    fn image(words: &[u64]) -> Image {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let segment = Segment { start: 0x1000, end: 0x1000 + bytes.len() as u64, source: Source::Bytes(bytes.into()) };
        Image::new(&[], vec![segment]).unwrap()
    }

    fn compared(old: &[u64], new: &[u64], size: u64) -> Option<bool> {
        let (old, new) = (image(old), image(new));
        has_changed(&mut [CachedReader::new(&old), CachedReader::new(&new)], 0x1000, size, 8)
    }

    #[test]
    fn most_words_that_are_not_zero_decide() {
        assert_eq!(compared(&[1, 2, 0, 0], &[1, 3, 0, 0], 32), Some(false));
        assert_eq!(compared(&[1, 2, 0, 0], &[1, 3, 4, 0], 32), Some(true));
        // What lies behind the last whole word does not count, nor what lies behind the first 128 bytes.
        assert_eq!(compared(&[1, 2, 3, 4], &[1, 2, 5, 5], 23), Some(false));
        let (same, other): (Vec<u64>, Vec<u64>) = ((1..40).collect(), (1..17).chain(100..123).collect());
        assert_eq!(compared(&same, &other, 39 * 8), Some(false));
    }

    #[test]
    fn zeros_and_what_is_missing_say_nothing() {
        assert_eq!(compared(&[0, 0], &[0, 0], 16), None);
        assert_eq!(compared(&[1, 2], &[1], 16), None);
    }
}
