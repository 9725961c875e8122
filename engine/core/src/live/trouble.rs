//! The errors of a picture.

use std::io;

/// Why there is no picture.
#[derive(Debug)]
pub enum Trouble {
    /// A call failed.
    Io(io::Error),
    /// A thread does not stop: it waits in the kernel.
    Stuck(i32),
    /// It was cancelled.
    Cancelled,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Io(error)
    }
}
