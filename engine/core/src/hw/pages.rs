//! Tables behind huge pages.

/// The size of a huge page.
pub const HUGE: usize = 2 << 20;

/// Returns `count` times `value`, behind huge pages where the table is large. `vec!` writes a table of structures at once,
/// and then it is too late to ask.
pub fn table<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut table = Vec::with_capacity(count);
    huge_pages(table.spare_capacity_mut());
    table.resize(count, value);
    table
}

/// Asks for huge pages behind a large slice that has not been touched yet. A table that is read at random otherwise
/// misses the TLB each time. This is a hint: no result depends on it.
pub fn huge_pages<T>(slice: &[T]) {
    let start = (slice.as_ptr() as usize).next_multiple_of(HUGE);
    let end = (slice.as_ptr() as usize + std::mem::size_of_val(slice)) / HUGE * HUGE;
    if start < end {
        // SAFETY: whole pages within the slice, which stays as it is whatever the kernel does.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Sets a slice of anonymous memory to zero. Whole huge pages go back to the kernel, and come back as zeros when they are
/// touched.
pub fn clear<T: bytemuck::Pod>(slice: &mut [T]) {
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(slice);
    let start = (bytes.as_ptr() as usize).next_multiple_of(HUGE) - bytes.as_ptr() as usize;
    let end = start + bytes.len().saturating_sub(start) / HUGE * HUGE;
    if start < end {
        let pages = &mut bytes[start..end];
        // SAFETY: whole pages within the slice, which nobody else has. Any bytes are a valid T.
        if unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_DONTNEED) } == 0 {
            bytes[..start].fill(0);
            bytes[end..].fill(0);
            return;
        }
    }
    bytes.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cleared_and_nothing_else() {
        let full = [0xa5u8; 5];
        let count = 4 * HUGE / 5;
        for (from, to) in [(0, count), (1, count - 1), (HUGE / 5, count), (7, 900), (99, 99), (count - 3, count)] {
            let mut table = table(full, count);
            clear(&mut table[from..to]);
            for (i, said) in table.iter().enumerate() {
                assert_eq!(*said, if (from..to).contains(&i) { [0; 5] } else { full }, "{i} of {from}..{to}");
            }
        }
    }
}
