//! The places of a block's pointers, and what it begins with.

use super::fields::LARGEST_ELEMENT;
use crate::blocks::index::{each_edge, Block, Tables};
use crate::blocks::number::Index;
use crate::cached_reader::CachedReader;
use crate::image::Image;
use crate::words::word_at;

/// Pointers that a list makes room for at once.
const AHEAD: usize = 1 << 16;
/// Bytes of text at the start of a block that is text.
pub(super) const TEXT: u64 = 16;
/// Blocks from this size on are read one by one.
const APART: u64 = 1 << 10;
/// Bytes that are read at once, and of one block at most.
const WINDOW: usize = 1 << 18;
const READ: u64 = 1 << 28;

/// Returns the offsets in words of the pointers in a block. The tables do not have those of a block with a run of its own: its
/// memory is read again. What lies too far in is left out.
pub(super) fn offsets<I: Index, const P: usize>(
    tables: &Tables<I, P>,
    image: &Image,
    block: &Block,
    edges: (usize, usize),
) -> Vec<usize> {
    let mut offsets = Vec::with_capacity((edges.1 - edges.0).min(AHEAD));
    let word_map = &tables.word_map;
    if !word_map.runs[block.run].run.kind.is_single() {
        each_edge(&tables.regions, block.granule, edges, |offset, _| offsets.push(offset));
        return offsets;
    }
    let targets = &tables.edges.as_slice()[edges.0..edges.1];
    let size = 16 / P;
    let mut buffer = vec![0; WINDOW];
    let mut at = 0;
    let end = block.size.min(READ);
    while at < end && offsets.len() < targets.len() {
        let len = (end - at).min(WINDOW as u64) as usize;
        buffer.fill(0);
        image.read(block.address + at, &mut buffer[..len]);
        for (i, bytes) in buffer[..len].chunks_exact(size).enumerate() {
            let value = word_at::<P>(bytes, 0);
            let Some(target) = targets.get(offsets.len()).filter(|_| value != 0) else { continue };
            if word_map.word_of(value) == Some(target.get()) {
                offsets.push(at as usize / size + i);
            }
        }
        at += len as u64;
    }
    offsets
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e)
}

/// Returns whether a block begins with text.
pub(super) fn begins_with_text(reader: &mut CachedReader, block: &Block) -> bool {
    // The next large block lies in other memory than the reader would keep.
    let words: Option<[u64; TEXT as usize / 8]> = match block.size {
        0..TEXT => None,
        TEXT..APART => reader.words(block.address, 8),
        _ => reader.image().words(block.address, 8),
    };
    words.is_some_and(|words| words.iter().all(|word| word.to_le_bytes().into_iter().all(is_text)))
}

/// Returns how many bytes of text a block begins with, as far as [`LARGEST_ELEMENT`] words.
pub(super) fn text_length(reader: &mut CachedReader, block: &Block) -> usize {
    let words = (block.size / 8).min(LARGEST_ELEMENT as u64);
    let bytes = (0..words).map_while(|i| reader.word(block.address + 8 * i, 8)).flat_map(u64::to_le_bytes);
    bytes.take_while(|&byte| is_text(byte)).count()
}
