//! Makes types of entries, one entry at a time: what a type refers to is read when its turn comes.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use gimli::constants as c;
use serde::{Deserialize, Serialize};

use super::die::{Die, Reference};
use super::file::Key;
use super::identity::{text_of_name, From, Identities, Identity, MOST_MEMBERS};
use super::model::{canonical, Form, Id, Member, Number, Record, Type, VOID};
use super::names::hash_of_name;
use super::walk::Below;

/// Bounds of one array.
const MOST_BOUNDS: usize = 16;
/// gcc's own tag for a pack of template arguments.
const PACK: gimli::DwTag = gimli::DwTag(0x4107);

/// A type that is only declared, and what its name is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Declared {
    pub(super) id: Id,
    /// See `names::hash_of_name`.
    pub(super) hash: u64,
}

/// The types of one module that were read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    ids: HashMap<Key, Id, RandomState>,
    identities: Identities,
    /// Types that have a number, and whose entry is not yet read.
    open: VecDeque<(Key, Id)>,
    /// Declarations, to be completed by name.
    pub(super) declared: Vec<Declared>,
    /// Why a type could not be read.
    pub(super) failed: Option<gimli::Error>,
}

impl Reader {
    /// Returns the type of an entry, with all that it refers to.
    pub(super) fn read(&mut self, from: &mut From<'_, '_>, key: Key) -> Id {
        let id = self.id(from, key);
        self.finish(from);
        id
    }

    /// Reads what is still open.
    fn finish(&mut self, from: &mut From<'_, '_>) {
        while let Some((key, id)) = self.open.pop_front() {
            let name = from.types.get(id).name.clone();
            match self.form(from, key, name) {
                Ok(Some(kind)) => from.types.set(id, kind),
                Ok(None) => {}
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn reference(&mut self, from: &mut From<'_, '_>, unit: u32, reference: Option<Reference>) -> Id {
        let Some(reference) = reference else { return VOID };
        match from.parsed.resolve(unit, reference, &from.index.signatures) {
            Some(key) => self.id(from, key),
            None => VOID,
        }
    }

    /// Returns the number of an entry's type. The type itself is read later.
    fn id(&mut self, from: &mut From<'_, '_>, key: Key) -> Id {
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        self.take(from, key.0);
        let id = match from.parsed.die(key) {
            Ok(Some(die)) if die.is_record() || die.tag == c::DW_TAG_enumeration_type => self.named(from, key, &die),
            Ok(Some(_)) => self.fresh(from, key),
            Ok(None) => VOID,
            Err(error) => {
                self.failed = Some(error);
                VOID
            }
        };
        self.ids.insert(key, id);
        id
    }

    /// Names need the namespaces around a type.
    fn take(&mut self, from: &mut From<'_, '_>, unit: u32) {
        if let Err(error) = from.index.take(from.parsed, unit) {
            self.failed = Some(error);
        }
    }

    fn fresh(&mut self, from: &mut From<'_, '_>, key: Key) -> Id {
        let id = from.types.add(Type { name: String::new(), size: 0, form: Form::Void });
        if id != VOID {
            self.open.push_back((key, id));
        }
        id
    }

    /// Returns the number of a record or an enumeration: that of an equal one in another unit, if there is one.
    fn named<'a>(&mut self, from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> Id {
        // A declaration that names a type unit.
        if let Some(signature @ Reference::Signature(_)) = die.specification {
            if let Some(real) = from.parsed.resolve(key.0, signature, &from.index.signatures).filter(|&k| k != key) {
                return self.id_of_unit(from, real);
            }
        }
        let Some(Identity { key: identity, name, size }) = self.identities.of(from, key, die) else {
            return self.fresh(from, key);
        };
        if let Some(id) = from.types.known(identity) {
            return id;
        }
        let id = self.fresh(from, key);
        if id != VOID {
            let name = name.or_else(|| text_of_name(from, key, die)).unwrap_or_default();
            if die.declaration {
                self.declared.push(Declared { id, hash: hash_of_name(&name) });
            }
            from.types.set(id, Type { name, size, form: Form::Void });
            from.types.remember(identity, id);
        }
        id
    }

    fn id_of_unit(&mut self, from: &mut From<'_, '_>, key: Key) -> Id {
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        self.take(from, key.0);
        let id = match from.parsed.die(key) {
            Ok(Some(die)) if die.is_record() && !matches!(die.specification, Some(Reference::Signature(_))) => {
                self.named(from, key, &die)
            }
            Ok(Some(_)) => self.fresh(from, key),
            _ => VOID,
        };
        self.ids.insert(key, id);
        id
    }

    /// Reads an entry. `known` is its name if that was made, or empty. Ok(None): there is nothing to say.
    fn form(&mut self, from: &mut From<'_, '_>, key: Key, known: String) -> gimli::Result<Option<Type>> {
        let Some(die) = from.parsed.die(key)? else { return Ok(None) };
        let unit = key.0;
        let plain = |form: Form, size: u64| Type { name: String::new(), size, form };
        let word = u64::from(from.parsed.unit(unit)?.unit.header.address_size());
        let has_name = die.is_record() || die.tag == c::DW_TAG_enumeration_type;
        let name = match known.is_empty() && has_name {
            true => text_of_name(from, key, &die).unwrap_or_default(),
            false => known,
        };
        let made = match die.tag {
            c::DW_TAG_pointer_type | c::DW_TAG_reference_type | c::DW_TAG_rvalue_reference_type => {
                let size = die.size.unwrap_or(word);
                plain(Form::Pointer(self.reference(from, unit, die.kind)), size)
            }
            c::DW_TAG_ptr_to_member_type => plain(Form::Base(Number::Integer), die.size.unwrap_or(word)),
            c::DW_TAG_typedef
            | c::DW_TAG_const_type
            | c::DW_TAG_volatile_type
            | c::DW_TAG_restrict_type
            | c::DW_TAG_atomic_type
            | c::DW_TAG_template_alias => {
                let to = self.reference(from, unit, die.kind);
                let name = match die.tag {
                    c::DW_TAG_typedef | c::DW_TAG_template_alias => {
                        let name = from.parsed.text(unit, &die.name).unwrap_or_default();
                        format!("{}{name}", from.index.scope(key))
                    }
                    c::DW_TAG_const_type => "const".to_string(),
                    c::DW_TAG_volatile_type => "volatile".to_string(),
                    c::DW_TAG_restrict_type => "restrict".to_string(),
                    _ => "_Atomic".to_string(),
                };
                Type { name, size: 0, form: Form::Alias(to) }
            }
            c::DW_TAG_base_type => {
                let name = from.parsed.text(unit, &die.name).unwrap_or_default();
                let name = canonical(&name).into_owned();
                let number = match die.encoding {
                    Some(c::DW_ATE_signed_char | c::DW_ATE_unsigned_char | c::DW_ATE_UTF | c::DW_ATE_ASCII) => {
                        Number::Character
                    }
                    Some(c::DW_ATE_float) => Number::Float,
                    Some(c::DW_ATE_boolean) => Number::Truth,
                    _ => Number::Integer,
                };
                Type { name, size: die.size.unwrap_or(0), form: Form::Base(number) }
            }
            c::DW_TAG_enumeration_type => Type { name, size: die.size.unwrap_or(4), form: Form::Enum },
            c::DW_TAG_array_type => self.array(from, key, &die)?,
            c::DW_TAG_subroutine_type => plain(Form::Function, 0),
            _ if die.is_record() => {
                if die.declaration {
                    Type { name, size: 0, form: Form::Declared }
                } else {
                    let mut record = self.record(from, key, &die)?;
                    // rustc gives each vtable a variable of a type of its own.
                    if name.ends_with("::{vtable_type}") && die.containing.is_some() {
                        record.concrete = Some(self.reference(from, unit, die.containing));
                    }
                    Type { name, size: die.size.unwrap_or(0), form: Form::Record(record) }
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(made))
    }

    fn array<'a>(&mut self, from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> gimli::Result<Type> {
        let mut bounds: Vec<Option<u64>> = Vec::new();
        from.parsed.below(key, |child| {
            if child.tag == c::DW_TAG_subrange_type && bounds.len() < MOST_BOUNDS {
                // DWARF 5, 5.13: C and its kin begin at 0. gcc writes an upper bound of -1 for an array of 0 elements.
                let upper = child.upper.and_then(|upper| u64::try_from(upper.checked_add(1)?).ok());
                bounds.push(child.count.or(upper));
            }
            Ok(if child.depth == 0 { Below::Go } else { Below::Skip })
        })?;
        let element = self.reference(from, key.0, die.kind);
        let mut inner = element;
        // The last bound is the innermost.
        for &count in bounds.iter().skip(1).rev() {
            inner = from.types.add(Type { name: String::new(), size: 0, form: Form::Array(inner, count) });
        }
        let first = bounds.first().copied().flatten();
        Ok(Type { name: String::new(), size: die.size.unwrap_or(0), form: Form::Array(inner, first) })
    }

    fn record<'a>(&mut self, from: &mut From<'_, 'a>, key: Key, die: &Die<'a>) -> gimli::Result<Record> {
        let (unit, union) = (key.0, die.tag == c::DW_TAG_union_type);
        let mut record = Record { union, align: die.align.unwrap_or(0), ..Record::default() };
        // Depths of the variants around an entry: the members in them are there only for some values.
        let mut found: Vec<(Die<'_>, bool, Option<u64>)> = Vec::new();
        // The discriminant, the value of the variant around an entry, and whether all that is understood.
        let (mut discriminant, mut when, mut parts, mut understood) = (None, None, 0, true);
        let mut count = 0;
        from.parsed.below_of(key, is_part, |child| {
            count += 1;
            if child.depth == 0 {
                return Ok(Below::Go);
            }
            if count > MOST_MEMBERS {
                return Ok(Below::Stop);
            }
            let deep = child.depth > 1;
            match child.tag {
                c::DW_TAG_variant_part => {
                    parts += 1;
                    return Ok(Below::Go);
                }
                c::DW_TAG_variant => {
                    when = child.discriminant;
                    understood &= child.depth == 2 && child.discriminated == when.is_some();
                    return Ok(Below::Go);
                }
                // DWARF 5, 5.7.10: the discriminant is a member of the variant part itself.
                c::DW_TAG_member if child.depth == 2 && parts > 0 => discriminant = Some(child),
                c::DW_TAG_member if !child.external && child.place.is_none() => found.push((child, deep, when)),
                c::DW_TAG_inheritance | c::DW_TAG_template_type_parameter => found.push((child, deep, None)),
                PACK => return Ok(Below::Go),
                c::DW_TAG_subprogram if !record.destructor => {
                    record.destructor = from.parsed.text(unit, &child.name).is_some_and(|name| name.starts_with('~'));
                }
                _ => {}
            }
            Ok(Below::Skip)
        })?;
        if let Some(child) = discriminant.filter(|child| parts == 1 && understood && child.bit_size.is_none()) {
            record.discriminant = Some((child.member_at.unwrap_or(0), self.reference(from, unit, child.kind)));
        }
        for (child, variant, when) in found {
            let kind = self.reference(from, unit, child.kind);
            if child.tag == c::DW_TAG_template_type_parameter {
                record.arguments.push(kind);
                continue;
            }
            if child.declaration || child.member_moves {
                continue;
            }
            let name = from.parsed.text(unit, &child.name).unwrap_or_default();
            // gcc: _vptr.Foo, clang: _vptr$Foo.
            record.vtable |= name.starts_with("_vptr");
            let base = child.tag == c::DW_TAG_inheritance;
            let offset = child.member_at.unwrap_or(0);
            let bits = child.bit_size.map(|size| (first_bit(&child, offset), size));
            record.members.push(Member { name, offset, kind, base, bits, variant, when });
        }
        Ok(record)
    }
}

/// Returns whether an entry below a record says of what it is made.
fn is_part(tag: gimli::DwTag, _: bool) -> bool {
    matches!(
        tag,
        c::DW_TAG_member
            | c::DW_TAG_inheritance
            | c::DW_TAG_variant_part
            | c::DW_TAG_variant
            | c::DW_TAG_template_type_parameter
            | c::DW_TAG_subprogram
            | PACK
    )
}

/// Returns the first bit of a bit-field, counted from the start of the record.
fn first_bit(die: &Die<'_>, offset: u64) -> u64 {
    if let Some(bit) = die.data_bit_offset {
        return bit;
    }
    // DWARF 2 counts from the most significant bit of the storage unit.
    let storage = die.size.unwrap_or(4).saturating_mul(8);
    let within = storage.saturating_sub(die.bit_offset.unwrap_or(0)).saturating_sub(die.bit_size.unwrap_or(0));
    offset.saturating_mul(8).saturating_add(within)
}
