//! A heap with its owners, and the questions about them.

use super::edges::Edges;
use super::leading::Held;
use super::owners::{Alike, Kept, Line, Owners, Scope};
use super::parts;
use super::paths::{self, Origin, Wanted};
use super::reference::Reference;
use super::roots::Named;
use crate::blocks::model::Heap;
use crate::blocks::widths::by_width;
use crate::control::{Control, Stopped};
use crate::image::Image;
use std::ops::{Deref, DerefMut};

/// A heap, and what its pointers say. It answers what is asked of a heap as well.
pub struct OwnedHeap {
    heap: Box<dyn Heap>,
    owners: Option<Owners>,
}

impl Deref for OwnedHeap {
    type Target = dyn Heap;
    fn deref(&self) -> &Self::Target {
        &*self.heap
    }
}

impl DerefMut for OwnedHeap {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.heap
    }
}

impl OwnedHeap {
    /// Makes one whose owners are not known. Until they are, the questions about them have empty answers.
    pub fn new(heap: Box<dyn Heap>) -> Self {
        OwnedHeap { heap, owners: None }
    }

    /// Finds the owners of all blocks, once the leaks have been found.
    pub fn find_owners(&mut self, image: &Image, named: Named, control: &Control) -> Result<(), Stopped> {
        let owners = by_width!(Widths, self.heap.widths(), heap => {
            Owners::find(heap.tables(), image, named, &heap.own, heap.leaks.as_ref(), control)?
        });
        self.owners = Some(owners);
        Ok(())
    }

    /// Returns the owners, once they have been found.
    pub fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    /// See [`Owners::lines`].
    pub fn owner_lines(&self) -> Vec<Line> {
        self.owners.as_ref().map_or(Vec::new(), Owners::lines)
    }

    /// See [`Owners::above`].
    pub fn owners_above(&self, address: u64, most: usize) -> Option<(Vec<Kept>, u32)> {
        let owners = self.owners.as_ref()?;
        by_width!(Widths, self.heap.widths(), heap => owners.above(heap.tables(), address, most))
    }

    /// Returns the stacks of holders: see [`Owners::reference`].
    pub fn reference(&self, kind: &dyn Fn(usize) -> u32) -> Reference {
        let Some(owners) = &self.owners else { return Reference::default() };
        by_width!(Widths, self.heap.widths(), heap => owners.reference(heap.tables(), kind))
    }

    /// See [`Owners::largest`].
    pub fn largest(&self, scope: Scope, most: usize) -> Vec<Kept> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.largest(heap.tables(), scope, most))
    }

    /// See [`Owners::addresses`].
    pub fn addresses_in(&self, scope: Scope, from: u64, most: usize) -> Vec<u64> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.addresses(heap.tables(), scope, from, most))
    }

    /// See [`Owners::spread`].
    pub fn spread(&self, scope: Scope, of: (u64, u64), most: usize) -> Vec<u64> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.spread(heap.tables(), scope, of, most))
    }

    /// See [`Owners::held_by_words`].
    pub fn held_by_words(&self, image: &Image, address: u64, most: u64) -> Vec<(u64, Kept)> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.held_by_words(heap.tables(), image, address, most))
    }

    /// See [`Owners::led_to`].
    pub fn led_to(
        &self,
        image: &Image,
        held: Held,
        sizes: &[u64],
        control: &Control,
    ) -> Result<Vec<(u64, u64)>, Stopped> {
        let Some(owners) = &self.owners else { return Ok(Vec::new()) };
        by_width!(Widths, self.heap.widths(), heap => owners.led_to(heap.tables(), image, held, sizes, control))
    }

    /// See [`Owners::alike`].
    pub fn alike(
        &self,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped> {
        let Some(owners) = &self.owners else { return Ok(Vec::new()) };
        by_width!(Widths, self.heap.widths(), heap => owners.alike(heap.tables(), image, scope, ranges, control))
    }

    /// See [`Owners::vertices`].
    pub fn vertices(&self) -> Vec<u32> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.vertices(heap.tables()))
    }

    /// Returns for each vertex whether it is in the scope.
    pub fn within(&self, scope: Scope) -> Vec<bool> {
        let Some(owners) = &self.owners else { return Vec::new() };
        by_width!(Widths, self.heap.widths(), heap => owners.within(heap.tables(), scope))
    }

    /// Returns a shortest path to the block at `address`: its origin, and the addresses of the blocks. See [`paths`].
    pub fn path(
        &self,
        image: &Image,
        named: Named,
        root: Option<u32>,
        address: u64,
        control: &Control,
    ) -> Result<Option<(Origin, Vec<u64>)>, Stopped> {
        // A path through the structures says more than one through a word that is left over.
        let cut = self.owners.as_ref().map(|owners| &owners.set_aside).filter(|cut| cut.count > 0);
        by_width!(Widths, self.heap.widths(), heap => {
            let tables = heap.tables();
            let Some(goal) = tables.find(address).filter(|block| !block.free).map(|block| block.granule) else {
                return Ok(None);
            };
            let leaked = heap.leaks.as_ref().is_some_and(|leaks| leaks.is_leaked(goal));
            // The words of variables are roots, so no path comes to them through the block that they lie in.
            let taken = if cut.is_none() { parts::taken(tables, image, named) } else { Edges::default() };
            let cut = cut.or(Some(&taken)).filter(|cut| cut.count > 0);
            let search = |cut| {
                let wanted = Wanted { root, leaked, cut };
                paths::shortest(tables, image, named, (&heap.own, heap.direct()), wanted, goal, control)
            };
            let found = match (search(cut)?, cut) {
                (None, Some(_)) => search(None)?,
                (found, _) => found,
            };
            let word_map = &tables.word_map;
            let address = |granule: usize| word_map.user(word_map.run_of_granule(granule), granule);
            Ok(found.map(|(origin, path)| (origin, path.into_iter().map(address).collect())))
        })
    }
}
