//! What tells a record apart: each unit that uses a type declares it again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use gimli::constants as c;

use super::die::{Die, Reference};
use super::file::{Key, Parsed};
use super::index::Index;
use super::model::{self, Types};
use super::names::{digest, Full};
use super::walk::Below;

/// What tells a record apart; its name, if that was made just now; its size in bytes.
pub(super) struct Identity {
    pub(super) key: model::Key,
    pub(super) name: Option<String>,
    pub(super) size: u64,
}

/// Members of one record.
pub(super) const MOST_MEMBERS: usize = 1 << 14;

/// Everything that reading needs.
pub(super) struct From<'r, 'a> {
    pub(super) parsed: &'r Parsed<'a>,
    pub(super) index: &'r mut Index,
    pub(super) types: &'r mut Types,
}

/// Tells records apart.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// Hashes of types to which members of records in a unit refer.
    kinds: HashMap<Key, u64, RandomState>,
    unit: u32,
}

impl Identities {
    /// Returns what tells a record apart. None: it has no name at all.
    pub(super) fn of<'a>(&mut self, from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> Option<Identity> {
        let full = name(from, key, die)?;
        let has_members = !die.declaration && die.is_record();
        let members = if has_members { self.hash_of_members(from, key).ok()? } else { 0 };
        let size = if die.declaration { 0 } else { die.size.unwrap_or(0) };
        let tag = if die.tag == c::DW_TAG_class_type { c::DW_TAG_structure_type } else { die.tag };
        Some(Identity { key: digest(&(tag.0, full.digest, size, members)), name: full.text, size })
    }

    /// Returns a hash of the names, places and types of a record's members.
    fn hash_of_members<'a>(&mut self, from: &mut From<'_, 'a>, key: Key) -> gimli::Result<u64> {
        let mut hasher = DefaultHasher::new();
        let mut members = 0;
        let is_member = |tag, _| matches!(tag, c::DW_TAG_member | c::DW_TAG_inheritance);
        let parsed = from.parsed;
        parsed.below_of(key, is_member, |member| {
            if member.depth == 0 {
                return Ok(Below::Go);
            }
            members += 1;
            from.index.names.content(parsed, key.0, &member.name).hash(&mut hasher);
            self.hash_of_kind(from, key.0, member.kind).hash(&mut hasher);
            (member.member_at, member.data_bit_offset).hash(&mut hasher);
            Ok(if members < MOST_MEMBERS { Below::Skip } else { Below::Stop })
        })?;
        Ok(hasher.finish())
    }

    /// Returns a hash of a member's type, as far as its own name: two files may have a struct of one name each, with members of
    /// the same names.
    fn hash_of_kind(&mut self, from: &mut From<'_, '_>, unit: u32, kind: Option<Reference>) -> u64 {
        let start = kind.and_then(|kind| from.parsed.resolve(unit, kind, &from.index.signatures));
        if self.unit != unit {
            self.unit = unit;
            self.kinds.clear();
        }
        if let Some(&known) = start.as_ref().and_then(|start| self.kinds.get(start)) {
            return known;
        }
        let mut hasher = DefaultHasher::new();
        let mut next = start;
        for _ in 0..6 {
            let Some(Ok(Some(die))) = next.map(|key| from.parsed.die(key)) else { break };
            let unit = next.map_or(unit, |key| key.0);
            let tag = if die.tag == c::DW_TAG_class_type { c::DW_TAG_structure_type } else { die.tag };
            tag.0.hash(&mut hasher);
            if die.name.is_some() {
                from.index.names.content(from.parsed, unit, &die.name).hash(&mut hasher);
                break;
            }
            next = die.kind.and_then(|kind| from.parsed.resolve(unit, kind, &from.index.signatures));
        }
        let made = hasher.finish();
        if let Some(start) = start {
            self.kinds.insert(start, made);
        }
        made
    }
}

/// Returns the name of a record as gdb prints it. None: it has none, and no typedef names it.
fn name<'a>(from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> Option<Full> {
    if !from.parsed.unit(key.0).is_ok_and(|ready| ready.c) {
        if let Some(full) = from.index.full_name(from.parsed, key, die) {
            return Some(full);
        }
    } else if let Some(name) = from.index.own_name(from.parsed, key, die) {
        let word = match die.tag {
            c::DW_TAG_union_type => "union",
            c::DW_TAG_enumeration_type => "enum",
            _ => "struct",
        };
        return Some(Full::of(format!("{word} {name}")));
    }
    let typedef = from.index.typedefs.get(&key)?;
    let other = from.parsed.die(*typedef).ok()??;
    let name = from.parsed.text(typedef.0, &other.name)?;
    Some(Full::of(format!("{}{name}", from.index.scope(*typedef))))
}

/// Returns the text of [`name`].
pub(super) fn text_of_name<'a>(from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> Option<String> {
    let full = name(from, key, die)?;
    full.text.or_else(|| from.index.text_of_name(from.parsed, key, die))
}
