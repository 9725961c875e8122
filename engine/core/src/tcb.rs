//! Finds thread control blocks by their shape.

use crate::image::Image;
use crate::words::grow_to;

const BUFFER: usize = 1 << 16; // stacks are mostly holes, and a piece of the file is read up to its end

/// The largest distance from the start of glibc's struct pthread to the TCB at its end (TLS variant I).
const PTHREAD_MAX: usize = 0xc00;
const PAGE: u64 = 4096;
const STACK_MIN: u64 = 16384;
/// Modules with thread-local variables.
const MOST_MODULES: u64 = 1 << 12;
/// Words that lead to themselves and may begin a `struct pthread` of musl.
const MOST_TRIED: u32 = 1 << 20;

/// Returns the addresses in the ranges that look like a thread control block of x86, at most `limit`.
///
/// glibc's `tcbhead_t` (sysdeps/x86_64/nptl/tls.h, sysdeps/i386/nptl/tls.h) is aligned to 16 bytes; its first and its third
/// word, `tcb` and `self`, lead to itself. musl's `struct pthread` (src/internal/pthread_impl.h) is aligned to a word. It
/// has `self`, the dtv, and the previous and the next thread, which begin with their own address as well.
///
/// Calls `stop` now and then. When it returns true, the addresses found so far are returned.
pub fn find_self_pointers(
    image: &Image,
    ranges: &[(u64, u64)],
    word: usize,
    limit: usize,
    stop: impl FnMut() -> bool,
) -> Vec<u64> {
    let mut tried = 0;
    search(image, ranges, limit, stop, |bytes, at, report| {
        candidates(bytes, at, word, |a| {
            let after = (a - at) as usize + word;
            let near = bytes.get(after..after + 3 * word).map(|three| {
                let mut parts = three.chunks_exact(word).map(number);
                std::array::from_fn(|_| parts.next().unwrap_or_default())
            });
            let words = near.or_else(|| image.words(a.saturating_add(word as u64), word as u64));
            let Some([dtv, previous, next]) = words else { return };
            let glibc = a % 16 == 0 && previous == a;
            let likely = !glibc && dtv != a && [dtv, previous, next].iter().all(|&at| at != 0 && at % word as u64 == 0);
            tried += u32::from(likely);
            let itself = |other: u64| image.word(other, word) == Some(other);
            let musl = likely && tried <= MOST_TRIED && {
                let modules = image.word(dtv, word);
                modules.is_some_and(|count| count <= MOST_MODULES) && itself(previous) && itself(next)
            };
            if glibc || musl {
                report(a);
            }
        });
    })
}

/// Returns the 16-aligned addresses in the ranges that look like a 64-bit `tcbhead_t` of AArch64, at most `limit`. Such a
/// place has a pointer to a dtv, then a word that is 0. Below it lies a struct pthread that describes the stack around
/// it.
pub fn find_dtv_pointers(image: &Image, ranges: &[(u64, u64)], limit: usize, stop: impl FnMut() -> bool) -> Vec<u64> {
    search(image, ranges, limit, stop, |bytes, at, report| {
        for (unit, pair) in bytes.chunks_exact(16).enumerate() {
            let dtv = u64::from_le_bytes(pair[..8].try_into().unwrap_or_default());
            if dtv != 0 && dtv % 8 == 0 && pair[8..] == [0; 8] {
                let tcb = at + (unit * 16) as u64;
                if is_dtv(image, dtv) && knows_its_stack(image, tcb) {
                    report(tcb);
                }
            }
        }
    })
}

/// Returns whether a dtv begins at `dtv`. The number of modules that it has room for precedes it; its first word is the
/// generation (elf/dl-tls.c, allocate_dtv).
fn is_dtv(image: &Image, dtv: u64) -> bool {
    let room = dtv.checked_sub(16).and_then(|at| image.word(at, 8));
    room.is_some_and(|room| 0 < room && room < 1 << 20)
        && image.word(dtv, 8).is_some_and(|generation| generation < 1 << 32)
}

/// Returns whether the struct pthread below `tcb` describes a stack that holds it. Its fields `stackblock`,
/// `stackblock_size` and `guardsize` stand together.
fn knows_its_stack(image: &Image, tcb: u64) -> bool {
    let Some(start) = tcb.checked_sub(PTHREAD_MAX as u64) else { return false };
    let mut content = [0u8; PTHREAD_MAX];
    // The stack may be shorter than the largest struct pthread, so it may begin within the bytes that are read.
    let from = image.next(start).map_or(PTHREAD_MAX, |first| (first - start).min(PTHREAD_MAX as u64) as usize);
    let got = image.read(start + from as u64, &mut content[from..]);
    let words: Vec<u64> = content[from..from + got]
        .chunks_exact(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default()))
        .collect();
    words.windows(3).any(|w| {
        let (block, size, guard) = (w[0], w[1], w[2]);
        block % PAGE == 0
            && size % PAGE == 0
            && size >= STACK_MIN
            && guard < size
            && block <= tcb
            && block.checked_add(size).is_some_and(|end| tcb < end)
    })
}

/// Reads the ranges piece by piece, from 16-aligned addresses on. `look` reports what it finds in each piece.
fn search(
    image: &Image,
    ranges: &[(u64, u64)],
    limit: usize,
    mut stop: impl FnMut() -> bool,
    mut look: impl FnMut(&[u8], u64, &mut dyn FnMut(u64)),
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut buffer = Vec::new();
    for &(start, end) in ranges {
        for (from, to) in image.covered(start, end) {
            let mut at = match from.checked_add(15) {
                Some(at) => at & !15,
                None => continue,
            };
            while at < to && found.len() < limit && !stop() {
                let want = BUFFER.min((to - at) as usize);
                grow_to(&mut buffer, want);
                let n = image.read(at, &mut buffer[..want]) & !15;
                look(&buffer[..n], at, &mut |a| {
                    if found.len() < limit {
                        found.push(a);
                    }
                });
                // The file is truncated: the rest of the piece is not there.
                if n == 0 {
                    break;
                }
                // Skip the holes of a sparse file.
                at += (n as u64).max(image.data_from(at + n as u64, to).saturating_sub(at) & !0xfff);
            }
        }
    }
    found
}

/// Calls `report` for every word that is its own address. The outer test nearly always fails. It is written so that the
/// compiler vectorizes it.
fn candidates(bytes: &[u8], address: u64, word: usize, report: impl FnMut(u64)) {
    match word {
        4 => candidates_of::<4>(bytes, address, report),
        _ => candidates_of::<8>(bytes, address, report),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn candidates_of<const WORD: usize>(bytes: &[u8], address: u64, mut report: impl FnMut(u64)) {
    const BLOCK: usize = 256;
    let value = |part: &[u8]| match WORD {
        4 => u64::from(u32::from_le_bytes(part.try_into().unwrap_or_default())),
        _ => u64::from_le_bytes(part.try_into().unwrap_or_default()),
    };
    for (block, chunk) in bytes.chunks(BLOCK).enumerate() {
        let base = address + (block * BLOCK) as u64;
        let mut hit = false;
        for (index, part) in chunk.chunks_exact(WORD).enumerate() {
            hit |= value(part) == base + (index * WORD) as u64;
        }
        if hit {
            for (index, part) in chunk.chunks_exact(WORD).enumerate() {
                let here = base + (index * WORD) as u64;
                if value(part) == here {
                    report(here);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    #[test]
    fn finds_what_points_to_itself_twice_wherever_it_lies() {
        let start = 0x7f00_0000_0000u64;
        let size = 3 * BUFFER + 4096;
        let mut data = vec![0u8; size];
        let mut put = |at: usize, value: u64| data[at..at + 8].copy_from_slice(&value.to_le_bytes());
        // At the start, across the end of a buffer, near the end; once only in the first word; once not aligned.
        let known = [0, BUFFER - 16, 2 * BUFFER + 48, size - 32];
        for at in known {
            put(at, start + at as u64);
            put(at + 16, start + at as u64);
        }
        put(256, start + 256);
        put(520, start + 520);
        put(536, start + 520);
        // Two threads of musl, which need no alignment, and a list of empty lists.
        for (at, other) in [(1032, 1288), (1288, 1032)] {
            for (word, value) in [at, 1600, other, other].into_iter().enumerate() {
                put(at + 8 * word, start + value as u64);
            }
        }
        put(1600, 1);
        for at in (2048..4096).step_by(16) {
            put(at, start + at as u64);
            put(at + 8, start + at as u64);
        }
        let segment = Segment { start, end: start + size as u64, source: Source::Bytes(data.into()) };
        let image = Image::new(&[], vec![segment]).unwrap();
        let expected: Vec<u64> =
            [&known[..1], &[1032, 1288], &known[1..]].concat().iter().map(|&at| start + at as u64).collect();
        assert_eq!(find_self_pointers(&image, &[(0, u64::MAX)], 8, 100, || false), expected);
        assert_eq!(find_self_pointers(&image, &[(0, u64::MAX)], 8, 2, || false).len(), 2);
        assert!(find_self_pointers(&image, &[(0, u64::MAX)], 8, 100, || true).is_empty());
    }

    #[test]
    fn finds_a_tcb_that_leads_to_a_dtv_above_what_knows_its_stack() {
        let (stack, size, tcb) = (0x7f00_0000_0000u64, 0x8000u64, 0x7000usize);
        let mut data = vec![0u8; size as usize];
        let mut put = |at: usize, value: u64| data[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(tcb, stack + 0x110);
        put(0x100, 14); // the dtv: room for so many modules, then the generation
        put(0x110, 1);
        let known = |data: &[u8]| {
            let segment = Segment { start: stack, end: stack + size, source: Source::Bytes(data.to_vec().into()) };
            find_dtv_pointers(&Image::new(&[], vec![segment]).unwrap(), &[(0, u64::MAX)], 9, || false)
        };
        assert!(known(&data).is_empty());
        for (at, value) in [(0x100, stack), (0xf8, size), (0xf0, 0x1000)] {
            data[tcb - at..tcb - at + 8].copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(known(&data), [stack + tcb as u64]);
    }
}
