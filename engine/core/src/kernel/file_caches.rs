//! The caches of names (dentries) and of inodes. Machines have millions of both.
//!
//! The hash table of dentries is followed one link of every chain at a time, and each step in the order of addresses: the
//! dentries of a slab lie together, and the chains lead everywhere.
//!
//! Each link must agree with the link back. So even a damaged list visits no structure twice, and ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::virtual_memory::VirtualMemory;
use crate::control::Control;

/// Offsets in `struct dentry`, and its hash table (fs/dcache.c).
#[derive(Clone, Copy, Debug, Default)]
pub struct Names {
    /// `d_hash`, a `struct hlist_bl_node`.
    pub hash: u64,
    /// `d_inode`.
    pub inode: u64,
    /// `d_sb`.
    pub superblock: u64,
    /// `d_lockref.count`, a number of 4 bytes.
    pub count: u64,
    /// `dentry_hashtable`.
    pub table: u64,
    /// How many buckets it has.
    pub buckets: u64,
}

/// Offsets in `struct inode`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inodes {
    /// `i_sb_list`, a `struct list_head`.
    pub list: u64,
    /// `i_data.nrpages`.
    pub pages: u64,
    /// `i_ino`.
    pub number: u64,
}

/// The names of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// All of them.
    pub names: u64,
    /// Names of files that do not exist.
    pub negative: u64,
    /// Names that nobody uses.
    pub unused: u64,
}

/// What is in the hash table.
#[derive(Debug, Default)]
pub struct FoundNames {
    /// For each superblock, in the order given.
    pub of: Vec<NameCounts>,
    /// Names of other superblocks.
    pub unknown: u64,
    /// Buckets that the dump lacks.
    pub missing: u64,
    /// How many chains end early, and the address of the first dentry whose link is wrong or missing.
    pub broken: (u64, u64),
}

/// A file with pages in the page cache: (pages, inode, number, index of the superblock). The largest has most pages.
pub type CachedFile = (u64, u64, u64, u32);

/// The inodes of some superblocks.
#[derive(Debug, Default)]
pub struct FoundInodes {
    /// For each superblock: its inodes, their cached pages, and where its list is broken.
    pub of: Vec<(u64, u64, Option<u64>)>,
    /// The files with most cached pages, the largest first.
    pub top: Vec<CachedFile>,
}

/// How many buckets are followed together.
const AT_ONCE: u64 = 1 << 22;
/// The largest table: 2^32 buckets (d_hash_shift is at least 1).
const MOST_BUCKETS: u64 = 1 << 32;
/// Bytes of the table that are read together.
const PIECE: usize = 1 << 20;
/// More pages than a file can have: 2^64 bytes in pages of 4 KB.
const MOST_PAGES: u64 = 1 << 52;

/// Counts the names in the hash table. Roots and names that were removed are not in it. Ends early when it is cancelled.
pub fn names(layout: &Names, superblocks: &[u64], memory: &mut VirtualMemory, control: &Control) -> FoundNames {
    let numbers: HashMap<u64, usize, foldhash::fast::FixedState> =
        superblocks.iter().enumerate().map(|(index, address)| (*address, index)).collect();
    let mut found = FoundNames { of: vec![NameCounts::default(); superblocks.len()], ..FoundNames::default() };
    let buckets = layout.buckets.min(MOST_BUCKETS);
    // (a node, what leads to it), of each chain.
    let mut chains: Vec<(u64, u64)> = Vec::new();
    let mut first = 0;
    while first < buckets {
        let count = AT_ONCE.min(buckets - first);
        heads(layout.table.wrapping_add(first * 8), count, &mut chains, &mut found.missing, memory, control);
        first += count;
        while !chains.is_empty() {
            chains.sort_unstable();
            let mut kept = 0;
            for index in 0..chains.len() {
                if index % (1 << 14) == 0 && control.cancelled() {
                    return found;
                }
                let (node, from) = chains[index];
                let (next, back) = memory.links(node).unwrap_or_default();
                if back != from || !found.count(layout, node.wrapping_sub(layout.hash), &numbers, memory) {
                    found.broken = (found.broken.0 + 1, if found.broken.0 == 0 { node } else { found.broken.1 });
                    continue;
                }
                if next != 0 {
                    chains[kept] = (next, node);
                    kept += 1;
                }
            }
            control.add(chains.len() as u64);
            chains.truncate(kept);
        }
    }
    found
}

/// Adds the first node of each bucket that is not empty. The lowest bit of a bucket is its lock.
fn heads(
    table: u64,
    count: u64,
    chains: &mut Vec<(u64, u64)>,
    missing: &mut u64,
    memory: &mut VirtualMemory,
    control: &Control,
) {
    let mut bytes = vec![0; PIECE];
    let mut done = 0;
    let size = count * 8;
    while done < size && !control.cancelled() {
        let wanted = (size - done).min(PIECE as u64) as usize;
        let at = table.wrapping_add(done);
        let got = memory.read(at, &mut bytes[..wanted]) / 8 * 8;
        for (index, word) in bytes[..got].chunks_exact(8).enumerate() {
            let node = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8])) & !1;
            if node != 0 {
                chains.push((node, at.wrapping_add(index as u64 * 8)));
            }
        }
        // Go on behind the page that is missing, at its end.
        let lost =
            if got < wanted { (0x1000 - (at.wrapping_add(got as u64) & 0xfff)).min((wanted - got) as u64) } else { 0 };
        *missing += lost / 8;
        done += got as u64 + lost;
    }
}

impl FoundNames {
    /// Counts a dentry. Returns false if the dump lacks it.
    fn count(
        &mut self,
        layout: &Names,
        dentry: u64,
        numbers: &HashMap<u64, usize, foldhash::fast::FixedState>,
        memory: &mut VirtualMemory,
    ) -> bool {
        let mut word = |offset: u64| memory.word(dentry.wrapping_add(offset));
        let (Some(superblock), Some(inode)) = (word(layout.superblock), word(layout.inode)) else { return false };
        let Some(users) = memory.bytes::<4>(dentry.wrapping_add(layout.count)) else { return false };
        let Some(counts) = numbers.get(&superblock).and_then(|index| self.of.get_mut(*index)) else {
            self.unknown += 1;
            return true;
        };
        counts.names += 1;
        counts.negative += u64::from(inode == 0);
        counts.unused += u64::from(users == [0; 4]);
        true
    }
}

/// Counts the inodes of superblocks, each by the address of its s_inodes. `top` is how many of the largest files are
/// wanted. Ends early when it is cancelled.
pub fn inodes(
    layout: &Inodes,
    heads: &[u64],
    top: usize,
    memory: &mut VirtualMemory,
    control: &Control,
) -> FoundInodes {
    let mut found = FoundInodes::default();
    let mut largest: BinaryHeap<Reverse<CachedFile>> = BinaryHeap::new();
    for (index, head) in heads.iter().enumerate() {
        let (mut count, mut cached, mut broken) = (0u64, 0u64, None);
        let (mut before, mut node) = match memory.word(*head) {
            Some(first) => (*head, first),
            None => (*head, 0),
        };
        while node != *head {
            if count % (1 << 14) == 0 {
                if control.cancelled() {
                    return found;
                }
                control.add(1 << 14);
            }
            let next = match memory.links(node) {
                Some((next, back)) if back == before => next,
                _ => {
                    broken = Some(node);
                    break;
                }
            };
            count += 1;
            let inode = node.wrapping_sub(layout.list);
            let pages = memory.word(inode.wrapping_add(layout.pages)).unwrap_or(0);
            if (1..MOST_PAGES).contains(&pages) {
                cached += pages;
                let number = memory.word(inode.wrapping_add(layout.number)).unwrap_or(0);
                largest.push(Reverse((pages, inode, number, index as u32)));
                if largest.len() > top {
                    largest.pop();
                }
            }
            (before, node) = (node, next);
        }
        found.of.push((count, cached, broken));
    }
    found.top = largest.into_sorted_vec().into_iter().map(|Reverse(file)| file).collect();
    found
}
