//! Stops a long computation from outside, and tells how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stops a long computation from outside and counts its progress.
#[derive(Debug, Default)]
pub struct Control {
    cancel: AtomicBool,
    done: AtomicU64,
}

impl Control {
    /// Asks the computation to stop.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
    /// Returns whether the computation was asked to stop.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
    /// Returns how many bytes have been processed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    /// Counts bytes as processed.
    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Why a computation has no answer.
#[derive(Debug)]
pub enum Stopped {
    /// [`Control::cancel`] was called.
    Cancelled,
    /// The address space for the tables could not be had.
    NoMemory(std::io::Error),
}
