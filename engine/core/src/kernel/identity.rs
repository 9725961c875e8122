//! Finds out what a file page's mapping is. The answer is kept for each mapping, as Sun's memstat kept one flag for each
//! vnode.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use lru::LruCache;

use super::kind::Kind;
use super::layout::Files;
use super::virtual_memory::VirtualMemory;

/// How many mappings are remembered by default.
pub const REMEMBERED: usize = 10_000;

/// How many nodes of a mapping's tree of VMAs are looked at. Nearly all VMAs of a library come in groups of which one is
/// executable, so the search ends early. A file that needs more is mapped this often and not executable.
const MOST_NODES: usize = 4096;

/// How many nodes are looked at for all mappings together: those that are remembered, twice. Later mappings are not
/// searched.
const MOST_IN_ALL: usize = 1 << 26;

/// Figures of the cache of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lookups that the cache answered.
    pub hits: u64,
    /// Lookups that read memory.
    pub misses: u64,
    /// Mappings that could not be read.
    pub lost: u64,
    /// Mappings whose tree of VMAs is damaged, or was not searched to its end.
    pub cut: u64,
}

/// Mapping to kind ([`Kind::Exec`], [`Kind::Ring`], [`Kind::BlockDevice`] or [`Kind::File`]).
pub struct Identity {
    cache: LruCache<u64, Kind, foldhash::fast::FixedState>,
    /// The last mapping: pages of one file mostly lie together.
    last: (u64, Kind),
    /// How many nodes may still be looked at.
    budget: usize,
    /// Figures of the cache.
    pub figures: Figures,
}

impl Identity {
    /// Makes a cache for so many mappings.
    pub fn new(remembered: usize) -> Identity {
        let size = NonZeroUsize::new(remembered).unwrap_or(NonZeroUsize::MIN);
        Identity {
            cache: LruCache::with_hasher(size, foldhash::fast::FixedState::default()),
            last: (0, Kind::File),
            budget: MOST_IN_ALL,
            figures: Figures::default(),
        }
    }

    /// Returns the kind of a mapping's pages.
    #[inline]
    pub fn of(&mut self, mapping: u64, files: &Files, memory: &mut VirtualMemory) -> Kind {
        if self.last.0 == mapping {
            self.figures.hits += 1;
            return self.last.1;
        }
        let kind = match self.cache.get(&mapping) {
            Some(kind) => {
                self.figures.hits += 1;
                *kind
            }
            None => {
                self.figures.misses += 1;
                let kind = self.look_up(mapping, files, memory);
                self.cache.put(mapping, kind);
                kind
            }
        };
        self.last = (mapping, kind);
        kind
    }

    fn look_up(&mut self, mapping: u64, files: &Files, memory: &mut VirtualMemory) -> Kind {
        let read = |memory: &mut VirtualMemory, offset: u64| memory.word(mapping.checked_add(offset)?);
        let (Some(host), Some(root)) = (read(memory, files.host), read(memory, files.i_mmap)) else {
            self.figures.lost += 1;
            return Kind::File;
        };
        // A mapping without a host belongs to no file (the swap cache, a driver), and its superblock is not needed.
        let mut special = None;
        if host != 0 {
            match host.checked_add(files.i_sb).and_then(|at| memory.word(at)) {
                Some(sb) => special = files.special.iter().find(|(special, _)| *special == sb).map(|(_, kind)| *kind),
                None => self.figures.lost += 1,
            }
        }
        // All anonymous inodes share one mapping, so its VMAs are those of many files.
        if special != Some(Kind::Ring) && root != 0 && self.executable(root, files, memory) {
            return Kind::Exec;
        }
        special.unwrap_or(Kind::File)
    }

    /// Returns whether a VMA in the tree is executable. The search goes level by level, so a node that leads back up
    /// hides none of the others. It ends whatever the nodes say.
    fn executable(&mut self, root: u64, files: &Files, memory: &mut VirtualMemory) -> bool {
        let mut queue = VecDeque::from([root]);
        for _ in 0..MOST_NODES.min(self.budget) {
            let Some(node) = queue.pop_front() else { return false };
            self.budget -= 1;
            let flags = node.checked_add_signed(files.to_flags).and_then(|at| memory.word(at));
            if flags.is_some_and(|flags| flags & files.exec != 0) {
                return true;
            }
            let children =
                [files.left, files.right].map(|offset| node.checked_add(offset).and_then(|at| memory.word(at)));
            if flags.is_none() || children.contains(&None) {
                self.figures.cut += 1;
                return false;
            }
            queue.extend(children.into_iter().flatten().filter(|child| *child != 0));
        }
        self.figures.cut += 1;
        false
    }
}
