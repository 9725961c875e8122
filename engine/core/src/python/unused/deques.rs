//! What deques do not use: the places before the first item and behind the last, and blocks that are kept for reuse.

use super::search::Search;
use crate::python::types::Kind;

/// `{leftlink, data[64], rightlink}` (Modules/_collectionsmodule.c)
const ITEMS: u64 = 64;
const BLOCK: u64 = (ITEMS + 2) * 8;
/// `dequeobject`: leftblock, rightblock, leftindex, rightindex, state, maxlen, numfreeblocks, freeblocks[16].
const SIZE: u64 = 16;
const LEFT: u64 = 24;
const RIGHT: u64 = 32;
const LEFT_INDEX: u64 = 40;
const RIGHT_INDEX: u64 = 48;
const COUNT: u64 = 72;
const FREE: u64 = 80;
const MOST_FREE: u64 = 16;
/// What malloc adds to a block: up to 24 bytes, so that the rest is no chunk.
const MOST_BEHIND: u64 = 24;
/// `tp_basicsize` of `collections.deque` where each has a list of free blocks (3.11; not yet in 3.9).
const WITH_FREE: u64 = 216;
/// `PyTypeObject.tp_base`
const BASE: u64 = 256;
const MOST_BASES: usize = 64;

/// Adds what the deque at the address does not use. `kind` is its type.
pub(super) fn unused(search: &mut Search<'_, '_>, at: u64, kind: u64) {
    let [Some(left), Some(right), Some(first), Some(last)] =
        [LEFT, RIGHT, LEFT_INDEX, RIGHT_INDEX].map(|offset| search.word(at, offset))
    else {
        return;
    };
    // The invariant that its source names. None is above 2^58.
    let count = search.word(at, SIZE).filter(|&count| count < 1 << 58);
    let proper = count.is_some_and(|count| first.wrapping_add(count).wrapping_sub(1) % ITEMS == last);
    if proper && left % 8 == 0 && right % 8 == 0 && first < ITEMS {
        let place = |block: u64, index: u64| block.saturating_add(8 + index * 8);
        search.add(place(left, 0), place(left, first));
        search.add(place(right, last + 1), place(right, ITEMS));
        // The first link and the last are not written.
        search.add(left, place(left, 0));
        search.add(place(right, ITEMS), place(right, ITEMS + 1));
    }
    if let Some(count) = count.filter(|_| proper) {
        behind_links(search, left, count);
    }
    if !has_free_blocks(search, kind) {
        return;
    }
    let count = search.word(at, COUNT).filter(|&count| count <= MOST_FREE).unwrap_or(0);
    for number in 0..count {
        let block = search.word(at, FREE + number * 8).filter(|block| block % 8 == 0 && *block >= 4096);
        let Some(block) = block else { return };
        search.add(block, block.saturating_add(BLOCK));
    }
}

/// malloc's blocks are 8 bytes larger than what a deque asks for. Adds these of all blocks of a deque, from the left.
fn behind_links(search: &mut Search<'_, '_>, left: u64, count: u64) {
    let mut at = left;
    for _ in 0..=count.div_ceil(ITEMS) {
        search.links = search.links.saturating_sub(1);
        let Some(block) = search.block(at).filter(|_| search.links > 0) else { return };
        let end = at.saturating_add(BLOCK);
        search.add(end, block.1.min(end.saturating_add(MOST_BEHIND)));
        let Some(next) = search.word(at, BLOCK - 8).filter(|next| next % 8 == 0 && *next >= 4096) else { return };
        at = next;
    }
}

/// Until 3.10 all deques share `static block *freeblocks[16]`, and `static Py_ssize_t numfreeblocks` stands beside it.
///
/// `place` is a word of the interpreter's data, and `first` its value.
pub(super) fn given_back(search: &mut Search<'_, '_>, place: u64, first: u64, members: &mut Vec<(u64, u64, u64)>) {
    if !is_block(search, first) {
        return;
    }
    let counts = [place.saturating_sub(8), place.saturating_add(MOST_FREE * 8)];
    for count in counts.map(|at| search.word(at, 0)) {
        let Some(count) = count.filter(|count| (1..=MOST_FREE).contains(count)) else { continue };
        let blocks: Vec<u64> = (0..count).filter_map(|number| search.word(place, number * 8)).collect();
        let different = (1..blocks.len()).all(|n| !blocks[..n].contains(&blocks[n]));
        if different && blocks.len() as u64 == count && blocks.iter().all(|&block| is_block(search, block)) {
            members.extend(blocks.iter().map(|&block| (block, block, block.saturating_add(BLOCK))));
            return;
        }
    }
}

/// Returns whether a block of malloc begins there that is as large as a deque's, and that one of its links leads to malloc's
/// memory, where the block beside it was. (The other is not written while nothing is there, and no item is cleared.)
fn is_block(search: &mut Search<'_, '_>, at: u64) -> bool {
    let size = search.blocks.at(at).is_none().then(|| search.block(at)).flatten().map(|block| block.1 - block.0);
    if !size.is_some_and(|size| (BLOCK..BLOCK + 32).contains(&size)) {
        return false;
    }
    let chunks = search.process.chunks;
    [0, BLOCK - 8].into_iter().filter_map(|offset| search.word(at, offset)).any(|link| {
        let next = chunks.partition_point(|part| part.0 <= link);
        link % 16 == 0 && next > 0 && link < chunks[next - 1].1
    })
}

/// Returns whether each deque has a list of free blocks: the size of the first type of the family says so.
fn has_free_blocks(search: &mut Search<'_, '_>, kind: u64) -> bool {
    let (mut at, mut basic) = (kind, None);
    for _ in 0..MOST_BASES {
        let Some(known) = search.types.at(at).filter(|known| known.kind == Kind::Deque) else { break };
        basic = Some(known.basic);
        match search.word(at, BASE) {
            Some(base) if base != 0 => at = base,
            _ => break,
        }
    }
    basic == Some(WITH_FREE)
}
