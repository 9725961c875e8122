//! The class of an object by its vtable.

use super::maps::HashMap;
use crate::cached_reader::CachedReader;
use crate::dwarf::model::Id;
use crate::dwarf::DebugTypes;
use crate::symbols::demangle;

/// Vtables that are remembered. A crafted dump may have a new one in each object.
const MOST: usize = 1 << 18;
/// Bytes of a mangled name.
const MOST_NAME: u64 = 4096;

/// The classes by the addresses of their vtables.
#[derive(Debug, Default)]
pub(super) struct Vtables {
    known: HashMap<u64, Option<(Id, i64)>>,
    by_name: HashMap<String, Option<Id>>,
}

impl Vtables {
    /// Returns the class whose vtable this is, and how far from the pointer to it the object begins.
    pub(super) fn class(
        &mut self,
        debug: &mut DebugTypes,
        reader: &mut CachedReader<'_>,
        vtable: u64,
    ) -> Option<(Id, i64)> {
        let word = debug.types.word;
        if vtable == 0 || vtable % word != 0 || self.known.len() >= MOST {
            return None;
        }
        if let Some(known) = self.known.get(&vtable) {
            return *known;
        }
        let found = self.look(debug, reader, vtable);
        self.known.insert(vtable, found);
        found
    }

    /// Itanium C++ ABI, 2.5.2 and 2.9.5: before the address point stand the offset to top and the type_info, whose second
    /// word points to the mangled name.
    fn look(&mut self, debug: &mut DebugTypes, reader: &mut CachedReader<'_>, vtable: u64) -> Option<(Id, i64)> {
        let word = debug.types.word;
        let top = reader.word(vtable.checked_sub(2 * word)?, word)?;
        let top = if word == 4 { i64::from(top as u32 as i32) } else { top as i64 };
        if !(-(1 << 20)..=0).contains(&top) {
            return None;
        }
        let info = reader.word(vtable - word, word).filter(|&info| info != 0)?;
        let name = reader.word(info.checked_add(word)?, word)?;
        let mut text = String::from("_ZTS");
        let mut bytes = (0..MOST_NAME).map(|i| {
            let at = name.checked_add(i)?;
            let value = reader.word(at & !(word - 1), word)?;
            Some((value >> (8 * (at & (word - 1)))) as u8)
        });
        let mut first = true;
        loop {
            match bytes.next()?? {
                0 => break,
                // A name that is not unique to the program.
                b'*' if first => {}
                byte if byte.is_ascii_graphic() => text.push(char::from(byte)),
                _ => return None,
            }
            first = false;
        }
        if let Some(known) = self.by_name.get(&text) {
            return known.map(|id| (id, top));
        }
        let plain = demangle(&text).and_then(|text| Some(text.strip_prefix("typeinfo name for ")?.to_string()));
        let found = plain.and_then(|name| {
            let ids = debug.find(&name);
            // Two classes of one name: nobody knows which it is.
            let first = *ids.first()?;
            ids.iter().all(|&id| debug.types.size(id) == debug.types.size(first)).then_some(first)
        });
        self.by_name.insert(text, found);
        found.map(|id| (id, top))
    }
}
