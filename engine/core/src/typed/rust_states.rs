//! Values of Rust that may be uninitialized (`MaybeUninit` and other unions): a number beside a value says whether it is there.

use crate::dwarf::model::{template_of, Form, Id, Number, Record, Types};
use crate::dwarf::DebugTypes;

/// Records around one member.
const MOST_DEPTH: usize = 8;

/// One of several values, or none, as a number says.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    /// Where the number is, and its bytes.
    state: (u64, u64),
    /// The bits of it that count.
    mask: u64,
    /// The number, where the value is that is there then, and its type.
    cases: Vec<(u64, u64, Id)>,
}

/// Arrays of which only the first elements are there: where their number is, its bytes; the most; the arrays.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    pub(super) length: (u64, u64),
    pub(super) most: u64,
    pub(super) arrays: Vec<(u64, Id)>,
}

/// The slots of a bounded queue: where the stamp of a slot is, and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamped {
    pub(super) stamp: u64,
    pub(super) value: (u64, Id),
}

/// Slots of unbounded queues: crossbeam's, which the standard library has taken over. WRITE is 1, READ is 2.
const LINKED: &[&str] = &[
    "std::sync::mpmc::list::Slot",
    "crossbeam_channel::flavors::list::Slot",
    "crossbeam_queue::seg_queue::Slot",
    "crossbeam_deque::deque::Slot",
];
/// Slots of bounded queues.
const STAMPED: &[&str] =
    &["std::sync::mpmc::array::Slot", "crossbeam_channel::flavors::array::Slot", "crossbeam_queue::array_queue::Slot"];
/// The members of a record that say that the first element in use is not the first of all.
const NOT_FIRST: &[&str] = &["head", "start", "front", "first", "begin", "tail", "offset"];

impl Guarded {
    /// Returns where the value is that is there for a state, and its type.
    pub(super) fn case(&self, state: u64) -> Option<(u64, Id)> {
        let state = state & self.mask;
        self.cases.iter().find(|&&(when, ..)| when == state).map(|&(_, at, kind)| (at, kind))
    }

    pub(super) fn state(&self) -> (u64, u64) {
        self.state
    }
}

/// Returns how a record says whether its value is there. Some(None): it is not understood, and the value is not followed.
pub(super) fn recognize(debug: &mut DebugTypes, id: Id, name: &str) -> Option<Option<Guarded>> {
    let template = template_of(name)?;
    let made = match template {
        "std::sync::once_lock::OnceLock" => once(debug, id, "value", &[("value", true)]),
        "std::sync::lazy_lock::LazyLock" => once(debug, id, "data", &[("value", true), ("f", false)]),
        _ if LINKED.contains(&template) => linked(&debug.types, id),
        _ if STAMPED.contains(&template) => None,
        _ if template.starts_with("std::sys::") && template.ends_with("::lazy::Storage") => local(&debug.types, id),
        _ => return None,
    };
    Some(made)
}

/// Returns a value behind a `std::sync::Once`. `names`: the members of the union, and whether each is there when the `Once` has
/// completed, or before it has begun.
fn once(debug: &mut DebugTypes, id: Id, data: &str, names: &[(&str, bool)]) -> Option<Guarded> {
    let versions = debug.rust_versions();
    let types = &debug.types;
    let (at, once) = types.find_member(id, "once")?;
    let (inside, number, states) = match types.find_member(once, "state_and_queued") {
        Some((inside, number)) => (inside, number, agreed(&versions)?),
        // sys_common/once/futex.rs, to Rust 1.80: INCOMPLETE is 0, COMPLETE is 4.
        None => {
            let (inside, number) = types.find_member(once, "state")?;
            (inside, number, (0, 4))
        }
    };
    let width = types.size(number);
    let union = types.find_member(id, data)?;
    let mut cases = Vec::new();
    for &(name, complete) in names {
        let (at, kind) = member_of_union(types, union, name)?;
        cases.push((if complete { states.1 } else { states.0 }, at, kind));
    }
    (width == 4).then_some(Guarded { state: (at + inside, width), mask: u64::MAX, cases })
}

/// Returns the numbers for a `Once` that has not begun and for one that has completed, if they are the same for all versions of
/// the compiler. sys/sync/once/futex.rs turned them around in summer 2025 (rust-lang/rust 143881), in 1.90 or in 1.91.
fn agreed(versions: &[(u32, u32)]) -> Option<(u64, u64)> {
    let mut states = versions.iter().map(|&version| match version {
        (1, ..=89) => Some((0, 3)),
        (1, 90) => None,
        _ => Some((3, 0)),
    });
    let first = states.next()??;
    states.all(|state| state == Some(first)).then_some(first)
}

/// Returns the message of a slot that is written and not yet read.
fn linked(types: &Types, id: Id) -> Option<Guarded> {
    let (at, number) = types.find_member(id, "state")?;
    Some(Guarded { state: (at, types.size(number)), mask: 3, cases: vec![with_case(1, message(types, id)?)] })
}

fn with_case(when: u64, (at, kind): (u64, Id)) -> (u64, u64, Id) {
    (when, at, kind)
}

/// Returns a thread-local variable that is made when it is first used: it is there while the state is `Alive`.
fn local(types: &Types, id: Id) -> Option<Guarded> {
    let (at, kind) = types.find_member(id, "state")?;
    let (at, kind) = innermost(types, (at, kind));
    let record = types.record(kind)?;
    let (inside, number) = record.discriminant?;
    let alive = record.members.iter().find(|member| member.name == "Alive")?.when?;
    let value = member_of_union(types, types.find_member(id, "value")?, "value")?;
    let state = (at.checked_add(inside)?, types.size(number));
    Some(Guarded { state, mask: u64::MAX, cases: vec![with_case(alive, value)] })
}

/// Returns the slots of a bounded queue, if elements are such.
pub(super) fn stamped(types: &Types, element: Id) -> Option<Stamped> {
    let element = types.bare(element);
    template_of(&types.get(element).name).filter(|template| STAMPED.contains(template))?;
    let (stamp, number) = types.find_member(element, "stamp")?;
    (types.size(number) == types.word).then_some(Stamped { stamp, value: message(types, element)? })
}

/// Returns the value in a slot of a queue.
fn message(types: &Types, id: Id) -> Option<(u64, Id)> {
    let outer = ["msg", "value", "task"].iter().find_map(|name| {
        let member = types.record(id)?.members.iter().find(|member| member.name == *name)?;
        Some((member.offset, member.kind))
    });
    member_of_union(types, outer?, "value")
}

/// Returns the arrays in a record of which only the first elements are there, as its member `len` says: the nodes of B-trees,
/// and vectors that have their elements in themselves.
pub(super) fn filled(types: &Types, record: &Record) -> Option<Filled> {
    let length = record.members.iter().find(|member| member.name == "len")?;
    if record.members.iter().any(|member| NOT_FIRST.contains(&member.name.as_str()) || member.variant) {
        return None;
    }
    let (at, kind) = innermost(types, (length.offset, length.kind));
    matches!(types.get(types.bare(kind)).form, Form::Base(Number::Integer)).then_some(())?;
    let (mut arrays, mut most) = (Vec::new(), None);
    for member in &record.members {
        let (at, kind) = innermost(types, (member.offset, member.kind));
        let Form::Array(element, Some(count)) = types.get(types.bare(kind)).form else { continue };
        let maybe = template_of(&types.get(types.bare(element)).name) == Some("core::mem::maybe_uninit::MaybeUninit");
        if maybe && *most.get_or_insert(count) == count {
            arrays.push((at, element));
        }
    }
    let most = most?;
    Some(Filled { length: (at, types.size(kind)), most, arrays })
}

/// Returns what is in records that have one member which takes room.
fn innermost(types: &Types, (mut at, mut kind): (u64, Id)) -> (u64, Id) {
    for _ in 0..MOST_DEPTH {
        let Some(record) = types.record(kind).filter(|record| !record.union && record.discriminant.is_none()) else {
            break;
        };
        let mut with_size = record.members.iter().filter(|member| types.size(member.kind) > 0);
        let (Some(one), None) = (with_size.next(), with_size.next()) else { break };
        if one.variant {
            break;
        }
        (at, kind) = (at.saturating_add(one.offset), one.kind);
    }
    (at, kind)
}

/// Returns a member of the union that such records hold.
pub(super) fn member_of_union(types: &Types, outer: (u64, Id), name: &str) -> Option<(u64, Id)> {
    let (at, kind) = innermost(types, outer);
    let union = types.record(kind).filter(|record| record.union)?;
    let member = union.members.iter().find(|member| member.name == name)?;
    Some((at.checked_add(member.offset)?, member.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_once_depend_on_the_compiler() {
        assert_eq!(agreed(&[(1, 81)]), Some((0, 3)));
        assert_eq!(agreed(&[(1, 95), (1, 97)]), Some((3, 0)));
        for unknown in [&[][..], &[(1, 90)], &[(1, 85), (1, 95)]] {
            assert_eq!(agreed(unknown), None);
        }
    }
}
