//! A marked heap with its owners, and the questions about them.

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
use std::ops::Deref;

/// Finds the owners of all blocks of a marked heap.
pub fn find_owners(heap: &dyn Heap, image: &Image, named: Named, control: &Control) -> Result<Owners, Stopped> {
    by_width!(Widths, heap.widths(), heap => {
        Owners::find(heap.tables(), image, named, &heap.own, heap.leaks.as_ref(), control)
    })
}

/// A marked heap, and its owners. It answers what is asked of a heap as well.
#[derive(Clone, Copy)]
pub struct OwnedHeap<'a> {
    heap: &'a dyn Heap,
    /// Its owners.
    pub owners: &'a Owners,
}

impl<'a> Deref for OwnedHeap<'a> {
    type Target = dyn Heap + 'a;
    fn deref(&self) -> &Self::Target {
        self.heap
    }
}

impl<'a> OwnedHeap<'a> {
    /// Puts both together. The owners are those of this heap.
    pub fn new(heap: &'a dyn Heap, owners: &'a Owners) -> Self {
        OwnedHeap { heap, owners }
    }

    /// See [`Owners::lines`].
    pub fn owner_lines(&self) -> Vec<Line> {
        self.owners.lines()
    }

    /// See [`Owners::above`].
    pub fn owners_above(&self, address: u64, most: usize) -> Option<(Vec<Kept>, u32)> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.above(heap.tables(), address, most))
    }

    /// Returns the stacks of holders: see [`Owners::reference`].
    pub fn reference(&self, kind: &dyn Fn(usize) -> u32) -> Reference {
        by_width!(Widths, self.heap.widths(), heap => self.owners.reference(heap.tables(), kind))
    }

    /// See [`Owners::largest`].
    pub fn largest(&self, scope: Scope, most: usize) -> Vec<Kept> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.largest(heap.tables(), scope, most))
    }

    /// See [`Owners::addresses`].
    pub fn addresses_in(&self, scope: Scope, from: u64, most: usize) -> Vec<u64> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.addresses(heap.tables(), scope, from, most))
    }

    /// See [`Owners::spread`].
    pub fn spread(&self, scope: Scope, of: (u64, u64), most: usize) -> Vec<u64> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.spread(heap.tables(), scope, of, most))
    }

    /// See [`Owners::held_by_words`].
    pub fn held_by_words(&self, image: &Image, address: u64, most: u64) -> Vec<(u64, Kept)> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.held_by_words(heap.tables(), image, address, most))
    }

    /// See [`Owners::led_to`].
    pub fn led_to(
        &self,
        image: &Image,
        held: Held,
        sizes: &[u64],
        control: &Control,
    ) -> Result<Vec<(u64, u64)>, Stopped> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.led_to(heap.tables(), image, held, sizes, control))
    }

    /// See [`Owners::alike`].
    pub fn alike(
        &self,
        image: &Image,
        scope: Scope,
        ranges: &[(u64, u64)],
        control: &Control,
    ) -> Result<Vec<Alike>, Stopped> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.alike(heap.tables(), image, scope, ranges, control))
    }

    /// See [`Owners::vertices`].
    pub fn vertices(&self) -> Vec<u32> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.vertices(heap.tables()))
    }

    /// Returns for each vertex whether it is in the scope.
    pub fn within(&self, scope: Scope) -> Vec<bool> {
        by_width!(Widths, self.heap.widths(), heap => self.owners.within(heap.tables(), scope))
    }
}

/// Returns a shortest path to the block at `address` of a marked heap: its origin, and the addresses of the blocks. Words
/// that the owners set aside count only if nothing else leads there. See [`paths`].
pub fn path(
    heap: &dyn Heap,
    owners: Option<&Owners>,
    image: &Image,
    named: Named,
    root: Option<u32>,
    address: u64,
    control: &Control,
) -> Result<Option<(Origin, Vec<u64>)>, Stopped> {
    // A path through the structures says more than one through a word that is left over.
    let cut = owners.map(|owners| &owners.set_aside).filter(|cut| cut.count > 0);
    by_width!(Widths, heap.widths(), heap => {
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
