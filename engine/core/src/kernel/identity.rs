//! What a file page's mapping is: looked up once per mapping and kept, as Sun's memstat kept one flag per vnode.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use lru::LruCache;

use super::layout::Files;
use super::space::Space;
use super::Kind;

/// How many mappings are remembered unless told otherwise.
pub const REMEMBERED: usize = 10_000;

/// At most so many nodes of a mapping's tree of VMAs are looked at. All but a handful of a library's VMAs come in groups of which one is
/// executable, so that the search ends early; what does not is mapped, and not executable, this often.
const MOST_NODES: usize = 4096;

/// And at most so many for all mappings: those that are remembered, twice over. What follows is not searched.
const MOST_IN_ALL: usize = 1 << 26;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub hits: u64,
    pub misses: u64,
    /// Mappings that could not be read.
    pub lost: u64,
    /// Mappings whose tree of VMAs makes no sense, or was not searched to its end.
    pub cut: u64,
}

/// Mapping to kind ([`Kind::Exec`], [`Kind::BlockDevice`] or [`Kind::File`]).
pub struct Identity {
    cache: LruCache<u64, Kind, foldhash::fast::FixedState>,
    /// Pages of one file mostly lie together.
    last: (u64, Kind),
    /// Nodes that may still be looked at.
    budget: usize,
    pub figures: Figures,
}

impl Identity {
    pub fn new(remembered: usize) -> Identity {
        let size = NonZeroUsize::new(remembered).unwrap_or(NonZeroUsize::MIN);
        Identity {
            cache: LruCache::with_hasher(size, foldhash::fast::FixedState::default()),
            last: (0, Kind::File),
            budget: MOST_IN_ALL,
            figures: Figures::default(),
        }
    }

    #[inline]
    pub fn of(&mut self, mapping: u64, files: &Files, space: &mut Space) -> Kind {
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
                let kind = self.look_up(mapping, files, space);
                self.cache.put(mapping, kind);
                kind
            }
        };
        self.last = (mapping, kind);
        kind
    }

    fn look_up(&mut self, mapping: u64, files: &Files, space: &mut Space) -> Kind {
        let read = |space: &mut Space, offset: u64| space.word(mapping.checked_add(offset)?);
        let (Some(host), Some(root)) = (read(space, files.host), read(space, files.i_mmap)) else {
            self.figures.lost += 1;
            return Kind::File;
        };
        if root != 0 && self.executable(root, files, space) {
            return Kind::Exec;
        }
        // No host: not a file's (the swap cache's, a driver's own), which needs no superblock.
        if host != 0 {
            match host.checked_add(files.i_sb).and_then(|at| space.word(at)) {
                Some(sb) => {
                    if let Some((_, kind)) = files.special.iter().find(|(special, _)| *special == sb) {
                        return *kind;
                    }
                }
                None => self.figures.lost += 1,
            }
        }
        Kind::File
    }

    /// Whether a VMA in the tree is executable. Level by level, so that a node that leads back up hides none of the others; and whatever the
    /// nodes say, this ends.
    fn executable(&mut self, root: u64, files: &Files, space: &mut Space) -> bool {
        let mut queue = VecDeque::from([root]);
        for _ in 0..MOST_NODES.min(self.budget) {
            let Some(node) = queue.pop_front() else { return false };
            self.budget -= 1;
            let flags = node.checked_add_signed(files.to_flags).and_then(|at| space.word(at));
            if flags.is_some_and(|flags| flags & files.exec != 0) {
                return true;
            }
            let children =
                [files.left, files.right].map(|offset| node.checked_add(offset).and_then(|at| space.word(at)));
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
