//! The containers of Rust's library. Their buffers are behind pointers to `u8` (alloc's RawVecInner, hashbrown's
//! RawTableInner): what is in them, the container's own arguments say.

use super::rust_states::{stamped, Filled, Guarded, Stamped};
use super::unsized_tails::{elements_at_end, ends_in_dyn, is_dyn};
use crate::dwarf::model::{template_of, Form, Id, Types};
use crate::dwarf::DebugTypes;

/// A container's parts. All places are offsets from its start.
#[derive(Clone, Debug)]
pub(super) enum Container {
    /// `Vec`, and `VecDeque`, which has the index of its first element.
    Buffer { pointer: u64, capacity: u64, head: Option<u64>, length: u64, element: Id },
    /// `Box<[T]>`, `Box<str>`: a pointer and a length.
    Slice { pointer: u64, length: u64, element: Id, stamped: Option<Stamped> },
    /// A record that ends in a slice or a text, as what `Rc<[T]>`, `Arc<str>` and `Box<Mutex<[T]>>` allocate: a pointer to it,
    /// and how many elements there are. `start` is where they begin in it. `counted`: it begins with a count of its pointers.
    Sliced { pointer: u64, length: u64, kind: Id, start: u64, element: Id, counted: bool },
    /// hashbrown's table: the control bytes, behind the buckets; the number of buckets less one; how many are full.
    Table { control: u64, mask: u64, items: u64, element: Id },
    /// A pointer to an object of some type that has a trait, or to a record that ends in one (`record`), and the vtable of that
    /// type. `counted` is as above.
    Object { pointer: u64, vtable: u64, record: Option<Id>, counted: bool },
    /// A value that is there if a number beside it says so.
    Guarded(Box<Guarded>),
    /// Arrays of which only the first elements are there.
    Filled(Box<Filled>),
    /// A B-tree: the link to the root, its height, how many elements there are.
    Tree { root: u64, height: u64, length: u64, node: Node },
}

/// The nodes of a B-tree. `keys` and `values`: where they are in a node, and their types.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) leaf: Id,
    /// The node that has children. It begins with a leaf; where the children are.
    pub(super) inner: Option<(Id, u64)>,
    pub(super) parent: u64,
    pub(super) length: u64,
    pub(super) most: u64,
    pub(super) keys: (u64, Id),
    pub(super) values: (u64, Id),
}

/// Returns the container that a record is. Some(None): it is one that is not followed.
pub(super) fn recognize(debug: &mut DebugTypes, id: Id, name: &str) -> Option<Option<Container>> {
    if name.starts_with("alloc::collections::btree::map::BTreeMap<") {
        return Some(tree(debug, id));
    }
    if let Some(guarded) = super::rust_states::recognize(debug, id, name) {
        return Some(guarded.map(|guarded| Container::Guarded(Box::new(guarded))));
    }
    let types = &debug.types;
    if let Some(object) = object(types, id, name) {
        return Some(Some(object));
    }
    if let Some(slice) = sliced(types, id, name) {
        return Some(Some(slice));
    }
    let template = template_of(name).unwrap_or(name);
    let at = |name: &str| types.find_member(id, name).map(|(at, _)| at);
    let element = types.record(id).and_then(|record| record.arguments.first().copied());
    match template {
        "alloc::vec::Vec" => Some((|| {
            let (pointer, capacity) = (at("pointer")?, at("cap")?);
            Some(Container::Buffer { pointer, capacity, head: None, length: at("len")?, element: element? })
        })()),
        "alloc::collections::vec_deque::VecDeque" => Some((|| {
            let (pointer, capacity, head) = (at("pointer")?, at("cap")?, Some(at("head")?));
            Some(Container::Buffer { pointer, capacity, head, length: at("len")?, element: element? })
        })()),
        "alloc::boxed::Box" => Some((|| {
            let (pointer, kind) = types.find_member(id, "data_ptr")?;
            let element = types.pointee(kind)?;
            Some(Container::Slice { pointer, length: at("length")?, element, stamped: stamped(types, element) })
        })())
        .filter(Option::is_some),
        "hashbrown::raw::RawTable" => Some((|| {
            let (control, mask) = (at("ctrl")?, at("bucket_mask")?);
            Some(Container::Table { control, mask, items: at("items")?, element: element? })
        })()),
        "alloc::raw_vec::RawVec" | "alloc::raw_vec::RawVecInner" | "hashbrown::raw::RawTableInner" => Some(None),
        _ => None,
    }
}

/// Returns whether the name is that of a pointer which has two words where what it points to has no size of its own.
fn is_pointer(name: &str) -> bool {
    name.starts_with(['&', '*']) || name.starts_with("alloc::boxed::Box<")
}

/// Returns the parts of a pointer to a trait object: `&dyn T`, `Box<dyn T>`, and what `Rc<dyn T>` and `Arc<Mutex<dyn T>>` have in
/// them.
fn object(types: &Types, id: Id, name: &str) -> Option<Container> {
    let members = &types.record(id).filter(|_| is_pointer(name) && name.contains("dyn "))?.members;
    let [one, other] = &members[..] else { return None };
    let (data, vtable) = if one.name == "pointer" { (one, other) } else { (other, one) };
    if data.name != "pointer" || vtable.name != "vtable" {
        return None;
    }
    let to = types.bare(types.pointee(data.kind)?);
    let (pointer, vtable, counted) = (data.offset, vtable.offset, is_counted(types, to));
    let record = (!is_dyn(types, to)).then_some(to);
    ends_in_dyn(types, to).then_some(Container::Object { pointer, vtable, record, counted })
}

/// Returns the parts of a pointer to a record that ends in a slice or a text.
fn sliced(types: &Types, id: Id, name: &str) -> Option<Container> {
    let members = &types.record(id).filter(|_| is_pointer(name))?.members;
    let [data, length] = &members[..] else { return None };
    if data.name != "data_ptr" || length.name != "length" {
        return None;
    }
    let kind = types.bare(types.pointee(data.kind)?);
    let (start, element) = elements_at_end(types, kind)?;
    let (pointer, length, counted) = (data.offset, length.offset, is_counted(types, kind));
    Some(Container::Sliced { pointer, length, kind, start, element, counted })
}

/// Returns whether a record is what `Rc` and `Arc` allocate: it begins with the count of strong pointers.
fn is_counted(types: &Types, id: Id) -> bool {
    template_of(&types.get(id).name).is_some_and(|outer| COUNTED.contains(&outer))
}

/// What `Rc` and `Arc` allocate.
const COUNTED: &[&str] = &["alloc::rc::RcInner", "alloc::rc::RcBox", "alloc::sync::ArcInner"];

/// liballoc/collections/btree/node.rs: a leaf has the keys and the values. A node with children begins like a leaf. The link to
/// a node is always one to a leaf; the height says what it is.
fn tree(debug: &mut DebugTypes, id: Id) -> Option<Container> {
    let types = &debug.types;
    let at = |name: &str| types.find_member(id, name).map(|(at, _)| at);
    let (root, link) = types.find_member(id, "node")?;
    let (inside, pointer) = types.find_member(link, "pointer")?;
    let (length, height) = (at("length")?, at("height")?);
    let leaf = types.bare(types.pointee(pointer)?);
    let name = types.get(leaf).name.clone();
    let (&key, &value) = (types.record(id)?.arguments.first()?, types.record(id)?.arguments.get(1)?);
    let (keys, array) = types.find_member(leaf, "keys")?;
    let Form::Array(_, Some(most)) = types.get(types.bare(array)).form else { return None };
    let (values, parent) = (types.find_member(leaf, "vals")?.0, types.find_member(leaf, "parent")?.0);
    let count = types.find_member(leaf, "len")?.0;
    let inner = debug.find(&name.replacen("::LeafNode<", "::InternalNode<", 1)).first().copied();
    let inner = inner.and_then(|inner| Some((inner, debug.types.find_member(inner, "edges")?.0)));
    let node = Node { leaf, inner, parent, length: count, most, keys: (keys, key), values: (values, value) };
    Some(Container::Tree { root: root + inside, height, length, node })
}
