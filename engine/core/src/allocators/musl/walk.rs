//! All groups and blocks of one mallocng.

use super::find::{areas, Context};
use super::group::{self, Flaw, Group, NONE};
use super::layout::{Layout, AREA};
use super::slot::{self, Block, Damage, Slot};
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// How many faults are described. All are counted.
const DESCRIBED: usize = 100;

/// What is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The area of metas has another number of metas.
    Area,
    /// The bit fields of the meta describe no group.
    Fields,
    /// The meta's group lies where no memory is.
    Place,
    /// The group does not point back to its meta.
    Back,
    /// The group lies across another one, or in a slot that is free.
    Overlap,
    /// The block's header is overwritten.
    Header,
    /// The count of unused bytes at the block's end is overwritten.
    Reserved,
    /// The first byte of the block's header is not 0.
    Check,
    /// The byte behind the block is not 0.
    Overflow,
}

impl Fault {
    /// Returns its name for the Python side.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Area => "area",
            Fault::Fields => "fields",
            Fault::Place => "place",
            Fault::Back => "back",
            Fault::Overlap => "overlap",
            Fault::Header => "header",
            Fault::Reserved => "reserved",
            Fault::Check => "check",
            Fault::Overflow => "overflow",
        }
    }
}

/// Slots of one size side by side that hold no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSlots {
    /// The address of the first one.
    pub start: u64,
    /// Bytes of each.
    pub stride: u64,
    /// How many.
    pub count: u32,
}

/// Everything that one mallocng manages.
#[derive(Debug, Default)]
pub struct Walked {
    /// The areas of metas.
    pub areas: Vec<u64>,
    /// Whether the list of areas is whole.
    pub listed: bool,
    /// How many areas the dump has only a part of.
    pub missing_areas: u64,
    /// The groups, by address. A group comes before those in its slots.
    pub groups: Vec<Group>,
    /// The blocks in use, in no order.
    pub blocks: Vec<Block>,
    /// The free slots.
    pub free: Vec<FreeSlots>,
    /// Slots that a thread is about to give out or has begun to free.
    pub between: Vec<u64>,
    /// How many blocks have a header that the dump lacks.
    pub missing: u64,
    /// The first faults, as (what is wrong, where, what belongs there or what is there).
    pub faults: Vec<(Fault, u64, u64)>,
    /// How many faults there are.
    pub fault_count: u64,
}

impl Walked {
    fn fault(&mut self, fault: Fault, at: u64, what: u64) {
        self.fault_count += 1;
        if self.faults.len() < DESCRIBED {
            self.faults.push((fault, at, what));
        }
    }

    /// Returns the innermost group that holds the address.
    pub fn group_at(&self, address: u64) -> Option<&Group> {
        let mut index = self.groups.partition_point(|group| group.start <= address).checked_sub(1)?;
        loop {
            let group = self.groups.get(index)?;
            if address < group.end {
                return Some(group);
            }
            index = usize::try_from(group.parent).ok().filter(|_| group.parent != NONE)?;
        }
    }
}

/// Reads all groups. `inside` is the writable memory that may hold them: sorted ranges that do not touch.
pub fn walk(
    image: &Image,
    context: &Context,
    layout: Layout,
    inside: &[(u64, u64)],
    control: &Control,
) -> Result<Walked, Stopped> {
    let mut walked = Walked::default();
    let found = areas(image, context, layout, inside, control);
    (walked.areas, walked.listed) = (found.all, found.whole);
    let groups = groups(image, layout, inside, &mut walked, control);
    nest(groups, &mut walked);
    let mut reader = CachedReader::new(image);
    for index in 0..walked.groups.len() {
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let group = walked.groups[index];
        slots(&mut reader, &group, &mut walked);
        if group.is_outermost() {
            control.add(group.end - group.start);
        }
    }
    Ok(walked)
}

/// Returns the groups of all metas, in no order.
fn groups(image: &Image, layout: Layout, inside: &[(u64, u64)], walked: &mut Walked, control: &Control) -> Vec<Group> {
    let mut found = Vec::new();
    let mut page = vec![0; AREA as usize];
    let mut reader = CachedReader::new(image);
    for area in walked.areas.clone() {
        if control.cancelled() {
            break;
        }
        let got = image.read(area, &mut page);
        walked.missing_areas += u64::from(got < page.len());
        let count = 8 + layout.word as usize;
        if page[..got].get(count..count + 4) != Some(&(layout.metas() as u32).to_le_bytes()[..]) {
            walked.fault(Fault::Area, area, layout.metas());
        }
        let metas = page[..got].get(layout.area_header() as usize..).unwrap_or_default();
        for (index, bytes) in metas.chunks_exact(layout.meta() as usize).enumerate() {
            let meta = area + layout.area_header() + index as u64 * layout.meta();
            match group::read(bytes, meta, layout) {
                None => {}
                Some(Err(Flaw::Fields)) => walked.fault(Fault::Fields, meta, 0),
                Some(Err(Flaw::Place)) => walked.fault(Fault::Place, meta, 0),
                Some(Ok(group)) if !is_inside(inside, &group) => walked.fault(Fault::Place, meta, group.start),
                Some(Ok(group)) => {
                    if reader.word(group.start, layout.word).is_some_and(|back| back != meta) {
                        walked.fault(Fault::Back, group.start, meta);
                    }
                    found.push(group);
                }
            }
        }
    }
    found
}

fn is_inside(inside: &[(u64, u64)], group: &Group) -> bool {
    let place = inside.partition_point(|range| range.1 <= group.start);
    inside.get(place).is_some_and(|range| range.0 <= group.start && group.end <= range.1)
}

/// Sorts the groups, and finds those that lie in a slot of another one. Groups that lie across another one are left out.
fn nest(mut groups: Vec<Group>, walked: &mut Walked) {
    groups.sort_by_key(|group| (group.start, std::cmp::Reverse(group.end), group.meta));
    let mut around: Vec<usize> = Vec::new();
    let mut kept: Vec<Group> = Vec::with_capacity(groups.len());
    for mut group in groups {
        while around.last().is_some_and(|&index| kept[index].end <= group.start) {
            around.pop();
        }
        if let Some(&index) = around.last() {
            let outer = &mut kept[index];
            let slot = outer.slot_of(group.start).filter(|&slot| outer.slot(slot) == group.start);
            match slot.filter(|&slot| group.end <= outer.slot_end(slot) + 4 && !group.mapped && outer.in_use(slot)) {
                Some(slot) if outer.nested >> slot & 1 == 0 => {
                    outer.nested |= 1 << slot;
                    group.parent = index as u32;
                }
                _ => {
                    walked.fault(Fault::Overlap, group.start, outer.start);
                    continue;
                }
            }
        }
        around.push(kept.len());
        kept.push(group);
    }
    walked.groups = kept;
}

/// Reads the slots of a group.
fn slots(reader: &mut CachedReader, group: &Group, walked: &mut Walked) {
    let mut free: Option<FreeSlots> = None;
    for index in 0..group.count {
        let start = group.slot(index);
        let nested = group.nested >> index & 1 != 0;
        let read = (group.in_use(index) && !nested).then(|| slot::read(reader, group, index));
        match read {
            _ if nested => {}
            None | Some(Slot::Between) => {
                if read.is_some() {
                    walked.between.push(start);
                }
                match &mut free {
                    Some(run) => run.count += 1,
                    None => free = Some(FreeSlots { start, stride: group.stride, count: 1 }),
                }
                continue;
            }
            Some(Slot::Missing) => {
                walked.missing += 1;
                walked.blocks.push(Block { start, size: group.slot_end(index) - start });
            }
            Some(Slot::Block(block, damage)) => {
                match damage {
                    Some(Damage::Header) => walked.fault(Fault::Header, block.start, group.start),
                    Some(Damage::Reserved) => walked.fault(Fault::Reserved, block.start, group.start),
                    Some(Damage::Check) => walked.fault(Fault::Check, block.start, group.start),
                    Some(Damage::Overflow { at, byte }) => {
                        walked.fault(Fault::Overflow, block.start, at << 8 | u64::from(byte));
                    }
                    None => {}
                }
                walked.blocks.push(block);
            }
        }
        walked.free.extend(free.take());
    }
    walked.free.extend(free);
}
