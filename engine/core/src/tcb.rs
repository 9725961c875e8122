//! Thread control blocks, found by their shape.

use crate::image::Image;

const BUFFER: usize = 1 << 20;

/// The words of a TCB that point to itself: `tcb` and `self` of glibc's `tcbhead_t` (sysdeps/x86_64/nptl/tls.h).
const SELF: u64 = 16;

/// The 16-aligned addresses `a` in the ranges where the 64-bit words at `a` and `a + 16` both are `a`, at most `limit`.
///
/// `stop` is asked now and then; when it says so, what was found so far is returned.
pub fn find_self_pointers(
    image: &Image,
    ranges: &[(u64, u64)],
    limit: usize,
    mut stop: impl FnMut() -> bool,
) -> Vec<u64> {
    let mut found = Vec::new();
    let mut buffer = vec![0u8; BUFFER];
    for &(start, end) in ranges {
        for (from, to) in image.covered(start, end) {
            let mut at = match from.checked_add(15) {
                Some(at) => at & !15,
                None => continue,
            };
            while at < to && found.len() < limit && !stop() {
                let want = BUFFER.min((to - at) as usize);
                let n = image.read(at, &mut buffer[..want]) & !15;
                candidates(&buffer[..n], at, |a| {
                    if found.len() < limit && image.word(a.saturating_add(SELF), 8) == Some(a) {
                        found.push(a);
                    }
                });
                // A hole that a truncated file leaves ends the piece.
                if n == 0 {
                    break;
                }
                at += n as u64;
            }
        }
    }
    found
}

/// Calls `report` for every 16-byte unit that begins with its own address. Written so that the compiler makes vector code of
/// the test that nearly always fails.
fn candidates(bytes: &[u8], address: u64, mut report: impl FnMut(u64)) {
    const UNITS: usize = 16;
    for (block, chunk) in bytes.chunks(UNITS * 16).enumerate() {
        let base = address + (block * UNITS * 16) as u64;
        let mut hit = false;
        for (unit, word) in chunk.chunks_exact(16).enumerate() {
            let value = u64::from_le_bytes(word[..8].try_into().unwrap_or_default());
            hit |= value == base + (unit * 16) as u64;
        }
        if hit {
            for (unit, word) in chunk.chunks_exact(16).enumerate() {
                let value = u64::from_le_bytes(word[..8].try_into().unwrap_or_default());
                if value == base + (unit * 16) as u64 {
                    report(value);
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
        let segment = Segment { start, end: start + size as u64, source: Source::Bytes(data.into()) };
        let image = Image::new(&[], vec![segment]).unwrap();
        let expected: Vec<u64> = known.iter().map(|&at| start + at as u64).collect();
        assert_eq!(find_self_pointers(&image, &[(0, u64::MAX)], 100, || false), expected);
        assert_eq!(find_self_pointers(&image, &[(0, u64::MAX)], 2, || false).len(), 2);
        assert!(find_self_pointers(&image, &[(0, u64::MAX)], 100, || true).is_empty());
    }
}
