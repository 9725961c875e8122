//! Which of the blocks that nothing reaches are leaked directly, and what each of those keeps alive. This is the method,
//! for the blocks of a process and the slab objects of a kernel.
//!
//! A *direct* leak is a block that no other leaked block leads to. In a cycle that nothing else leads to, it is the first
//! block in the order of the list. Every other leaked block is *indirect* and is counted with exactly one direct leak, so
//! the sums are the totals. Two rounds over the leaked blocks find both in linear time:
//!
//! 1. In order, each block not yet visited becomes a candidate, and everything reachable from it is visited. Take a group
//!    that nothing else leads to: its first visited member can only have been visited as a candidate.
//! 2. The same again, in reverse order of candidates. A candidate that another group leads to belongs to a group whose
//!    own candidate is *later* in the first order (an earlier one would have visited it). So it is now visited before its
//!    turn. The remaining candidates are exactly the direct leaks.

use crate::control::{Control, Stopped};

/// The leaked blocks of a graph. None is visited at first.
pub trait Leaked {
    /// The number of a block.
    type Node: Copy;
    /// Returns whether a block was visited since [`Leaked::forget`].
    fn is_visited(&self, node: Self::Node) -> bool;
    /// Visits a block that was not, and all leaked ones that it leads to. Returns what was new.
    fn visit(&mut self, node: Self::Node, control: &Control) -> Result<Visited, Stopped>;
    /// Makes all visits undone.
    fn forget(&mut self);
}

/// What a visit found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visited {
    /// The bytes of the block itself.
    pub own: u64,
    /// How many others were visited for the first time.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// Calls `take` for each direct leak and what it keeps alive, from the last to the first. `leaked` are all leaked blocks, in
/// order. Afterwards all are visited. Returns how many are leaked and their bytes.
pub fn find<L: Leaked>(
    graph: &mut L,
    leaked: impl Iterator<Item = L::Node>,
    control: &Control,
    mut take: impl FnMut(L::Node, Visited),
) -> Result<(u64, u64), Stopped> {
    let mut candidates = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    for node in leaked {
        if !graph.is_visited(node) {
            candidates.push(node);
            let found = graph.visit(node, control)?;
            count += 1 + found.kept;
            bytes += found.own + found.kept_bytes;
        }
    }
    graph.forget();
    for node in candidates.into_iter().rev() {
        if !graph.is_visited(node) {
            let found = graph.visit(node, control)?;
            take(node, found);
        }
    }
    Ok((count, bytes))
}
