//! Recognises text in one word. All its bytes are looked at at once.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Returns whether the word is text, and then whether the text goes on after it. At least three printable characters
/// must stand in a word before the NUL that ends it; one is enough where a text goes on. Bytes from 0x80 on may be UTF-8,
/// if ASCII stands beside them.
#[inline(always)]
pub(super) fn text(value: u64, width: usize, goes_on: bool) -> Option<bool> {
    let (ascii, other) = (printed(value), value & HIGH);
    // Most numbers fail here.
    if (ascii | other) & 0x80 == 0 {
        return None;
    }
    let zeros = zeros(value);
    let length = (zeros.trailing_zeros() as usize / 8).min(width);
    let within = if length == 8 { u64::MAX } else { (1 << (8 * length)) - 1 };
    let (ascii, other) = ((ascii & within).count_ones() as usize, (other & within).count_ones() as usize);
    let enough = if goes_on { 1 } else { 3 };
    if ascii + other != length || ascii < enough || other > ascii {
        return None;
    }
    // Behind the NUL a number has more bits; text that was copied there has none, or what was there before.
    let rest = value & !within & (u64::MAX >> (64 - 8 * width));
    (goes_on || rest == 0 || length >= 5).then_some(length == width)
}

/// Returns the top bit of each byte that is zero.
#[inline(always)]
fn zeros(value: u64) -> u64 {
    !(((value & !HIGH) + !HIGH) | value) & HIGH
}

/// Returns the top bit of each byte that is a printable ASCII character, a tab or the end of a line.
#[inline(always)]
fn printed(value: u64) -> u64 {
    let seven = value & !HIGH;
    // Each sum stays within its byte: 0x7f + 0x60 and 0x7f + 1.
    let (from_space, delete) = (seven + LOW * 0x60, seven + LOW);
    let others = zeros(value ^ (LOW * 9)) | zeros(value ^ (LOW * 10)) | zeros(value ^ (LOW * 13));
    ((from_space & !delete) | others) & !value & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::is_printed;

    fn word(text: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn text_is_told_from_numbers() {
        assert_eq!(text(word(b"user-123"), 8, false), Some(true));
        assert_eq!(text(word(b"user"), 8, false), Some(false));
        assert_eq!(text(word(b"ab"), 8, false), None);
        assert_eq!(text(word(b"b"), 8, true), Some(false));
        assert_eq!(text(word("Jürgen".as_bytes()), 8, false), Some(false));
        assert_eq!(text(0x1234_5678_9abc_def0, 8, false), None);
        assert_eq!(text(0x0000_0001_0041_4141, 8, false), None);
    }

    /// The rule, byte by byte.
    fn slow(value: u64, width: usize, goes_on: bool) -> Option<bool> {
        let bytes = &value.to_le_bytes()[..width];
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(width);
        let ascii = bytes[..length].iter().filter(|byte| is_printed(byte)).count();
        let other = bytes[..length].iter().filter(|&&byte| byte >= 0x80).count();
        if ascii + other != length || ascii < if goes_on { 1 } else { 3 } || other > ascii {
            return None;
        }
        let rest = bytes[length..].iter().any(|&byte| byte != 0);
        (goes_on || !rest || length >= 5).then_some(length == width)
    }

    #[test]
    fn eight_words_at_once_are_as_each_alone() {
        let choice = *b"\0\0\0\x01\x08\t\n\x0b\r\x1f  09AZaz~\x7f\x80\xc3\xbc\xff";
        let none = crate::hw::Stretches::<1>::new([(0, 0)]);
        let mut x = 88172645463325252u64;
        for round in 0..50_000 {
            let words: [u64; 8] = std::array::from_fn(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let printed = x.to_le_bytes().map(|byte| choice[byte as usize % choice.len()]);
                if round % 2 == 0 {
                    x
                } else {
                    u64::from_le_bytes(printed)
                }
            });
            let found = crate::hw::eight(&words, &none);
            for (i, &value) in words.iter().enumerate() {
                let is = |mask: u8| mask >> i & 1 != 0;
                let alone = text(value, 8, false);
                assert_eq!(is(found.special), alone.is_some() && value >> 32 == 0, "{value:#x}");
                assert_eq!(is(found.text), alone.is_some() && value >> 32 != 0, "{value:#x}");
                assert_eq!(is(found.full), alone == Some(true), "{value:#x}");
            }
        }
    }

    #[test]
    fn all_bytes_at_once_are_as_one_by_one() {
        let choice = *b"\0\0\x01\x08\t\n\x0b\r\x1f  09AZaz~\x7f\x80\xc3\xbc\xff";
        let mut x = 88172645463325252u64;
        for _ in 0..200_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let mut bytes = x.to_le_bytes();
            if x % 3 > 0 {
                bytes = bytes.map(|byte| choice[byte as usize % choice.len()]);
            }
            let value = u64::from_le_bytes(bytes);
            for goes_on in [false, true] {
                assert_eq!(text(value, 8, goes_on), slow(value, 8, goes_on), "{value:#x} {goes_on}");
                let half = value & 0xffff_ffff;
                assert_eq!(text(half, 4, goes_on), slow(half, 4, goes_on), "{half:#x} {goes_on}");
            }
        }
    }
}
