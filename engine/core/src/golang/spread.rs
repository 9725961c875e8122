//! Spreads types from headers and interface values through the pointers of typed objects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::objects::{Object, Objects, Shape};
use super::types::{word, Step, Types};
use crate::image::Image;
use crate::{Control, Stopped};

const CHUNK: u64 = 1 << 20;
pub(super) const MOST_AT_ONCE: u64 = 1 << 16; // bytes of values that are read at once
const BATCH: u64 = 4096; // objects between two looks at the control

/// What is known of all objects.
#[derive(Debug)]
pub struct Typed {
    pub(super) image: Arc<Image>,
    /// The types.
    pub types: Types,
    /// The objects.
    pub objects: Objects,
    pub(super) queue: Vec<Object>,
    /// The program's variables, and the values that are known there: (address, type).
    pub(super) variables: Vec<(u64, u64)>,
    pub(super) known: HashSet<(u64, u32)>,
    pub(super) waiting: Vec<(u64, u32)>,
    /// Whether a larger type that begins with the type has the same size class: by type, size, and for arrays.
    pub(super) inner: HashMap<(u32, u64, bool), bool>,
    steps: u64,
}

/// Finds the types of the objects. `variables` are those of the program. `stacks` may hold interface values, too.
///
/// A variable always has one type. A word on a stack may be older than the value that it seems to point to there.
pub fn spread(
    image: &Arc<Image>,
    types: Types,
    objects: Objects,
    variables: &[(u64, u64)],
    stacks: &[(u64, u64)],
    control: &Control,
) -> Result<Typed, Stopped> {
    let mut typed = Typed {
        image: image.clone(),
        types,
        objects,
        queue: Vec::new(),
        variables: sorted(variables),
        known: HashSet::new(),
        waiting: Vec::new(),
        inner: HashMap::new(),
        steps: 0,
    };
    typed.types.enumerate();
    typed.take_headers(control)?;
    typed.follow(control)?;
    for &(start, end) in variables.iter().chain(stacks) {
        for (start, end) in image.covered(start, end) {
            typed.search(start, end, control)?;
        }
    }
    typed.follow(control)?;
    typed.search_unknown(control)?;
    typed.follow(control)?;
    Ok(typed)
}

fn sorted(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    ranges
}

impl Typed {
    /// Takes the types that headers name. There are headers if most of the objects that could have one do.
    fn take_headers(&mut self, control: &Control) -> Result<(), Stopped> {
        self.objects.headers = true;
        let (mut named, mut other) = (Vec::new(), 0);
        let headed: Vec<usize> =
            (0..self.objects.spans.len()).filter(|&span| self.objects.header(&self.objects.spans[span]) > 0).collect();
        for object in headed.into_iter().flat_map(|span| self.objects.used_in(span)).collect::<Vec<_>>() {
            {
                let (at, room) = self.objects.value(object);
                let first = self.image.word(at - 8, 8).unwrap_or(0);
                match self.allocated(first, room) {
                    Some(number) => named.push((object, number)),
                    None => other += u64::from(first != 0),
                }
            }
            if self.steps_on() && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        self.objects.headers = named.len() as u64 > other;
        if !self.objects.headers {
            named.clear();
        }
        for place in 0..self.objects.spans.len() {
            let span = &self.objects.spans[place];
            if span.large && span.kind != 0 && span.count > 0 && !span.is_free(0) {
                let (address, room) = (span.kind, span.size);
                if let Some(number) = self.allocated(address, room) {
                    named.push((Object { span: place, index: 0 }, number));
                }
            }
        }
        for (object, number) in named {
            let size = self.types.get(number).map_or(0, |one| one.size);
            let span = &self.objects.spans[object.span];
            let shape = if span.fits(size, self.objects.header(span)) { Shape::One } else { Shape::Array };
            self.objects.set(object, shape, number);
            self.queue.push(object);
        }
        Ok(())
    }

    /// Returns the type at an address, if objects with a header may have it.
    fn allocated(&mut self, address: u64, room: u64) -> Option<u32> {
        let number = self.types.number(address)?;
        self.types.get(number).filter(|one| one.pointers && one.size <= room)?;
        Some(number)
    }

    fn steps_on(&mut self) -> bool {
        self.steps += 1;
        self.steps % BATCH == 0
    }

    /// Looks at what the objects in the queue point to, until it is empty.
    fn follow(&mut self, control: &Control) -> Result<(), Stopped> {
        loop {
            if let Some((at, number)) = self.waiting.pop() {
                let size = self.types.get(number).map_or(0, |one| one.size);
                self.follow_values(number, at, 1, size);
                continue;
            }
            let Some(object) = self.queue.pop() else { break };
            if self.steps_on() && control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let (at, room) = self.objects.value(object);
            control.add(room);
            let (shape, number) = self.objects.get(object);
            match shape {
                Shape::One | Shape::Begins => self.follow_values(number, at, 1, room),
                Shape::Array => self.follow_values(number, at, u64::MAX, room),
                Shape::Map => self.follow_map(number, at),
                Shape::Directory => self.follow_directory(number, at, room),
                Shape::Table => self.follow_table(number, at),
                Shape::Channel => self.follow_channel(number, at),
                _ => {}
            }
        }
        Ok(())
    }

    /// Follows up to `count` values from `at` on, as many as there is room for.
    fn follow_values(&mut self, number: u32, at: u64, count: u64, room: u64) {
        let plan = self.types.plan(number);
        let size = self.types.get(number).map_or(0, |one| one.size);
        if plan.is_empty() || size == 0 {
            return;
        }
        let count = count.min(room / size);
        let mut done = 0;
        while done < count {
            let now = (count - done).min((MOST_AT_ONCE / size).max(1));
            let mut bytes = vec![0; (now * size) as usize];
            let got = self.image.read(at + done * size, &mut bytes);
            bytes.truncate(got);
            for value in bytes.chunks_exact(size as usize) {
                for &(offset, step) in plan.iter() {
                    self.step(step, value, offset as usize);
                }
            }
            if (got as u64) < now * size {
                return;
            }
            done += now;
        }
    }

    fn step(&mut self, step: Step, value: &[u8], offset: usize) {
        let first = word(value, offset);
        if first == 0 {
            return;
        }
        match step {
            Step::Pointer(element) => self.claim_value(first, element),
            Step::Slice(element) => {
                let size = self.types.get(element).map_or(0, |one| one.size);
                self.claim_array(first, element, word(value, offset + 16).saturating_mul(size));
            }
            Step::Text => self.claim_text(first, word(value, offset + 8)),
            Step::Interface => self.claim_dynamic(first, word(value, offset + 8)),
            Step::Map(number) => self.claim_whole(first, Shape::Map, number, 48),
            Step::Channel(number) => self.claim_channel(first, number),
            Step::Function(number) => self.claim_function(first, number),
        }
    }

    /// Takes the interface values in a range of memory whose types are not known.
    fn search(&mut self, start: u64, end: u64, control: &Control) -> Result<(), Stopped> {
        let mut at = start.saturating_add(7) & !7;
        let mut bytes = vec![0; (end.saturating_sub(start)).min(CHUNK + 8) as usize];
        while end.saturating_sub(at) >= 16 {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let wanted = (end - at).min(bytes.len() as u64) as usize;
            let got = self.image.read(at, &mut bytes[..wanted]);
            for place in (0..got.saturating_sub(15)).step_by(8) {
                let data = word(&bytes, place + 8);
                let first = word(&bytes, place);
                if first > 4096 && data > 4096 && self.holds_values(data) && self.objects.find(first).is_none() {
                    self.claim_dynamic(first, data);
                }
            }
            control.add(got as u64);
            at += CHUNK.min(wanted.max(16) as u64 - 8);
        }
        Ok(())
    }

    fn holds_values(&self, address: u64) -> bool {
        self.objects.find(address).is_some() || self.is_variable(address, 8)
    }

    fn search_unknown(&mut self, control: &Control) -> Result<(), Stopped> {
        let unknown: Vec<Object> = self
            .objects
            .used()
            .filter(|&object| {
                self.objects.spans[object.span].pointers
                    && matches!(self.objects.get(object).0, Shape::Unknown | Shape::Begins | Shape::Function)
            })
            .collect();
        for object in unknown {
            let (at, room) = self.objects.value(object);
            for (start, end) in self.image.covered(at, at + room) {
                self.search(start, end, control)?;
            }
        }
        Ok(())
    }
}
