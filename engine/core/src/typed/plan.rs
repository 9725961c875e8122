//! What is to be looked at in an object of a type: its pointers and its containers, with their offsets.

use std::rc::Rc;

use super::containers::{self, Container};
use super::rust_states;
use crate::dwarf::model::{Form, Id, Number, Types};
use crate::dwarf::DebugTypes;

/// Slots of one type. The largest structs have hundreds.
const MOST_SLOTS: usize = 1 << 12;
/// Elements of an array in a record that get slots of their own.
const UNROLLED: u64 = 8;
/// Records within records.
const MOST_DEPTH: usize = 24;

/// A place in an object that says something of other memory.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A pointer to a type.
    Pointer(Id),
    /// A pointer in a union: to one of these types, or no pointer at all.
    Choice(Vec<Id>),
    /// A container of the C++ library.
    Container(Rc<Container>),
    /// A floating-point number of 4 or 8 bytes, or a truth value of 1: only some bits make sense.
    Value(u64),
    /// One of several plans, as the number at an offset says; its bytes.
    Enum(u64, u64, Rc<Cases>),
    /// An array: the distance of its elements, how many there are, and what is in each.
    Repeat(u64, u64, Rc<Plan>),
}

/// What is there for each value of a discriminant; None: for all others.
pub(super) type Cases = Vec<(Option<u64>, Rc<Plan>)>;

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) at: u64,
    pub(super) what: What,
}

/// The slots of a type.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) slots: Vec<Slot>,
    /// A flexible array member at the end: where it begins, its element.
    pub(super) flexible: Option<(u64, Id)>,
    /// The object has a pointer to a vtable here.
    pub(super) vtable: Option<u64>,
}

/// The plans of all types that were met.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// By the number of the type.
    made: Vec<Option<Rc<Plan>>>,
    /// Containers in containers whose plans are being made.
    nested: usize,
    containers: super::nodes::Known,
}

impl Plans {
    /// Returns the plan of a type.
    pub(super) fn of(&mut self, debug: &mut DebugTypes, id: Id) -> Rc<Plan> {
        self.within(debug, id, MOST_DEPTH)
    }

    /// Returns the plan of what is in a `MaybeUninit`.
    pub(super) fn of_initialized(&mut self, debug: &mut DebugTypes, id: Id) -> Rc<Plan> {
        let value = rust_states::member_of_union(&debug.types, (0, id), "value");
        value.map_or_else(Rc::default, |(_, kind)| self.of(debug, kind))
    }

    /// Says what is in an object of a type: the node of a container holds its element.
    fn is_element(&mut self, debug: &mut DebugTypes, node: Id, at: u64, element: Id) {
        let mut plan = Plan::default();
        if self.nested < MOST_DEPTH {
            self.nested += 1;
            let inner = self.of(debug, element);
            self.nested -= 1;
            add_shifted(&mut plan.slots, &inner, at);
        }
        self.keep(debug.types.bare(node), Rc::new(plan));
    }

    fn keep(&mut self, id: Id, plan: Rc<Plan>) {
        if self.made.len() <= id as usize {
            self.made.resize(id as usize + 1, None);
        }
        self.made[id as usize] = Some(plan);
    }

    fn within(&mut self, debug: &mut DebugTypes, id: Id, depth: usize) -> Rc<Plan> {
        let id = debug.types.bare(id);
        if let Some(Some(plan)) = self.made.get(id as usize) {
            return plan.clone();
        }
        let mut plan = Plan::default();
        match debug.types.get(id).form.clone() {
            Form::Pointer(to) => plan.slots.push(Slot { at: 0, what: What::Pointer(to) }),
            Form::Base(Number::Float) if matches!(debug.types.get(id).size, 4 | 8) => {
                plan.slots.push(Slot { at: 0, what: What::Value(debug.types.get(id).size) });
            }
            Form::Base(Number::Truth) if debug.types.get(id).size == 1 => {
                plan.slots.push(Slot { at: 0, what: What::Value(1) });
            }
            Form::Array(element, Some(count)) if depth > 0 => self.array(debug, &mut plan, 0, (element, count), depth),
            Form::Record(record) if depth > 0 => {
                let container = containers::recognize(&mut self.containers, debug, id);
                for (node, at, element) in std::mem::take(&mut self.containers.elements) {
                    self.is_element(debug, node, at, element);
                }
                if let Some(container) = container {
                    plan.slots.push(Slot { at: 0, what: What::Container(container) });
                } else if record.union {
                    self.union(debug, &mut plan, &record, depth);
                } else {
                    self.record(debug, &mut plan, id, &record, depth);
                    own_array(&debug.types, id, &mut plan);
                }
            }
            _ => {}
        }
        let plan = Rc::new(plan);
        // Kept also where it was cut off: no honest type nests so deeply.
        self.keep(id, plan.clone());
        plan
    }

    fn record(
        &mut self,
        debug: &mut DebugTypes,
        plan: &mut Plan,
        id: Id,
        record: &crate::dwarf::model::Record,
        depth: usize,
    ) {
        let size = debug.types.size(id);
        let filled = rust_states::filled(&debug.types, record);
        for member in &record.members {
            if member.bits.is_some() || plan.slots.len() >= MOST_SLOTS {
                continue;
            }
            let arrays = filled.iter().flat_map(|filled| &filled.arrays);
            let end = member.offset.saturating_add(debug.types.size(member.kind));
            if arrays.map(|&(at, _)| at).any(|at| (member.offset..end).contains(&at)) {
                continue;
            }
            if member.variant && record.discriminant.is_some() {
                continue;
            }
            if member.name.starts_with("_vptr") {
                plan.vtable.get_or_insert(member.offset);
                continue;
            }
            let kind = debug.types.bare(member.kind);
            if let Form::Array(element, count) = debug.types.get(kind).form {
                if count.unwrap_or(0) <= 1 && ends_record(&debug.types, record, member.offset, size, element, count) {
                    plan.flexible = Some((member.offset, element));
                    continue;
                }
            }
            let inner = self.within(debug, kind, depth - 1);
            // A member with a vtable says nothing of the object around it.
            if member.base && member.offset == 0 && inner.vtable == Some(0) {
                plan.vtable = Some(0);
            }
            if let Some((at, element)) = inner.flexible {
                if member.offset + debug.types.size(kind) >= size {
                    plan.flexible = Some((member.offset + at, element));
                }
            }
            let uncertain = member.variant;
            let from = plan.slots.len();
            add_shifted(&mut plan.slots, &inner, member.offset);
            if uncertain {
                soften(&mut plan.slots, from);
            }
        }
        if let Some(filled) = filled {
            let container = Container::Rust(super::rust::Container::Filled(Box::new(filled)));
            plan.slots.push(Slot { at: 0, what: What::Container(Rc::new(container)) });
        }
        self.variants(debug, plan, record, depth);
    }

    /// Adds what is there for each value of a record's discriminant, if anything is.
    fn variants(
        &mut self,
        debug: &mut DebugTypes,
        plan: &mut Plan,
        record: &crate::dwarf::model::Record,
        depth: usize,
    ) {
        let Some((at, kind)) = record.discriminant else { return };
        let mut cases = Cases::new();
        for member in record.members.iter().filter(|member| member.variant).take(MOST_SLOTS) {
            let inner = self.within(debug, member.kind, depth - 1);
            let mut case = Plan::default();
            add_shifted(&mut case.slots, &inner, member.offset);
            cases.push((member.when, Rc::new(case)));
        }
        if cases.iter().any(|(_, case)| !case.slots.is_empty()) {
            plan.slots.push(Slot { at: 0, what: What::Enum(at, debug.types.size(kind), Rc::new(cases)) });
        }
    }

    /// Only the pointers of a union are looked at, and each is one of several possibilities.
    fn union(&mut self, debug: &mut DebugTypes, plan: &mut Plan, record: &crate::dwarf::model::Record, depth: usize) {
        for member in &record.members {
            let inner = self.within(debug, member.kind, depth - 1);
            let from = plan.slots.len();
            add_shifted(&mut plan.slots, &inner, member.offset);
            soften(&mut plan.slots, from);
        }
        merge_choices(&mut plan.slots);
    }

    fn array(&mut self, debug: &mut DebugTypes, plan: &mut Plan, at: u64, (element, count): (Id, u64), depth: usize) {
        let inner = self.within(debug, element, depth - 1);
        let stride = debug.types.size(element);
        if inner.slots.is_empty() || stride == 0 || count == 0 {
            return;
        }
        if count <= UNROLLED {
            for i in 0..count {
                add_shifted(&mut plan.slots, &inner, at + i * stride);
            }
        } else {
            plan.slots.push(Slot { at, what: What::Repeat(stride, count, inner) });
        }
    }
}

/// Returns what a plan says of the bytes before an offset.
pub(super) fn before(plan: &Plan, end: u64) -> Rc<Plan> {
    let slots = plan.slots.iter().filter(|slot| slot.at < end).cloned().collect();
    Rc::new(Plan { slots, ..Plan::default() })
}

/// Says of the pointer in a `std::unique_ptr<T[]>` that it owns an array.
fn own_array(types: &Types, id: Id, plan: &mut Plan) {
    let Some(element) = containers::owned_element(types, id) else { return };
    for slot in &mut plan.slots {
        if matches!(slot.what, What::Pointer(to) if types.bare(to) == types.bare(element)) {
            slot.what = What::Container(Rc::new(Container::Owned { element }));
        }
    }
}

/// Returns whether an array is the last member, as a flexible array member is.
fn ends_record(
    types: &Types,
    record: &crate::dwarf::model::Record,
    offset: u64,
    size: u64,
    element: Id,
    count: Option<u64>,
) -> bool {
    let end = offset.saturating_add(types.size(element).saturating_mul(count.unwrap_or(0)));
    // Padding may follow an array of one element.
    record.members.len() > 1
        && record.members.iter().all(|member| member.offset <= offset)
        && end.saturating_add(types.word) >= size
        && offset > 0
}

fn add_shifted(slots: &mut Vec<Slot>, plan: &Plan, by: u64) {
    for slot in &plan.slots {
        if slots.len() >= MOST_SLOTS {
            return;
        }
        slots.push(Slot { at: slot.at.saturating_add(by), what: slot.what.clone() });
    }
}

/// Makes pointers possibilities, and leaves out what cannot be one.
fn soften(slots: &mut Vec<Slot>, from: usize) {
    for slot in &mut slots[from..] {
        if let What::Pointer(to) = slot.what {
            slot.what = What::Choice(vec![to]);
        }
    }
    let mut at = 0;
    slots.retain(|slot| {
        at += 1;
        at <= from || matches!(slot.what, What::Choice(_))
    });
}

fn merge_choices(slots: &mut Vec<Slot>) {
    let mut merged: Vec<Slot> = Vec::new();
    for slot in slots.drain(..) {
        let What::Choice(more) = &slot.what else { continue };
        match merged.iter_mut().find(|other| other.at == slot.at) {
            Some(Slot { what: What::Choice(all), .. }) => {
                for id in more {
                    if !all.contains(id) {
                        all.push(*id);
                    }
                }
            }
            _ => merged.push(slot),
        }
    }
    *slots = merged;
}
