//! Reads makedumpfile's compressed format (its IMPLEMENTATION file; `diskdump_mod.h`): bitmaps, a descriptor for each
//! page that was dumped, and the pages, each compressed by itself. Flattened and split dumps are refused. The debugger
//! may be able to read those.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use flate2::{Decompress, FlushDecompress, Status};
use lru::LruCache;

use super::physical::Physical;

/// Page descriptor: offset in the file, size, kind of compression, flags of the page.
const DESCRIPTOR: usize = 24;
/// How many descriptors, bytes of the file and pages are cached.
const DESCRIPTORS: u64 = 512;
const WINDOW: usize = 128 << 10;
const PAGES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

const ZLIB: u32 = 1;
const LZO: u32 = 2;
const SNAPPY: u32 = 4;
const ZSTD: u32 = 32;

/// A compressed dump.
pub struct Kdump {
    file: File,
    block: usize,
    pages: u64,
    /// Where the second bitmap (pages in the dump) begins.
    bitmap: u64,
    descriptors: u64,
    /// For each block of the bitmap with any bits: its number, and how many pages are in the dump before it. Sorted.
    ranks: Vec<(u64, u64)>,
    hand: Mutex<Hand>,
}

/// What was read last. The next read is mostly close to it.
struct Hand {
    bitmap: Bitmap,
    descriptors: (u64, Vec<u8>),
    window: (u64, Vec<u8>),
    pages: LruCache<u64, Box<[u8]>, foldhash::fast::FixedState>,
    zlib: Decompress,
    snappy: snap::raw::Decoder,
    zstd: ruzstd::decoding::FrameDecoder,
}

/// A block of the bitmap, with the count of bits before each of its words.
#[derive(Default)]
struct Bitmap {
    block: Option<u64>,
    words: Vec<u64>,
    before: Vec<u32>,
}

/// The fields of the header and the sub-header that are used.
struct Header {
    block: usize,
    sub_blocks: u64,
    bitmap_blocks: u64,
    pages: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Fills as much of `buf` as the file has at `offset`.
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> usize {
    let mut done = 0;
    while done < buf.len() {
        let Some(at) = offset.checked_add(done as u64) else { break };
        match file.read_at(&mut buf[done..], at) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}

impl Header {
    fn read(file: &File) -> Result<Header, String> {
        let mut head = [0; 464];
        let got = read_at(file, &mut head, 0);
        if head.starts_with(b"makedumpfile") {
            return Err("it is flattened (makedumpfile -F)".into());
        }
        if !head.starts_with(b"KDUMP   ") && !head.starts_with(b"DISKDUMP") {
            return Err("it is not a compressed dump of makedumpfile".into());
        }
        if got < head.len() {
            return Err("it ends within its header".into());
        }
        // struct disk_dump_header of 64-bit machines: signature, version, utsname (6 times 65), timestamp (at 408), then these.
        let (version, block, sub_blocks) = (u32_at(&head, 8), u32_at(&head, 428) as usize, u32_at(&head, 432));
        let (bitmap_blocks, max_mapnr) = (u32_at(&head, 436), u32_at(&head, 440));
        if !block.is_power_of_two() || !(4096..=65536).contains(&block) {
            return Err(format!("its block size is {block}"));
        }
        // struct kdump_sub_header follows in a block of its own; max_mapnr is there in full since version 6.
        let mut sub = [0; 104];
        let got = read_at(file, &mut sub, block as u64);
        if u32_at(&sub, 12) != 0 && got >= 16 && version >= 2 {
            return Err("it is one of several parts (makedumpfile --split)".into());
        }
        let pages = if version >= 6 && got == sub.len() { u64_at(&sub, 96) } else { u64::from(max_mapnr) };
        // One field describes both bitmaps. The header cannot claim more pages than they have bits.
        let pages = pages.min(u64::from(bitmap_blocks) / 2 * block as u64 * 8);
        Ok(Header { block, sub_blocks: sub_blocks.into(), bitmap_blocks: bitmap_blocks.into(), pages })
    }
}

impl Kdump {
    /// Opens a dump. The error is a sentence that can follow "cannot read it here:".
    pub fn open(path: &Path) -> Result<Kdump, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let header = Header::read(&file)?;
        let block = header.block as u64;
        let bitmaps = (1 + header.sub_blocks) * block;
        let bitmap = bitmaps + header.bitmap_blocks / 2 * block;
        let mut dump = Kdump {
            block: header.block,
            pages: header.pages,
            bitmap,
            descriptors: bitmaps + header.bitmap_blocks * block,
            ranks: Vec::new(),
            hand: Mutex::new(Hand {
                bitmap: Bitmap::default(),
                descriptors: (0, Vec::new()),
                window: (0, Vec::new()),
                pages: LruCache::with_hasher(PAGES, foldhash::fast::FixedState::default()),
                zlib: Decompress::new(true),
                snappy: snap::raw::Decoder::new(),
                zstd: ruzstd::decoding::FrameDecoder::new(),
            }),
            file,
        };
        dump.rank();
        Ok(dump)
    }

    /// Counts the bitmap's bits once, block by block. It ends with the file, whatever the header says, and skips holes:
    /// the file may have terabytes of them.
    fn rank(&mut self) {
        let (block, blocks) = (self.block as u64, self.pages.div_ceil(self.block as u64 * 8));
        let mut buffer = vec![0; self.block];
        let (mut count, mut number) = (0, 0);
        while number < blocks {
            let got = read_at(&self.file, &mut buffer, self.bitmap + number * block);
            buffer[got..].fill(0);
            let bits = buffer.chunks_exact(8).map(|word| u64::from(u64_at(word, 0).count_ones())).sum::<u64>();
            if bits > 0 {
                self.ranks.push((number, count));
                count += bits;
            }
            if got < self.block {
                break;
            }
            number += 1;
            if bits == 0 {
                number = self.data_from(number);
            }
        }
    }

    /// Returns the number of the first block of the bitmap, from this one on, that does not lie in a hole of the file.
    fn data_from(&self, number: u64) -> u64 {
        let at = self.bitmap + number * self.block as u64;
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => number.max(data.saturating_sub(self.bitmap) / self.block as u64),
            // Only a hole follows.
            Err(rustix::io::Errno::NXIO) => u64::MAX,
            Err(_) => number,
        }
    }

    fn hand(&self) -> MutexGuard<'_, Hand> {
        // A panic while the lock was held would be our defect. Each part of the cache is valid by itself.
        self.hand.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the number of the page's descriptor. None when the page is not in the dump.
    fn index(&self, hand: &mut Hand, pfn: u64) -> Option<u64> {
        let bits = self.block as u64 * 8;
        if pfn >= self.pages {
            return None;
        }
        let (block, bit) = (pfn / bits, (pfn % bits) as usize);
        let (_, rank) = self.ranks[self.ranks.binary_search_by_key(&block, |rank| rank.0).ok()?];
        if hand.bitmap.block != Some(block) {
            hand.bitmap.load(&self.file, self.bitmap + block * self.block as u64, block, self.block);
        }
        let word = *hand.bitmap.words.get(bit / 64)?;
        let below = word & ((1 << (bit % 64)) - 1);
        (word >> (bit % 64) & 1 != 0).then(|| rank + u64::from(hand.bitmap.before[bit / 64] + below.count_ones()))
    }

    /// Returns (offset, size, flags) of a page in the file.
    fn descriptor(&self, hand: &mut Hand, index: u64) -> Option<(u64, usize, u32)> {
        let (first, bytes) = &mut hand.descriptors;
        if index < *first || index - *first >= (bytes.len() / DESCRIPTOR) as u64 {
            *first = index / DESCRIPTORS * DESCRIPTORS;
            let at = first.checked_mul(DESCRIPTOR as u64)?.checked_add(self.descriptors)?;
            bytes.resize(DESCRIPTORS as usize * DESCRIPTOR, 0);
            let got = read_at(&self.file, bytes, at);
            bytes.truncate(got);
        }
        let at = (index - *first) as usize * DESCRIPTOR;
        let one = bytes.get(at..at + DESCRIPTOR)?;
        let size = u32_at(one, 8) as usize;
        (size <= self.block).then(|| (u64_at(one, 0), size, u32_at(one, 12)))
    }

    /// Decompresses the page into `out` (a block). None when the page is not in the dump, or its bytes are damaged.
    fn page(&self, hand: &mut Hand, pfn: u64, out: &mut [u8]) -> Option<()> {
        let index = self.index(hand, pfn)?;
        let (offset, size, flags) = self.descriptor(hand, index)?;
        let (start, window) = &mut hand.window;
        if offset < *start || offset.checked_add(size as u64)? > *start + window.len() as u64 {
            *start = offset;
            window.resize(WINDOW, 0);
            let got = read_at(&self.file, window, offset);
            window.truncate(got);
        }
        let from = (offset - hand.window.0) as usize;
        let data = hand.window.1.get(from..from + size)?;
        let got = match flags & (ZLIB | LZO | SNAPPY | ZSTD) {
            0 => {
                out.get_mut(..size)?.copy_from_slice(data);
                size
            }
            ZLIB => {
                hand.zlib.reset(true);
                match hand.zlib.decompress(data, out, FlushDecompress::Finish) {
                    Ok(Status::StreamEnd) => hand.zlib.total_out() as usize,
                    _ => return None,
                }
            }
            LZO => lzokay::decompress::decompress(data, out).ok()?,
            SNAPPY => hand.snappy.decompress(data, out).ok()?,
            ZSTD => hand.zstd.decode_all(data, out).ok()?,
            _ => return None,
        };
        (got == self.block).then_some(())
    }
}

impl Bitmap {
    fn load(&mut self, file: &File, at: u64, number: u64, size: usize) {
        let mut bytes = vec![0; size];
        read_at(file, &mut bytes, at);
        self.words = bytes.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        self.before.clear();
        let mut count = 0;
        for word in &self.words {
            self.before.push(count);
            count += word.count_ones();
        }
        self.block = Some(number);
    }
}

impl Physical for Kdump {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut hand = self.hand();
        let block = self.block as u64;
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let (pfn, offset) = (at / block, (at % block) as usize);
            if offset == 0 && buf.len() - done >= self.block {
                // Usually this is part of a long walk that does not come back.
                if self.page(&mut hand, pfn, &mut buf[done..done + self.block]).is_none() {
                    break;
                }
                done += self.block;
                continue;
            }
            if !hand.pages.contains(&pfn) {
                let mut page = vec![0; self.block].into_boxed_slice();
                if self.page(&mut hand, pfn, &mut page).is_none() {
                    break;
                }
                hand.pages.put(pfn, page);
            }
            let Some(page) = hand.pages.get(&pfn) else { break };
            let length = (self.block - offset).min(buf.len() - done);
            buf[done..done + length].copy_from_slice(&page[offset..offset + length]);
            done += length;
        }
        done
    }

    /// One page at a time. A page of the memmap that lies within a free block need not be decompressed.
    fn granule(&self) -> usize {
        self.block
    }
}
