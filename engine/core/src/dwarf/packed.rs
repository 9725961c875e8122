//! Values as bytes. A program has hundreds of thousands of types, and a command needs some: each is read when it is first asked.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Values by their number, each as `postcard` writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Packed {
    /// Where each value ends in `bytes`.
    ends: Vec<u32>,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl Packed {
    /// Packs values. Those that do not fit into 4 GiB are left out: they cannot be read later.
    pub(super) fn of<T: Serialize>(values: Vec<T>) -> Packed {
        let mut out = Packed::default();
        // A value is dropped as soon as it is packed: both forms of all would need twice the memory.
        for value in values {
            let Ok(bytes) = postcard::to_extend(&value, std::mem::take(&mut out.bytes)) else { break };
            out.bytes = bytes;
            let Ok(end) = u32::try_from(out.bytes.len()) else { break };
            out.ends.push(end);
        }
        out
    }

    /// Returns how many values there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a value. None: there is no such number, or the bytes are damaged.
    pub(super) fn get<T: DeserializeOwned>(&self, number: usize) -> Option<T> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).map(|&end| end as usize))?;
        postcard::from_bytes(self.bytes.get(start..end)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(names: &[&str]) -> Packed {
        Packed::of(names.iter().map(|name| (name.to_string(), 4u64)).collect())
    }

    #[test]
    fn each_value_is_read_by_itself() {
        let (names, packed) = (["int", "", "unsigned"], packed(&["int", "", "unsigned"]));
        assert_eq!(packed.len(), 3);
        assert_eq!([0, 1, 2].map(|number| packed.get(number)), names.map(|name| Some((name.to_string(), 4u64))));
        assert_eq!(packed.get::<(String, u64)>(3), None);
    }

    #[test]
    fn damaged_places_have_no_values() {
        let whole = packed(&["int", "unsigned"]);
        for ends in [vec![u32::MAX, u32::MAX], vec![9, 3], vec![0, 0], vec![5, 7]] {
            let damaged = Packed { ends, ..whole.clone() };
            assert_eq!(damaged.get::<(String, u64)>(1), None);
        }
    }
}
