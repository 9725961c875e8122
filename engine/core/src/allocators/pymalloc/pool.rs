//! One pool.

use super::{Sizes, ALIGNMENT, CLASSES, HEADER};

/// The header of a pool that may be in use.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// How many blocks are in use.
    pub count: u32,
    /// The first block of the chain of free blocks, or 0.
    pub freeblock: u64,
    /// The next pool of a list.
    pub next: u64,
    /// The arena that it says it is in.
    pub arena: u32,
    /// Bytes of a block.
    pub size: u64,
    /// Where the blocks begin that were never given out, in bytes from the pool's start.
    pub virgin: u64,
}

impl Header {
    /// Returns the header in `bytes`, or None where no pool that was ever used is.
    pub fn parse(bytes: &[u8], sizes: Sizes) -> Option<Header> {
        let word = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let int = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let (class, virgin, most) = (int(36)?, u64::from(int(40)?), u64::from(int(44)?));
        let size = u64::from(class.min(CLASSES) + 1) * ALIGNMENT;
        let (count, freeblock) = (int(0)?, word(8)?);
        let fits = class < CLASSES
            && most == sizes.pool - size
            && virgin >= HEADER + size
            && virgin <= sizes.pool
            && (virgin - HEADER) % size == 0
            && u64::from(count) <= blocks(size, sizes);
        fits.then_some(Header { count, freeblock, next: word(16)?, arena: int(32)?, size, virgin })
    }
}

/// Returns how many blocks of `size` bytes a pool has.
pub fn blocks(size: u64, sizes: Sizes) -> u64 {
    (sizes.pool - HEADER) / size
}

/// Returns which blocks of a pool are free (bit `i` of the words), or None if the pool contradicts itself.
///
/// `bytes` are those of the whole pool, which lies at `address`. Each free block holds the address of the next one. The
/// blocks in use, those of the chain and those that were never given out must be all blocks.
pub fn free_map(address: u64, bytes: &[u8], header: &Header, sizes: Sizes) -> Option<Vec<u64>> {
    let count = blocks(header.size, sizes);
    let mut map = vec![0u64; count.div_ceil(64) as usize];
    let virgin = (header.virgin - HEADER) / header.size;
    for index in virgin..count {
        map[index as usize / 64] |= 1 << (index % 64);
    }
    let mut free = count.saturating_sub(virgin);
    let mut at = header.freeblock;
    while at != 0 {
        let offset = at.checked_sub(address).filter(|&offset| offset >= HEADER && offset < header.virgin)?;
        if (offset - HEADER) % header.size != 0 {
            return None;
        }
        let index = (offset - HEADER) / header.size;
        let word = map.get_mut(index as usize / 64)?;
        if *word >> (index % 64) & 1 != 0 {
            return None; // twice in the chain
        }
        *word |= 1 << (index % 64);
        free += 1;
        at = bytes.get(offset as usize..offset as usize + 8)?.try_into().ok().map(u64::from_le_bytes)?;
    }
    (u64::from(header.count) + free == count && header.count > 0).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { arena: 1 << 18, pool: 4096 };

    fn pool(address: u64, size: u64, virgin: u64, free: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0u8; 4096];
        let used = virgin - free.len() as u64;
        let chain: Vec<u64> = free.iter().map(|index| HEADER + index * size).collect();
        bytes[..4].copy_from_slice(&(used as u32).to_le_bytes());
        bytes[36..40].copy_from_slice(&((size / 16 - 1) as u32).to_le_bytes());
        bytes[40..44].copy_from_slice(&((HEADER + virgin * size) as u32).to_le_bytes());
        bytes[44..48].copy_from_slice(&((4096 - size) as u32).to_le_bytes());
        let mut link = 8;
        for &offset in &chain {
            bytes[link..link + 8].copy_from_slice(&(address + offset).to_le_bytes());
            link = offset as usize;
        }
        bytes
    }

    #[test]
    fn a_pool_says_which_blocks_are_free() {
        let bytes = pool(0x10000, 512, 5, &[3, 0]);
        let header = Header::parse(&bytes, SIZES).unwrap();
        assert_eq!((header.count, header.size), (3, 512));
        assert_eq!(free_map(0x10000, &bytes, &header, SIZES), Some(vec![0b110_1001]));
    }

    #[test]
    fn a_pool_that_contradicts_itself_is_not_believed() {
        let mut circle = pool(0x10000, 512, 5, &[3, 0]);
        let link = 0x10000u64 + HEADER + 3 * 512;
        circle[HEADER as usize..HEADER as usize + 8].copy_from_slice(&link.to_le_bytes());
        let outside = pool(0x20000, 512, 5, &[3, 0]);
        let mut count = pool(0x10000, 512, 5, &[3, 0]);
        count[0] = 4;
        for bytes in [circle, outside, count] {
            let header = Header::parse(&bytes, SIZES).unwrap();
            assert_eq!(free_map(0x10000, &bytes, &header, SIZES), None);
        }
        let mut class = pool(0x10000, 512, 5, &[]);
        class[36] = 30;
        assert!(Header::parse(&class, SIZES).is_none());
        assert!(Header::parse(&class[..40], SIZES).is_none());
    }
}
