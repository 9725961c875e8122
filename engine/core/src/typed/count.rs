//! Counts the blocks of each type, and lists them.

use std::collections::HashMap;

use super::blocks::{Claim, Rank, Shape};
use super::build::TypeGraph;
use crate::blocks::index::Block;
use crate::blocks::leaks::Group;
use crate::blocks::model::State;
use crate::contents::{Form, Sum};
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;
use crate::graph::asked::{Asked, Counts};
use crate::graph::owned_heap::OwnedHeap;
use crate::graph::owners::{Owners, Scope};
use crate::graph::retained::{self, Retained};
use crate::graph::stream::{InUse, Stream};
use crate::graph::sums::{Next, View};
use crate::records::Records;

/// The sums of all kinds, of all types, and of the objects in blocks that hold many, by type.
pub type Sums = (Vec<Sum>, Vec<(Typed, Sum)>, Vec<(Pooled, Sum)>);

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 16;

/// A type of blocks: the type, whether they are arrays of it, and the evidence.
pub type Typed = (Id, Shape, Rank);

/// A type of objects in pools, and whether their contents alone prove it.
pub type Pooled = (Id, bool);

/// Blocks that are counted as one, of one size.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// What they are counted as.
    pub counted: Counted,
    /// Usable bytes of each.
    pub size: u64,
    /// How many there are.
    pub count: u64,
    /// The lowest address.
    pub example: u64,
}

/// How a block is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// By the kind of its first words: its vtable, or its shape.
    Kind(u32),
    /// By its type.
    Type(Typed),
}

impl TypeGraph {
    /// Returns what a block is counted as. What the program itself says comes first.
    pub fn counted(&self, view: &View<'_>, block: &InUse) -> Option<Counted> {
        Some(self.counted_of_kind(view, &block.block, view.kind(block.number)?))
    }

    /// Returns the same for a block of which the kind is known.
    pub fn counted_of_kind(&self, view: &View<'_>, block: &Block, kind: u32) -> Counted {
        let claim = self.table.of(view.heap, block.granule);
        let form = view.kinds.all.get(kind as usize).map(|kind| kind.entry.signature.form);
        // The vtable at the start of an array is that of its first element.
        let over = claim.rank == Rank::Taught || claim.over_vtable || claim.shape == Shape::Many;
        let proven = matches!(form, Some(Form::Object | Form::Exception)) && !over;
        match claim {
            Claim { disputed: true, .. } => Counted::Kind(kind),
            // Its holder knows more than its first member.
            claim if claim.rank == Rank::Vtable && !over && form == Some(Form::Named) => Counted::Kind(kind),
            claim if claim.is_some() && !proven => Counted::Type((claim.kind, claim.shape, claim.rank)),
            _ => Counted::Kind(kind),
        }
    }

    fn each(
        &self,
        view: &View<'_>,
        from: Next,
        control: &Control,
        mut each: impl FnMut(InUse, Counted) -> bool,
    ) -> Result<(), Stopped> {
        let stream = if view.census.direct { Stream::direct_leaks(view.heap) } else { Stream::from(view.heap, from) };
        for found in stream {
            if found.number % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(counted) = self.counted(view, &found) else { break };
            if !each(found, counted) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the sums of all kinds, of all types, and of the types of objects in pools. No byte is in two: a pool has the bytes
    /// that no object has.
    pub fn sums(&self, view: &View<'_>, control: &Control) -> Result<Sums, Stopped> {
        let mut kinds = vec![Sum::default(); view.kinds.all.len()];
        let mut types: HashMap<(Id, u8, u8), (Typed, Sum)> = HashMap::new();
        let mut pooled: HashMap<Pooled, Sum> = HashMap::new();
        self.each(view, (0, 0), control, |found, counted| {
            let mut whole = one(&found);
            let sum = match counted {
                Counted::Kind(kind) => {
                    for &(at, object) in self.pools.within(found.block.address, found.block.size) {
                        let part =
                            one(&InUse { block: Block { address: at, size: object.size, ..found.block }, ..found });
                        whole = without(&whole, object.size);
                        pooled.entry((object.kind, object.proofs > 0)).or_default().add(&part);
                    }
                    kinds.get_mut(kind as usize)
                }
                Counted::Type(of) => {
                    Some(&mut types.entry((of.0, of.1 as u8, of.2 as u8)).or_insert((of, Sum::default())).1)
                }
            };
            if let Some(sum) = sum {
                sum.add(&whole);
            }
            true
        })?;
        let mut types: Vec<(Typed, Sum)> = types.into_values().collect();
        types.sort_unstable_by_key(|&((id, shape, rank), _)| (id, shape as u8, rank));
        let mut pooled: Vec<(Pooled, Sum)> = pooled.into_iter().collect();
        pooled.sort_unstable_by_key(|&(of, _)| of);
        Ok((kinds, types, pooled))
    }

    /// Counts blocks as [`crate::graph::asked::asked`]: those that are counted by their kind, and not by a type.
    pub fn asked(
        &self,
        view: &View<'_>,
        records: &[&Records],
        sizes: &[u64],
        control: &Control,
    ) -> Result<Vec<Counts>, Stopped> {
        let mut asked = Asked::new(records, sizes);
        self.each(view, (0, 0), control, |found, counted| {
            if let Counted::Kind(kind) = counted {
                asked.see(&found, kind);
            }
            true
        })?;
        Ok(asked.finish())
    }

    /// Returns what the blocks of each group keep alive, as [`retained::by_group`]. A group has kinds, and types of which it
    /// is said whether they are arrays.
    pub fn retained(
        &self,
        view: &View<'_>,
        owners: &Owners,
        (kinds, types): (&[u32], &HashMap<(Id, bool), u32>),
        count: usize,
        control: &Control,
    ) -> Result<Vec<Retained>, Stopped> {
        let heap = OwnedHeap::new(view.heap, owners);
        let mut groups = vec![None; heap.vertices().len()];
        self.each(view, (0, 0), control, |found, counted| {
            let group = match counted {
                Counted::Kind(kind) => kinds.get(kind as usize),
                Counted::Type((id, shape, _)) => types.get(&(id, shape == Shape::Many)),
            };
            if let Some(place) = groups.get_mut(found.number) {
                *place = group.copied();
            }
            true
        })?;
        retained::by_block(heap, |number| groups.get(number).copied().flatten(), count, control)
    }

    /// Returns the direct leaks by type and size, as [`View::groups`] has them by kind and size.
    pub fn groups(&self, view: &View<'_>, control: &Control) -> Result<Vec<(Group, Counted)>, Stopped> {
        let mut groups: HashMap<(bool, u32, u64, u64), (Group, Counted)> = HashMap::new();
        self.each(view, (0, 0), control, |found, counted| {
            if found.state != State::LeakedDirectly {
                return true;
            }
            let empty = view.of_leak(&found);
            let number = match counted {
                Counted::Kind(kind) => u64::from(kind),
                Counted::Type((id, shape, _)) => 1 << 63 | u64::from(id) << 2 | shape as u64,
            };
            let key = (empty.single, empty.allocator, empty.size, number);
            groups.entry(key).or_insert((empty, counted)).0.add(&found);
            true
        })?;
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|&(key, _)| key);
        Ok(groups.into_iter().map(|(_, group)| group).collect())
    }

    /// Counts the blocks of a scope by kind or type, and by size.
    pub fn in_scope(
        &self,
        view: &View<'_>,
        owners: &Owners,
        scope: Scope,
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped> {
        let heap = OwnedHeap::new(view.heap, owners);
        let (within, vertices) = (heap.within(scope), heap.vertices());
        let mut found: HashMap<(u64, u64), Alike> = HashMap::new();
        self.each(view, (0, 0), control, |each, counted| {
            let Some(&vertex) = vertices.get(each.number) else { return false };
            if vertex == 0 || !within.get(vertex as usize).is_some_and(|&within| within) {
                return true;
            }
            let of = match counted {
                Counted::Kind(kind) => u64::from(kind) << 2,
                Counted::Type((id, shape, _)) => u64::from(id) << 2 | 2 | u64::from(shape == Shape::Many),
            };
            let (size, example) = (each.block.size, each.block.address);
            found.entry((of, size)).or_insert(Alike { counted, size, count: 0, example }).count += 1;
            true
        })?;
        let mut out: Vec<Alike> = found.into_values().collect();
        out.sort_unstable_by_key(|one| one.example);
        Ok(out)
    }

    /// Returns the addresses of up to `most` blocks of these kinds or types, in one of the states.
    pub fn addresses(
        &self,
        view: &View<'_>,
        (kinds, types): (&[u32], &[(Id, bool)]),
        states: &[State],
        from: Next,
        most: usize,
        control: &Control,
    ) -> Result<(Vec<u64>, Option<Next>), Stopped> {
        let (mut out, mut next) = (Vec::new(), None);
        self.each(view, from, control, |found, counted| {
            let wanted = match counted {
                Counted::Kind(kind) => kinds.contains(&kind),
                Counted::Type((id, shape, _)) => types.contains(&(id, shape == Shape::Many)),
            };
            if wanted && states.contains(&found.state) {
                if out.len() == most {
                    next = Some((found.number, found.block.address));
                    return false;
                }
                out.push(found.block.address);
            }
            true
        })?;
        Ok((out, next))
    }
}

/// Returns the sum of a block without so many of its bytes.
fn without(sum: &Sum, bytes: u64) -> Sum {
    let less = |(count, all): (u64, u64)| (count, all.saturating_sub(bytes));
    Sum { live: less(sum.live), leaked: less(sum.leaked), own: less(sum.own), ..*sum }
}

fn one(found: &InUse) -> Sum {
    let (address, size) = (found.block.address, found.block.size);
    let mut sum = Sum { sizes: Some((size, size)), first: Some(address), ..Sum::default() };
    match found.state {
        State::Own => sum.own = (1, size),
        State::LeakedDirectly | State::LeakedIndirectly => {
            sum.leaked = (1, size);
            sum.first_leaked = Some(address);
        }
        _ => sum.live = (1, size),
    }
    sum
}
