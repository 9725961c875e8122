//! The compiler's trees (Python/pyarena.c).
//!
//! `python3 program.py` keeps the tree of the program as long as it runs. Its nodes lie in blocks of 8 KiB that are not
//! cleared, and the fields of a node depend on its kind. All objects that nodes point to are in a list of the arena, and
//! nodes are freed with it. So no word of these blocks keeps anything alive.

use super::search::Search;
use crate::python::census::{HOOK, HOOK_BEHIND};
use crate::python::types::Kind;

/// `{block *a_head; block *a_cur; PyObject *a_objects;}`
const ARENA: u64 = 24;
/// `{size_t ab_size; size_t ab_offset; block *ab_next; void *ab_mem;}`
const BLOCK: u64 = 32;
/// DEFAULT_BLOCK_SIZE
const LEAST: u64 = 8192;
const MOST_BLOCKS: usize = 1 << 16;

/// Adds the blocks of the arena that the block in use at `start` may be.
pub(super) fn unused(search: &mut Search<'_, '_>, start: u64, size: u64) {
    let Some(given) = search.given(start) else { return };
    let hooks = (given - start) / HOOK * (HOOK + HOOK_BEHIND);
    if size != (ARENA + hooks).next_multiple_of(16) {
        return;
    }
    let start = given;
    let (Some(head), Some(current), Some(objects)) =
        (search.word(start, 0), search.word(start, 8), search.word(start, 16))
    else {
        return;
    };
    let kind = search.word(objects, 8).unwrap_or(0);
    if head % 16 != 0 || !search.builtin(kind).is_some_and(|known| known.kind == Kind::List) {
        return;
    }
    let (mut at, mut blocks) = (head, Vec::new());
    while at != 0 {
        let (Some(bytes), Some(used), Some(next), Some(memory)) =
            (search.word(at, 0), search.word(at, 8), search.word(at, 16), search.word(at, 24))
        else {
            return;
        };
        // ab_mem is behind the header, at a multiple of the alignment.
        let fits =
            (LEAST..1 << 40).contains(&bytes) && used <= bytes && memory.wrapping_sub(at.wrapping_add(BLOCK)) < 16;
        let after = memory.checked_add(bytes).filter(|_| fits && blocks.len() < MOST_BLOCKS);
        let Some(after) = after else { return };
        // malloc's blocks are 8 bytes larger than what the arena asks for.
        let end = search.block(at).map_or(after, |block| block.1.max(after));
        blocks.push((at, memory, end));
        at = next;
    }
    if blocks.iter().any(|block| block.0 == current) {
        search.found.extend(blocks.iter().map(|&(_, memory, end)| (memory, end)));
    }
}
