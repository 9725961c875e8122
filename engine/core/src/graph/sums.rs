//! Counts the blocks of each kind, and lists them.

use std::collections::BTreeMap;

use super::kinds::Kinds;
use super::stream::{InUse, Stream};
use crate::blocks::leaks::Group;
use crate::blocks::model::{Heap, State};
use crate::contents::{Census, Form, Sum};
use crate::control::{Control, Stopped};

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 16;

/// The number and the address of the block that a list goes on with.
pub type Next = (usize, u64);

/// The kinds of one heap: how to get from a block to its kind.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The heap.
    pub heap: &'a dyn Heap,
    /// Its signatures.
    pub census: &'a Census,
    /// The kind of each of its entries.
    pub of_entry: &'a [u32],
    /// All kinds.
    pub kinds: &'a Kinds,
}

impl<'a> View<'a> {
    /// Makes the view of census number `index` of the kinds.
    pub fn new(heap: &'a dyn Heap, census: &'a Census, kinds: &'a Kinds, index: usize) -> Self {
        View { heap, census, of_entry: kinds.of_entry.get(index).map_or(&[], Vec::as_slice), kinds }
    }

    /// Returns the kind of a block in use.
    #[inline]
    pub fn kind(&self, number: usize) -> Option<u32> {
        let entry = *self.census.of_block.get(number)? as usize;
        self.of_entry.get(entry).copied()
    }

    /// Returns whether a kind is a class of objects.
    pub fn is_object(&self, kind: u32) -> bool {
        self.kinds.all.get(kind as usize).is_some_and(|kind| kind.entry.signature.form == Form::Object)
    }

    pub(super) fn each(&self, control: &Control, each: impl FnMut(InUse, u32) -> bool) -> Result<(), Stopped> {
        self.each_from((0, 0), control, each)
    }

    fn each_from(
        &self,
        from: Next,
        control: &Control,
        mut each: impl FnMut(InUse, u32) -> bool,
    ) -> Result<(), Stopped> {
        let stream = match self.census.direct {
            true => Stream::direct_leaks(self.heap),
            false => Stream::from(self.heap, from),
        };
        for found in stream {
            if found.number % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let Some(kind) = self.kind(found.number) else { break };
            if !each(found, kind) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the sum of each kind.
    pub fn sums(&self) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.kinds.all.len()];
        for (entry, &kind) in self.census.entries.iter().zip(self.of_entry) {
            if let Some(sum) = sums.get_mut(kind as usize) {
                sum.add(&entry.sum);
            }
        }
        sums
    }

    /// Returns the direct leaks by kind and size, as [`crate::blocks::model::Heap::groups`] has them by size.
    pub fn groups(&self, control: &Control) -> Result<Vec<(Group, u32)>, Stopped> {
        let mut groups: BTreeMap<(bool, u32, u64, u32), Group> = BTreeMap::new();
        self.each(control, |found, kind| {
            if found.state != State::LeakedDirectly {
                return true;
            }
            let alike = self.of_leak(&found);
            groups.entry((alike.single, alike.allocator, alike.size, kind)).or_insert(alike).add(&found);
            true
        })?;
        Ok(groups.into_iter().map(|((.., kind), group)| (group, kind)).collect())
    }

    /// Returns the addresses of up to `most` blocks of these kinds, in one of the states. `from` is the number and the
    /// address of the first block to look at; where there may be more, those to go on with are returned.
    pub fn addresses(
        &self,
        wanted: &[u32],
        states: &[State],
        from: Next,
        most: usize,
        control: &Control,
    ) -> Result<(Vec<u64>, Option<Next>), Stopped> {
        let (mut out, mut next) = (Vec::new(), None);
        self.each_from(from, control, |found, kind| {
            if wanted.contains(&kind) && states.contains(&found.state) {
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

    /// Returns for each of these kinds the addresses of its first blocks in one of the states, up to `most`. One pass finds all.
    pub fn examples(
        &self,
        wanted: &[u32],
        states: &[State],
        most: usize,
        control: &Control,
    ) -> Result<Vec<Vec<u64>>, Stopped> {
        let mut places = vec![None; self.kinds.all.len()];
        for (place, &kind) in wanted.iter().enumerate() {
            if let Some(found) = places.get_mut(kind as usize) {
                *found = Some(place);
            }
        }
        let mut out = vec![Vec::new(); wanted.len()];
        let mut left = wanted.len();
        self.each(control, |found, kind| {
            let place = places.get(kind as usize).copied().flatten();
            if let Some(list) = place.and_then(|place| out.get_mut(place)) {
                if list.len() < most && states.contains(&found.state) {
                    list.push(found.block.address);
                    left -= usize::from(list.len() == most);
                }
            }
            left > 0
        })?;
        Ok(out)
    }

    /// Returns the kind of the block at each address, where one in use begins there. The addresses are sorted.
    pub fn kinds_at(&self, asked: &[u64], control: &Control) -> Result<Vec<Option<u32>>, Stopped> {
        let mut out = vec![None; asked.len()];
        let mut next = 0;
        self.each(control, |found, kind| {
            while next < asked.len() && asked[next] < found.block.address {
                next += 1;
            }
            while next < asked.len() && asked[next] == found.block.address {
                out[next] = Some(kind);
                next += 1;
            }
            next < asked.len()
        })?;
        Ok(out)
    }
}
