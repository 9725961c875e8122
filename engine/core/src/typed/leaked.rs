//! Types of leaked blocks, to which no typed pointer leads: those of live objects that look alike.
//!
//! A block is compared with the typed objects in blocks of its size. For each word of a type it is known what stands there in
//! all of its objects: numbers of which size, texts, pointers to objects of which types. A block has a type if each of its
//! words has something that such objects have in that place, if pointers in it prove that, and if no other type fits. A
//! pointer to a leaked block must lead to one whose own words allow the right type, and then proves that one, too.
//!
//! Only leaked blocks are looked at: what holds a live block without a type is memory of a library without debug information,
//! and the block may be as well.

use std::collections::BTreeMap;

use super::blocks::{Claim, Found, Rank, Shape};
use super::likeness::{Fit, Place, Type, Waits, Word, MOST_WORDS};
use super::maps::{HashMap, HashSet};
use super::plan::What;
use super::pools::Pools;
use super::propagate::{fits, Spread, CHECK};
use crate::control::{Control, Stopped};
use crate::dwarf::model::Id;

/// Leaked blocks that are looked at: 128 MiB.
const MOST_LEAKED: usize = 1 << 20;
/// Objects of one type that are compared.
const MOST_OBJECTS: u32 = 1 << 16;
/// Objects that a type must have.
const FEW: u32 = 4;
/// Types of blocks of one size that are compared.
const MOST_TYPES: usize = 256;

/// A leaked block, and the types that it may have: each with the blocks that must be of certain types as well.
struct Leaked {
    found: Found,
    may_be: Vec<Candidate>,
    /// It is live: a leaked block of the sample leads to it.
    live: bool,
}

struct Candidate {
    /// Where its type is in the list of its size.
    place: usize,
    waits: Waits,
    /// Its words prove it, or a pointer in another such block does.
    proven: bool,
    /// More than one of its words is not 0.
    filled: bool,
}

type Types = BTreeMap<u64, Vec<Type>>;

impl Leaked {
    /// Returns the one type that the block may have.
    fn only(&self) -> Option<&Candidate> {
        <&[Candidate; 1]>::try_from(&self.may_be[..]).ok().map(|[one]| one)
    }
}

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
        drop_unfit(&mut leaked, &types);
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

    /// Returns the leaked blocks of which nothing is known.
    fn leaked_blocks(&mut self, pools: &Pools, control: &Control) -> Result<Vec<Leaked>, Stopped> {
        let mut out = Vec::new();
        self.each_leaked(control, |spread, found| {
            let typed = spread.blocks.claim(found.number).is_some();
            if typed || !pools.within(found.block.address, found.block.size).is_empty() {
                return true;
            }
            if out.len() >= MOST_LEAKED {
                spread.exhausted = true;
                return false;
            }
            out.push(Leaked { found, may_be: Vec::new(), live: false });
            true
        })?;
        if self.sample.is_some() {
            let sizes = self.sizes_of_types(control)?;
            out.retain(|block| sizes.contains(&block.found.block.size));
            let leaked: Vec<Found> = out.iter().map(|block| block.found).collect();
            let more = self.neighbours(&leaked).into_iter();
            out.extend(more.map(|(found, live)| Leaked { found, may_be: Vec::new(), live }));
        }
        Ok(out)
    }

    /// Returns the sizes of the blocks that have a typed object. A block of another size looks like none.
    fn sizes_of_types(&mut self, control: &Control) -> Result<HashSet<u64>, Stopped> {
        let mut sizes = HashSet::default();
        self.each_known(control, |spread, found| {
            let size = found.block.size;
            if spread.is_certain(&spread.blocks.claim(found.number), size) {
                sizes.insert(size);
            }
        })?;
        Ok(sizes)
    }

    /// Takes the typed objects in blocks of these sizes.
    fn learn_objects(
        &mut self,
        types: &mut Types,
        leaked: &HashMap<usize, usize>,
        control: &Control,
    ) -> Result<(), Stopped> {
        let mut known: HashMap<(u64, Id), usize> = HashMap::default();
        self.each_known(control, |spread, found| {
            if let Some(alike) = types.get_mut(&found.block.size) {
                spread.learn_object(found, alike, &mut known, leaked);
            }
        })
    }

    /// Takes an object. `known` has the places of the types in the list of their size.
    fn learn_object(
        &mut self,
        found: Found,
        alike: &mut Vec<Type>,
        known: &mut HashMap<(u64, Id), usize>,
        leaked: &HashMap<usize, usize>,
    ) {
        let (size, address, claim) = (found.block.size, found.block.address, self.blocks.claim(found.number));
        if !self.is_certain(&claim, size) {
            return;
        }
        let place = match known.get(&(size, claim.kind)) {
            Some(&place) => place,
            None if alike.len() >= MOST_TYPES => return,
            None => {
                alike.push(Type { kind: claim.kind, count: 0, example: address, places: self.places_of(claim.kind) });
                known.insert((size, claim.kind), alike.len() - 1);
                alike.len() - 1
            }
        };
        let of = &mut alike[place];
        if of.count >= MOST_OBJECTS {
            return;
        }
        let words: Option<Vec<Word>> =
            (0..of.places.len()).map(|i| self.what_is(address + i as u64 * self.word, leaked)).collect();
        let Some(words) = words else { return };
        for (place, word) in of.places.iter_mut().zip(words) {
            place.learn(&word, of.count == 0);
        }
        of.count += 1;
    }

    fn places_of(&mut self, kind: Id) -> Vec<Place> {
        let words = (self.types().size(kind).div_ceil(self.word) as usize).min(MOST_WORDS);
        let mut places = vec![Place::new(); words];
        for slot in &self.plans.of(self.debug, kind).slots {
            let place = places.get_mut((slot.at / self.word) as usize);
            if let (What::Value(8), Some(place)) = (&slot.what, place) {
                place.fraction = true;
            }
        }
        places
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

    /// Returns the types that a block may have.
    fn fitting_types(&mut self, found: Found, alike: &[Type], leaked: &HashMap<usize, usize>) -> Vec<Candidate> {
        let most = alike.iter().map(|one| one.places.len()).max().unwrap_or(0);
        let words: Vec<Option<Word>> =
            (0..most).map(|i| self.what_is(found.block.address + i as u64 * self.word, leaked)).collect();
        let mut out = Vec::new();
        for (place, one) in alike.iter().enumerate() {
            let Some(Fit { waits, proven, filled }) = one.fits(&words) else { continue };
            let (size, plan) = (self.types().size(one.kind), self.plans.of(self.debug, one.kind));
            // All typed pointers must be right as well: objects of this type may lead to several types there.
            if self.plausible(found.block.address, size, 1, &plan)
                && self.proof(found.block.address, &plan, 0).is_some()
            {
                out.push(Candidate { place, waits, proven, filled });
            }
        }
        out
    }
}

/// Leaves out the types that need another leaked block to have a type which its own words exclude.
fn drop_unfit(leaked: &mut [Leaked], types: &Types) {
    let kinds: Vec<Option<Vec<Id>>> = leaked
        .iter()
        .map(|block| {
            let alike = &types[&block.found.block.size];
            // A block of a size of which too few objects are known may have any type.
            (!alike.is_empty()).then(|| block.may_be.iter().map(|one| alike[one.place].kind).collect())
        })
        .collect();
    for block in leaked.iter_mut() {
        let alike = &types[&block.found.block.size];
        block.may_be.retain(|one| {
            one.waits.iter().all(|&(other, word)| {
                let place = &alike[one.place].places[word];
                kinds[other].as_ref().is_none_or(|kinds| kinds.iter().any(|&kind| place.leads_to(kind)))
            })
        });
    }
}

/// Proves the types of blocks that lead to live ones, and of blocks to which blocks lead whose types are proven.
fn prove(leaked: &mut [Leaked], types: &Types) {
    for at in 0..leaked.len() {
        let Some(one) = leaked[at].only().filter(|one| one.filled && !one.proven) else { continue };
        let places = &types[&leaked[at].found.block.size][one.place].places;
        // A live block has one type only: that to which such a pointer leads. So it would be known if all pointers were followed.
        let leads = one.waits.iter().any(|&(other, word)| {
            let target = &leaked[other];
            let kind = target.only().map(|next| types[&target.found.block.size][next.place].kind);
            target.live && kind.is_some_and(|kind| places[word].leads_to(kind))
        });
        if leads {
            leaked[at].may_be[0].proven = true;
        }
    }
    let mut open: Vec<usize> =
        (0..leaked.len()).filter(|&at| leaked[at].only().is_some_and(|one| one.proven)).collect();
    while let Some(at) = open.pop() {
        let Some(one) = leaked[at].only() else { continue };
        let places = &types[&leaked[at].found.block.size][one.place].places;
        for (other, word) in one.waits.clone() {
            let target = &leaked[other];
            let Some(next) = target.only().filter(|next| !next.proven) else { continue };
            if places[word].leads_to(types[&target.found.block.size][next.place].kind) {
                leaked[other].may_be[0].proven = true;
                open.push(other);
            }
        }
    }
}
