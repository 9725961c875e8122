//! Names for places: the field of an object, the part of a variable.

use crate::dwarf::model::{Form, Id, Types};

/// Parts of a name: `.a.b[3].c`.
const MOST_PARTS: usize = 16;

/// How the names of types begin whose members a program does not name: Go's slices, strings and interfaces, and what
/// Rust's standard library defines.
const CLOSED: [&str; 8] =
    ["[]", "interface {", "runtime.eface", "runtime.iface", "alloc::", "core::", "hashbrown::", "std::collections::"];

/// Returns whether the members of a type are the implementation's own, by its name. Those of C++ have reserved names.
fn is_closed(name: &str) -> bool {
    name == "string" || CLOSED.iter().any(|start| name.starts_with(start))
}

/// Returns the name of the part of an object at an offset, as C writes it: ".next", ".table[3].first". Empty: the object
/// itself begins there, or nothing is known. It ends at a container of Go or Rust.
pub fn part(types: &Types, kind: Id, at: u64) -> String {
    let mut out = String::new();
    let (mut kind, mut at) = (types.bare(kind), at);
    for _ in 0..MOST_PARTS {
        let found = types.get(kind);
        match &found.form {
            Form::Record(_) if is_closed(&found.name) => return out,
            Form::Record(record) => {
                let inside = |member: &&crate::dwarf::model::Member| {
                    let size = types.size(member.kind).max(1);
                    member.bits.is_none() && (member.offset..member.offset.saturating_add(size)).contains(&at)
                };
                // A flexible array member has no size.
                let last = || record.members.iter().rfind(|m| m.offset <= at && types.size(m.kind) == 0);
                let Some(member) = record.members.iter().find(inside).or_else(last) else { return out };
                if !member.base && !member.name.is_empty() {
                    out.push('.');
                    out.push_str(&member.name);
                }
                at -= member.offset;
                kind = types.bare(member.kind);
            }
            Form::Array(element, _) => {
                let size = types.size(*element);
                if size == 0 {
                    return out;
                }
                out.push_str(&format!("[{}]", at / size));
                at %= size;
                kind = types.bare(*element);
            }
            _ => return out,
        }
    }
    out
}
