//! Questions to the types in the words of VMCOREINFO: `SIZE(page)`, `OFFSET(page.flags)`, `LENGTH(zone.free_area)`, and
//! `NUMBER(PG_lru)` of an enumeration.

use std::collections::HashMap;

use super::btf::{Btf, Name, Tag, Type};

/// Structures within structures.
const DEEPEST: usize = 8;

/// Returns the answer to each question: bytes, elements, or a value. None where the types do not have it.
pub fn answers(btf: &Btf, questions: &[&str]) -> Vec<Option<i64>> {
    let names = btf.by_name();
    let wanted = |question: &str| question.strip_prefix("NUMBER(").is_some();
    let values = if questions.iter().any(|one| wanted(one)) { values(btf) } else { HashMap::new() };
    questions.iter().map(|question| answer(btf, &names, &values, question)).collect()
}

fn answer(btf: &Btf, names: &HashMap<Name, u32>, values: &HashMap<&[u8], Option<i64>>, question: &str) -> Option<i64> {
    let (what, rest) = question.split_once('(')?;
    let name = rest.strip_suffix(')')?;
    if what == "NUMBER" {
        return *values.get(name.as_bytes())?;
    }
    let (of, member) = name.split_once('.').map_or((name, None), |(of, member)| (of, Some(member)));
    let number = *[Tag::Struct, Tag::Union, Tag::None].iter().find_map(|&tag| names.get(&(tag, of.as_bytes())))?;
    match (what, member) {
        ("SIZE", None) => i64::try_from(btf.size(number)?).ok(),
        ("OFFSET", Some(member)) => Some(i64::from(find(btf, number, member.as_bytes(), DEEPEST)?.0 / 8)),
        ("LENGTH", Some(member)) => {
            let (_, of) = find(btf, number, member.as_bytes(), DEEPEST)?;
            match btf.types()[behind_names(btf, of)? as usize] {
                Type::Array { count, .. } => Some(i64::from(count)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns where a member lies, in bits, and the number of its type. It may be one of a structure without a name.
fn find(btf: &Btf, number: u32, wanted: &[u8], deepest: usize) -> Option<(u32, u32)> {
    let Type::Composite { members, count, bit_fields, .. } = btf.types()[behind_names(btf, number)? as usize] else {
        return None;
    };
    for member in btf.members(members, count, bit_fields) {
        let name = btf.string(member.name);
        if name == wanted {
            return Some((member.offset, member.of));
        }
        if name.is_empty() && deepest > 0 {
            if let Some((offset, of)) = find(btf, member.of, wanted, deepest - 1) {
                return Some((member.offset.checked_add(offset)?, of));
            }
        }
    }
    None
}

/// Returns the number of the type behind typedefs, `const` and tags.
fn behind_names(btf: &Btf, mut number: u32) -> Option<u32> {
    for _ in 0..64 {
        match *btf.types().get(number as usize)? {
            Type::Typedef { to, .. }
            | Type::Const { to }
            | Type::Volatile { to }
            | Type::Restrict { to }
            | Type::Tag { to } => number = to,
            _ => return Some(number),
        }
    }
    None
}

/// The values of enumerations by name. None for a name with several values.
fn values<'a>(btf: &'a Btf) -> HashMap<&'a [u8], Option<i64>> {
    let mut found: HashMap<&[u8], Option<i64>> = HashMap::new();
    for one in btf.types() {
        let Type::Enum { signed, wide, values, count, .. } = *one else { continue };
        for (name, value) in btf.values(values, count, signed, wide) {
            let value = Some(value as i64);
            found
                .entry(btf.string(name))
                .and_modify(|known| *known = known.filter(|_| *known == value))
                .or_insert(value);
        }
    }
    found
}
