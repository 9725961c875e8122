//! Reads tables of words of which most are zero.

use crate::image::Image;
use crate::words::grow_to;
use crate::words::USER_END;

/// Calls `each(address, word)` for every aligned word of the range that is not zero, until it returns false. Reads
/// `block` bytes at once. Returns how many bytes were read.
pub(crate) fn each_word(
    image: &Image,
    start: u64,
    end: u64,
    block: usize,
    mut each: impl FnMut(u64, u64) -> bool,
) -> u64 {
    let mut buffer = Vec::new();
    let mut read = 0;
    for (from, to) in image.covered(start, end.min(USER_END)) {
        let mut at = image.data_from(from.next_multiple_of(8), to).next_multiple_of(8);
        while at < to {
            let want = (to - at).min(block as u64) as usize;
            grow_to(&mut buffer, want);
            let got = image.read(at, &mut buffer[..want]) / 8 * 8;
            read += want as u64;
            for (i, part) in buffer[..got].chunks_exact(8).enumerate() {
                let word = part.try_into().map_or(0, u64::from_le_bytes);
                if word != 0 && !each(at + i as u64 * 8, word) {
                    return read;
                }
            }
            at = image.data_from(at + want as u64, to).next_multiple_of(8);
        }
    }
    read
}
