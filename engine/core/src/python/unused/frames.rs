//! What frames do not use: the places of the value stack above its top, and numbers between pointers.
//!
//! The value stack is not cleared when a frame is made, and what was popped stays. While a frame runs, CPython keeps the
//! top in a register. Then nothing is known, and all places count.

use super::search::Search;
use crate::python::sizes::{Places, Reader};
use crate::python::types::Type;

/// `PyFrameObject.f_code` (3.9, 3.10), `f_valuestack`, and what follows it: `f_stacktop` in 3.9, `f_stackdepth` in 3.10.
const CODE: u64 = 32;
const STACK: u64 = 64;
const TOP_39: u64 = 72;
const DEPTH_310: u64 = 80;
/// `PyCodeObject.co_stacksize` (3.9, 3.10).
const STACK_SIZE: u64 = 32;
/// `PyTryBlock f_blockstack[CO_MAXBLOCKS]`, and before it `f_lasti`, `f_lineno`, `f_iblock` and a byte.
const TRY_BLOCKS: u64 = 20 * 12;
const NUMBERS: u64 = 16;
/// `PyGenObject.gi_running` (3.9): one byte, and 7 that nobody writes.
const RUNNING: u64 = 24;
/// `PyFrameObject.f_frame` (3.11 and later).
const FRAME: u64 = 24;

/// Adds what a frame does not use. `inside` are its bytes, and `end` is where its block ends.
pub(super) fn of_frame(search: &mut Search<'_, '_>, at: u64, known: &Type, inside: u64, end: u64) {
    if search.process.release.minor >= 11 {
        return of_owner(search, at, known, at.saturating_add(inside), end);
    }
    if known.basic != if search.process.release.minor <= 9 { 368 } else { 360 } {
        return;
    }
    // f_localsplus has place for one item in the structure.
    let locals = at.saturating_add(known.basic.saturating_sub(8));
    search.add(locals.saturating_sub(TRY_BLOCKS + NUMBERS).max(at), locals);
    // `f_trace_lines` and `f_trace_opcodes` are bytes.
    let bytes = at + if search.process.release.minor <= 9 { 88 } else { DEPTH_310 };
    search.add(bytes, bytes + 8);
    let (Some(code), Some(stack)) = (search.word(at, CODE), search.word(at, STACK)) else { return };
    let Some(size) = search.words.word(code.saturating_add(STACK_SIZE), 4) else { return };
    let last = stack.saturating_add(size * 8);
    if !search.is_code(code) || stack % 8 != 0 || stack < locals || last > at.saturating_add(inside) {
        return;
    }
    // A frame may have more places than its code needs: it was made for another code.
    let top = match search.process.release.minor {
        ..=9 => search.word(at, TOP_39).filter(|&top| top != 0),
        _ => {
            let depth = search.words.word(at.saturating_add(DEPTH_310), 4);
            depth.filter(|&depth| depth <= size).map(|depth| stack.saturating_add(depth * 8))
        }
    };
    let used = top.filter(|top| top % 8 == 0 && (stack..=last).contains(top)).unwrap_or(last);
    search.add(used, end);
}

/// 3.11 and later: a frame object that outlives its call has the frame behind it. Before, nothing is there.
fn of_owner(search: &mut Search<'_, '_>, at: u64, known: &Type, behind: u64, end: u64) {
    let release = search.process.release;
    let Some(own) = known.basic.checked_sub(release.locals()).and_then(|offset| at.checked_add(offset)) else { return };
    match search.word(at, FRAME) {
        Some(frame) if frame == own => {
            search.add(behind, end);
            above_top(search, own);
        }
        Some(frame) if frame != 0 => search.add(own, end),
        _ => {}
    }
}

/// Adds what the frame in a generator or a coroutine does not use (3.11 and later). `behind` is where the object ends,
/// `end` where its block does.
pub(super) fn of_generator(search: &mut Search<'_, '_>, at: u64, known: &Type, behind: u64, end: u64) {
    let release = search.process.release;
    if release.minor == 9 {
        search.add(at + RUNNING, at + RUNNING + 8);
    }
    let offset = known.basic.checked_sub(release.locals()).filter(|_| release.minor >= 11);
    let Some(frame) = offset.and_then(|offset| at.checked_add(offset)) else { return };
    search.add(behind, end);
    // `gi_frame_state` stands before `gi_iframe`. It and other bytes make a word.
    let Some(flags) = search.word(frame.saturating_sub(8), 0) else { return };
    search.add(frame - 8, frame);
    if release.waits((flags >> 24) as u8) {
        above_top(search, frame);
    }
}

/// Adds the places above the top of the value stack of a `_PyInterpreterFrame`.
///
/// A top below the end of the locals is that of a frame which is being cleared.
fn above_top(search: &mut Search<'_, '_>, frame: u64) {
    let release = search.process.release;
    let mut reader = Reader { words: &mut search.words, release };
    let Some(Places { locals, stack }) = reader.places(frame) else { return };
    let start = frame.saturating_add(release.locals());
    let last = start.saturating_add((locals + stack) * 8);
    let top = if release.minor >= 14 {
        search.word(frame, 64)
    } else {
        search.words.word(frame.saturating_add(64), 4).map(|top| start.saturating_add(top * 8))
    };
    let least = start.saturating_add(locals * 8);
    if let Some(top) = top.filter(|top| top % 8 == 0 && *top > start && (least..=last).contains(top)) {
        search.add(top, last);
    }
}
