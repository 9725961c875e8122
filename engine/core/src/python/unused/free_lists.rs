//! Objects that CPython keeps for reuse. Their words are what was there when they were freed.
//!
//! From 3.14 on a free list is `{void *freelist; Py_ssize_t size}` in the state of an interpreter, and the first word of
//! each object is the link (Include/internal/pycore_freelist.h). A chain of exactly that length proves it.
//!
//! Before, an object in a free list has no references. Tuples are linked by their first item, frames by `f_back`; lists
//! and dictionaries stand in arrays. A list that a thread is freeing has no references, either, and its items are still
//! in use: so a stack, a register or the state of a thread that has its address disproves it. Until 3.10 a code object
//! keeps its last frame (`co_zombieframe`).

use super::deques;
use super::search::Search;
use crate::control::Control;
use crate::python::links::LINKS;
use crate::python::types::{Kind, Type};
use std::collections::HashSet;

const TUPLE: u64 = 1 << 26;
/// Bytes read at once.
const PIECE: usize = 1 << 18;
/// Objects of one list: 2000 tuples of each length until 3.13, 200 frames.
const MOST: u64 = 1 << 16;
/// Links of all lists that are followed: damaged ones may lead to each other.
const MOST_STEPS: u64 = 1 << 24;
/// Links of objects that wait to be freed.
const MOST_WAITING: usize = 1 << 20;
/// The smallest keys, of 8 places and 5 entries: log2 of the size, of the bytes of the indices, and DICT_KEYS_UNICODE; until
/// 3.10 the size alone.
const SMALL_KEYS: u64 = 0x01_0303;
const SMALL_OLD_KEYS: u64 = 8;
const SMALL_ENTRIES: u64 = 5;
/// `PyTupleObject.ob_item`, and `PyFrameObject.f_back`.
const LINK: u64 = 24;
/// `PyCodeObject.co_zombieframe`, and `PyFrameObject.f_code` (3.9, 3.10).
const ZOMBIE: u64 = 128;
const FRAME_CODE: u64 = 32;

/// Adds what objects in free lists do not use.
pub(super) fn find(search: &mut Search<'_, '_>, control: &Control) {
    let counted = search.process.release.minor >= 14;
    let mut members: Vec<(u64, u64, u64)> = Vec::new(); // the object, and the words of it that are dead
    let mut seen = HashSet::new();
    let mut steps = MOST_STEPS;
    for &(start, end) in search.process.heads {
        let mut at = start.next_multiple_of(8);
        let mut buffer = vec![0u8; PIECE + 8];
        while at < end && !control.cancelled() {
            let want = (end - at).min(buffer.len() as u64) as usize;
            let got = search.image.read(at, &mut buffer[..want]);
            for number in 0..(got / 8).min(PIECE / 8) {
                let word = |at: usize| buffer.get(at..at + 8).map(|part| part.try_into().unwrap_or_default());
                let first = word(number * 8).map_or(0, u64::from_le_bytes);
                if first % 8 != 0 || first < 4096 {
                    continue;
                }
                if counted {
                    let count = word(number * 8 + 8).map_or(0, u64::from_le_bytes);
                    chain(search, first, count, &mut members, &mut steps);
                } else if kept(search, first).is_some() && seen.insert(first) {
                    unreferenced(search, first, &mut members, &mut steps);
                } else if let Some(keys) = given_up(search, first).filter(|_| seen.insert(first)) {
                    members.push((first, keys.0, keys.1));
                } else if search.process.release.minor <= 10 {
                    deques::given_back(search, at + number as u64 * 8, first, &mut members);
                }
            }
            at = if got == want { at + PIECE as u64 } else { (at + got as u64 + 8).next_multiple_of(4096) };
        }
    }
    if !counted {
        leave_out_busy(search, &mut members, control);
    }
    if search.process.release.minor <= 10 {
        zombies(search, &mut members);
    }
    search.found.extend(members.iter().map(|&(_, start, end)| (start, end)).filter(|part| part.0 < part.1));
}

/// 3.14 and later: `count` blocks linked by the first word of their objects.
fn chain(search: &mut Search<'_, '_>, first: u64, count: u64, members: &mut Vec<(u64, u64, u64)>, steps: &mut u64) {
    if !(1..=MOST.min(*steps)).contains(&count) || search.blocks.at(first).is_none() {
        return;
    }
    let before = members.len();
    let mut at = first;
    for _ in 0..count {
        *steps -= 1;
        // Nothing, or the links of the collector and two more pointers, stand before the link.
        let block = search.blocks.at(at).and_then(|(start, end)| Some((search.given(start)?, end)));
        let block = block.filter(|block| matches!(at.wrapping_sub(block.0), 0 | 16 | 32));
        let (Some((start, end)), Some(next)) = (block, search.word(at, 0)) else {
            members.truncate(before);
            return;
        };
        members.push((at, start, at));
        members.push((at, at + 8, end));
        at = next;
    }
    if at != 0 {
        members.truncate(before);
    }
}

/// Before 3.14: the keys of a dictionary that is gone, as a block. They are the smallest, and nobody has a reference to them
/// (`keys_free_list`, Objects/dictobject.c).
fn given_up(search: &mut Search<'_, '_>, first: u64) -> Option<(u64, u64)> {
    let block = search.blocks.at(first)?;
    let block = Some((search.given(block.0)?, block.1)).filter(|block| block.0 == first)?;
    let new = search.process.release.minor >= 11;
    let sizes = search.word(first, 8)? & if new { 0xff_ffff } else { u64::MAX };
    let counts = if new { [16, 24] } else { [24, 32] }.map(|offset| search.word(first, offset));
    let proper = search.word(first, 0) == Some(0) && sizes == if new { SMALL_KEYS } else { SMALL_OLD_KEYS };
    (proper && counts.iter().all(|count| count.is_some_and(|count| count <= SMALL_ENTRIES))).then_some(block)
}

/// Before 3.14: a tuple, a frame, a list or a dictionary without references, and what is linked to it.
fn unreferenced(search: &mut Search<'_, '_>, first: u64, members: &mut Vec<(u64, u64, u64)>, steps: &mut u64) {
    let Some(kind) = kept(search, first) else { return };
    let tuple = kind.1.flags & TUPLE != 0;
    if !tuple && kind.1.kind != Kind::Frame {
        if let Some((_, end)) = search.blocks.at(first) {
            members.push((first, first + 16, end));
        }
        return;
    }
    let before = members.len();
    let size = search.word(first, 16);
    let mut at = first;
    for _ in 0..MOST.min(*steps) {
        *steps -= 1;
        let end = match (tuple, search.blocks.at(at)) {
            (_, Some((_, end))) => Some(end),
            // Large frames lie in malloc's blocks.
            (false, None) => search.size(at, &kind.1).and_then(|size| at.checked_add(size)),
            (true, None) => None,
        };
        // A list of tuples has those of one length.
        let alike = kept(search, at).is_some_and(|one| one.0 == kind.0) && (!tuple || search.word(at, 16) == size);
        let (Some(end), true, Some(next)) = (end, alike, search.word(at, LINK)) else { break };
        members.push((at, at.saturating_add(LINK + 8), end));
        if next == 0 {
            return;
        }
        at = next;
    }
    members.truncate(before);
}

/// Returns the type of the object at the address if that is one which CPython keeps for reuse, and it has no references.
fn kept(search: &mut Search<'_, '_>, at: u64) -> Option<(u64, Type)> {
    if at % 8 != 0 || search.word(at, 0)? != 0 {
        return None;
    }
    let kind = search.word(at, 8)?;
    let known = search.builtin(kind)?;
    let frames = known.kind == Kind::Frame && search.process.release.minor <= 10;
    let listed = matches!(known.kind, Kind::List | Kind::Dict) || frames;
    // The collector does not track it.
    let untracked = known.gc && search.word(at.checked_sub(16)?, 0)? == 0;
    (untracked && (listed || (known.kind == Kind::Plain && known.flags & TUPLE != 0))).then_some((kind, known))
}

/// Leaves out what a thread may be freeing.
fn leave_out_busy(search: &mut Search<'_, '_>, members: &mut Vec<(u64, u64, u64)>, control: &Control) {
    let known: HashSet<u64> = members.iter().map(|member| member.0).collect();
    let mut busy: HashSet<u64> = HashSet::new();
    // A pointer to the links of the collector before an object is one to it.
    let object = |value: u64| [value, value.wrapping_add(16)].into_iter().find(|at| known.contains(at));
    busy.extend(search.process.registers.iter().filter_map(|&value| object(value)));
    let mut waiting = Vec::new();
    for (ranges, threads) in [(search.process.stacks, false), (search.process.threads, true)] {
        for &(start, end) in ranges {
            for (from, to) in search.image.covered(start, end) {
                let mut at = from.next_multiple_of(8);
                let mut buffer = vec![0u8; PIECE];
                while at < to && !control.cancelled() {
                    let want = (to - at).min(PIECE as u64) as usize;
                    let got = search.image.read(at, &mut buffer[..want]);
                    for part in buffer[..got].chunks_exact(8) {
                        let value = u64::from_le_bytes(part.try_into().unwrap_or_default());
                        if let Some(at) = object(value) {
                            busy.insert(at);
                        }
                        if threads && value % 8 == 0 && search.blocks.at(value).is_some() {
                            waiting.push(value);
                        }
                    }
                    at = search.image.data_from(at + want as u64, to);
                }
            }
        }
    }
    // Objects that wait to be freed are linked by the second link of the collector (`trash_delete_later`).
    let mut steps = 0;
    for first in waiting {
        let mut at = first;
        while at >= 4096 && steps < MOST_WAITING && search.word(at, 0) == Some(0) {
            steps += 1;
            busy.insert(at);
            at = search.word(at.wrapping_sub(8), 0).unwrap_or(0) & !3;
        }
    }
    members.retain(|member| !busy.contains(&member.0));
}

/// 3.9 and 3.10: the last frame of each code object.
fn zombies(search: &mut Search<'_, '_>, members: &mut Vec<(u64, u64, u64)>) {
    let process = search.process;
    for slots in process.slots {
        for span in slots.spans.iter().filter(|span| span.slot >= ZOMBIE + 8) {
            for index in (0..span.count).filter(|&index| !slots.is_free(span, index)) {
                let Some(code) = search.given(span.start + u64::from(index) * span.slot) else { continue };
                let Some(frame) = search.word(code, ZOMBIE).filter(|&frame| frame != 0) else { continue };
                if search.word(frame, FRAME_CODE) != Some(code) {
                    continue;
                }
                let Some((_, kind)) = kept(search, frame).filter(|(_, kind)| kind.kind == Kind::Frame) else {
                    continue;
                };
                // Large frames lie in malloc's blocks.
                let block = search.blocks.at(frame).or_else(|| search.block(frame.checked_sub(LINKS)?));
                let sized = block.map(|block| block.1);
                let end = sized.or_else(|| search.size(frame, &kind).and_then(|size| frame.checked_add(size)));
                if let Some(end) = end {
                    members.push((frame, frame.saturating_add(LINK), end));
                }
            }
        }
    }
}
