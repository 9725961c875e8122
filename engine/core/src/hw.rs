//! What the CPU can do faster. All `unsafe` code of the engine is here, in `pages` and in `trace`.

mod pages;
pub mod trace;

use crate::words::is_printed;
pub use pages::{clear, huge_pages, table, HUGE};

/// Work for [`fast_work`].
pub trait Work {
    /// What it gives.
    type Out;
    /// Does it. It must be `#[inline(always)]`, and so must all that it calls in its loops. `FAST`: for this CPU's
    /// instructions. A closure in a function with this parameter exists once for each value. So it has one caller,
    /// and the compiler inlines it. A closure with two callers is compiled apart, for any CPU.
    fn run<const FAST: bool>(self) -> Self::Out;
}

struct Closure<F>(F);

impl<R, F: FnOnce() -> R> Work for Closure<F> {
    type Out = R;
    #[inline(always)]
    fn run<const FAST: bool>(self) -> R {
        (self.0)()
    }
}

/// Runs `work`, compiled for AVX2 and the bit-counting instructions where this CPU has them. Only code that is inlined
/// into `work` gets faster. The compiler may not inline a large closure: use [`fast_work`] for one.
#[inline]
pub fn fast<R>(work: impl FnOnce() -> R) -> R {
    fast_work(Closure(work))
}

/// Does the same for work that is inlined for certain.
#[inline]
pub fn fast_work<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("popcnt")
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn run<W: Work>(work: W) -> W::Out {
            work.run::<true>()
        }
        // SAFETY: the CPU has all of them.
        return unsafe { run(work) };
    }
    work.run::<false>()
}

/// Maps a part of a file for reading. If another process truncates the file meanwhile, an access kills this process
/// (SIGBUS). Debuggers that map debug information have the same risk.
pub fn map_file(file: &std::fs::File, offset: u64, size: u64) -> std::io::Result<memmap2::Mmap> {
    let size = usize::try_from(size).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
    // SAFETY: nobody of ours writes to the file. The caller has checked that the part lies in the file.
    unsafe { memmap2::MmapOptions::new().offset(offset).len(size).map(file) }
}

/// Gives back the memory of a mapping of [`map_file`]. A part that is read again comes from the file.
pub fn release(map: &memmap2::Mmap) {
    // SAFETY: it is a mapping for reading of a file to which nobody of ours writes: a page that comes back has the same bytes.
    let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
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
#[inline]
unsafe fn in_spans_64_avx2(bytes: &[u8; 512], spans: &Spans) -> u64 {
    use std::arch::x86_64::*;
    // AVX2 compares signed numbers, so the sign bit of both sides is flipped: of `lo`, which is subtracted, and of `len`.
    // For each span: value - lo < len, unsigned.
    let sign = _mm256_set1_epi64x(i64::MIN);
    let lo0 = _mm256_xor_si256(_mm256_set1_epi64x(spans.lo[0] as i64), sign);
    let lo1 = _mm256_xor_si256(_mm256_set1_epi64x(spans.lo[1] as i64), sign);
    let len0 = _mm256_xor_si256(_mm256_set1_epi64x(spans.len[0] as i64), sign);
    let len1 = _mm256_xor_si256(_mm256_set1_epi64x(spans.len[1] as i64), sign);
    let mut mask = 0u64;
    for i in 0..16 {
        // SAFETY: 16 loads of 32 bytes are the 512 bytes of the array.
        let value = _mm256_loadu_si256(bytes.as_ptr().add(i * 32).cast());
        let in0 = _mm256_cmpgt_epi64(len0, _mm256_sub_epi64(value, lo0));
        let in1 = _mm256_cmpgt_epi64(len1, _mm256_sub_epi64(value, lo1));
        let bits = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_or_si256(in0, in1)));
        mask |= (bits as u64) << (i * 4);
    }
    mask
}

/// Returns eight little-endian words of 8 bytes. Those from number `count` on are 0.
#[inline(always)]
pub fn first_words(bytes: &[u8; 64], count: usize) -> [u64; 8] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { first_words_avx2(bytes, count) };
    }
    first_words_plain(bytes, count)
}

fn first_words_plain(bytes: &[u8; 64], count: usize) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)).take(count) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn first_words_avx2(bytes: &[u8; 64], count: usize) -> [u64; 8] {
    use std::arch::x86_64::*;
    let mut words = [0; 8];
    let count = _mm256_set1_epi64x(count.min(8) as i64);
    for (half, numbers) in [_mm256_setr_epi64x(0, 1, 2, 3), _mm256_setr_epi64x(4, 5, 6, 7)].into_iter().enumerate() {
        // SAFETY: two loads and two stores of 32 bytes are the 64 bytes of each array.
        let value = _mm256_loadu_si256(bytes.as_ptr().add(half * 32).cast());
        let kept = _mm256_and_si256(value, _mm256_cmpgt_epi64(count, numbers));
        _mm256_storeu_si256(words.as_mut_ptr().add(half * 4).cast(), kept);
    }
    words
}

/// Stretches of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Stretches<const N: usize> {
    start: [u64; N],
    /// The lengths, with the sign bit flipped: AVX2 compares signed numbers.
    flipped: [u64; N],
}

impl<const N: usize> Stretches<N> {
    /// A stretch is (start, length).
    pub fn new(stretches: [(u64, u64); N]) -> Self {
        Stretches { start: stretches.map(|s| s.0), flipped: stretches.map(|s| s.1 ^ 1 << 63) }
    }

    /// Returns whether the value lies in one of them.
    #[inline(always)]
    pub fn contain(&self, value: u64) -> bool {
        let inside = |(&start, &flipped): (&u64, &u64)| value.wrapping_sub(start) < flipped ^ 1 << 63;
        self.start.iter().zip(&self.flipped).any(inside)
    }
}

/// What eight words of 8 bytes are: bit i of each mask stands for word i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eight {
    /// Which words are 0.
    pub zero: u8,
    /// Which words are from 65,536 on.
    pub large: u8,
    /// Which words lie in one of the stretches, or are text below 2^32.
    pub special: u8,
    /// Which others are text: the rules are those of `contents::text`.
    pub text: u8,
    /// Which words have eight letters, and are text. It may go on in the next word.
    pub full: u8,
}

/// Looks at eight words at once.
#[inline(always)]
pub fn eight<const N: usize>(words: &[u64; 8], stretches: &Stretches<N>) -> Eight {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { eight_avx2(words, stretches) };
    }
    eight_plain(words, stretches)
}

fn eight_plain<const N: usize>(words: &[u64; 8], stretches: &Stretches<N>) -> Eight {
    let mut found = Eight::default();
    for (i, &value) in words.iter().enumerate() {
        let length = text_length(value);
        let special = stretches.contain(value) || (length > 0 && value >> 32 == 0);
        found.zero |= u8::from(value == 0) << i;
        found.large |= u8::from(value >> 16 != 0) << i;
        found.special |= u8::from(special) << i;
        found.text |= u8::from(length > 0 && !special) << i;
        found.full |= u8::from(length == 8) << i;
    }
    found
}

/// Returns how many letters of text the word begins with; 0 where it is no text.
fn text_length(value: u64) -> usize {
    let bytes = value.to_le_bytes();
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(8);
    let ascii = bytes[..length].iter().filter(|byte| is_printed(byte)).count();
    let other = bytes[..length].iter().filter(|&&byte| byte >= 0x80).count();
    let ends = length >= 5 || bytes[length..].iter().all(|&byte| byte == 0);
    if ascii + other == length && ascii >= 3 && other <= ascii && ends {
        length
    } else {
        0
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn eight_avx2<const N: usize>(words: &[u64; 8], stretches: &Stretches<N>) -> Eight {
    use std::arch::x86_64::*;
    let none = _mm256_setzero_si256();
    let sign = _mm256_set1_epi64x(i64::MIN);
    let tops = _mm256_set1_epi8(i8::MIN);
    // For each low half of a byte: the control character that ends so and is text. -1 stands for no character.
    #[rustfmt::skip]
    let controls = _mm256_setr_epi8(
        -1, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1,
        -1, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, -1, -1, 13, -1, -1,
    );
    // The letters of a word are counted in steps of 128.
    let letters = |count: i64| _mm256_set1_epi64x(count * 128);
    let mut found = Eight::default();
    for half in 0..2 {
        // SAFETY: two loads of 32 bytes are the 64 bytes of the array.
        let value = _mm256_loadu_si256(words.as_ptr().add(half * 4).cast());
        let zero = _mm256_cmpeq_epi64(value, none);
        // Bytes from 0x80 on are negative, and begin no letter of ASCII.
        let above = _mm256_cmpgt_epi8(value, _mm256_set1_epi8(0x1f));
        let shown = _mm256_andnot_si256(_mm256_cmpeq_epi8(value, _mm256_set1_epi8(0x7f)), above);
        let control = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(controls, value), value);
        let ascii = _mm256_or_si256(shown, control);
        // The top bits of the bytes before the first NUL; all of them where no byte is NUL.
        let nul = _mm256_and_si256(_mm256_cmpeq_epi8(value, none), tops);
        let below = _mm256_sub_epi64(_mm256_and_si256(nul, _mm256_sub_epi64(none, nul)), _mm256_set1_epi64x(1));
        let before = _mm256_and_si256(below, tops);
        let unknown = _mm256_andnot_si256(_mm256_or_si256(ascii, value), before);
        let ascii = _mm256_sad_epu8(_mm256_and_si256(ascii, before), none);
        let all = _mm256_sad_epu8(before, none);
        let rest = _mm256_andnot_si256(below, value);
        let enough = _mm256_and_si256(
            _mm256_cmpgt_epi64(ascii, letters(2)),
            // At least half of them are ASCII.
            _mm256_cmpgt_epi64(_mm256_add_epi64(_mm256_add_epi64(ascii, ascii), letters(1)), all),
        );
        let ends = _mm256_or_si256(_mm256_cmpeq_epi64(rest, none), _mm256_cmpgt_epi64(all, letters(4)));
        let text = _mm256_and_si256(_mm256_and_si256(enough, ends), _mm256_cmpeq_epi64(unknown, none));
        let full = _mm256_and_si256(text, _mm256_cmpeq_epi64(all, letters(8)));
        let low = _mm256_cmpeq_epi64(_mm256_srli_epi64(value, 32), none);
        let mut special = _mm256_and_si256(text, low);
        // Both sides with the sign bit flipped: value - start < length, unsigned.
        let flipped = _mm256_xor_si256(value, sign);
        for i in 0..N {
            let offset = _mm256_sub_epi64(flipped, _mm256_set1_epi64x(stretches.start[i] as i64));
            let inside = _mm256_cmpgt_epi64(_mm256_set1_epi64x(stretches.flipped[i] as i64), offset);
            special = _mm256_or_si256(special, inside);
        }
        let bits = |mask: __m256i| (_mm256_movemask_pd(_mm256_castsi256_pd(mask)) as u8) << (half * 4);
        found.zero |= bits(zero);
        found.large |= bits(_mm256_cmpeq_epi64(_mm256_srli_epi64(value, 16), none)) ^ 0xf << (half * 4);
        found.special |= bits(special);
        found.text |= bits(_mm256_andnot_si256(special, text));
        found.full |= bits(full);
    }
    found
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
    fn eight_words_at_once_are_as_one_by_one() {
        let places = [(0x40_0000u64, 0x1000), (0x7fff_0000_0000, u64::MAX / 4), (0, 0)];
        let stretches = Stretches::new(places);
        let choice = *b"\0\0\x01\x08\t\x0f\x10\x1f  09AZaz~\x7f\x80\xc3\xff";
        let mut x = 88172645463325252u64;
        for _ in 0..20_000 {
            let words: [u64; 8] = std::array::from_fn(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                match x % 5 {
                    0 => places[(x >> 8) as usize % 2].0.wrapping_add(x >> 16 & 0x1fff).wrapping_sub(0x800),
                    1 => x >> (x & 63),
                    2 => 0,
                    _ => u64::from_le_bytes(x.to_le_bytes().map(|byte| choice[byte as usize % choice.len()])),
                }
            });
            assert_eq!(eight(&words, &stretches), eight_plain(&words, &stretches), "{words:x?}");
        }
    }

    #[test]
    fn the_first_words_are_as_one_by_one() {
        let bytes: [u8; 64] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        for count in 0..=9 {
            let words = first_words_plain(&bytes, count);
            assert_eq!(first_words(&bytes, count), words);
            assert!(words.iter().enumerate().all(|(i, &word)| (word != 0) == (i < count)));
        }
    }

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
