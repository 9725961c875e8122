//! The containers of libstdc++ and libc++: which record is one, and where its pointers are.
//!
//! Offsets come from the debug information: members are found by the names that both libraries have used since GCC 4.8
//! and LLVM 3.5.

use std::rc::Rc;

use super::nodes::{node, Known, Node};
use crate::dwarf::model::{template_of, Form, Id, Types};
use crate::dwarf::DebugTypes;

/// A container's parts. All places are offsets from its start.
#[derive(Clone, Debug)]
pub(super) enum Container {
    /// Begin, end, and end of the memory; the element.
    Vector { begin: u64, end: u64, limit: u64, element: Id },
    /// Bits in words: begin, and the end of the memory or how many words there are.
    Bits { begin: u64, limit: u64, counted: bool, element: Id },
    /// A pointer to characters, and how many there are; where short strings are.
    Text { pointer: u64, length: u64, local: u64, element: Id },
    /// libc++: short strings are in place of the rest if the lowest bit of the first byte says so.
    ShortOrLong { pointer: u64, length: u64, flag: u64, mask: u8, element: Id },
    /// An array of pointers to blocks of elements.
    Deque { map: u64, slots: u64, first: u64, last: u64, element: Id, each: u64 },
    /// libc++: the pointers are between two others.
    SplitDeque { map: u64, first: u64, last: u64, limit: u64, element: Id, each: u64 },
    /// A ring, or a chain that ends with 0: where the link to the first node is, the count.
    Chain { head: u64, ring: bool, count: Option<u64>, node: Node },
    /// A tree: where the link to the root is, and of which kind the nodes' links are.
    Tree { root: u64, header: u64, count: u64, links: Links, node: Node },
    /// A hash table: the array of buckets, how many; the first node, the count.
    Table { buckets: u64, slots: u64, first: u64, count: u64, single: Option<u64>, node: Node },
    /// A pointer that owns an object, or an array of `many`, and a control block.
    Shared { object: Option<u64>, control: u64, element: Id, base: Id, many: bool },
    /// A pointer that owns an array.
    Owned { element: Id },
    /// A value of any type: the function that manages it, and a pointer to it.
    Any { manager: u64, pointer: u64 },
    /// An element that is there if a flag is set.
    Optional { flag: u64, at: u64, element: Id },
    /// One of several elements: the index and its size.
    Variant { index: u64, width: u64, at: u64, elements: Vec<Id> },
    /// Memory for an element, which is there.
    Storage { element: Id },
    /// A container of Rust's library.
    Rust(super::rust::Container),
    /// Nothing that can be followed, but its members must not be followed either.
    Opaque,
}

/// Offsets of the links in a tree's node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) left: u64,
    pub(super) right: u64,
    pub(super) parent: u64,
}

/// Types of links between nodes: what they point to is known from the container only.
const LINKS: &[&str] = &[
    "std::_Rb_tree_node_base",
    "std::__detail::_List_node_base",
    "std::__detail::_List_node_header",
    "std::_Fwd_list_node_base",
    "std::__detail::_Hash_node_base",
    "std::__tree_node_base",
    "std::__tree_end_node",
    "std::__list_node_base",
    "std::__forward_begin_node",
    "std::__forward_list_node",
    "std::__hash_node_base",
];

/// Returns the name of a record of the C++ library without its arguments and without the namespaces of versions:
/// `std::__cxx11::list<int>` and `std::__1::list<int>` are both "std::list". None: it is not of the library.
fn library_name(name: &str) -> Option<String> {
    if !name.starts_with("std::") && !name.starts_with("__gnu_cxx::") {
        return None;
    }
    let outer = template_of(name).unwrap_or(name);
    let parts: Vec<&str> = outer.split("::").collect();
    let version = |part: &&str| {
        *part == "__cxx11"
            || *part == "__cxx1998"
            || *part == "_V2"
            || part.strip_prefix("__").is_some_and(|rest| rest == "ndk1" || rest.bytes().all(|b| b.is_ascii_digit()))
    };
    Some(parts.into_iter().filter(|part| !version(part)).collect::<Vec<_>>().join("::"))
}

/// Returns whether a type is only a link between the nodes of a container.
pub(super) fn is_link(types: &Types, id: Id) -> bool {
    let name = &types.get(types.bare(id)).name;
    name.starts_with("std::") && library_name(name).is_some_and(|name| LINKS.contains(&name.as_str()))
}

/// Returns the element if a record is a `std::unique_ptr<T[]>`.
pub(super) fn owned_element(types: &Types, id: Id) -> Option<Id> {
    let first = *types.record(id)?.arguments.first()?;
    let Form::Array(element, _) = types.get(types.bare(first)).form else { return None };
    (library_name(&types.get(id).name)? == "std::unique_ptr").then_some(element)
}

/// Returns the container that a record is.
pub(super) fn recognize(known: &mut Known, debug: &mut DebugTypes, id: Id) -> Option<Rc<Container>> {
    let name = debug.types.get(id).name.clone();
    if let Some(made) = super::rust::recognize(debug, id, &name) {
        return Some(Rc::new(made.map_or(Container::Opaque, Container::Rust)));
    }
    let library = library_name(&name)?;
    let arguments = debug.types.record(id)?.arguments.clone();
    let made = container(known, debug, id, &name, &library, &arguments)?;
    Some(Rc::new(made.unwrap_or(Container::Opaque)))
}

/// Some(None): it is one, but its parts are not as expected.
fn container(
    known: &mut Known,
    debug: &mut DebugTypes,
    id: Id,
    name: &str,
    library: &str,
    arguments: &[Id],
) -> Option<Option<Container>> {
    let types = &debug.types;
    let first = arguments.first().copied();
    let many = first.is_some_and(|kind| matches!(types.get(types.bare(kind)).form, Form::Array(..)));
    let at = |name: &str| types.find_member(id, name).map(|(at, _)| at);
    let pointee = |name: &str| types.find_member(id, name).and_then(|(_, kind)| types.pointee(kind));
    let libstdcxx = types.find_member(id, "_M_impl").is_some();
    let short = library.strip_prefix("std::").or_else(|| library.strip_prefix("__gnu_cxx::"))?;
    match short {
        "_Vector_base" | "vector" if at("_M_start").is_some() => {
            let element = pointee("_M_start");
            Some((|| {
                Some(Container::Vector {
                    begin: at("_M_start")?,
                    end: at("_M_finish")?,
                    limit: at("_M_end_of_storage")?,
                    element: element?,
                })
            })())
            .filter(Option::is_some)
            .or_else(|| {
                // vector<bool>: _M_start is an iterator.
                let (start, iterator) = types.find_member(id, "_M_start")?;
                let (inner, pointer) = types.find_member(iterator, "_M_p")?;
                let element = types.pointee(pointer)?;
                let limit = at("_M_end_of_storage")?;
                Some(Some(Container::Bits { begin: start + inner, limit, counted: false, element }))
            })
        }
        "vector" if at("__begin_").is_some() => Some((|| {
            let element = pointee("__begin_")?;
            if let (Some(limit), None) = (at("__size_"), at("__end_")) {
                return Some(Container::Bits { begin: at("__begin_")?, limit, counted: true, element });
            }
            let limit = types.find_member(id, "__end_cap_").or_else(|| types.find_member(id, "__cap_"))?;
            Some(Container::Vector { begin: at("__begin_")?, end: at("__end_")?, limit: limit.0, element })
        })()),
        "basic_string" if at("_M_dataplus").is_some() => Some((|| {
            let element = pointee("_M_p")?;
            let pointer = at("_M_p")?;
            // Before GCC 5, and with _GLIBCXX_USE_CXX11_ABI=0: a pointer behind the header of a shared buffer.
            let length = at("_M_string_length")?;
            Some(Container::Text { pointer, length, local: at("_M_local_buf")?, element })
        })()),
        "basic_string" if at("__l").is_some() => Some((|| {
            let (long, of_long) = types.find_member(id, "__l")?;
            let (pointer, kind) = types.find_member(of_long, "__data_")?;
            let (length, _) = types.find_member(of_long, "__size_")?;
            // LLVM 14 and later: bit-fields; before that the lowest bit of the capacity.
            let inner = |name: &str| find_bits(types, of_long, name, 4);
            let flag = inner("__is_long_").map_or(types.find_member(of_long, "__cap_").map(|(at, _)| at * 8), Some)?;
            let element = types.pointee(kind)?;
            let mask = 1 << (flag % 8);
            Some(Container::ShortOrLong {
                pointer: long + pointer,
                length: long + length,
                flag: long + flag / 8,
                mask,
                element,
            })
        })()),
        "_Deque_base" | "deque" if at("_M_map_size").is_some() => Some((|| {
            let (start, iterator) = types.find_member(id, "_M_start")?;
            let (finish, _) = types.find_member(id, "_M_finish")?;
            let (node, _) = types.find_member(iterator, "_M_node")?;
            let (_, current) = types.find_member(iterator, "_M_cur")?;
            let element = types.pointee(current)?;
            let size = types.size(element);
            // bits/stl_deque.h, __deque_buf_size: 512 bytes, or one element.
            let each = if size == 0 {
                return None;
            } else if size < 512 {
                512 / size
            } else {
                1
            };
            let (map, slots) = (at("_M_map")?, at("_M_map_size")?);
            Some(Container::Deque { map, slots, first: start + node, last: finish + node, element, each })
        })()),
        "deque" if at("__map_").is_some() => Some((|| {
            let (map, of_map) = types.find_member(id, "__map_")?;
            let part = |name: &str| types.find_member(of_map, name).map(|(at, _)| map + at);
            let (_, begin) = types.find_member(of_map, "__begin_")?;
            let element = types.pointee(types.pointee(begin)?)?;
            let size = types.size(element);
            // libc++ deque, __deque_block_size: 4096 bytes, or 16 elements.
            let each = if size == 0 {
                return None;
            } else if size < 256 {
                4096 / size
            } else {
                16
            };
            let limit = part("__end_cap_").or_else(|| part("__cap_"))?;
            let (first, last) = (part("__begin_")?, part("__end_")?);
            Some(Container::SplitDeque { map: part("__first_")?, first, last, limit, element, each })
        })()),
        "_List_base" | "list" if libstdcxx => {
            let found = types.find_member(id, "_M_node");
            let count = found.and_then(|(at, kind)| Some(at + types.find_member(kind, "_M_size")?.0));
            Some((|| {
                let (head, element) = (found?.0, first?);
                let node = node(known, debug, "std::_List_node", element, 2, false)?;
                Some(Container::Chain { head, ring: true, count, node })
            })())
        }
        "__list_imp" | "list" if at("__end_").is_some() => {
            let (head, count) = (at("__end_"), at("__size_").or_else(|| at("__size_alloc_")));
            Some((|| {
                let mut node = node(known, debug, "std::__list_node", first?, 2, false)?;
                let word = debug.types.word;
                // __list_node_base: __prev_, __next_.
                node.next = word;
                Some(Container::Chain { head: head? + word, ring: true, count, node })
            })())
        }
        "_Fwd_list_base" | "forward_list" if libstdcxx => {
            let head = types.find_member(id, "_M_head").map(|(at, _)| at);
            Some((|| {
                let node = node(known, debug, "std::_Fwd_list_node", first?, 1, false)?;
                Some(Container::Chain { head: head?, ring: false, count: None, node })
            })())
        }
        "__forward_list_base" | "forward_list" => {
            let head = types.find_member(id, "__before_begin_").map(|(at, _)| at);
            Some((|| {
                let node = node(known, debug, "std::__forward_list_node", first?, 1, false)?;
                Some(Container::Chain { head: head?, ring: false, count: None, node })
            })())
        }
        "_Rb_tree" => {
            let (header, count) = (at("_M_header"), at("_M_node_count"));
            Some((|| {
                let element = *arguments.get(1)?;
                let node = node(known, debug, "std::_Rb_tree_node", element, 4, false)?;
                let word = debug.types.word;
                // _Rb_tree_node_base: _M_color, _M_parent, _M_left, _M_right.
                let links = Links { parent: word, left: 2 * word, right: 3 * word };
                Some(Container::Tree { root: header? + word, header: header?, count: count?, links, node })
            })())
        }
        "__tree" => {
            let header = at("__end_node_").or_else(|| at("__pair1_"));
            let count = at("__size_").or_else(|| at("__pair3_"));
            Some((|| {
                // Left, right, parent, and one byte: the colour.
                let mut node = node(known, debug, "std::__tree_node", first?, 4, false)?;
                let word = debug.types.word;
                node.next = 0;
                let links = Links { left: 0, right: word, parent: 2 * word };
                Some(Container::Tree { root: header?, header: header?, count: count?, links, node })
            })())
        }
        "_Hashtable" => {
            let (buckets, slots) = (at("_M_buckets"), at("_M_bucket_count"));
            let (before, count) = (at("_M_before_begin"), at("_M_element_count"));
            let single = at("_M_single_bucket");
            let cached = name.contains("_Hashtable_traits<true");
            Some((|| {
                let element = *arguments.get(1)?;
                let node = node(known, debug, "std::__detail::_Hash_node", element, 1, cached)?;
                let (buckets, slots, first, count) = (buckets?, slots?, before?, count?);
                Some(Container::Table { buckets, slots, first, count, single, node })
            })())
        }
        "__hash_table" => {
            let buckets = at("__bucket_list_");
            let slots = types.find_member(id, "__bucket_list_").and_then(|(at, list)| {
                let size = ["__size_", "__data_"].iter().find_map(|name| types.find_member(list, name));
                Some(at + size?.0)
            });
            let before = at("__first_node_").or_else(|| at("__p1_"));
            let count = at("__size_").filter(|&at| Some(at) > before).or_else(|| at("__p2_"));
            Some((|| {
                let node = node(known, debug, "std::__hash_node", first?, 2, false)?;
                let (buckets, slots, first, count) = (buckets?, slots?, before?, count?);
                // The count follows the first node; __bucket_list_ has a __size_, too.
                let count = if count < first { first + debug.types.word } else { count };
                Some(Container::Table { buckets, slots, first, count, single: None, node })
            })())
        }
        "__shared_ptr" | "__weak_ptr" if at("_M_refcount").is_some() => {
            let strong = short == "__shared_ptr";
            Some((|| {
                let (object, pointer) = types.find_member(id, "_M_ptr")?;
                let (control, base) = types.find_member(id, "_M_pi")?;
                let (element, base) = (types.pointee(pointer)?, types.pointee(base)?);
                Some(Container::Shared { object: strong.then_some(object), control, element, base, many })
            })())
        }
        "shared_ptr" | "weak_ptr" if at("__cntrl_").is_some() => {
            let strong = short == "shared_ptr";
            Some((|| {
                let (object, pointer) = types.find_member(id, "__ptr_")?;
                let (control, base) = types.find_member(id, "__cntrl_")?;
                let (element, base) = (types.pointee(pointer)?, types.pointee(base)?);
                Some(Container::Shared { object: strong.then_some(object), control, element, base, many })
            })())
        }
        // bits of <any>: a small value is in place of the pointer, and has a manager of its own.
        "any" => Some((|| {
            let manager = at("_M_manager").or_else(|| at("__h"))?;
            Some(Container::Any { manager, pointer: at("_M_storage").or_else(|| at("__s"))? })
        })()),
        "_Optional_payload_base" => Some((|| {
            let (value, element) = types.find_member(id, "_M_value")?;
            Some(Container::Optional { flag: at("_M_engaged")?, at: value, element })
        })()),
        "optional" | "__optional_destruct_base" if at("__engaged_").is_some() => Some((|| {
            let (value, element) = types.find_member(id, "__val_")?;
            Some(Container::Optional { flag: at("__engaged_")?, at: value, element })
        })()),
        "variant" if at("_M_index").is_some() || at("__index").is_some() => Some((|| {
            let index = types.find_member(id, "_M_index").or_else(|| types.find_member(id, "__index"))?;
            let data = at("_M_u").or_else(|| at("__data"))?;
            let width = types.size(index.1);
            let elements = arguments.to_vec();
            Some(Container::Variant { index: index.0, width, at: data, elements })
        })()),
        "__aligned_membuf" | "__aligned_buffer" => Some(Some(Container::Storage { element: first? })),
        _ => None,
    }
}

/// Returns the first bit of a bit-field in a record or in what it is made of.
fn find_bits(types: &Types, id: Id, name: &str, depth: usize) -> Option<u64> {
    let record = types.record(id)?;
    for member in &record.members {
        if member.name == name {
            return member.bits.map(|(bit, _)| bit);
        }
        if depth > 0 && member.name.is_empty() {
            if let Some(bit) = find_bits(types, member.kind, name, depth - 1) {
                return Some(bit + member.offset * 8);
            }
        }
    }
    None
}
