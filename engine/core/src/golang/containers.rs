//! What the runtime's own containers lead to: maps and channels.

use super::objects::Shape;
use super::spread::Typed;
use super::types::{kind, word};

const MOST_TABLES: u64 = 1 << 20; // bytes of a list of tables

impl Typed {
    /// runtime.hmap: buckets at 16, old ones at 24. internal/runtime/maps.Map (1.24): groups or tables at 16, how many
    /// tables at 24.
    pub(super) fn follow_map(&mut self, number: u32, at: u64) {
        let Some(bucket) = self.types.bucket(number) else { return };
        let Some([buckets, old]) = self.image.words::<2>(at.wrapping_add(16), 8) else { return };
        // A group begins with a word of control bytes; a bucket begins with an array of 8 bytes.
        let first = self.types.first_part(bucket);
        let swiss = first.and_then(|first| self.types.get(first)).is_some_and(|first| first.kind == kind::UINT64);
        if !swiss {
            let size = self.types.get(bucket).map_or(0, |one| one.size);
            for buckets in [buckets, old] {
                self.claim_buckets(buckets, bucket, size);
            }
        } else if old == 0 {
            self.claim_value(buckets, bucket);
        } else if old < 1 << 32 {
            self.claim_whole(buckets, Shape::Directory, number, old * 8);
        }
    }

    /// The array of buckets has overflow buckets behind: how many is not in the map.
    fn claim_buckets(&mut self, address: u64, bucket: u32, size: u64) {
        let pointers = self.types.get(bucket).is_some_and(|one| one.pointers);
        let Some(object) = self.begins(address, pointers).filter(|_| size > 0) else { return };
        let span = &self.objects.spans[object.span];
        let one = span.fits(size, self.objects.header(span));
        self.claim(object, if one { Shape::One } else { Shape::Array }, bucket);
    }

    pub(super) fn follow_directory(&mut self, number: u32, at: u64, room: u64) {
        let mut bytes = vec![0; room.min(MOST_TABLES) as usize];
        let got = self.image.read(at, &mut bytes);
        for part in bytes[..got].chunks_exact(8) {
            self.claim_whole(word(part, 0), Shape::Table, number, 32);
        }
    }

    /// internal/runtime/maps.table: the groups at 16, their number less 1 at 24.
    pub(super) fn follow_table(&mut self, number: u32, at: u64) {
        let Some(group) = self.types.bucket(number) else { return };
        let Some([groups, mask]) = self.image.words::<2>(at.wrapping_add(16), 8) else { return };
        let size = self.types.get(group).map_or(0, |one| one.size);
        self.claim_array(groups, group, mask.saturating_add(1).saturating_mul(size));
    }

    /// struct hchan: how many elements there is room for at 8, where they are at 16.
    pub(super) fn follow_channel(&mut self, number: u32, at: u64) {
        let Some(element) = self.types.element_of(number) else { return };
        let Some([room, buffer]) = self.image.words::<2>(at.wrapping_add(8), 8) else { return };
        let size = self.types.get(element).map_or(0, |one| one.size);
        match (self.objects.find(buffer), self.objects.find(at)) {
            (Some(holds), Some(own)) if holds == own => {}
            _ => self.claim_array(buffer, element, room.saturating_mul(size)),
        }
    }
}
