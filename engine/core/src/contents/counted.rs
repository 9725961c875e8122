//! A signature on its way into the table.

use super::brief::Brief;
use super::packed::Packed;
use super::signature::{Form, Signature, WORDS};

/// A signature that waits to be counted. One that can be [`Brief`] always is: the hash depends on it.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    /// The signature, where it can be brief.
    pub brief: Brief,
    /// The signature, where it cannot.
    pub packed: Packed,
    /// Which of the two it is.
    pub is_brief: bool,
    /// Its hash.
    pub hash: u64,
    /// Whether it stands for others of its size class, which has too many.
    pub coarse: bool,
    /// The index of its entry plus 1; 0 where that has not been found.
    pub index: u32,
}

impl Counted {
    pub const EMPTY: Counted =
        Counted { brief: Brief::EMPTY, packed: Packed::EMPTY, is_brief: false, hash: 0, coarse: false, index: 0 };

    /// Makes it of a signature that is complete.
    pub fn of(packed: Packed) -> Counted {
        let mut counted = Counted { packed, ..Counted::EMPTY };
        counted.shorten();
        counted
    }

    /// Makes it brief where it can be. Call it when `packed` is complete.
    #[inline(always)]
    pub fn shorten(&mut self) {
        if let Some(brief) = self.packed.brief() {
            (self.brief, self.is_brief) = (brief, true);
        }
    }

    /// Returns the number of the size class.
    #[inline(always)]
    pub fn class_index(&self) -> usize {
        if self.is_brief {
            self.brief.class_index()
        } else {
            self.packed.class_index()
        }
    }

    /// Returns what is known.
    #[inline(always)]
    pub fn form(&self) -> Form {
        if self.is_brief {
            Form::Shape
        } else {
            self.packed.form
        }
    }

    /// Puts the coarser signature in its place.
    #[inline(always)]
    pub fn coarsen(&mut self) {
        self.coarse = true;
        if self.is_brief {
            self.brief.coarsen();
        } else {
            self.packed.coarsen();
            self.shorten();
        }
    }

    /// Returns the signature in full.
    pub fn signature(&self) -> Signature {
        if self.is_brief {
            self.brief.signature()
        } else {
            self.packed.signature()
        }
    }

    /// Returns the signature of all of the size class that are not told apart. It has no hash yet.
    pub fn various(&self) -> Counted {
        let class = self.signature().class;
        Counted::of(Packed::from(&Signature { class, form: Form::Various, words: [0; WORDS] }))
    }
}
