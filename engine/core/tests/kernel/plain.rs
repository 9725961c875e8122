//! The rules again, page by page, without pieces, runs or a cache.

use dmods_engine::kernel::layout::Huge;
use dmods_engine::kernel::Kind;

use super::machine::{Machine, BASE, DIRECT, PAGES};

pub struct Plain<'m> {
    machine: &'m Machine,
    missing: &'m [u64],
}

struct Block {
    end: u64,
    kind: Kind,
    doubted: bool,
}

impl Plain<'_> {
    /// A kind for each page.
    pub fn classify(machine: &Machine, missing: &[u64]) -> Vec<Kind> {
        let plain = Plain { machine, missing };
        let mut block = Block { end: 0, kind: Kind::Free, doubted: false };
        (0..PAGES).map(|pfn| plain.one(pfn, &mut block)).collect()
    }

    fn there(&self, pfn: u64) -> bool {
        let size = self.machine.layout.size as u64;
        let touched = pfn * size / 4096..=(pfn * size + size - 1) / 4096;
        pfn < PAGES && !touched.into_iter().any(|piece| self.missing.contains(&piece))
    }

    fn get(&self, pfn: u64, offset: usize) -> u64 {
        self.machine.get(pfn, offset)
    }

    fn half(&self, pfn: u64, offset: usize) -> u32 {
        (self.get(pfn, offset) >> (offset % 8 * 8)) as u32
    }

    fn one(&self, pfn: u64, block: &mut Block) -> Kind {
        if !self.there(pfn) {
            return Kind::Unknown;
        }
        let layout = &self.machine.layout;
        let inside = pfn < block.end;
        if inside
            && !block.doubted
            && self.half(pfn, layout.mapcount) == u32::MAX
            && self.half(pfn, layout.refcount) == 0
        {
            return block.kind;
        }
        if let Some(head) = self.head(pfn) {
            block.doubted |= inside;
            return self.head_kind(head, pfn).unwrap_or(Kind::Unknown);
        }
        if let Some(kind) = self.free_type(pfn) {
            if !inside {
                let order = self.get(pfn, layout.private);
                let sane = order < u64::from(layout.orders) && pfn % (1 << order) == 0;
                *block = Block { end: pfn + if sane { 1 << order } else { 1 }, kind, doubted: false };
            }
            return kind;
        }
        let kind = self.own(pfn);
        let unused = self.half(pfn, layout.refcount) == 0 && self.get(pfn, layout.flags) & layout.compound == 0;
        if inside && kind == Kind::Kernel && unused {
            return block.kind;
        }
        block.doubted |= inside;
        kind
    }

    /// The address that a tail names as its head.
    fn head(&self, pfn: u64) -> Option<u64> {
        let layout = &self.machine.layout;
        let head = self.get(pfn, layout.head);
        if head & 1 == 1 {
            return Some(head - 1);
        }
        let address = BASE + pfn * layout.size as u64;
        if address % 4096 == 0 && self.get(pfn, layout.flags) & layout.compound != 0 && self.there(pfn + 1) {
            let next = self.get(pfn + 1, layout.head);
            if next & 1 == 1 && next - 1 != address {
                return Some(next - 1);
            }
        }
        None
    }

    fn head_kind(&self, head: u64, tail: u64) -> Option<Kind> {
        let layout = &self.machine.layout;
        let offset = head.checked_sub(BASE)?;
        let pfn = offset / layout.size as u64;
        if offset % layout.size as u64 != 0 || pfn >= tail || !self.there(pfn) {
            return None;
        }
        let flags = self.get(pfn, layout.flags);
        if self.get(pfn, layout.head) & 1 == 1 || (flags & layout.compound == 0 && flags != u64::MAX) {
            return None;
        }
        if self.free_type(pfn).is_some() {
            return None;
        }
        Some(self.own(pfn)).filter(|kind| *kind != Kind::Unknown)
    }

    fn page_type(&self, pfn: u64) -> Option<Kind> {
        let layout = &self.machine.layout;
        let value = self.half(pfn, layout.mapcount);
        if value as i32 >= -1 {
            return None;
        }
        layout.types.iter().find(|(mask, wanted, _)| value & mask == *wanted).map(|(_, _, kind)| *kind)
    }

    fn free_type(&self, pfn: u64) -> Option<Kind> {
        let layout = &self.machine.layout;
        let flags = self.get(pfn, layout.flags);
        let free = self.page_type(pfn) == Some(Kind::Free);
        (free && flags != u64::MAX && flags & layout.reserved == 0).then_some(Kind::Free)
    }

    /// Decides by the page's own words.
    fn own(&self, pfn: u64) -> Kind {
        let layout = &self.machine.layout;
        let flags = self.get(pfn, layout.flags);
        let compound = flags & layout.compound != 0;
        let hugetlb = match layout.huge {
            Huge::SecondByte { offset, value } if compound && self.there(pfn + 1) => {
                self.machine.get(pfn + 1, offset).to_le_bytes()[offset % 8] == value
            }
            _ => self.page_type(pfn) == Some(Kind::Hugetlb),
        };
        let mapping = self.get(pfn, layout.mapping);
        match () {
            () if flags == u64::MAX => Kind::Uninitialized,
            () if flags & layout.reserved != 0 => Kind::Reserved,
            () if flags & layout.hwpoison != 0 => Kind::HwPoison,
            () if flags & layout.has_private != 0 && self.get(pfn, layout.private) == layout.zfs => Kind::Zfs,
            () if hugetlb && self.half(pfn, layout.refcount) == 0 => Kind::HugetlbFree,
            () if hugetlb => Kind::Hugetlb,
            () if self.page_type(pfn).is_some() => self.page_type(pfn).unwrap(),
            () if flags & layout.slab != 0 => Kind::Slab,
            () if (self.half(pfn, layout.refcount) as i32) < 0 => Kind::Unknown,
            () if mapping == 0 && flags & layout.swapbacked != 0 && flags & layout.swapcache != 0 => Kind::SwapCache,
            () if mapping == 0 => Kind::Kernel,
            () if mapping >> 47 != 0x1ffff => Kind::Unknown,
            () if mapping & 3 == 1 => Kind::Anon,
            () if mapping & 3 == 3 => Kind::Ksm,
            () if mapping & 3 == 2 && mapping - 2 == DIRECT + 0x77000 => Kind::Zsmalloc,
            () if mapping & 3 == 2 => Kind::Movable,
            () if flags & layout.swapbacked != 0 => Kind::Shmem,
            () => self.file(pfn, flags, mapping),
        }
    }

    fn file(&self, pfn: u64, flags: u64, mapping: u64) -> Kind {
        let layout = &self.machine.layout;
        let kind = self.machine.files.get(&mapping).copied().unwrap_or(Kind::File);
        let as_a_whole = flags & layout.compound != 0
            && self.there(pfn + 1)
            && layout.large_counts.iter().any(|c| self.half(pfn + 1, c.offset) as i32 != c.unmapped);
        let mapped = self.half(pfn, layout.mapcount) as i32 >= 0 || as_a_whole;
        if kind == Kind::Exec || mapped || flags & layout.kept != 0 {
            kind
        } else {
            Kind::Cachelist
        }
    }
}
