//! Which pages of memory a process has touched.
//!
//! A dump does not say it. Memory that was never written is a hole in a core that the kernel wrote, zeros in one that a
//! debugger wrote, and not in the dump where a whole mapping was never touched. So a page counts as touched if the dump has
//! it and it is not all zeros. A picture of a live process ([`crate::live`]) knows it: there, a page that is not a hole was
//! touched, zeros or not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use crate::blocks::model::{Heap, State};
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::words::grow_to;

/// Bytes of a page. Some machines have larger ones: what is said of their parts is said of them.
const PAGE: u64 = 4096;
/// Bytes that are read at once.
const AT_ONCE: u64 = 1 << 20;
/// Bytes of which a thread takes the pages at once.
const CHUNK: u64 = 64 << 20;
/// The first bytes of a page: most pages that are not zeros have something there.
const FIRST: usize = 64;
/// Blocks that are listed at once.
const BATCH: usize = 512;
const STATES: [State; 5] = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly, State::Own];

/// Ranges of addresses.
type Ranges = Vec<(u64, u64)>;

/// How a page that was never touched is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It is all zeros, or the dump does not have it.
    Zeros,
    /// It is a hole of the file, or the file does not have it.
    Hole,
}

/// The memory that was never touched.
#[derive(Debug, Default)]
pub struct Untouched {
    /// Its parts, sorted. None touches the next one.
    parts: Ranges,
    /// For each part, how many bytes the parts before it have.
    before: Vec<u64>,
}

impl Untouched {
    /// Looks at all pages of the ranges, with several threads.
    pub fn find(
        image: &Image,
        ranges: &[(u64, u64)],
        sign: Sign,
        threads: usize,
        control: &Control,
    ) -> Result<Untouched, Stopped> {
        let (chunks, absent) = chunks(image, ranges);
        let next = AtomicUsize::new(0);
        let found = Mutex::new(absent);
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, chunks.len().max(1)) {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    let mut buffer = Vec::new();
                    while let Some(&(start, end)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if control.cancelled() {
                            return;
                        }
                        each_part(image, (start, end), sign, &mut buffer, |from, to| own.push((from, to)));
                        control.add(end - start);
                    }
                    found.lock().unwrap_or_else(|error| error.into_inner()).append(&mut own);
                });
            }
        });
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        Ok(Untouched::of(found.into_inner().unwrap_or_else(|error| error.into_inner())))
    }

    fn of(mut found: Vec<(u64, u64)>) -> Untouched {
        found.sort_unstable();
        let mut parts: Vec<(u64, u64)> = Vec::with_capacity(found.len());
        for (start, end) in found {
            match parts.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => parts.push((start, end)),
            }
        }
        let before = parts
            .iter()
            .scan(0, |sum, (start, end)| {
                let before = *sum;
                *sum += end - start;
                Some(before)
            })
            .collect();
        Untouched { parts, before }
    }

    /// Returns how many bytes of `[start, end)` were never touched.
    pub fn within(&self, start: u64, end: u64) -> u64 {
        let below = |address: u64| {
            let index = self.parts.partition_point(|part| part.0 < address);
            let Some(last) = index.checked_sub(1) else { return 0 };
            let (from, to) = self.parts[last];
            self.before[last] + (address.min(to) - from)
        };
        below(end.max(start)) - below(start)
    }

    /// Returns how many bytes of the blocks in each state were never touched (in the order of [`State`]), and the blocks in
    /// use, leaked or not, with most such bytes: their addresses and these bytes.
    pub fn in_blocks(&self, heap: &dyn Heap, most: usize) -> ([u64; 5], Vec<(u64, u64)>) {
        let mut sums = [0; 5];
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        let mut part = 0;
        let mut from = 0; // blocks below it are counted
        while let Some(&(start, _)) = self.parts.get(part) {
            from = heap.find(start).map_or(start, |(block, ..)| block.address).max(from);
            let batch = heap.blocks(&STATES, from, BATCH);
            let Some((last, ..)) = batch.last() else { break };
            for (block, state, ..) in &batch {
                let bytes = self.within(block.address, block.address.saturating_add(block.size));
                sums[*state as usize] += bytes;
                if bytes > 0 && !matches!(state, State::Free | State::Own) {
                    blocks.push((block.address, bytes));
                }
            }
            from = last.address.saturating_add(1);
            // Blocks that no part reaches into are passed over.
            let end = last.address.saturating_add(last.size);
            part += self.parts[part..].partition_point(|&(_, to)| to <= end);
        }
        (sums, largest(blocks, most))
    }
}

fn largest(mut blocks: Vec<(u64, u64)>, most: usize) -> Vec<(u64, u64)> {
    blocks.sort_unstable_by_key(|&(address, bytes)| (std::cmp::Reverse(bytes), address));
    blocks.truncate(most);
    blocks
}

/// Returns what the image has of the ranges, in pieces, and the parts that it does not have. A dump may claim any size for
/// those.
fn chunks(image: &Image, ranges: &[(u64, u64)]) -> (Ranges, Ranges) {
    let (mut chunks, mut absent) = (Vec::new(), Vec::new());
    for &(start, end) in ranges {
        let mut reached = start;
        for (from, to) in image.covered(start, end) {
            if from > reached {
                absent.push((reached, from));
            }
            let mut at = from;
            while at < to {
                let next = (at - at % PAGE).saturating_add(CHUNK).min(to);
                chunks.push((at, next));
                at = next;
            }
            reached = to;
        }
        if end > reached {
            absent.push((reached, end));
        }
    }
    (chunks, absent)
}

/// Calls `found` with each part of the range that was never touched. The image has all of it.
fn each_part(
    image: &Image,
    (start, end): (u64, u64),
    sign: Sign,
    buffer: &mut Vec<u8>,
    mut found: impl FnMut(u64, u64),
) {
    let mut at = start;
    while at < end {
        let data = image.data_from(at, end);
        let data = if data < end { (data - data % PAGE).max(at) } else { end };
        if data > at {
            found(at, data);
            at = data;
            continue;
        }
        let next = match sign {
            Sign::Hole => image.hole_from(at, end).max(at + 1),
            Sign::Zeros => zeros(image, at, end, buffer, &mut found),
        };
        at = next.min(end);
    }
}

/// Reads a stretch of memory from `at` on, calls `found` with its pages of zeros, and returns where it ends.
fn zeros(image: &Image, at: u64, to: u64, buffer: &mut Vec<u8>, found: &mut impl FnMut(u64, u64)) -> u64 {
    // It ends with a page.
    let end = (at - at % PAGE).saturating_add(AT_ONCE).min(to);
    let want = (end - at) as usize;
    grow_to(buffer, want);
    let got = image.read(at, &mut buffer[..want]);
    let mut place = 0;
    while place < got {
        let next = got.min(place + (PAGE - (at + place as u64) % PAGE) as usize);
        if is_zero(&buffer[place..next]) {
            found(at + place as u64, at + next as u64);
        }
        place = next;
    }
    if got < want {
        found(at + got as u64, end);
    }
    end
}

fn is_zero(page: &[u8]) -> bool {
    let (first, rest) = page.split_at(page.len().min(FIRST));
    first.iter().all(|&byte| byte == 0)
        && rest.chunks(FIRST).all(|part| part.iter().fold(0, |or, &byte| or | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x10_0000;

    fn image(pages: &[u8]) -> Image {
        let data: Vec<u8> = pages.iter().flat_map(|&byte| std::iter::repeat_n(byte, PAGE as usize)).collect();
        let end = BASE + data.len() as u64;
        Image::new(&[], vec![Segment { start: BASE, end, source: Source::Bytes(data.into()) }]).unwrap()
    }

    fn untouched(image: &Image, ranges: &[(u64, u64)]) -> Untouched {
        Untouched::find(image, ranges, Sign::Zeros, 2, &Control::default()).unwrap()
    }

    #[test]
    fn pages_of_zeros_and_pages_that_are_not_there_are_untouched() {
        let image = image(&[1, 0, 0, 7, 0]);
        let found = untouched(&image, &[(BASE - PAGE, BASE + 6 * PAGE)]);
        let page = |n: u64| BASE + n * PAGE;
        assert_eq!(found.parts, [(BASE - PAGE, BASE), (page(1), page(3)), (page(4), page(6))]);
        assert_eq!(found.within(0, u64::MAX), 5 * PAGE);
        assert_eq!(found.within(page(1) + 16, page(2) + 32), PAGE + 16);
        assert_eq!(found.within(page(3), page(4)), 0);
        assert_eq!(found.within(page(4), page(3)), 0);
    }

    #[test]
    fn memory_of_any_size_that_is_not_there_costs_nothing() {
        let image = image(&[1]);
        let found = untouched(&image, &[(BASE, u64::MAX)]);
        assert_eq!(found.parts, [(BASE + PAGE, u64::MAX)]);
    }

    #[test]
    fn one_byte_at_the_end_of_a_page_is_seen() {
        let mut data = vec![0; 2 * PAGE as usize];
        data[PAGE as usize - 1] = 1;
        let source = Source::Bytes(data.into());
        let image = Image::new(&[], vec![Segment { start: BASE, end: BASE + 2 * PAGE, source }]).unwrap();
        assert_eq!(untouched(&image, &[(BASE, BASE + 2 * PAGE)]).parts, [(BASE + PAGE, BASE + 2 * PAGE)]);
    }

    #[test]
    fn ranges_may_begin_and_end_within_pages() {
        let image = image(&[0, 0, 3, 0]);
        let found = untouched(&image, &[(BASE + 100, BASE + PAGE + 50), (BASE + 3 * PAGE, BASE + 3 * PAGE + 9)]);
        assert_eq!(found.parts, [(BASE + 100, BASE + PAGE + 50), (BASE + 3 * PAGE, BASE + 3 * PAGE + 9)]);
    }
}
