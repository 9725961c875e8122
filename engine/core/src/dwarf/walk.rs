//! A walk over entries, in the order of the file. What a pass does not need is passed over without reading its attributes: most
//! entries of C++ are parameters of functions that are only declared.

use gimli::constants as c;
use gimli::{Abbreviation, DwTag, EntriesRaw, Unit, UnitOffset};

use super::die::{offset_in_unit, Die};
use crate::lines::Bounded;

/// Whether a walk goes on.
pub(super) enum Below {
    /// With the children of the entry.
    Go,
    /// With its next sibling.
    Skip,
    /// Not at all.
    Stop,
}

/// Where a walk is. Depths count from the entry that it began with, 0.
struct Walk<'u, 'a> {
    unit: &'u Unit<Bounded<'a>>,
    entries: EntriesRaw<'u, 'u, Bounded<'a>>,
    /// The depth at which `entries` began.
    above: isize,
    /// What is deeper is passed over.
    passed: Option<isize>,
}

/// Calls `each` for the entry at an offset of a unit, and for the entries below it that are `wanted`, by their tag and whether they
/// have children. An entry that is not wanted is passed over with all that is below it.
pub(super) fn walk<'a>(
    unit: &Unit<Bounded<'a>>,
    start: usize,
    wanted: impl Fn(DwTag, bool) -> bool,
    mut each: impl FnMut(Die<'a>) -> gimli::Result<Below>,
) -> gimli::Result<()> {
    let entries = unit.entries_raw(Some(UnitOffset(start)))?;
    let mut walk = Walk { unit, entries, above: 0, passed: None };
    while !walk.entries.is_empty() {
        let (offset, depth) = (walk.entries.next_offset().0, walk.above + walk.entries.next_depth());
        let Some(abbreviation) = walk.entries.read_abbreviation()? else {
            if depth <= 1 {
                break;
            }
            continue;
        };
        if depth < 0 || (depth == 0 && offset != start) {
            break;
        }
        if walk.passed.is_some_and(|passed| depth > passed) {
            walk.entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        walk.passed = None;
        let children = abbreviation.has_children();
        if depth > 0 && !wanted(abbreviation.tag(), children) {
            walk.pass(depth, abbreviation)?;
            continue;
        }
        let die = Die::read(&mut walk.entries, abbreviation, offset, depth)?;
        let sibling = die.sibling;
        match each(die)? {
            Below::Stop => break,
            Below::Skip => walk.pass_children(depth, sibling),
            Below::Go => {}
        }
        if depth == 0 && !children {
            break;
        }
    }
    Ok(())
}

impl<'a> Walk<'_, 'a> {
    /// Passes over the attributes of an entry, and over what is below it.
    fn pass(&mut self, depth: isize, abbreviation: &Abbreviation) -> gimli::Result<()> {
        let attributes = abbreviation.attributes();
        if !abbreviation.has_children() {
            return self.entries.skip_attributes(attributes);
        }
        let Some(place) = attributes.iter().position(|one| one.name() == c::DW_AT_sibling) else {
            self.passed = Some(depth);
            return self.entries.skip_attributes(attributes);
        };
        self.entries.skip_attributes(&attributes[..place])?;
        let sibling = self.entries.read_attribute(attributes[place])?.value();
        self.entries.skip_attributes(&attributes[place + 1..])?;
        self.pass_children(depth, offset_in_unit(&sibling));
        Ok(())
    }

    /// Goes on behind what is below an entry, whose attributes were read: at its sibling, if it says where that is.
    fn pass_children(&mut self, depth: isize, sibling: Option<usize>) {
        self.passed = Some(depth);
        // Forward only: a damaged file must not lead in a ring. The parent of all has no sibling here.
        let Some(at) = sibling.filter(|&at| depth > 0 && at > self.entries.next_offset().0) else { return };
        if let Ok(entries) = self.unit.entries_raw(Some(UnitOffset(at))) {
            (self.entries, self.above) = (entries, depth);
        }
    }
}
