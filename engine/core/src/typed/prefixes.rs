//! Structs that begin with all members of another one: C's way to derive a type.

use super::maps::HashMap;
use super::propagate::Spread;
use crate::dwarf::model::{Id, Record};

/// Members with which a family begins, at least: one may be the same by chance.
const LEAST_MEMBERS: usize = 2;
/// Structs whose members have the same names and places, and other types. A crafted file may have thousands.
const MOST_ALIKE: usize = 16;
/// Members of a struct that are compared.
const MOST_MEMBERS: usize = 64;

impl Spread<'_, '_> {
    /// Adds the structs that begin with all members of another to the structs that contain it.
    pub(super) fn add_prefixes(&mut self, records: &[Id], out: &mut HashMap<(Id, u64), Vec<(u64, Id)>>) {
        let mut whole: HashMap<u64, Vec<Id>> = HashMap::default();
        for &id in records {
            if let Some((count, hash)) = self.prefix_hashes(id).last() {
                if *count >= LEAST_MEMBERS {
                    let same = whole.entry(*hash).or_default();
                    if same.len() < MOST_ALIKE {
                        same.push(id);
                    }
                }
            }
        }
        for &id in records {
            let mut hashes = self.prefix_hashes(id);
            hashes.pop();
            for (_, hash) in hashes.into_iter().filter(|&(count, _)| count >= LEAST_MEMBERS) {
                for base in whole.get(&hash).cloned().unwrap_or_default() {
                    if self.begins_with(id, base) {
                        let (outer, base) = (self.canonical(id), self.canonical(base));
                        out.entry((base, 0)).or_default().push((self.types().size(outer), outer));
                    }
                }
            }
        }
    }

    /// Returns the hashes of a struct's first members: how many members, and the hash of their names and offsets.
    fn prefix_hashes(&self, id: Id) -> Vec<(usize, u64)> {
        let Some(record) = self.types().record(id).filter(|record| !record.union) else { return Vec::new() };
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut out = Vec::new();
        for (index, member) in record.members.iter().take(MOST_MEMBERS).enumerate() {
            if member.name.is_empty() || member.base {
                return Vec::new();
            }
            for byte in member.name.bytes().chain(member.offset.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            out.push((index + 1, hash));
        }
        if record.members.len() > MOST_MEMBERS {
            out.push((0, 0));
        }
        out
    }

    /// Returns whether a struct begins with all members of another: their names, places and types.
    pub(super) fn begins_with(&mut self, outer: Id, base: Id) -> bool {
        let (Some(outer), Some(base)) = (self.types().record(outer).cloned(), self.types().record(base).cloned())
        else {
            return false;
        };
        let plain = |record: &Record| !record.union && record.discriminant.is_none();
        plain(&outer)
            && plain(&base)
            && (LEAST_MEMBERS..outer.members.len()).contains(&base.members.len())
            && base.members.iter().zip(&outer.members).all(|(one, other)| {
                !one.name.is_empty()
                    && (&one.name, one.offset, one.bits) == (&other.name, other.offset, other.bits)
                    && self.canonical(one.kind) == self.canonical(other.kind)
            })
    }
}
