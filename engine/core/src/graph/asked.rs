//! Objects whose allocation records say that the program asked for just their size.
//!
//! A block has room for more than was asked for. So a vtable pointer at its start may be that of an object that something
//! larger begins with. Where the record has the object's size, nothing else is in the block.

use super::by_stack::Cursor;
use super::stream::InUse;
use super::sums::View;
use crate::blocks::model::State;
use crate::control::{Control, Stopped};
use crate::records::Records;

/// Live blocks, and leaked ones.
pub type Counts = (u64, u64);

/// Counts the blocks of each kind that were asked for with the size of its objects.
pub struct Asked<'a> {
    cursor: Cursor<'a>,
    sizes: &'a [u64],
    counts: Vec<Counts>,
}

impl<'a> Asked<'a> {
    /// Begins to count. `sizes` has the size of the objects of each kind, 0 where it is not known.
    pub fn new(records: &[&'a Records], sizes: &'a [u64]) -> Self {
        Asked { cursor: Cursor::new(records), sizes, counts: vec![(0, 0); sizes.len()] }
    }

    /// Looks at a block of a kind. Its address is higher than those before.
    #[inline]
    pub fn see(&mut self, found: &InUse, kind: u32) {
        let Some(&wanted) = self.sizes.get(kind as usize).filter(|&&size| size > 0) else { return };
        let record = self.cursor.of(found.block.address, found.block.size);
        if record.is_none_or(|(_, record)| record.size != wanted) {
            return;
        }
        if let Some((live, leaked)) = self.counts.get_mut(kind as usize) {
            match found.state {
                State::LeakedDirectly | State::LeakedIndirectly => *leaked += 1,
                State::Own => {}
                _ => *live += 1,
            }
        }
    }

    /// Returns the counts by kind.
    pub fn finish(self) -> Vec<Counts> {
        self.counts
    }
}

/// Counts the blocks of each kind that were asked for with the size of its objects: see [`Asked::new`].
pub fn asked(view: &View, records: &[&Records], sizes: &[u64], control: &Control) -> Result<Vec<Counts>, Stopped> {
    let mut asked = Asked::new(records, sizes);
    view.each(control, |found, kind| {
        asked.see(&found, kind);
        true
    })?;
    Ok(asked.finish())
}
