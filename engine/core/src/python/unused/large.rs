//! Objects above 512 bytes. They lie in blocks of malloc.
//!
//! The collector's lists lead to those that it tracks. It tracks no str, bytes, int and code, and no dictionary without
//! containers. These are found among glibc's chunks: a built-in type has its place in the block, and the size that the object
//! says is that of the block. With PYTHONMALLOC=malloc all objects lie there.

use super::objects;
use super::search::{Search, MAPPED};
use crate::control::Control;
use crate::python::census::{self, Found, HOOK, HOOK_BEHIND};
use crate::python::links::LINKS;
use crate::python::types::Kind;

/// No object is larger.
const MOST: u64 = 1 << 47;
/// realloc() gives back what is left of a block, unless it is too small for a chunk (MINSIZE, malloc/malloc.c).
const MOST_LEFT: u64 = 48;
/// A block with a mapping of its own ends where the mapping does.
const MOST_LEFT_MAPPED: u64 = 1 << 16;
/// Chunks between two looks at the control.
const STEP: u64 = 1 << 16;

/// Looks at the objects that are not in pymalloc's blocks.
///
/// Until 3.10 the collector does not track a frame that runs.
pub(super) fn find(search: &mut Search<'_, '_>, control: &Control) {
    let nodes = search.process.links.map_or(&[][..], |links| &links.nodes);
    let mut place = 0;
    while let Some(&node) = nodes.get(place) {
        match search.blocks.span(node) {
            Some(end) => place += nodes[place..].partition_point(|&at| at < end).max(1),
            None => {
                tracked(search, node.saturating_add(LINKS));
                place += 1;
            }
        }
        if place % 4096 == 0 && control.cancelled() {
            return;
        }
    }
    for &frame in search.process.frames {
        if search.blocks.span(frame).is_none() {
            tracked(search, frame);
        }
    }
    for &(start, end) in search.process.chunks {
        untracked(search, (start, end), control);
    }
}

fn tracked(search: &mut Search<'_, '_>, at: u64) {
    let Some(known) = search.word(at, 8).and_then(|kind| search.types.at(kind)) else { return };
    let Some(start) = at.checked_sub(known.before) else { return };
    let release = search.process.release;
    let Search { types, words, .. } = search;
    let Some(object) = census::object_at(types, words, release, (at, known.before), MOST) else { return };
    let end = at.saturating_add(object.inside).next_multiple_of(8);
    let end = search.block(start).map_or(end, |block| block.1.max(end));
    objects::unused(search, object, end);
}

/// Looks at the chunks of a stretch. A damaged one ends it.
fn untracked(search: &mut Search<'_, '_>, (start, end): (u64, u64), control: &Control) {
    let (mut chunk, mut steps) = (start, 0);
    while let Some(field) = search.word(chunk, 8).filter(|_| chunk < end) {
        let (size, block) = (field & !7, chunk.saturating_add(16));
        let Some(next) = chunk.checked_add(size).filter(|&next| size >= 32 && next <= end) else { return };
        // A mapped chunk has no other behind it, whose header would begin with 8 bytes of the block.
        let last = if field & MAPPED != 0 { next } else { next.saturating_add(8) };
        if let Some(object) = large(search, block, last, field & MAPPED != 0) {
            objects::unused(search, object, last);
        }
        chunk = next;
        steps += 1;
        if steps % STEP == 0 && control.cancelled() {
            return;
        }
    }
}

/// Returns the object in a block if it is of a built-in type that the collector does not track.
fn large(search: &mut Search<'_, '_>, block: u64, end: u64, mapped: bool) -> Option<Found> {
    let given = search.given(block)?;
    let before = [0, LINKS].into_iter().find(|&before| is_untracked(search, given, before))?;
    let at = given.checked_add(before)?;
    let release = search.process.release;
    let Search { types, words, .. } = search;
    let object = census::object_at(types, words, release, (at, before), end.checked_sub(at)?)?;
    let hooks = (given - block) / HOOK * HOOK_BEHIND;
    let left = (end - at - object.inside).saturating_sub(hooks);
    (left < if mapped { MOST_LEFT_MAPPED } else { MOST_LEFT }).then_some(object)
}

/// Returns whether an object of such a type may lie so many bytes behind `given`. A dictionary without containers has links
/// of the collector, and is in no list (until 3.13).
fn is_untracked(search: &mut Search<'_, '_>, given: u64, before: u64) -> bool {
    let at = given.saturating_add(before);
    let Some(kind) = search.word(at, 8).filter(|&kind| search.is_inside(kind)) else { return false };
    match search.builtin(kind) {
        Some(known) if before == 0 => {
            let plain = matches!(known.kind, Kind::Str | Kind::Int | Kind::Code) || objects::is_bytes(&known);
            plain && !known.gc
        }
        Some(known) => known.gc && known.kind == Kind::Dict && search.word(given, 0) == Some(0),
        None => false,
    }
}
