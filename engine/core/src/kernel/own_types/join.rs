//! One table of the types of a kernel and of its modules.
//!
//! A module's numbers and strings go on behind those of its kernel, so that each module's begin with the same number.
//! Here each module gets numbers and strings of its own.

use super::btf::{parts, Btf};

/// Bytes of the whole table.
const LARGEST: usize = 256 << 20;

/// The kernel's types, and those of the modules so far.
pub struct Joined {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Types so far, with void.
    count: u32,
    /// Types and bytes of strings of the kernel.
    of_kernel: (u32, u32),
}

impl Joined {
    /// Begins with the kernel's types. The error says what is wrong with them.
    pub fn new(kernel: &[u8]) -> Result<Self, String> {
        let (types, strings) = parts(kernel)?;
        let count = Btf::parse(kernel)?.types().len() as u32;
        let of_kernel = (count, u32::try_from(strings.len()).map_err(|_| "its strings are too many")?);
        Ok(Self { types: types.to_vec(), strings: strings.to_vec(), count, of_kernel })
    }

    /// Adds a module's types. The error says what is wrong with them; then nothing is added.
    pub fn add(&mut self, module: &[u8]) -> Result<(), String> {
        let (types, strings) = parts(module)?;
        let own = Btf::parse(module)?.types().len() as u32 - 1; // without void
        if self.types.len() + self.strings.len() + module.len() > LARGEST {
            return Err("its types are too many".to_string());
        }
        let moved = Moved {
            types: (self.of_kernel.0, own, self.count - self.of_kernel.0),
            strings: (self.of_kernel.1, strings.len() as u32, self.strings.len() as u32 - self.of_kernel.1),
        };
        let mut out = types.to_vec();
        let mut at = 0;
        while at < out.len() {
            at = moved.one(&mut out, at).ok_or_else(|| "a type refers to one that is not there".to_string())?;
        }
        self.types.extend(out);
        self.strings.extend(strings);
        self.count += own;
        Ok(())
    }

    /// Returns the table in BTF's format.
    pub fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

/// How far a module's numbers move: (from here on they are the module's, how many it has, how far).
struct Moved {
    types: (u32, u32, u32),
    strings: (u32, u32, u32),
}

impl Moved {
    /// Changes the type at `at`, and returns where the next one begins. None if a number is out of range.
    fn one(&self, data: &mut [u8], at: usize) -> Option<usize> {
        let info = word(data, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        self.change(data, at, self.strings)?;
        if matches!(kind, 2 | 8..=14 | 17 | 18) {
            self.change(data, at + 8, self.types)?;
        }
        let more = at + 12;
        // Words of an entry, and which of them are a string and a type.
        let (words, string, of) = match kind {
            3 => {
                self.change(data, more, self.types)?;
                self.change(data, more + 4, self.types)?;
                return Some(more + 12);
            }
            4 | 5 => (3, Some(0), Some(1)),
            6 => (2, Some(0), None),
            13 => (2, Some(0), Some(1)),
            15 => (3, None, Some(0)),
            19 => (3, Some(0), None),
            1 | 14 | 17 => return Some(more + 4),
            _ => return Some(more),
        };
        for entry in 0..count {
            let start = more + 4 * words * entry;
            if let Some(place) = string {
                self.change(data, start + 4 * place, self.strings)?;
            }
            if let Some(place) = of {
                self.change(data, start + 4 * place, self.types)?;
            }
        }
        Some(more + 4 * words * count)
    }

    fn change(&self, data: &mut [u8], at: usize, (first, own, by): (u32, u32, u32)) -> Option<()> {
        let number = word(data, at)?;
        if number >= first {
            // Types count from 1, so that the last has the number `first + own - 1`.
            let moved = Some(number).filter(|&number| number - first < own)?.checked_add(by)?;
            data.get_mut(at..at + 4)?.copy_from_slice(&moved.to_le_bytes());
        }
        Some(())
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
