//! A census in which single blocks have names: see [`super::labels`].

use std::collections::HashMap;

use super::stream::Stream;
use crate::blocks::model::{Heap, State};
use crate::contents::{size_class, Census, Entry, Form, Part, Signature, Sum, WORDS};
use crate::control::{Control, Stopped};

/// Blocks between two looks at [`Control`].
const CHECK: usize = 1 << 16;
/// Entries that names can add.
const MOST: usize = 1 << 16;

/// A name for a block: its address, the caller's number of the name, and whether an object may be the first part of what is
/// named.
pub type Name = (u64, u32, bool);

/// Returns the census with names for some blocks, sorted by address. An object keeps what it says itself, if it is no first
/// part. So does an exception.
pub fn named(census: &Census, heap: &dyn Heap, names: &[Name], control: &Control) -> Result<Census, Stopped> {
    let mut entries: Vec<Entry> = census.entries.iter().map(|entry| Entry { sum: Sum::default(), ..*entry }).collect();
    let mut of_block = Vec::with_capacity(census.of_block.len());
    let mut of_name: HashMap<(u64, u32), u32> = HashMap::new();
    let mut next = 0;
    let stream = match census.direct {
        true => Stream::direct_leaks(heap),
        false => Stream::new(heap),
    };
    for found in stream {
        if found.number % CHECK == 0 && control.cancelled() {
            return Err(Stopped::Cancelled);
        }
        let Some(&before) = census.of_block.get(found.number) else { break };
        let (address, size) = (found.block.address, found.block.size);
        while names.get(next).is_some_and(|name| name.0 < address) {
            next += 1;
        }
        let name = names.get(next).filter(|name| name.0 == address).map(|name| (name.1, name.2));
        let mut index = before;
        let form = entries.get(before as usize).map(|entry| entry.signature.form);
        let free = |&(_, whole): &(u32, bool)| match form {
            Some(Form::Object) => whole,
            Some(Form::Exception) | None => false,
            Some(_) => true,
        };
        if let Some((name, _)) = name.filter(free) {
            let class = size_class(size).0;
            let full = entries.len() >= census.entries.len() + MOST;
            index = match of_name.get(&(class, name)) {
                Some(&index) => index,
                None if full => before,
                None => {
                    let mut words = [0; WORDS];
                    words[0] = u64::from(name);
                    let signature = Signature { class, form: Form::Named, words };
                    let (sample, same) = ([0; WORDS], [8; WORDS]);
                    entries.push(Entry { signature, count: 0, sample, same, sum: Sum::default() });
                    of_name.insert((class, name), entries.len() as u32 - 1);
                    entries.len() as u32 - 1
                }
            };
        }
        if index != before {
            entries[before as usize].count = entries[before as usize].count.saturating_sub(1);
            entries[index as usize].count += 1;
        }
        if let Some(entry) = entries.get_mut(index as usize) {
            entry.sum.count(address, size, part(found.state));
        }
        of_block.push(index);
    }
    Ok(Census { entries, of_block, missing: census.missing, direct: census.direct })
}

fn part(state: State) -> Part {
    match state {
        State::LeakedDirectly | State::LeakedIndirectly => Part::Leaked,
        State::Own => Part::Own,
        _ => Part::Live,
    }
}
