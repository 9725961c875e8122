//! Writes addresses as text, for walks of all pages.

use std::collections::TryReserveError;

/// "0x", at most 16 digits, and the end of the line.
const WIDEST: usize = 19;

/// The bytes of "00".."ff".
const PAIRS: [[u8; 2]; 256] = pairs();

const fn pairs() -> [[u8; 2]; 256] {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        pairs[i] = [digits[i >> 4], digits[i & 15]];
        i += 1;
    }
    pairs
}

/// Returns `count` addresses from `start` on, `step` apart, as lines `0x...`. With `numbers`, a byte for each, only those
/// whose byte is `wanted`.
pub fn hex_lines(
    start: u64,
    step: u64,
    count: usize,
    numbers: Option<&[u8]>,
    wanted: u8,
) -> Result<String, TryReserveError> {
    let count = numbers.map_or(count, |numbers| count.min(numbers.len()));
    let lines = numbers.map_or(count, |numbers| numbers[..count].iter().filter(|n| **n == wanted).count());
    let mut text = Vec::new();
    text.try_reserve_exact(lines.saturating_mul(WIDEST))?;
    let mut address = start;
    for index in 0..count {
        if numbers.is_none_or(|numbers| numbers[index] == wanted) {
            let mut line = *b"0x0000000000000000\n";
            for (place, byte) in line[2..18].chunks_exact_mut(2).zip(address.to_be_bytes()) {
                place.copy_from_slice(&PAIRS[byte as usize]);
            }
            let zeros = (address.leading_zeros() as usize / 4).min(15);
            if zeros == 0 {
                text.extend_from_slice(&line);
            } else {
                text.extend_from_slice(b"0x");
                text.extend_from_slice(&line[2 + zeros..]);
            }
        }
        address = address.wrapping_add(step);
    }
    // It is ASCII.
    Ok(String::from_utf8(text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_format_writes() {
        for start in [0, 1, 15, 16, 0xfff0, 0xff73_4a79_c000_0000, u64::MAX - 200] {
            let expected: String = (0..9u64).map(|i| format!("{:#x}\n", start.wrapping_add(i * 64))).collect();
            assert_eq!(hex_lines(start, 64, 9, None, 0).unwrap(), expected);
        }
    }

    #[test]
    fn only_those_wanted() {
        assert_eq!(hex_lines(0x1000, 0x40, 4, Some(&[7, 3, 7, 1]), 7).unwrap(), "0x1000\n0x1080\n");
        assert_eq!(hex_lines(0x1000, 0x40, 9, Some(&[7]), 7).unwrap(), "0x1000\n");
    }
}
