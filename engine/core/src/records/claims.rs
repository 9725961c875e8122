//! Keeps which addresses belong to a table already.

use std::collections::BTreeMap;

/// Ranges of memory that were taken as tables. No two may overlap. Otherwise a few bytes of a hostile dump could count as
/// any number of tables.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<u64, u64>);

impl Claims {
    /// Returns whether `[start, start + size)` was free until now, and takes it.
    pub fn claim(&mut self, start: u64, size: u64) -> bool {
        let Some(end) = start.checked_add(size) else { return false };
        let before = self.0.range(..end).next_back();
        if size == 0 || before.is_some_and(|(_, &stop)| stop > start) {
            return false;
        }
        self.0.insert(start, end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_do_not_overlap() {
        let mut claims = Claims::default();
        assert!(claims.claim(100, 10));
        assert!(claims.claim(110, 10));
        assert!(claims.claim(90, 10));
        assert!(!claims.claim(95, 10));
        assert!(!claims.claim(119, 1));
        assert!(!claims.claim(0, 1000));
        assert!(!claims.claim(u64::MAX, 2));
        assert!(!claims.claim(500, 0));
    }
}
