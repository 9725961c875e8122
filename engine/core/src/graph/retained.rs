//! What the blocks of each kind keep alive, and the kinds of the blocks that an owner holds.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::owned_heap::OwnedHeap;
use super::owners::{Owners, Scope, Tree};
use super::stream::Stream;
use super::sums::View;
use crate::control::{Control, Stopped};

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 16;
const NONE: u32 = u32::MAX;

/// Bytes that the live and the leaked blocks of a group keep alive.
pub type Retained = (u64, u64);

/// Returns what the blocks of each group of kinds keep alive, themselves included. A byte counts once for each group: a
/// block below another of its group adds nothing. `groups` has the group of each kind.
///
/// A block of the allocator's own keeps nothing alive but itself, and is not counted.
pub fn by_group(
    view: &View,
    owners: &Owners,
    groups: &[u32],
    count: usize,
    control: &Control,
) -> Result<Vec<Retained>, Stopped> {
    let group = |number| view.kind(number).and_then(|kind| groups.get(kind as usize)).copied();
    by_block(OwnedHeap::new(view.heap, owners), group, count, control)
}

/// Returns the same for the group that a function gives for the number of a block. None: it is in no group.
pub fn by_block(
    heap: OwnedHeap,
    group: impl Fn(usize) -> Option<u32>,
    count: usize,
    control: &Control,
) -> Result<Vec<Retained>, Stopped> {
    let owners = heap.owners;
    let groups = vertex_groups(heap, group, control)?;
    by_vertex(&owners.tree(), &groups, count, |vertex| owners.is_leaked(vertex), control)
}

/// Returns the same for the vertices of a tree. `groups` has the group of each; `u32::MAX`: it is in no group.
pub fn by_vertex(
    tree: &Tree,
    groups: &[u32],
    count: usize,
    is_leaked: impl Fn(u32) -> bool,
    control: &Control,
) -> Result<Vec<Retained>, Stopped> {
    let mut sums = vec![(0u64, 0u64); count];
    // The children of each vertex, as a list. A vertex has a larger number than its dominator.
    let mut first = vec![NONE; tree.dominators.len()];
    let mut sibling = vec![NONE; tree.dominators.len()];
    for vertex in (1..tree.dominators.len()).rev() {
        let above = tree.dominators[vertex] as usize;
        sibling[vertex] = std::mem::replace(&mut first[above], vertex as u32);
    }
    // How many blocks of the group are above.
    let mut above = vec![0u32; count];
    let mut vertex = 0usize;
    let mut steps = 0usize;
    loop {
        steps += 1;
        if steps % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        if let Some(above) = above.get_mut(groups[vertex] as usize) {
            if *above == 0 {
                let sum = &mut sums[groups[vertex] as usize];
                let part = if is_leaked(vertex as u32) { &mut sum.1 } else { &mut sum.0 };
                *part = part.saturating_add(tree.bytes[vertex]);
            }
            *above += 1;
        }
        if first[vertex] != NONE {
            vertex = first[vertex] as usize;
            continue;
        }
        loop {
            if let Some(above) = above.get_mut(groups[vertex] as usize) {
                *above -= 1;
            }
            if vertex == 0 {
                return Ok(sums);
            }
            if sibling[vertex] != NONE {
                vertex = sibling[vertex] as usize;
                break;
            }
            vertex = tree.dominators[vertex] as usize;
        }
    }
}

/// Returns the group of each vertex's block; `u32::MAX` for a root.
fn vertex_groups(
    heap: OwnedHeap,
    group: impl Fn(usize) -> Option<u32>,
    control: &Control,
) -> Result<Vec<u32>, Stopped> {
    let mut out = vec![NONE; heap.owners.tree().dominators.len()];
    for (number, &vertex) in heap.vertices().iter().enumerate() {
        if number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        if vertex != 0 {
            out[vertex as usize] = group(number).unwrap_or(NONE);
        }
    }
    Ok(out)
}

/// Blocks of one kind and size in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The kind.
    pub kind: u32,
    /// How many.
    pub count: u64,
    /// Their usable bytes.
    pub bytes: u64,
    /// The usable size of each.
    pub size: u64,
    /// The block with the lowest address.
    pub example: u64,
}

/// Returns the kinds and sizes of the blocks in the scope, in order.
pub fn in_scope(view: &View, owners: &Owners, scope: Scope, control: &Control) -> Result<Vec<Held>, Stopped> {
    let heap = OwnedHeap::new(view.heap, owners);
    let (within, vertices) = (heap.within(scope), heap.vertices());
    let mut held: Vec<Held> = Vec::new();
    // The place in `held` of each kind and size. Most kinds have one size: that of a kind's last block is looked at first.
    let mut known: HashMap<(u32, u64), usize, RandomState> = HashMap::default();
    let mut last = vec![usize::MAX; view.kinds.all.len()];
    for found in Stream::new(view.heap) {
        if found.number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let Some(&vertex) = vertices.get(found.number) else { break };
        if vertex == 0 || !within.get(vertex as usize).is_some_and(|&within| within) {
            continue;
        }
        let (address, size) = (found.block.address, found.block.size);
        let Some(kind) = view.kind(found.number) else { break };
        let Some(last) = last.get_mut(kind as usize) else { break };
        if held.get(*last).is_none_or(|one| one.size != size) {
            *last = *known.entry((kind, size)).or_insert_with(|| {
                held.push(Held { kind, size, count: 0, bytes: 0, example: address });
                held.len() - 1
            });
        }
        let one = &mut held[*last];
        one.count += 1;
        one.bytes = one.bytes.saturating_add(size);
    }
    held.sort_unstable_by_key(|one| (one.kind, one.size));
    Ok(held)
}

/// The key of a block that no root holds: the allocator's own.
pub const OWN_KEY: u64 = u64::MAX - 1;

/// Returns for each block in use the key of the set of roots that holds it. `keys` has the key of each set.
pub fn owner_keys(heap: OwnedHeap, keys: &[u64]) -> Vec<u64> {
    let key = |&vertex: &u32| match vertex {
        0 => OWN_KEY,
        _ => keys.get(heap.owners.set_of(vertex) as usize).copied().unwrap_or(OWN_KEY),
    };
    heap.vertices().iter().map(key).collect()
}

/// Marks a key of [`holder_keys`] whose holder is a root, not a block.
pub const FROM_ROOT: u64 = 1 << 63;

/// Returns for each block in use the key of what holds it: the kind of the block that dominates it (in the upper half) and
/// its own kind; or, with [`FROM_ROOT`], the key of the set of roots and its own kind. Keys of sets are below 2^31.
pub fn holder_keys(view: &View, owners: &Owners, keys: &[u64], control: &Control) -> Result<Vec<u64>, Stopped> {
    let (heap, tree) = (OwnedHeap::new(view.heap, owners), owners.tree());
    let kinds = vertex_groups(heap, |number| view.kind(number), control)?;
    let key = |(number, &vertex): (usize, &u32)| {
        let Some(kind) = view.kind(number).filter(|_| vertex != 0) else { return OWN_KEY };
        let above = tree.dominators[vertex as usize] as usize;
        let kind = u64::from(kind);
        match kinds.get(above) {
            Some(&holder) if holder != NONE => u64::from(holder) << 32 | kind,
            _ => match keys.get(owners.set_of(vertex) as usize) {
                Some(&set) => FROM_ROOT | (set & 0x7fff_ffff) << 32 | kind,
                None => OWN_KEY,
            },
        }
    };
    Ok(heap.vertices().iter().enumerate().map(key).collect())
}
