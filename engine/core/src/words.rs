//! Words in memory, for all modules.

/// The end of the addresses that a process can use. Only the kernel's addresses lie above.
pub(crate) const USER_END: u64 = 1 << 63;

/// Makes a buffer at least `size` bytes long. A buffer that is reused grows to the largest size needed and stays there.
pub(crate) fn grow_to(buffer: &mut Vec<u8>, size: usize) {
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
}

/// Returns word number `index` of `bytes`.
#[inline(always)]
pub(crate) fn word<const P: usize>(bytes: &[u8], index: usize) -> u64 {
    word_at::<P>(bytes, index * (16 / P))
}

#[inline(always)]
pub(crate) fn word_at<const P: usize>(bytes: &[u8], offset: usize) -> u64 {
    if P == 2 {
        bytes[offset..offset + 8].try_into().map_or(0, u64::from_le_bytes)
    } else {
        bytes[offset..offset + 4].try_into().map_or(0, |b| u64::from(u32::from_le_bytes(b)))
    }
}

/// Returns whether a byte is a character of a text in ASCII, as it is printed.
#[inline(always)]
pub(crate) fn is_printed(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')
}
