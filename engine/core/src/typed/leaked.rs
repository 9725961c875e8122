//! Types of leaked blocks, to which no typed pointer leads: those of live objects that look alike.
//!
//! A block is compared with the typed objects in blocks of its size. For each word of a type it is known what stands there in
//! all of its objects: numbers of which size, texts, pointers to objects of which types. A block has a type if each of its
//! words has something that such objects have in that place, if pointers in it prove that, and if no other type fits. A
//! pointer to a block that has no type either waits for what is said of that one.
//!
//! Only leaked blocks are looked at: what holds a live block without a type is memory of a library without debug information,
//! and the block may be as well.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::blocks::{Claim, Found, Rank, Shape};
use super::containers::Container;
use super::family::sampled;
use super::plan::What;
use super::pools::Pools;
use super::propagate::{fits, Spread, CHECK, SMALL};
use crate::blocks::model::State;
use crate::control::{Control, Stopped};
use crate::dwarf::model::{Id, VOID};
use crate::graph::stream::Stream;

/// Leaked blocks that are looked at: 128 MiB.
const MOST_LEAKED: usize = 1 << 20;
/// Objects of one type that are compared.
const MOST_OBJECTS: u32 = 1 << 16;
/// Objects that a type must have.
const FEW: u32 = 4;
/// Words of an object that are compared.
const MOST_WORDS: usize = 64;
/// Types of objects to which one word leads.
const MOST_KINDS: usize = 8;
/// Types of blocks of one size that are compared.
const MOST_TYPES: usize = 256;
/// Passes over the blocks that lead to each other.
const MOST_PASSES: usize = 16;
/// What a pointer to an object of the right type proves, where one that may be right proves 1.
const PROVEN: usize = 2;
/// Words of a container among which is the pointer to its memory.
const CONTAINER: u64 = 3;
/// Blocks with which a struct is compared of which no object is known.
const MOST_COMPARED: usize = 64;
/// Of the words that all objects have, so many may be 0: one in this many.
const MISSING: usize = 4;

/// What a word is. Numbers are 3 * (size of the upper half) + (size of the lower half). Sizes are 0: zero, 1: small, 2: large.
const NUMBERS: u32 = 9;
const TEXT: u32 = 9;
const BYTES: u32 = 10;
const INSIDE: u32 = 11;
const OUTSIDE: u32 = 12;
const OBJECT: u32 = 13;

/// What a word is, and to what it leads: the type of an object, or the number of a leaked block that has none.
#[derive(Clone, Copy)]
struct Word {
    value: u64,
    class: u32,
    kind: Id,
    leaked: Option<usize>,
}

/// What the objects of a type have in one place.
#[derive(Clone, Default)]
struct Place {
    classes: u32,
    /// The types of the objects to which it leads. None: too many.
    kinds: Option<Vec<Id>>,
    /// The one number, or the address outside the heap, that all of them have.
    same: Option<u64>,
    /// It is 0 in none of them.
    always: bool,
    /// It is a floating-point number: few bits make sense.
    fraction: bool,
}

/// The objects of one type in blocks of one size.
struct Type {
    kind: Id,
    count: u32,
    example: u64,
    places: Vec<Place>,
}

/// A leaked block, and the types that it may have: each with the blocks that must be of certain types as well.
struct Leaked {
    found: Found,
    may_be: Vec<Candidate>,
}

struct Candidate {
    /// Where its type is in the list of its size.
    place: usize,
    waits: Waits,
    /// Its words prove it, or a pointer in another such block does.
    proven: bool,
}

/// Leaked blocks to which a block leads: (their number, the place of the pointer).
type Waits = Vec<(usize, usize)>;

type Types = BTreeMap<u64, Vec<Type>>;

impl Spread<'_, '_> {
    /// Gives leaked blocks the types of objects that look alike.
    pub(super) fn judge_leaked(&mut self, pools: &Pools, control: &Control) -> Result<(), Stopped> {
        let mut leaked = self.leaked_blocks(pools, control)?;
        if leaked.is_empty() {
            return Ok(());
        }
        let numbers: HashMap<usize, usize> =
            leaked.iter().enumerate().map(|(place, block)| (block.found.number, place)).collect();
        let mut types: Types = leaked.iter().map(|block| (block.found.block.size, Vec::new())).collect();
        self.learn_objects(&mut types, &numbers, control)?;
        for types in types.values_mut() {
            types.retain(|one| one.count >= FEW);
        }
        for (count, block) in leaked.iter_mut().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let alike = &types[&block.found.block.size];
            if !alike.is_empty() && self.works(alike.len()) {
                block.may_be = self.fitting_types(block.found, alike, &numbers);
            }
        }
        settle(&mut leaked, &types);
        prove(&mut leaked, &types);
        let mut groups: BTreeMap<(u64, usize), Vec<Found>> = BTreeMap::new();
        for block in &leaked {
            if let [Candidate { place, proven: true, .. }] = block.may_be[..] {
                groups.entry((block.found.block.size, place)).or_default().push(block.found);
            }
        }
        for (&(size, place), blocks) in &groups {
            let like = &types[&size][place];
            for &found in blocks {
                let claim = self.claim(like.kind, like.example, Rank::Alike, Shape::One);
                self.propose(found, claim);
            }
        }
        self.open.clear();
        let modules = self.structs_by_module();
        let mut doubtful = Vec::new();
        for (&(size, place), blocks) in &groups {
            let kind = types[&size][place].kind;
            let known: Vec<Id> = modules.iter().filter(|structs| structs.contains(&kind)).flatten().copied().collect();
            if self.has_rival(kind, &known, size, blocks, control)? {
                doubtful.extend(blocks.iter().map(|found| found.number));
            }
        }
        for number in doubtful {
            self.blocks.set(number, Claim::default());
        }
        Ok(())
    }

    /// Returns the structs of each module's debug information.
    fn structs_by_module(&mut self) -> Vec<HashSet<Id>> {
        let mut out = Vec::new();
        for records in self.debug.records_by_module() {
            let structs = records.into_iter().filter(|&id| self.types().record(id).is_some_and(|record| !record.union));
            let structs: Vec<Id> = structs.collect();
            out.push(structs.into_iter().map(|id| self.canonical(id)).collect());
        }
        out
    }

    /// Returns whether another one of the structs explains most of the blocks as well as their type does. Perhaps all objects of
    /// that one have leaked.
    fn has_rival(
        &mut self,
        kind: Id,
        structs: &[Id],
        usable: u64,
        blocks: &[Found],
        control: &Control,
    ) -> Result<bool, Stopped> {
        let blocks = sampled(blocks, MOST_COMPARED);
        let own: Vec<usize> = blocks.iter().map(|found| self.explained(found, kind, kind).unwrap_or(0)).collect();
        for (count, &other) in structs.iter().enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if !fits(self.types().size(other), usable) || other == kind {
                continue;
            }
            let mut as_well = 0;
            for (found, &own) in blocks.iter().zip(&own) {
                as_well += usize::from(self.explained(found, other, kind).is_some_and(|all| all >= own.max(1)));
            }
            if as_well * 2 > blocks.len() && !self.contains(other, 0, kind, 8) && !self.contains(kind, 0, other, 8) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how much of a block proves that it is an object of a struct: pointers to objects of the right types, numbers with
    /// a fraction, containers. None: something in it is no part of such
    /// an object. The block has the type `said`.
    fn explained(&mut self, found: &Found, kind: Id, said: Id) -> Option<usize> {
        let (at, size, plan) = (found.block.address, self.types().size(kind), self.plans.of(self.debug, kind));
        let pointers = self.pointer_words(&plan).0;
        for i in (0..(found.block.size / self.word).min(MOST_WORDS as u64)).filter(|i| pointers >> i & 1 == 0) {
            let value = self.read(at + i * self.word)?;
            // The allocator may have left a pointer behind the object.
            if i * self.word < size && value >= SMALL && (self.blocks.at(value).is_some() || self.is_mapped(value)) {
                return None;
            }
        }
        if !self.plausible(at, size, 1, &plan) {
            return None;
        }
        let mut all = 0;
        for slot in &plan.slots {
            let value = self.read(at.saturating_add(slot.at) & !(self.word - 1))?;
            all += match &slot.what {
                // What leads to others of its own type would do so if all of them were of another one.
                What::Pointer(to) if self.canonical(*to) == kind && self.is_alike(value, said) => PROVEN,
                What::Pointer(to) => match self.leads(value, *to)? {
                    true => PROVEN,
                    false => usize::from(value >= SMALL && self.types().bare(*to) != VOID),
                },
                What::Value(8) => usize::from(value != 0),
                What::Container(container) => {
                    let text = matches!(**container, Container::Text { .. });
                    usize::from(text || self.has_memory(at.saturating_add(slot.at)))
                }
                _ => 0,
            };
        }
        Some(all)
    }

    /// Returns whether one of the first words of a container leads to the start of a block.
    fn has_memory(&mut self, at: u64) -> bool {
        (0..CONTAINER).any(|i| {
            let value = self.read(at.saturating_add(i * self.word));
            value.is_some_and(|value| self.blocks.at(value).is_some_and(|other| other.block.address == value))
        })
    }

    /// Returns whether a leaked block is said to be of a type because it looks so.
    fn is_alike(&self, address: u64, kind: Id) -> bool {
        let claim = self.blocks.at(address).map(|found| self.blocks.claim(found.number)).unwrap_or_default();
        claim.rank == Rank::Alike && claim.kind == kind
    }

    /// Returns the leaked blocks of which nothing is known.
    fn leaked_blocks(&mut self, pools: &Pools, control: &Control) -> Result<Vec<Leaked>, Stopped> {
        let mut out = Vec::new();
        for (count, each) in Stream::new(self.blocks.heap()).enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            if !matches!(each.state, State::LeakedDirectly | State::LeakedIndirectly) {
                continue;
            }
            let Some(found) = self.blocks.at(each.block.address) else { continue };
            let claim = self.blocks.claim(found.number);
            if claim.is_some() || !pools.within(found.block.address, found.block.size).is_empty() {
                continue;
            }
            if out.len() >= MOST_LEAKED {
                self.exhausted = true;
                break;
            }
            out.push(Leaked { found, may_be: Vec::new() });
        }
        Ok(out)
    }

    /// Takes the typed objects in blocks of these sizes.
    fn learn_objects(
        &mut self,
        types: &mut Types,
        leaked: &HashMap<usize, usize>,
        control: &Control,
    ) -> Result<(), Stopped> {
        let heap = self.blocks.heap();
        let mut known: HashMap<(u64, Id), usize> = HashMap::new();
        for (count, each) in Stream::new(heap).enumerate() {
            if count % CHECK == 0 && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let (size, address) = (each.block.size, each.block.address);
            let Some(alike) = types.get_mut(&size) else { continue };
            let Some(found) = self.blocks.at(address) else { continue };
            let claim = self.blocks.claim(found.number);
            if !self.is_certain(&claim, size) {
                continue;
            }
            let place = match known.get(&(size, claim.kind)) {
                Some(&place) => place,
                None if alike.len() >= MOST_TYPES => continue,
                None => {
                    let words = (self.types().size(claim.kind).div_ceil(self.word) as usize).min(MOST_WORDS);
                    let place = Place { kinds: Some(Vec::new()), always: true, ..Place::default() };
                    let mut places = vec![place; words];
                    for slot in &self.plans.of(self.debug, claim.kind).slots {
                        let place = places.get_mut((slot.at / self.word) as usize);
                        if let (What::Value(8), Some(place)) = (&slot.what, place) {
                            place.fraction = true;
                        }
                    }
                    alike.push(Type { kind: claim.kind, count: 0, example: address, places });
                    known.insert((size, claim.kind), alike.len() - 1);
                    alike.len() - 1
                }
            };
            let of = &mut alike[place];
            if of.count >= MOST_OBJECTS {
                continue;
            }
            let words: Option<Vec<Word>> =
                (0..of.places.len()).map(|i| self.what_is(address + i as u64 * self.word, leaked)).collect();
            let Some(words) = words else { continue };
            for (place, word) in of.places.iter_mut().zip(words) {
                place.learn(&word, of.count == 0);
            }
            of.count += 1;
        }
        Ok(())
    }

    /// Returns whether a claim tells what objects of its type look like: one object that fills its block.
    fn is_certain(&self, claim: &Claim, usable: u64) -> bool {
        let size = self.types().size(claim.kind);
        let record = self.types().record(claim.kind).is_some_and(|record| !record.union);
        let sure = !matches!(claim.rank, Rank::Weak | Rank::Text | Rank::Alike) && !claim.disputed;
        claim.is_some()
            && sure
            && record
            && claim.shape == Shape::One
            && claim.skip == 0
            && size >= 2 * self.word
            && fits(size, usable)
    }

    /// Says what the word at an address is. None: it is not in the dump.
    fn what_is(&mut self, at: u64, leaked: &HashMap<usize, usize>) -> Option<Word> {
        let value = self.read(at)?;
        let mut word = Word { value, class: number(value, self.word), kind: VOID, leaked: None };
        if value < SMALL {
            return Some(word);
        }
        if let Some(other) = self.blocks.at(value) {
            if other.block.address != value {
                word.class = INSIDE;
                return Some(word);
            }
            let claim = self.blocks.claim(other.number);
            let typed = claim.is_some() && !claim.disputed && claim.rank != Rank::Weak;
            if typed && self.types().record(claim.kind).is_some() {
                (word.class, word.kind) = (OBJECT, claim.kind);
            } else {
                word.leaked = leaked.get(&other.number).copied();
                word.class = if self.begins_with_text(value) { TEXT } else { BYTES };
            }
        } else if self.is_mapped(value) {
            word.class = OUTSIDE;
        }
        Some(word)
    }

    /// Returns whether what is at an address may be a text: printable up to a 0, which may be far behind.
    fn begins_with_text(&mut self, at: u64) -> bool {
        let Some(word) = self.read(at) else { return false };
        let bytes = word.to_le_bytes();
        let text = &bytes[..self.word as usize];
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        text[..end].iter().all(|&byte| byte >= 0x20 && byte != 0x7f || (9..=13).contains(&byte))
    }

    /// Returns the types that a block may have.
    fn fitting_types(&mut self, found: Found, alike: &[Type], leaked: &HashMap<usize, usize>) -> Vec<Candidate> {
        let most = alike.iter().map(|one| one.places.len()).max().unwrap_or(0);
        let words: Vec<Option<Word>> =
            (0..most).map(|i| self.what_is(found.block.address + i as u64 * self.word, leaked)).collect();
        let mut out = Vec::new();
        for (place, one) in alike.iter().enumerate() {
            let Some((waits, proven)) = one.fits(&words) else { continue };
            let (size, plan) = (self.types().size(one.kind), self.plans.of(self.debug, one.kind));
            // All typed pointers must be right as well: objects of this type may lead to several types there.
            if self.plausible(found.block.address, size, 1, &plan)
                && self.proof(found.block.address, &plan, 0).is_some()
            {
                out.push(Candidate { place, waits, proven });
            }
        }
        out
    }
}

impl Place {
    fn learn(&mut self, word: &Word, first: bool) {
        self.classes |= 1 << word.class;
        self.always &= word.value != 0;
        let plain = Some(word.value).filter(|&value| value > 0 && (word.class == OUTSIDE || word.class < NUMBERS));
        self.same = if first || self.same == plain { plain } else { None };
        if word.class == OBJECT {
            if let Some(kinds) = &mut self.kinds {
                if !kinds.contains(&word.kind) {
                    kinds.push(word.kind);
                }
                if kinds.len() > MOST_KINDS {
                    self.kinds = None;
                }
            }
        }
    }

    fn has(&self, class: u32) -> bool {
        self.classes >> class & 1 == 1
    }

    /// Returns whether objects lead to others of this type here.
    fn leads_to(&self, kind: Id) -> bool {
        self.has(OBJECT) && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns whether some object has a number here that is as large.
    fn has_number(&self, class: u32) -> bool {
        (0..NUMBERS).any(|seen| self.has(seen) && seen / 3 >= class / 3 && seen % 3 >= class % 3)
    }
}

impl Type {
    /// Returns the leaked blocks that must be of certain types if an object with these words is of this type, and whether the
    /// words prove that it is. None: it is not.
    fn fits(&self, words: &[Option<Word>]) -> Option<(Waits, bool)> {
        let (mut waits, mut always, mut missing) = (Vec::new(), 0, 0);
        let (mut strong, mut weak, mut filled) = (0, 0, 0);
        for (i, place) in self.places.iter().enumerate() {
            let word = (*words.get(i)?)?;
            always += usize::from(place.always);
            if word.value == 0 {
                missing += usize::from(place.always);
                continue;
            }
            filled += 1;
            match word.class {
                OBJECT => {
                    place.leads_to(word.kind).then_some(())?;
                    strong += 1;
                }
                TEXT | BYTES => match word.leaked.filter(|_| place.has(OBJECT) && !place.has(word.class)) {
                    Some(other) => waits.push((other, i)),
                    None => {
                        place.has(word.class).then_some(())?;
                        weak += 1;
                    }
                },
                INSIDE | OUTSIDE => {
                    place.has(word.class).then_some(())?;
                    strong += usize::from(place.same == Some(word.value));
                    weak += usize::from(place.same.is_none());
                }
                class => {
                    place.has_number(class).then_some(())?;
                    weak += usize::from(place.fraction || place.same == Some(word.value));
                }
            }
        }
        let proven = strong > 0 && filled > 1 || weak + waits.len() > 1 && filled > 2;
        (missing * MISSING <= always).then_some((waits, proven))
    }
}

/// Leaves out the types that need a leaked block to have a type that it does not have.
fn settle(leaked: &mut [Leaked], types: &Types) {
    for _pass in 0..MOST_PASSES {
        let kinds: Vec<Option<Vec<Id>>> = leaked
            .iter()
            .map(|block| {
                let alike = &types[&block.found.block.size];
                // A block of a size of which too few objects are known may have any type.
                (!alike.is_empty()).then(|| block.may_be.iter().map(|one| alike[one.place].kind).collect())
            })
            .collect();
        let mut changed = false;
        for block in leaked.iter_mut() {
            let alike = &types[&block.found.block.size];
            let before = block.may_be.len();
            block.may_be.retain(|one| {
                one.waits.iter().all(|&(other, place)| {
                    let place = &alike[one.place].places[place];
                    kinds[other].as_ref().is_none_or(|kinds| kinds.iter().any(|&kind| place.leads_to(kind)))
                })
            });
            changed |= block.may_be.len() != before;
        }
        if !changed {
            break;
        }
    }
}

/// Proves the types of blocks to which blocks lead whose types are proven.
fn prove(leaked: &mut [Leaked], types: &Types) {
    let only =
        |block: &Leaked| <&[Candidate; 1]>::try_from(&block.may_be[..]).ok().map(|[one]| (one.place, one.proven));
    let mut open: Vec<usize> =
        (0..leaked.len()).filter(|&at| only(&leaked[at]).is_some_and(|(_, proven)| proven)).collect();
    while let Some(at) = open.pop() {
        let block = &leaked[at];
        let alike = &types[&block.found.block.size];
        let one = &block.may_be[0];
        for (other, pointer) in one.waits.clone() {
            let Some((place, false)) = only(&leaked[other]) else { continue };
            let kind = types[&leaked[other].found.block.size][place].kind;
            if alike[leaked[at].may_be[0].place].places[pointer].leads_to(kind) {
                leaked[other].may_be[0].proven = true;
                open.push(other);
            }
        }
    }
}

/// Returns the class of a number.
fn number(value: u64, word: u64) -> u32 {
    let half = |value: u64| match value {
        0 => 0,
        1..SMALL => 1,
        _ => 2,
    };
    if word == 4 {
        half(value)
    } else {
        3 * half(value >> 32) + half(value & 0xffff_ffff)
    }
}
