//! Blocks that only untyped pointers lead to: a struct is believed if it is the only one that explains every pointer in the
//! block, and that has one which leads to an object whose type is known.
//!
//! A struct that has the right size and pointers to anything proves nothing: libraries without debug information have lists,
//! too. So at least one pointer must lead to a block that already has the right type, or to a variable of it.

use std::rc::Rc;

use super::blocks::{Found, Rank, Shape};
use super::leads::Lead;
use super::maps::HashMap;
use super::plan::{Plan, What};
use super::propagate::{fits, Spread, SMALL};
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;

/// Words of a block that are looked at: a bit for each.
pub(super) const MOST_WORDS: u64 = 64;
/// Passes over all blocks: a block that got a type is evidence for others.
const ROUNDS: usize = 4;
/// Looks of blocks that are kept: 64 MiB at most.
const MOST_LOOKS: usize = 1 << 15;
/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 12;

/// A struct with pointers to structs, by its size.
pub(super) struct Candidate {
    size: u64,
    kind: Id,
    plan: Rc<Plan>,
    /// The words that may hold pointers, and those that hold pointers to structs.
    pointers: u64,
    to_structs: u64,
}

/// A struct with two pointers or more: a block that looks like it proves nothing behind its end.
pub(super) struct Lesser {
    size: u64,
    plan: Rc<Plan>,
}

/// To what the words of a block lead: a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Words {
    /// To a block or a variable.
    leading: u64,
    /// To the start of a block.
    starts: u64,
    /// To something whose type is known.
    known: u64,
}

/// What is known of a block once it was looked at.
enum Judged {
    /// It got a type.
    New,
    /// Not yet: the types of other blocks may prove one.
    Perhaps,
    /// No struct can explain it, whatever types other blocks get.
    Never,
}

/// The structs, and what was found out of blocks that look alike.
struct Structures {
    candidates: Vec<Candidate>,
    lesser: Vec<Lesser>,
    /// Candidates by the usable size of a block.
    by_size: HashMap<u64, Rc<OfSize>>,
    looks: HashMap<Look, Rc<Fitting>>,
}

/// The candidates for blocks of one size.
struct OfSize {
    /// The number of each.
    all: Vec<usize>,
    /// The words where one of them or more have a pointer to a struct.
    to_structs: u64,
}

/// All of a block that decides which structs its pointers allow. A heap has millions of blocks, and few that differ in this.
#[derive(PartialEq, Eq, Hash)]
struct Look {
    usable: u64,
    words: Words,
    leads: Vec<Lead>,
}

/// The structs that the pointers of a block allow.
#[derive(Default)]
struct Fitting {
    /// One may be proven later, if none is now.
    ever: bool,
    /// The number of each, and where the pointer is that proves it. None: more than its aligned pointers must be looked at.
    structs: Vec<(usize, Option<u64>)>,
}

impl Spread<'_, '_> {
    /// Looks at all blocks that have no type yet.
    pub(super) fn judge_structures(&mut self, control: &Control) -> Result<(), Stopped> {
        let (candidates, lesser) = self.candidates();
        if candidates.is_empty() {
            return Ok(());
        }
        let mut structs = Structures { candidates, lesser, by_size: HashMap::default(), looks: HashMap::default() };
        let (mut waiting, mut any) = (Vec::new(), false);
        self.each_block(control, |spread, found| {
            if !spread.blocks.claim(found.number).is_some() {
                match spread.only_structure(found, &mut structs) {
                    Judged::New => any = true,
                    Judged::Perhaps => waiting.push(found.block.address),
                    Judged::Never => {}
                }
            }
        })?;
        for _ in 1..ROUNDS {
            if !any {
                return Ok(());
            }
            self.settle(control)?;
            self.judge_inside(control)?;
            any = false;
            self.blocks.take(waiting.len());
            for (count, address) in std::mem::take(&mut waiting).into_iter().enumerate() {
                if count % CHECK == 0 && control.cancelled() {
                    return Err(Stopped::Cancelled);
                }
                let Some(found) = self.blocks.at(address) else { continue };
                if self.blocks.claim(found.number).is_some() {
                    continue;
                }
                match self.only_structure(found, &mut structs) {
                    Judged::New => any = true,
                    _ => waiting.push(address),
                }
            }
        }
        if any {
            self.settle(control)?;
            self.judge_inside(control)?;
        }
        Ok(())
    }

    /// Returns the structs that have a pointer to a struct; and all that have two pointers or more.
    fn candidates(&mut self) -> (Vec<Candidate>, Vec<Lesser>) {
        let (mut out, mut lesser) = (Vec::new(), Vec::new());
        for id in self.debug.records() {
            let kind = self.canonical(id);
            let (size, plan) = (self.types().size(kind), self.plans.of(self.debug, kind));
            let (pointers, to_structs) = self.pointer_words(&plan);
            let pairs = |slot: &&super::plan::Slot| matches!(slot.what, What::Pointer(_) | What::Choice(_));
            if size > 0 && size <= MOST_WORDS * self.word && plan.slots.iter().filter(pairs).count() >= 2 {
                lesser.push(Lesser { size, plan: plan.clone() });
            }
            let fixed = plan.vtable.is_none() && plan.flexible.is_none();
            if size > 0 && size <= MOST_WORDS * self.word && fixed && to_structs != 0 {
                out.push(Candidate { size, kind, plan, pointers, to_structs });
            }
        }
        out.sort_by_key(|candidate| (candidate.size, candidate.kind));
        out.dedup_by_key(|candidate| candidate.kind);
        lesser.sort_by_key(|lesser| lesser.size);
        lesser.dedup_by(|a, b| Rc::ptr_eq(&a.plan, &b.plan));
        (out, lesser)
    }

    /// Returns which words of an object may hold pointers, and which hold pointers to structs: a bit for each.
    pub(super) fn pointer_words(&self, plan: &Plan) -> (u64, u64) {
        let (mut pointers, mut to_structs) = (0, 0);
        for slot in &plan.slots {
            let count = match &slot.what {
                What::Pointer(_) | What::Choice(_) => 1,
                What::Repeat(stride, count, _) => stride.saturating_mul(*count) / self.word,
                // A container has pointers of its own, which are not listed here.
                What::Container(_) | What::Enum(..) => 32,
                What::Value(_) => 0,
            };
            let first = slot.at / self.word;
            for word in first..first.saturating_add(count).min(MOST_WORDS) {
                pointers |= 1 << word;
            }
            if let What::Pointer(to) = slot.what {
                if first < MOST_WORDS && self.types().record(to).is_some() {
                    to_structs |= 1 << first;
                }
            }
        }
        (pointers, to_structs)
    }

    /// Gives a block the one struct that explains it.
    fn only_structure(&mut self, found: Found, structs: &mut Structures) -> Judged {
        let (address, usable) = (found.block.address, found.block.size);
        if usable >= 2 * MOST_WORDS * self.word {
            return Judged::Never;
        }
        let Structures { candidates, lesser, by_size, looks } = structs;
        let of_size = by_size.entry(usable).or_insert_with(|| {
            let all: Vec<usize> = (0..candidates.len()).filter(|&i| fits(candidates[i].size, usable)).collect();
            let to_structs = all.iter().fold(0, |words, &i| words | candidates[i].to_structs);
            Rc::new(OfSize { all, to_structs })
        });
        // Most blocks end here.
        let words = self.leading_words(found, of_size.to_structs);
        if words.known == 0 {
            return if words.leading == 0 { Judged::Never } else { Judged::Perhaps };
        }
        let Some(look) = self.look_of(found) else { return Judged::Never };
        let fitting = match looks.get(&look) {
            Some(fitting) => fitting.clone(),
            None => {
                let fitting = Rc::new(self.fitting(&look, candidates, &of_size.all));
                if looks.len() >= MOST_LOOKS {
                    looks.clear();
                }
                looks.insert(look, fitting.clone());
                fitting
            }
        };
        if !fitting.ever {
            return Judged::Never;
        }
        let mut only = None;
        for &(i, at) in &fitting.structs {
            let candidate = &candidates[i];
            let from = match at {
                Some(at) => Some(address + at),
                None => {
                    let common = self.common_members(candidate.kind, usable);
                    self.proof(address, &candidate.plan, common).flatten()
                }
            };
            let Some(from) = from else { continue };
            if only.is_some() {
                return Judged::Perhaps;
            }
            only = Some((candidate.kind, from));
        }
        let Some((kind, from)) = only else { return Judged::Perhaps };
        // A struct from which others are derived says too little.
        if self.may_be_derived(kind, usable) || self.ends_before(address, usable, from, lesser) {
            return Judged::Perhaps;
        }
        match self.propose(found, self.claim(kind, from, Rank::Candidate, Shape::One)) {
            true => Judged::New,
            false => Judged::Perhaps,
        }
    }

    /// Returns the structs of a size that the pointers of a block allow.
    fn fitting(&mut self, look: &Look, candidates: &[Candidate], of_size: &[usize]) -> Fitting {
        let mut out = Fitting::default();
        for &i in of_size {
            let candidate = &candidates[i];
            let count = candidate.size / self.word;
            let own = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
            if candidate.to_structs & look.words.leading == 0 || look.words.starts & own & !candidate.pointers != 0 {
                continue;
            }
            out.ever = true;
            if candidate.to_structs & look.words.known == 0 {
                continue;
            }
            let common = self.common_members(candidate.kind, look.usable);
            out.structs.extend(self.allowed(candidate, &look.leads, common).map(|at| (i, at)));
        }
        out
    }

    /// Returns where a pointer proves a struct, as [`Spread::proof`] does, from what the words of a block lead to. Some(None):
    /// something is no aligned pointer, and decides. None: the struct is not there.
    fn allowed(&mut self, candidate: &Candidate, leads: &[Lead], common: u64) -> Option<Option<u64>> {
        let (mut proof, mut all) = (None, true);
        for slot in &candidate.plan.slots {
            let lead = leads.get((slot.at / self.word) as usize).filter(|_| slot.at % self.word == 0);
            match (&slot.what, lead) {
                (What::Pointer(to), Some(&lead)) => {
                    if self.leads_as(lead, *to)? && slot.at >= common {
                        proof.get_or_insert(slot.at);
                    }
                }
                (What::Choice(_) | What::Repeat(..) | What::Enum(..), _) => {}
                _ => all = false,
            }
        }
        if all {
            proof.map(Some)
        } else {
            Some(None)
        }
    }

    /// Returns whether a smaller object may be there, behind whose end the proof lies: the allocator has rounded up, and an
    /// earlier block was there.
    fn ends_before(&mut self, address: u64, usable: u64, proof: u64, lesser: &[Lesser]) -> bool {
        let mut smaller = lesser.iter().take_while(|lesser| address + lesser.size <= proof);
        smaller.any(|lesser| fits(lesser.size, usable) && self.plausible(address, lesser.size, 1, &lesser.plan))
    }

    /// Says of some words of a block to what they lead, up to the first that leads to something whose type is known.
    fn leading_words(&mut self, found: Found, mut left: u64) -> Words {
        let mut words = Words::default();
        let count = found.block.size / self.word;
        while left != 0 && u64::from(left.trailing_zeros()) < count && words.known == 0 {
            let word = u64::from(left.trailing_zeros());
            left &= left - 1;
            let Some(value) = self.read(found.block.address + word * self.word) else { break };
            let other = if value < SMALL { None } else { self.blocks.at(value) };
            self.note_word(&mut words, word, value, other);
        }
        words
    }

    fn note_word(&self, words: &mut Words, word: u64, value: u64, other: Option<Found>) {
        if let Some(other) = other {
            words.leading |= 1 << word;
            words.starts |= u64::from(other.block.address == value) << word;
            let claim = self.blocks.claim(other.number);
            words.known |= u64::from(claim.is_some() && claim.rank != Rank::Weak && !claim.disputed) << word;
        } else if value >= SMALL && self.variable_at(value).is_some() {
            words.leading |= 1 << word;
            words.known |= 1 << word;
        }
    }

    /// Returns to what the words of a block lead. None: one of them is not in the dump.
    fn look_of(&mut self, found: Found) -> Option<Look> {
        let count = (found.block.size / self.word).min(MOST_WORDS);
        let (mut words, mut leads) = (Words::default(), Vec::with_capacity(count as usize));
        for word in 0..count {
            let value = self.read(found.block.address + word * self.word)?;
            let other = if value < SMALL { None } else { self.blocks.at(value) };
            self.note_word(&mut words, word, value, other);
            leads.push(self.lead(value, other));
        }
        Some(Look { usable: found.block.size, words, leads })
    }

    /// Returns the address of a pointer that proves a plan; Some(None): all its pointers may be right. None: one is wrong. The
    /// first bytes, which other structs have, too, prove nothing.
    pub(super) fn proof(&mut self, address: u64, plan: &Rc<Plan>, common: u64) -> Option<Option<u64>> {
        if !self.works(plan.slots.len()) {
            return None;
        }
        let mut proof = None;
        for slot in &plan.slots {
            let at = address + slot.at;
            match &slot.what {
                What::Pointer(to) => {
                    let value = self.read(at)?;
                    if self.leads(value, *to)? && slot.at >= common {
                        proof.get_or_insert(at);
                    }
                }
                What::Container(container) => self.plausible_container(at, container).then_some(())?,
                What::Value(width) => self.plausible_value(at, *width).then_some(())?,
                What::Choice(_) | What::Repeat(..) | What::Enum(..) => {}
            }
        }
        Some(proof)
    }
}
