//! The nodes of lists, trees and hash tables: found in the debug information, or made from the element's type.

use std::collections::HashMap;

use crate::dwarf::model::{Form, Id, Member, Record, Type};
use crate::dwarf::DebugTypes;

/// The node of a container: its type, and where the element is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) kind: Id,
    pub(super) at: u64,
    /// Where the link to the next node is.
    pub(super) next: u64,
}

/// Nodes that were found or made.
#[derive(Debug, Default)]
pub(super) struct Known {
    nodes: HashMap<String, Node>,
    templates: HashMap<String, Vec<Id>>,
    /// Nodes that were found last: the node, where its element is, the element.
    pub(super) elements: Vec<(Id, u64, Id)>,
}

/// Returns the node that holds an element: the one in the debug information, or else one that is made from its layout.
/// `words` is how many words come before the element. With `cached`, the hash follows the element.
pub(super) fn node(
    known: &mut Known,
    debug: &mut DebugTypes,
    template: &str,
    element: Id,
    words: u64,
    cached: bool,
) -> Option<Node> {
    let text = debug.types.text(element);
    let key = format!("{template} {text} {cached}");
    if let Some(node) = known.nodes.get(&key) {
        return Some(*node);
    }
    if !known.templates.contains_key(template) {
        let mut found = Vec::new();
        // Which namespace of versions the library uses is not known.
        for version in ["", "__1::", "__2::", "__ndk1::", "__cxx11::", "__cxx1998::"] {
            found.extend(debug.of_template(&template.replacen("std::", &format!("std::{version}"), 1)));
        }
        known.templates.insert(template.to_string(), found);
    }
    let types = &debug.types;
    let real = known.templates.get(template)?.iter().copied().find(|&id| {
        let same = types.record(id).and_then(|r| r.arguments.first()).is_some_and(|&a| types.text(a) == text);
        same && (!template.ends_with("_Hash_node") || types.get(id).name.ends_with("true>") == cached)
    });
    let word = debug.types.word;
    let (size, align) = (debug.types.size(element), debug.types.align(element));
    let found = match real {
        Some(kind) => {
            let storage = ["_M_storage", "_M_value_field", "__value_", "_M_data"];
            let at = storage.iter().find_map(|name| debug.types.find_member(kind, name)).map(|(at, _)| at);
            Node { kind, at: at?, next: 0 }
        }
        None => {
            if size == 0 {
                return None;
            }
            // libc++'s colour is one byte: a small element follows it directly.
            let before = if template.ends_with("__tree_node") { 3 * word + 1 } else { words * word };
            let at = before.next_multiple_of(align.max(1));
            let end = at.saturating_add(size);
            let end = if cached { end.next_multiple_of(word) + word } else { end };
            let size = end.next_multiple_of(align.max(word));
            let member = Member {
                name: "_M_storage".to_string(),
                offset: at,
                kind: element,
                base: false,
                bits: None,
                variant: false,
                when: None,
            };
            let record = Record { members: vec![member], arguments: vec![element], ..Record::default() };
            let last = if text.ends_with('>') { " " } else { "" };
            let name = match template.ends_with("_Hash_node") {
                true => format!("{template}<{text}, {cached}>"),
                false => format!("{template}<{text}{last}>"),
            };
            let kind = debug.types.add(Type { name, size, form: Form::Record(record) });
            Node { kind, at, next: 0 }
        }
    };
    known.nodes.insert(key, found);
    known.elements.push((found.kind, found.at, element));
    Some(found)
}
