//! What the CPU can do faster. All `unsafe` code of the engine is here.

/// Runs `work`, compiled for AVX2 and the bit-counting instructions where this CPU has them. Only code that is inlined
/// into `work` gets faster.
#[inline]
pub fn fast<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("popcnt")
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: the CPU has all of them.
        return unsafe { run(work) };
    }
    work()
}

/// Asks for huge pages behind a large slice that has not been touched yet. A table that is read at random otherwise
/// misses the TLB each time. This is a hint: no result depends on it.
pub fn huge_pages<T>(slice: &[T]) {
    const HUGE: usize = 2 << 20;
    let start = (slice.as_ptr() as usize).next_multiple_of(HUGE);
    let end = (slice.as_ptr() as usize + std::mem::size_of_val(slice)) / HUGE * HUGE;
    if start < end {
        // SAFETY: whole pages within the slice, which stays as it is whatever the kernel does.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Maps a part of a file for reading. If another process truncates the file meanwhile, an access kills this process
/// (SIGBUS). Debuggers that map debug information have the same risk.
pub fn map_file(file: &std::fs::File, offset: u64, size: u64) -> std::io::Result<memmap2::Mmap> {
    let size = usize::try_from(size).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    // SAFETY: nobody of ours writes to the file. The caller has checked that the part lies in the file.
    unsafe { memmap2::MmapOptions::new().offset(offset).len(size).map(file) }
}

/// Up to two spans `[lo, lo + len)` of pointer values. A span that is not used has `len` 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spans {
    /// Where each span begins.
    pub lo: [u64; 2],
    /// The length of each span.
    pub len: [u64; 2],
}

impl Spans {
    /// Returns whether the value lies in one of the spans.
    #[inline(always)]
    pub fn contains(&self, value: u64) -> bool {
        value.wrapping_sub(self.lo[0]) < self.len[0] || value.wrapping_sub(self.lo[1]) < self.len[1]
    }
}

/// Returns which of the 64 little-endian words of 8 bytes in `bytes` lie in the spans: bit i stands for word i.
#[inline]
pub fn in_spans_64(bytes: &[u8; 512], spans: &Spans) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { in_spans_64_avx2(bytes, spans) };
    }
    in_spans_64_plain(bytes, spans)
}

fn in_spans_64_plain(bytes: &[u8; 512], spans: &Spans) -> u64 {
    let mut mask = 0;
    for (i, word) in bytes.chunks_exact(8).enumerate() {
        let value = u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        mask |= u64::from(spans.contains(value)) << i;
    }
    mask
}

/// Returns which of the 64 words of 4 bytes in `bytes` lie in the spans: bit i stands for word i.
pub fn in_spans_32(bytes: &[u8; 256], spans: &Spans) -> u64 {
    let mut mask = 0;
    for (i, word) in bytes.chunks_exact(4).enumerate() {
        let value = u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        mask |= u64::from(spans.contains(value)) << i;
    }
    mask
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn in_spans_64_avx2(bytes: &[u8; 512], spans: &Spans) -> u64 {
    use std::arch::x86_64::*;
    // AVX2 compares signed numbers, so the sign bit of both sides is flipped. For each span: value - lo < len, unsigned.
    let sign = _mm256_set1_epi64x(i64::MIN);
    let lo0 = _mm256_set1_epi64x(spans.lo[0] as i64);
    let lo1 = _mm256_set1_epi64x(spans.lo[1] as i64);
    let len0 = _mm256_xor_si256(_mm256_set1_epi64x(spans.len[0] as i64), sign);
    let len1 = _mm256_xor_si256(_mm256_set1_epi64x(spans.len[1] as i64), sign);
    let mut mask = 0u64;
    for i in 0..16 {
        // SAFETY: 16 loads of 32 bytes are the 512 bytes of the array.
        let value = _mm256_loadu_si256(bytes.as_ptr().add(i * 32).cast());
        let in0 = _mm256_cmpgt_epi64(len0, _mm256_xor_si256(_mm256_sub_epi64(value, lo0), sign));
        let in1 = _mm256_cmpgt_epi64(len1, _mm256_xor_si256(_mm256_sub_epi64(value, lo1), sign));
        let bits = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_or_si256(in0, in1)));
        mask |= (bits as u64) << (i * 4);
    }
    mask
}

/// Asks the CPU to load `slice[index]` into its cache. Does nothing where there is no such element.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        // SAFETY: a hint on a valid address.
        unsafe { std::arch::x86_64::_mm_prefetch((element as *const T).cast(), std::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_test_agrees_with_the_plain_one() {
        let spans = Spans { lo: [0x5555_0000_0000, 0x7fff_0000_0000], len: [0x1000, u64::MAX / 2 + 17] };
        let mut bytes = [0u8; 512];
        let mut x = 88172645463325252u64;
        for round in 0..2000u64 {
            for word in bytes.chunks_exact_mut(8) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let value = match x % 5 {
                    0 => spans.lo[0].wrapping_add(x % 0x1002).wrapping_sub(1),
                    1 => spans.lo[1].wrapping_add(spans.len[1]).wrapping_add(x % 4).wrapping_sub(2),
                    2 => spans.lo[1].wrapping_sub(x % 3),
                    3 => round % 3,
                    _ => x,
                };
                word.copy_from_slice(&value.to_le_bytes());
            }
            assert_eq!(in_spans_64(&bytes, &spans), in_spans_64_plain(&bytes, &spans));
        }
    }
}
