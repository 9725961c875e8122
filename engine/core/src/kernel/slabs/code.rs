//! Pointers that stand in the kernel's code.
//!
//! Since 6.11 the kernel writes addresses that never change into its instructions (include/linux/runtime-const.h), and
//! since 7.3 the one of the futex hash stands nowhere else. On x86-64 such an instruction is `movabs $imm64, %reg`; on
//! AArch64 it is four, `movz` and three `movk`, of 16 bits each. Both are looked for: bytes that look like one and have
//! the address of an object do not occur otherwise.

use crate::kernel::virtual_memory::VirtualMemory;

const BLOCK: usize = 64 << 10;
/// No kernel has more code.
const MOST: u64 = 256 << 20;
/// The bytes of the longest form.
const LONGEST: usize = 16;

/// Calls `each` with the virtual address and the value of every constant of 64 bits in the code `[start, end)`. Returns
/// how many bytes were read. Reading ends at the first page that is not in the dump.
pub fn constants(memory: &mut VirtualMemory, (start, end): (u64, u64), mut each: impl FnMut(u64, u64)) -> u64 {
    let mut bytes = vec![0; BLOCK];
    let (mut at, end) = (start, end.min(start.saturating_add(MOST)));
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(BLOCK).min(BLOCK);
        let got = memory.read(at, &mut bytes[..wanted]);
        let last = got < wanted || at + got as u64 == end;
        // What begins in the last bytes of a block is taken with the next one.
        let whole = if last { got } else { got - LONGEST };
        in_bytes(&bytes[..got], whole, |offset, value| each(at + offset as u64, value));
        if last {
            return at + got as u64 - start;
        }
        at += whole as u64;
    }
    0
}

/// Calls `each` with the offset and the value of every constant that begins before `end`. The bytes begin at a multiple
/// of 4.
fn in_bytes(bytes: &[u8], end: usize, mut each: impl FnMut(usize, u64)) {
    for (offset, code) in bytes.windows(10).enumerate().take(end) {
        // REX.W, REX.WB; B8+r (Intel SDM, volume 2, MOV).
        if code[0] & 0xfe == 0x48 && code[1] & 0xf8 == 0xb8 {
            each(offset + 2, u64::from_le_bytes(*code[2..].first_chunk().unwrap_or(&[0; 8])));
        }
    }
    let instruction = |offset: usize| bytes[offset..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    for offset in (0..end.min(bytes.len().saturating_sub(LONGEST - 1))).step_by(4) {
        let first = instruction(offset);
        if first & 0xffe0_0000 == 0xd280_0000 {
            let mut value = u64::from(first >> 5 & 0xffff);
            let follows = (1..4).all(|part| {
                let next = instruction(offset + 4 * part);
                value |= u64::from(next >> 5 & 0xffff) << (16 * part);
                // movk of the same register, with the shift of this part (Arm ARM, C6.2, MOVK).
                next & 0xffe0_001f == 0xf280_0000 | (part as u32) << 21 | first & 0x1f
            });
            if follows {
                each(offset, value);
            }
        }
    }
}
