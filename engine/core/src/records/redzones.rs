//! The redzones that a recorder writes behind the requested end of each live block.

use super::record::Record;
use super::store::Records;
use crate::control::{Control, Stopped};
use crate::image::Image;

/// Bytes of memory that are read at once: many small blocks share a page.
const WINDOW: usize = 4096;
/// Records between two looks at whether the work was cancelled.
const STEP: usize = 1 << 16;

/// What the redzones of all live blocks say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Redzones {
    /// Blocks whose redzone was compared.
    pub compared: u64,
    /// Blocks whose redzone is not in the dump.
    pub unreadable: u64,
    /// Blocks whose redzone was written.
    pub damaged: u64,
    /// The first of the damaged ones, by address.
    pub first: Vec<Record>,
}

/// Compares `size` bytes behind the requested end of each live block with `byte`, and returns at most `most` damaged blocks.
pub fn redzones(
    records: &Records,
    image: &Image,
    size: usize,
    byte: u8,
    most: usize,
    control: &Control,
) -> Result<Redzones, Stopped> {
    let mut found = Redzones::default();
    let mut buffer = vec![0; size.max(WINDOW)];
    let (mut start, mut filled) = (0u64, 0);
    for (index, record) in records.all().iter().enumerate() {
        if index % STEP == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let Some(at) = record.address.checked_add(record.size) else {
            found.unreadable += 1;
            continue;
        };
        let inside = |start: u64, filled: usize| {
            let skip = usize::try_from(at.checked_sub(start)?).ok()?;
            (skip.checked_add(size)? <= filled).then_some(skip)
        };
        if inside(start, filled).is_none() {
            start = at;
            filled = image.read(start, &mut buffer);
        }
        let Some(skip) = inside(start, filled) else {
            found.unreadable += 1;
            continue;
        };
        found.compared += 1;
        if buffer[skip..skip + size].iter().any(|&here| here != byte) {
            found.damaged += 1;
            if found.first.len() < most {
                found.first.push(*record);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::super::stacks::Stacks;
    use super::*;
    use crate::image::{Segment, Source};

    fn check(blocks: &[(u64, u64)], bytes: Vec<u8>) -> Redzones {
        let all = blocks.iter().map(|&(address, size)| Record { address, size, ..Record::default() }).collect();
        let records = Records::new(all, Stacks::default(), Log::default(), 0);
        let segment = Segment { start: 1000, end: 1000 + bytes.len() as u64, source: Source::Bytes(bytes.into()) };
        let image = Image::new(&[], vec![segment]).unwrap();
        redzones(&records, &image, 16, 0xbb, 1, &Control::default()).unwrap()
    }

    #[test]
    fn every_redzone_is_compared() {
        let mut bytes = vec![0xbb; 20000];
        bytes[28 + 15] = 0; // the last byte of the first
        bytes[15000 + 8] = 1;
        let found = check(&[(1000, 28), (1064, 28), (5000, 11000), (16500, 0)], bytes);
        assert_eq!((found.compared, found.damaged, found.unreadable), (4, 2, 0));
        assert_eq!(found.first.iter().map(|record| record.address).collect::<Vec<_>>(), [1000]);
    }

    #[test]
    fn a_redzone_that_is_not_in_the_dump_is_counted() {
        let found = check(&[(1000, 90), (1010, 74), (1020, u64::MAX), (5000, 1), (u64::MAX - 3, 2)], vec![0xbb; 100]);
        assert_eq!((found.compared, found.damaged, found.unreadable), (1, 0, 4));
    }
}
