//! The memory of a process, as its dump and the files behind its mappings hold it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::words::USER_END;

/// Where the bytes of a segment are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In `files[index]`, from `offset`.
    File {
        /// The index of the file.
        index: usize,
        /// Where the bytes begin in it.
        offset: u64,
    },
    /// In memory, because a debugger handed them over.
    Bytes(Arc<[u8]>),
}

/// A range of memory: `[start, end)`.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// Where its bytes are.
    pub source: Source,
}

/// The memory of a process. It never changes, so threads may share it.
#[derive(Debug)]
pub struct Image {
    files: Vec<File>,
    segments: Vec<Segment>,
    addresses: (u64, u64),
}

/// The addresses that a process can use: the lower half.
pub const PROCESS: (u64, u64) = (0, USER_END);
/// The addresses that a kernel can use: the upper half, without its last pages, where no memory is. So the sums of an
/// address and what is read at once do not overflow.
pub const KERNEL: (u64, u64) = (USER_END, u64::MAX << 22);

impl Image {
    /// Opens the files and sorts the segments. Where two segments overlap, the first one given wins and the other is cut.
    /// So every address has exactly one source.
    pub fn new(paths: &[PathBuf], segments: Vec<Segment>) -> io::Result<Image> {
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            files.push(File::open(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?);
        }
        for segment in &segments {
            if let Source::File { index, .. } = segment.source {
                if index >= files.len() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "a segment names a file that is not in the list",
                    ));
                }
            }
        }
        Ok(Image { files, segments: without_overlaps(segments), addresses: PROCESS })
    }

    /// Says at which addresses blocks and roots may lie: [`PROCESS`] unless this is called.
    pub fn with_addresses(mut self, addresses: (u64, u64)) -> Image {
        self.addresses = (addresses.0, addresses.1.min(KERNEL.1));
        self
    }

    /// Returns the addresses at which blocks and roots may lie.
    pub fn addresses(&self) -> (u64, u64) {
        self.addresses
    }

    /// Returns the parts of `[start, end)` that have a source and may hold blocks or roots, in order.
    pub fn usable(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.covered(start.max(self.addresses.0), end.min(self.addresses.1))
    }

    /// Returns how many bytes of memory there are.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|part| part.end - part.start).fold(0, u64::saturating_add)
    }

    /// Returns the segments, sorted and without overlaps.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Fills `buf` from `address` on. Returns how many bytes come before the first one that cannot be read.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        let mut index = self.segments.partition_point(|s| s.end <= address);
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(segment) = self.segments.get(index).filter(|s| s.start <= at) else { break };
            let want = (buf.len() - done).min(usize::try_from(segment.end - at).unwrap_or(usize::MAX));
            let got = self.read_segment(segment, at - segment.start, &mut buf[done..done + want]);
            done += got;
            if got < want {
                break;
            }
            index += 1;
        }
        done
    }

    fn read_segment(&self, segment: &Segment, skip: u64, buf: &mut [u8]) -> usize {
        match &segment.source {
            Source::Bytes(bytes) => {
                let from = bytes.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
                let n = buf.len().min(bytes.len() - from);
                buf[..n].copy_from_slice(&bytes[from..from + n]);
                n
            }
            Source::File { index, offset } => {
                let Some(from) = offset.checked_add(skip) else { return 0 };
                let mut done = 0;
                while done < buf.len() {
                    let Some(at) = from.checked_add(done as u64) else { break };
                    match self.files[*index].read_at(&mut buf[done..], at) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                }
                done
            }
        }
    }

    /// Returns the first address from `address` on, below `end`, that does not lie in a hole of a sparse file. Returns
    /// `end` if no data follows. The kernel leaves holes for memory that was never touched. Reading them would fill the
    /// page cache with zeros.
    pub fn data_from(&self, address: u64, end: u64) -> u64 {
        let first = self.segments.partition_point(|s| s.end <= address);
        for segment in &self.segments[first..] {
            if segment.start >= end {
                break;
            }
            let at = segment.start.max(address);
            let Source::File { index, offset } = segment.source else { return at };
            let Some(from) = offset.checked_add(at - segment.start) else { return at };
            match rustix::fs::seek(&self.files[index], rustix::fs::SeekFrom::Data(from)) {
                Ok(data) if data - from < segment.end - at => return (at + (data - from)).min(end),
                // Either the file system does not report holes, or only a hole or the end of the file follows. The end
                // of the file is checked next.
                Err(error) if error != rustix::io::Errno::NXIO => return at,
                Err(_) if self.files[index].metadata().map_or(true, |m| m.len() <= from) => return at,
                _ => {}
            }
        }
        end
    }

    /// Returns the first address from `address` on, below `end`, that lies in a hole of a sparse file or has no source.
    /// `address` lies in data. Returns `end` if data reaches to it.
    pub fn hole_from(&self, address: u64, end: u64) -> u64 {
        let mut at = address;
        let first = self.segments.partition_point(|s| s.end <= address);
        for segment in &self.segments[first..] {
            if segment.start > at || at >= end {
                break;
            }
            let limit = segment.end.min(end);
            if let Source::File { index, offset } = segment.source {
                let from = offset.saturating_add(at - segment.start);
                if let Ok(hole) = rustix::fs::seek(&self.files[index], rustix::fs::SeekFrom::Hole(from)) {
                    if hole.saturating_sub(from) < limit - at {
                        return at + hole.saturating_sub(from);
                    }
                }
            }
            at = limit;
        }
        at.min(end)
    }

    /// Fills all of `buf`, or returns None.
    pub fn read_exact(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        (self.read(address, buf) == buf.len()).then_some(())
    }

    /// Returns a little-endian word of `word` (4 or 8) bytes.
    pub fn word(&self, address: u64, word: usize) -> Option<u64> {
        let mut bytes = [0u8; 8];
        self.read_exact(address, &mut bytes[..word])?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns the first address from `address` on that has a source.
    pub fn next(&self, address: u64) -> Option<u64> {
        let index = self.segments.partition_point(|s| s.end <= address);
        self.segments.get(index).map(|s| s.start.max(address))
    }

    /// Returns `N` words in a row, read at once.
    pub fn words<const N: usize>(&self, address: u64, word: u64) -> Option<[u64; N]> {
        let word = word as usize;
        let mut bytes = [[0u8; 8]; N];
        let bytes = &mut bytes.as_flattened_mut()[..N * word];
        self.read_exact(address, bytes)?;
        let mut out = [0; N];
        for (out, part) in out.iter_mut().zip(bytes.chunks_exact(word)) {
            let mut full = [0; 8];
            full[..word].copy_from_slice(part);
            *out = u64::from_le_bytes(full);
        }
        Some(out)
    }

    /// Returns the parts of `[start, end)` that have a source, in order.
    pub fn covered(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        let first = self.segments.partition_point(|s| s.end <= start);
        for segment in &self.segments[first..] {
            if segment.start >= end || start >= end {
                break;
            }
            let (a, b) = (segment.start.max(start), segment.end.min(end));
            match out.last_mut() {
                Some(last) if last.1 == a => last.1 = b,
                _ => out.push((a, b)),
            }
        }
        out
    }
}

/// Returns the segments sorted by address. Where they overlap, the first one given is kept.
fn without_overlaps(segments: Vec<Segment>) -> Vec<Segment> {
    let proper = segments.iter().all(|s| s.start < s.end);
    if proper && segments.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return segments; // as almost always, and there may be a million
    }
    let mut order: Vec<(usize, Segment)> = segments.into_iter().enumerate().filter(|(_, s)| s.start < s.end).collect();
    order.sort_by_key(|(rank, s)| (s.start, *rank));
    let overlapping = order.windows(2).any(|w| w[1].1.start < w[0].1.end);
    if !overlapping {
        return order.into_iter().map(|(_, s)| s).collect();
    }
    // This is rare (a crafted or merged dump). Lay the segments down in the order given, into the gaps that are left.
    // The map holds disjoint pieces, so each insertion looks only at its neighbours.
    order.sort_by_key(|(rank, _)| *rank);
    let mut kept: std::collections::BTreeMap<u64, Segment> = std::collections::BTreeMap::new();
    for (_, segment) in order {
        let mut at = segment.start;
        if let Some((_, before)) = kept.range(..=at).next_back() {
            at = at.max(before.end);
        }
        let mut pieces = Vec::new();
        for (_, other) in kept.range(segment.start..segment.end) {
            if other.start > at {
                pieces.push(cut(&segment, at, other.start));
            }
            at = at.max(other.end);
        }
        if at < segment.end {
            pieces.push(cut(&segment, at, segment.end));
        }
        for piece in pieces {
            kept.insert(piece.start, piece);
        }
    }
    kept.into_values().collect()
}

fn cut(segment: &Segment, start: u64, end: u64) -> Segment {
    let skip = start - segment.start;
    let source = match &segment.source {
        Source::File { index, offset } => Source::File { index: *index, offset: offset.saturating_add(skip) },
        Source::Bytes(bytes) => {
            let from = bytes.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
            Source::Bytes(bytes[from..].into())
        }
    };
    Segment { start, end, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(start: u64, data: &[u8]) -> Segment {
        Segment { start, end: start + data.len() as u64, source: Source::Bytes(data.into()) }
    }

    #[test]
    fn reads_across_adjacent_segments_and_stops_at_a_gap() {
        let image = Image::new(&[], vec![bytes(104, b"5678"), bytes(100, b"1234"), bytes(110, b"x")]).unwrap();
        let mut buf = [0; 16];
        assert_eq!(image.read(102, &mut buf), 6);
        assert_eq!(&buf[..6], b"345678");
        assert_eq!(image.covered(0, 200), vec![(100, 108), (110, 111)]);
    }

    #[test]
    fn the_first_of_two_overlapping_segments_wins() {
        let image = Image::new(&[], vec![bytes(102, b"AB"), bytes(100, b"123456"), bytes(0, b"")]).unwrap();
        let mut buf = [0; 6];
        assert_eq!(image.read(100, &mut buf), 6);
        assert_eq!(&buf, b"12AB56");
    }

    #[test]
    fn the_top_of_the_address_space_does_not_wrap() {
        let top = Segment { start: u64::MAX - 4, end: u64::MAX, source: Source::Bytes((*b"abcd").into()) };
        let image = Image::new(&[], vec![top]).unwrap();
        let mut buf = [0; 16];
        assert_eq!(image.read(u64::MAX - 4, &mut buf), 4);
        assert_eq!(image.read(u64::MAX, &mut buf), 0);
    }
}
