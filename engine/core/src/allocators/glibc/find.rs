//! Finds glibc's structures by their shape, without symbols and without a table of releases.

use crate::blocks::runs::GRANULE;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::search::{each_block, little, userland};

const PREV_INUSE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// `NBINS - 1` pairs of links in `malloc_state.bins` (malloc.c, unchanged since ptmalloc2).
const BIN_PAIRS: u64 = 127;
/// The most that a crafted dump can make this module collect.
const MOST: usize = 1 << 20;

/// Returns the places where `malloc_state.bins` may begin. Both links of an empty bin hold the address of the bin seen as
/// a chunk, two words before the links. Even a busy arena has dozens of empty bins, and the last bin is always empty.
pub fn bins(image: &Image, ranges: &[(u64, u64)], word: u64, control: &Control) -> Result<Vec<u64>, Stopped> {
    let mut pairs: Vec<u64> = Vec::new();
    each_block(image, ranges, word, control, |start, bytes| {
        for (i, pair) in bytes.windows(2 * word as usize).step_by(word as usize).enumerate() {
            let at = start + i as u64 * word;
            let (fd, bk) = pair.split_at(word as usize);
            if fd == bk && at.wrapping_sub(2 * word) == little(fd) && pairs.len() < MOST {
                pairs.push(at);
            }
        }
        true
    })?;
    let mut out = Vec::new();
    let mut i = 0;
    while i < pairs.len() {
        let first = pairs[i];
        let within = pairs[i..].iter().take_while(|&&p| p - first < BIN_PAIRS * 2 * word).count();
        let last = pairs[i + within - 1];
        if within >= 8 {
            out.extend(last.checked_sub((BIN_PAIRS - 1) * 2 * word));
            out.push(first);
        }
        i += within;
    }
    out.dedup();
    Ok(out)
}

/// An mmapped chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The chunk's address.
    pub chunk: u64,
    /// The mapping that malloc made for the chunk.
    pub base: u64,
    /// The end of the mapping.
    pub end: u64,
    /// Usable bytes of its block.
    pub usable: u64,
}

/// Returns mmapped chunks that follow each other from the start of each range. With `deep`, every page of the range is
/// tried, not only the one after the last chunk found. (Adjacent mappings merge, so other memory may precede a chunk.)
///
/// The header at the start of a mapping need not be the chunk's. memalign moves the chunk up and leaves a header behind
/// (malloc.c, `_int_memalign`). realloc then changes the size in the chunk's own header only (`mremap_chunk`), and its
/// mremap may move the mapping, so that the block is aligned to a page only. So the header at the start may name any
/// size. A header inside counts that names the mapping's start by its exact distance.
///
/// The kernel cuts a mapping in pieces where a program advises, locks or protects a part of it, or maps a file over it. So a
/// chunk that begins in a range may reach to the end of the stretch of memory without a gap (`whole`, sorted) that the
/// range lies in.
pub fn mapped(
    image: &Image,
    ranges: &[(u64, u64)],
    whole: &[(u64, u64)],
    word: u64,
    page: u64,
    deep: bool,
) -> Vec<Mapped> {
    let mut out: Vec<Mapped> = Vec::new();
    let mut window = CachedReader::new(image);
    for (start, end) in userland(ranges) {
        let stretch = whole.get(whole.partition_point(|part| part.1 <= start));
        let limit = stretch.filter(|part| part.0 <= start).map_or(end, |part| part.1.max(end));
        // The last chunk may have taken a part of the range.
        let start = out.last().map_or(start, |last| last.end.max(start));
        let (mut base, mut floor) = (start, start);
        // Only places with bytes in the dump are tried, so a mapping's claimed size costs nothing.
        while let Some(at) = image.next(base).filter(|&at| at < end).map(|at| at.next_multiple_of(page)) {
            if at >= end || out.len() >= MOST || (at != base && base != start && !deep) {
                break;
            }
            base = at;
            let found = if deep {
                mapped_in_page(&mut window, base, floor, limit, word, page)
            } else {
                mapped_at(&mut window, base, limit, word, page)
            };
            match found {
                Some(found) => {
                    (base, floor) = (found.end, found.end);
                    out.push(found);
                }
                None if deep => base = next_page(image, &mut window, base, end, page),
                None => {
                    // The last chunk ends within the mapping. Either other memory follows it, or it has grown.
                    let last = out.last().filter(|last| last.end == base && base > start).copied();
                    let Some(grown) = last.and_then(|last| moved_up(&mut window, &last, limit, word, page)) else {
                        break;
                    };
                    base = grown.end;
                    out.pop();
                    out.push(grown);
                }
            }
        }
    }
    out
}

/// Returns the chunk inside the one whose header begins the mapping, if there is one: a chunk that memalign aligned to a
/// page or more, so that its header ends a page. Every page of the chunk is looked at.
fn moved_up(window: &mut CachedReader, first: &Mapped, end: u64, word: u64, page: u64) -> Option<Mapped> {
    let base = first.base;
    if first.chunk - base >= page - 2 * word {
        return None;
    }
    let mut after = base + page;
    while after < first.end {
        let chunk = after - 2 * word;
        if let Some(found) = mapped_chunk(window, chunk, base, end, word, page) {
            return Some(found);
        }
        // Untouched memory is a hole in the dump. A header makes its page data.
        after = (window.image().data_from(after, first.end) / page * page + page).max(after + page);
    }
    None
}

fn mapped_at(window: &mut CachedReader, base: u64, end: u64, word: u64, page: u64) -> Option<Mapped> {
    let header = 2 * word;
    // The chunk is at the start of the mapping, where its user memory is aligned without help.
    let plain_at = (base + header).next_multiple_of(GRANULE) - header;
    let plain = mapped_chunk(window, plain_at, base, end, word, page);
    // A chunk that was moved up begins within the first size of its mapping.
    let limit = plain.map_or(end, |found| found.end);
    let moved = (5..=40).map(|bits| 1u64 << bits).take_while(|&align| align < limit - base).find_map(|align| {
        let user = (plain_at + header).checked_next_multiple_of(align)?;
        [Some(user), user.checked_add(align)].into_iter().flatten().map(|user| user - header).find_map(|chunk| {
            let inside = chunk > plain_at && chunk < limit;
            inside.then(|| mapped_chunk(window, chunk, base, end, word, page)).flatten()
        })
    });
    moved.or(plain)
}

/// Tries the same where `base` may be any page of the range, with free memory from `floor` on before it. Only words of
/// this page are looked at. So a gigabyte of other memory costs no more than reading it.
fn mapped_in_page(window: &mut CachedReader, base: u64, floor: u64, end: u64, word: u64, page: u64) -> Option<Mapped> {
    let header = 2 * word;
    let plain_at = (base + header).next_multiple_of(GRANULE) - header;
    if mapped_chunk(window, plain_at, base, end, word, page).is_some() {
        let found = mapped_at(window, base, end, word, page)?;
        return moved_up(window, &found, end, word, page).or(Some(found));
    }
    // A chunk that memalign moved up is aligned to a page or more, so its header ends a page, however far the mapping's
    // start is. Or the chunk is within the mapping's first page.
    let last = base.checked_add(page)?.checked_sub(header)?;
    let lead = window.word(last, word)? & !1;
    let begin = last.checked_sub(lead).filter(|&begin| begin % page == 0 && (floor..=base).contains(&begin));
    let far = begin.and_then(|begin| mapped_chunk(window, last, begin, end, word, page));
    far.or_else(|| {
        let aligned = (5..page.trailing_zeros()).map(|bits| 1u64 << bits).flat_map(|align| {
            let user = (plain_at + header).next_multiple_of(align);
            [user - header, user + align - header]
        });
        aligned
            .filter(|&chunk| plain_at < chunk && chunk < last)
            .find_map(|chunk| mapped_chunk(window, chunk, base, end, word, page))
    })
}

fn mapped_chunk(window: &mut CachedReader, chunk: u64, base: u64, end: u64, word: u64, page: u64) -> Option<Mapped> {
    let field = window.word(chunk + word, word)?;
    let size = field & !FLAGS;
    if field & FLAGS != IS_MMAPPED || size < page - GRANULE * 2 && size < GRANULE * 2 {
        return None;
    }
    let lead = window.word(chunk, word)?;
    // glibc 2.43 keeps "huge page" in the offset's lowest bit.
    if lead & !1 != chunk - base {
        return None;
    }
    let total = (lead & !1).checked_add(size)?;
    // Until 2.42 the chunk reaches the end of the mapping. Since 2.43 it ends one header earlier, as if another chunk
    // followed.
    let (total, usable) = if total % page == 0 && lead & 1 == 0 {
        (total, size.checked_sub(2 * word)?)
    } else if total.checked_add(2 * word)? % page == 0 {
        (total + 2 * word, size.checked_sub(word)?)
    } else {
        return None;
    };
    let stop = base.checked_add(total)?;
    (stop <= end).then_some(Mapped { chunk, base, end: stop, usable })
}

/// Returns stretches of the main arena outside its first one. Each begins at a page (moved up to malloc's alignment), and
/// its chunks lead to a double fencepost that ends a page, or to `top`.
pub fn stretches(image: &Image, ranges: &[(u64, u64)], word: u64, page: u64, top: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut window = CachedReader::new(image);
    for (start, end) in userland(ranges) {
        // The first stretch may begin anywhere: a static program takes its TLS from the break before malloc starts.
        let mut base = start;
        while let Some(at) = image.next(base).filter(|&at| at < end) {
            if out.len() >= MOST {
                break;
            }
            base = at;
            let first = (base + 2 * word).next_multiple_of(GRANULE) - 2 * word;
            match stretch(&mut window, first, end, word, page, top) {
                Some(stop) => {
                    out.push((first, stop));
                    base = stop.next_multiple_of(page).max(base + 1);
                }
                None => base = next_page(image, &mut window, base, end, page),
            }
        }
    }
    out
}

/// Returns the page after the one that holds `at`. Where that page begins with zeros, returns the page where the file has
/// data again: a sparse file may have a hole of terabytes.
fn next_page(image: &Image, window: &mut CachedReader, at: u64, end: u64, page: u64) -> u64 {
    let next = (at + 1).next_multiple_of(page);
    match window.words::<2>(next, 8) {
        Some([0, 0]) if next < end => (image.data_from(next, end) / page * page).max(next),
        _ => next,
    }
}

/// Returns where the chunks from `at` on end.
fn stretch(window: &mut CachedReader, first: u64, end: u64, word: u64, page: u64, top: u64) -> Option<u64> {
    let mut at = first;
    let mut size_before = 0;
    while at < end {
        if at == top {
            return (at > first).then_some(at);
        }
        let field = window.word(at + word, word)?;
        let size = field & !FLAGS;
        if size_before != 0 && field & PREV_INUSE == 0 && window.word(at, word)? != size_before {
            return None;
        }
        if size == 2 * word {
            // Two fenceposts. The old top precedes them where it was too small to be freed.
            let mut stop = at;
            while stop < end && window.word(stop + word, word)? & !FLAGS == 2 * word {
                stop += 2 * word;
            }
            let fence = (2..=3).contains(&((stop - at) / (2 * word)));
            return (at > first && fence && stop.next_multiple_of(page) - stop < GRANULE).then_some(stop);
        }
        let plausible =
            size >= 4 * word && size % GRANULE == 0 && field & (FLAGS & !PREV_INUSE) == 0 && size <= end - at;
        if !plausible || (at == first && field & PREV_INUSE == 0) {
            return None;
        }
        size_before = size;
        at += size;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Segment, Source};

    const BASE: u64 = 0x7f00_0000_0000;
    const PAGES: u64 = 64;

    /// A range of other memory with mmapped chunks at some pages, each as (base, chunk, end).
    fn image(made: &[(u64, u64, u64)], fill: u8, header_stays: bool) -> Image {
        let mut bytes = vec![fill; (PAGES * 4096) as usize];
        let mut put = |at: u64, value: u64| {
            let at = (at - BASE) as usize;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        for &(base, chunk, end) in made {
            if header_stays {
                put(base, 0);
                put(base + 8, (end - base) | 2);
            }
            put(chunk, chunk - base);
            put(chunk + 8, (end - chunk) | 2);
        }
        let end = BASE + bytes.len() as u64;
        let segment = Segment { start: BASE, end, source: Source::Bytes(bytes.into()) };
        Image::new(&[], vec![segment]).expect("no files")
    }

    #[test]
    fn mapped_chunks_are_found_behind_other_memory_however_they_were_aligned() {
        let page = |n: u64| BASE + n * 4096;
        let made = [
            (page(3), page(3), page(5)),              // as malloc has it
            (page(5), page(5) + 48, page(6)),         // moved up to 64 bytes
            (page(9), page(9) + 2048 - 16, page(12)), // to 2 KiB
            (page(12), page(13) - 16, page(20)),      // to a page
            (page(21), page(32) - 16, page(33)),      // to 32 pages
            (page(40), page(48) - 16, page(PAGES)),   // to 16 pages
        ];
        for fill in [0, 0x41] {
            for header_stays in [true, false] {
                let found = mapped(&image(&made, fill, header_stays), &[(BASE, page(PAGES))], &[], 8, 4096, true);
                let found: Vec<_> = found.iter().map(|m| (m.base, m.chunk, m.end)).collect();
                assert_eq!(found, made, "fill {fill:#x}, header stays: {header_stays}");
            }
        }
    }

    /// memalign leaves a header at the start of the mapping; realloc changes the size in the chunk's own header only.
    #[test]
    fn aligned_chunks_that_realloc_resized_and_mremap_moved_are_found() {
        let page = |n: u64| BASE + n * 4096;
        let made = [
            (page(0), page(3) - 16, page(13)),   // grown; its address is a multiple of a page only
            (page(13), page(13) + 48, page(15)), // shrunk, moved up within a page
            (page(15), page(16) - 16, page(17)), // shrunk
            (page(17), page(17), page(20)),      // as malloc has it
            (page(20), page(33) - 16, page(60)), // grown
        ];
        let claims = [page(5), page(20), page(16), page(20), page(40)];
        for fill in [0, 0x41] {
            let image = image(&made, fill, true);
            let mut bytes = vec![0; (PAGES * 4096) as usize];
            assert_eq!(image.read(BASE, &mut bytes), bytes.len());
            for (&(base, chunk, _), claim) in made.iter().zip(claims) {
                if chunk != base {
                    let at = (base - BASE) as usize + 8;
                    bytes[at..at + 8].copy_from_slice(&((claim - base) | 2).to_le_bytes());
                }
            }
            let end = page(PAGES);
            let segment = Segment { start: BASE, end, source: Source::Bytes(bytes.into()) };
            let image = Image::new(&[], vec![segment]).expect("no files");
            for deep in [false, true] {
                let found = mapped(&image, &[(BASE, end)], &[], 8, 4096, deep);
                let found: Vec<_> = found.iter().map(|m| (m.base, m.chunk, m.end)).collect();
                assert_eq!(found, made, "fill {fill:#x}, deep: {deep}");
            }
        }
    }

    #[test]
    fn a_chunk_in_pieces_is_one_chunk() {
        let page = |n: u64| BASE + n * 4096;
        let made = [(page(0), page(0), page(10)), (page(10), page(10) + 48, page(12)), (page(12), page(12), page(40))];
        let image = image(&made, 0x41, true);
        // A part of the first one cannot be accessed, and a file lies in the last.
        let pieces = [(page(0), page(3)), (page(5), page(10)), (page(10), page(20)), (page(22), page(PAGES))];
        let whole = [(BASE, page(PAGES))];
        for deep in [false, true] {
            let found = mapped(&image, &pieces, &whole, 8, 4096, deep);
            let found: Vec<_> = found.iter().map(|m| (m.base, m.chunk, m.end)).collect();
            assert_eq!(found, made, "deep: {deep}");
            assert!(mapped(&image, &pieces[..1], &[], 8, 4096, deep).is_empty());
        }
    }
}
