//! Records of Rust whose last member has no size of its own: `ArcInner<Mutex<dyn Trait>>`, `RcInner<RefCell<[u32]>>`. A pointer to
//! one has the vtable of the object at the end, or the number of the elements there.

use crate::dwarf::model::{template_of, Id, Member, Record, Types};
use crate::dwarf::spelling::{closing, plain, split};

/// Records within records.
pub(super) const MOST_DEPTH: usize = 16;

/// Returns whether a type is `dyn Trait`, or `(dyn Trait + Send)`.
pub(super) fn is_dyn(types: &Types, id: Id) -> bool {
    types.get(types.bare(id)).name.trim_start_matches('(').starts_with("dyn ")
}

/// Returns the last member of a record, and its number.
pub(super) fn last(record: &Record) -> Option<(usize, &Member)> {
    record.members.iter().enumerate().filter(|(_, member)| !member.variant).max_by_key(|(_, member)| member.offset)
}

/// Returns whether a record ends in a trait object.
pub(super) fn ends_in_dyn(types: &Types, mut id: Id) -> bool {
    for _ in 0..MOST_DEPTH {
        if is_dyn(types, id) {
            return true;
        }
        let Some((_, member)) = types.record(id).filter(|record| !record.union).and_then(last) else { return false };
        id = member.kind;
    }
    false
}

/// Returns where the elements begin in a record that ends in a slice or a text, and their type. rustc gives the last member the
/// type of one element. It lies beyond the record's size, or it is an argument that the record's name writes as "[T]" or "str".
pub(super) fn elements_at_end(types: &Types, mut id: Id) -> Option<(u64, Id)> {
    let mut at = 0u64;
    for _ in 0..MOST_DEPTH {
        let record = types.record(id).filter(|record| !record.union)?;
        let (_, member) = last(record)?;
        at = at.checked_add(member.offset)?;
        let beyond = member.offset.checked_add(types.size(member.kind))? > types.size(id);
        let name = &types.get(types.bare(id)).name;
        let mut arguments = record.arguments.iter().zip(arguments_of(name).unwrap_or_default());
        if beyond || arguments.any(|(&kind, text)| kind == member.kind && is_slice(text)) {
            return Some((at, member.kind));
        }
        id = member.kind;
    }
    None
}

/// Returns whether a name is that of a slice, "[T]", or "str". An array is written as "[T; 4]".
fn is_slice(name: &str) -> bool {
    let inside = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let mut open = 0i32;
    let array = inside.unwrap_or_default().bytes().any(|byte| {
        open += i32::from(matches!(byte, b'<' | b'[' | b'(')) - i32::from(matches!(byte, b'>' | b']' | b')'));
        byte == b';' && open == 0
    });
    name == "str" || inside.is_some() && !array
}

/// Returns the arguments in the name of a generic type.
fn arguments_of(name: &str) -> Option<Vec<&str>> {
    let inside = name.get(template_of(name)?.len()..)?;
    let end = closing(inside).filter(|&end| end + 1 == inside.len())?;
    Some(split(&inside[1..end]).into_iter().map(str::trim).collect())
}

/// Returns the name of a generic type with another argument in place of one: "Mutex<dyn Animal>", "Mutex<Dog>".
pub(super) fn with_argument(name: &str, old: &str, new: &str) -> Option<String> {
    let (template, old) = (template_of(name)?, plain(old));
    let mut found = 0;
    let arguments = arguments_of(name)?.into_iter().map(|argument| {
        let same = plain(argument) == old;
        found += usize::from(same);
        if same {
            new
        } else {
            argument
        }
    });
    let text = arguments.collect::<Vec<_>>().join(", ");
    let space = if text.ends_with('>') { " " } else { "" };
    (found == 1).then(|| format!("{template}<{text}{space}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_replaced_whole() {
        let name = "a::Mutex<(dyn b::Animal + core::marker::Send)>";
        let new = with_argument(name, "(dyn b::Animal + core::marker::Send)", "b::Cage<b::Dog>");
        assert_eq!(new.as_deref(), Some("a::Mutex<b::Cage<b::Dog> >"));
        assert_eq!(with_argument("a::Two<dyn A, u8>", "dyn A", "Dog").as_deref(), Some("a::Two<Dog, u8>"));
        assert_eq!(with_argument("a::Box<alloc::Box<dyn A>>", "dyn A", "Dog"), None);
        assert_eq!(with_argument("a::Two<dyn A, dyn A>", "dyn A", "Dog"), None);
    }

    #[test]
    fn slices_are_not_arrays() {
        for name in ["str", "[u8]", "[[u8; 4]]", "[(u8, [u16; 2])]"] {
            assert!(is_slice(name), "{name}");
        }
        for name in ["u8", "[u8; 4]", "[[u8; 4]; 2]", "alloc::string::String"] {
            assert!(!is_slice(name), "{name}");
        }
    }
}
