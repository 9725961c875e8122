//! Which slot in use an address lies in.

use super::slots::{Slots, Span};

/// The spans of slots by their addresses.
pub struct Blocks<'a> {
    slots: &'a [&'a Slots],
    /// (start of the span, which of `slots`, which of its spans)
    order: Vec<(u64, u32, u32)>,
}

impl<'a> Blocks<'a> {
    /// Sorts the spans.
    pub fn new(slots: &'a [&'a Slots]) -> Self {
        let mut order = Vec::new();
        for (which, one) in slots.iter().enumerate() {
            order.extend(one.spans.iter().enumerate().map(|(n, span)| (span.start, which as u32, n as u32)));
        }
        order.sort_unstable();
        Blocks { slots, order }
    }

    /// Returns the end of the span that holds the address.
    pub fn span(&self, address: u64) -> Option<u64> {
        let next = self.order.partition_point(|span| span.0 <= address);
        let &(start, which, number) = self.order.get(next.checked_sub(1)?)?;
        let span: &Span = self.slots.get(which as usize)?.spans.get(number as usize)?;
        let end = start.saturating_add(span.slot.saturating_mul(u64::from(span.count)));
        (address < end).then_some(end)
    }

    /// Returns the block in use that holds the address: its start and end.
    pub fn at(&self, address: u64) -> Option<(u64, u64)> {
        let next = self.order.partition_point(|span| span.0 <= address);
        let &(start, which, number) = self.order.get(next.checked_sub(1)?)?;
        let slots = self.slots.get(which as usize)?;
        let span: &Span = slots.spans.get(number as usize)?;
        let index = (address - start).checked_div(span.slot).filter(|&index| index < u64::from(span.count))?;
        let first = start.checked_add(index.checked_mul(span.slot)?)?;
        (!slots.is_free(span, index as u32)).then_some((first, first.checked_add(span.slot)?))
    }
}
