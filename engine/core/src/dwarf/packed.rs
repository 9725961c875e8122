//! Types as bytes. A program has hundreds of thousands of them, and a command needs some: each is read when it is first asked.

use serde::{Deserialize, Serialize};

use super::model::Type;

/// Types by their number, each as `postcard` writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Packed {
    /// Where each type ends in `bytes`.
    ends: Vec<u32>,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl Packed {
    /// Packs types. Those that do not fit into 4 GiB are left out: they cannot be read later.
    pub(super) fn of(types: Vec<Type>) -> Packed {
        let mut out = Packed::default();
        for kind in types {
            // A type is dropped as soon as it is packed: both forms of all would need twice the memory.
            let Ok(bytes) = postcard::to_extend(&kind, std::mem::take(&mut out.bytes)) else { break };
            out.bytes = bytes;
            let Ok(end) = u32::try_from(out.bytes.len()) else { break };
            out.ends.push(end);
        }
        out
    }

    /// Returns how many types there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a type. None: there is no such number, or the bytes are damaged.
    pub(super) fn get(&self, number: usize) -> Option<Type> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).map(|&end| end as usize))?;
        postcard::from_bytes(self.bytes.get(start..end)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Form, Number};
    use super::*;

    fn named(name: &str) -> Type {
        Type { name: name.to_string(), size: 4, form: Form::Base(Number::Integer) }
    }

    #[test]
    fn each_type_is_read_by_itself() {
        let packed = Packed::of(vec![named("int"), named(""), named("unsigned")]);
        assert_eq!(packed.len(), 3);
        assert_eq!([0, 1, 2].map(|number| packed.get(number)), ["int", "", "unsigned"].map(|name| Some(named(name))));
        assert_eq!(packed.get(3), None);
    }

    #[test]
    fn damaged_places_are_no_types() {
        let whole = Packed::of(vec![named("int"), named("unsigned")]);
        for ends in [vec![u32::MAX, u32::MAX], vec![9, 3], vec![0, 0]] {
            let damaged = Packed { ends, ..whole.clone() };
            assert_eq!(damaged.get(1), None);
        }
    }
}
