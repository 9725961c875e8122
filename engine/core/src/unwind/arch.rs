//! What an unwinder needs to know of a machine. Registers are indexed by their DWARF number.

/// Enough for every machine here: AArch64 uses 0..=30, 31 (sp) and 32 (pc).
pub const REGISTERS: usize = 33;

/// The known registers of a frame, by DWARF number.
pub type Registers = [Option<u64>; REGISTERS];

/// No register is known.
pub const UNKNOWN: Registers = [None; REGISTERS];

/// How the kernel's signal frame is found, from the stack pointer that `rt_sigreturn`'s code runs with.
#[derive(Clone, Copy, Debug)]
pub enum Context {
    /// `struct ucontext` (kernel layout) at sp + this.
    At(u64),
    /// A pointer to it at sp + this (i386 passes it as the handler's third argument).
    PointerAt(u64),
}

/// The code that a handler returns to, and where the interrupted registers lie.
#[derive(Debug)]
pub struct Trampoline {
    /// The bytes of the code.
    pub code: &'static [u8],
    /// Where the saved registers lie.
    pub context: Context,
    /// Where `siginfo_t` is from sp: there, or through a pointer as above.
    pub siginfo: Context,
}

/// A machine.
#[derive(Debug)]
pub struct Arch {
    /// Its name.
    pub name: &'static str,
    /// Bytes of a word.
    pub word: usize,
    /// Names by DWARF number. "" where the unwinder does not use the register.
    pub names: &'static [&'static str],
    /// The stack pointer's number.
    pub sp: usize,
    /// The program counter's number.
    pub pc: usize,
    /// The frame pointer's number.
    pub fp: usize,
    /// The register that holds the return address on entry, where calls do not push it.
    pub link: Option<usize>,
    /// The registers that a function must preserve, besides sp.
    pub callee_saved: &'static [usize],
    /// The codes that signal handlers return to.
    pub trampolines: &'static [Trampoline],
    /// (DWARF number, offset in the kernel's `struct ucontext`).
    pub context: &'static [(usize, u64)],
    /// The bits of a code address that matter. AArch64's pointer authentication uses the others.
    pub code_mask: u64,
}

// System V psABI for x86-64, figure 3.36; arch/x86/include/uapi/asm/sigcontext.h (struct sigcontext_64 at offset 40 of
// struct ucontext). The code is glibc's __restore_rt, byte for byte (GCC's own unwinder knows it the same way); the second
// form is what compilers make of it in other C libraries.
/// x86-64.
pub static X86_64: Arch = Arch {
    name: "x86_64",
    word: 8,
    names: &[
        "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "rip",
    ],
    sp: 7,
    pc: 16,
    fp: 6,
    link: None,
    callee_saved: &[3, 6, 12, 13, 14, 15],
    trampolines: &[
        Trampoline {
            code: &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
            context: Context::At(0),
            siginfo: Context::At(304),
        },
        Trampoline { code: &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05], context: Context::At(0), siginfo: Context::At(304) },
    ],
    context: &[
        (8, 40),
        (9, 48),
        (10, 56),
        (11, 64),
        (12, 72),
        (13, 80),
        (14, 88),
        (15, 96),
        (5, 104),
        (4, 112),
        (6, 120),
        (3, 128),
        (1, 136),
        (0, 144),
        (2, 152),
        (7, 160),
        (16, 168),
    ],
    code_mask: u64::MAX,
};

// AADWARF64 4.1; arch/arm64/include/uapi/asm/{sigcontext,ucontext}.h: siginfo_t (128 bytes) and then struct ucontext, whose
// sigcontext begins at 176 with fault_address. The code is the vdso's __kernel_rt_sigreturn: mov x8, #139; svc #0.
// 48 bits: a process gets addresses above them only by asking mmap for one (Documentation/arch/arm64/memory.rst).
/// AArch64.
pub static AARCH64: Arch = Arch {
    name: "aarch64",
    word: 8,
    names: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
    ],
    sp: 31,
    pc: 32,
    fp: 29,
    link: Some(30),
    callee_saved: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    trampolines: &[Trampoline {
        code: &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
        context: Context::At(128),
        siginfo: Context::At(0),
    }],
    context: &[
        (0, 184),
        (1, 192),
        (2, 200),
        (3, 208),
        (4, 216),
        (5, 224),
        (6, 232),
        (7, 240),
        (8, 248),
        (9, 256),
        (10, 264),
        (11, 272),
        (12, 280),
        (13, 288),
        (14, 296),
        (15, 304),
        (16, 312),
        (17, 320),
        (18, 328),
        (19, 336),
        (20, 344),
        (21, 352),
        (22, 360),
        (23, 368),
        (24, 376),
        (25, 384),
        (26, 392),
        (27, 400),
        (28, 408),
        (29, 416),
        (30, 424),
        (31, 432),
        (32, 440),
    ],
    code_mask: (1 << 48) - 1,
};

// System V psABI for i386, table 2.14; struct sigcontext_32 at offset 20 of struct ucontext. `mov $173, %eax; int $0x80`;
// at that point sp is one word into struct rt_sigframe: sig, pinfo, puc.
/// i386.
pub static I386: Arch = Arch {
    name: "i386",
    word: 4,
    names: &["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip"],
    sp: 4,
    pc: 8,
    fp: 5,
    link: None,
    callee_saved: &[3, 5, 6, 7],
    trampolines: &[Trampoline {
        code: &[0xb8, 0xad, 0, 0, 0, 0xcd, 0x80],
        context: Context::PointerAt(8),
        siginfo: Context::PointerAt(4),
    }],
    context: &[(7, 36), (6, 40), (5, 44), (4, 48), (3, 52), (2, 56), (1, 60), (0, 64), (8, 76)],
    code_mask: u32::MAX as u64,
};

impl Arch {
    /// Returns the machine of that name.
    pub fn by_name(name: &str) -> Option<&'static Arch> {
        [&X86_64, &AARCH64, &I386].into_iter().find(|arch| arch.name == name)
    }

    /// Returns the DWARF number of a register. AArch64's frame pointer and link register have two names each.
    pub fn register(&self, name: &str) -> Option<usize> {
        let name = match (self.name, name) {
            ("aarch64", "fp") => "x29",
            ("aarch64", "lr") => "x30",
            _ => name,
        };
        self.names.iter().position(|&known| known == name)
    }

    /// Returns the target of the direct call whose last byte ends `before`, if there is one. `next` is the address after
    /// it.
    pub fn call_target(&self, before: &[u8; 8], next: u64) -> Option<u64> {
        let last = u32::from_le_bytes([before[4], before[5], before[6], before[7]]);
        if self.name == "aarch64" {
            // bl: a signed offset of 26 bits, in words, from the instruction itself.
            let offset = i64::from(((last << 6) as i32) >> 4);
            return (last & 0xfc00_0000 == 0x9400_0000).then(|| next.wrapping_sub(4).wrapping_add_signed(offset));
        }
        (before[3] == 0xe8).then(|| next.wrapping_add_signed(i64::from(last as i32)) & self.code_mask)
    }

    /// Returns whether the bytes just before a return address end in a call.
    pub fn ends_in_call(&self, before: &[u8; 8]) -> bool {
        if self.name == "aarch64" {
            let insn = u32::from_le_bytes([before[4], before[5], before[6], before[7]]);
            // bl; blr; blraa and its variants (Arm ARM C4.1.66).
            return insn & 0xfc00_0000 == 0x9400_0000
                || insn & 0xffff_fc1f == 0xd63f_0000
                || insn & 0xfeff_f800 == 0xd63f_0800;
        }
        // call rel32, or call r/m (ff /2) whose length fits.
        before[3] == 0xe8
            || (0..=6).any(|at| before[at] == 0xff && indirect_call_length(&before[at + 1..]) == Some(8 - at))
    }
}

/// Returns the length of `ff /2`, from its ModRM byte on (Intel SDM volume 2, table 2-2).
fn indirect_call_length(operand: &[u8]) -> Option<usize> {
    let modrm = *operand.first()?;
    if (modrm >> 3) & 7 != 2 {
        return None;
    }
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let sib = usize::from(mode != 3 && rm == 4);
    let displacement = match mode {
        0 if rm == 5 || (rm == 4 && operand.get(1)? & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(2 + sib + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_code() {
        // (bytes, is it a call): assembled with GNU as.
        let cases: [(&[u8], bool); 9] = [
            (&[0xe8, 1, 2, 3, 4], true),                   // call rel32
            (&[0xff, 0xd0], true),                         // call *%rax
            (&[0x41, 0xff, 0xd4], true),                   // call *%r12
            (&[0xff, 0x53, 0x10], true),                   // call *0x10(%rbx)
            (&[0xff, 0x15, 1, 2, 3, 4], true),             // call *0x04030201(%rip)
            (&[0xff, 0x14, 0xc5, 1, 2, 3, 4], true),       // call *0x04030201(,%rax,8)
            (&[0x41, 0xff, 0x94, 0x24, 0, 1, 0, 0], true), // call *0x100(%r12)
            (&[0xff, 0xe0], false),                        // jmp *%rax
            (&[0x48, 0x89, 0xc7], false),                  // mov %rax, %rdi
        ];
        for (code, is_call) in cases {
            let mut before = [0x90; 8];
            before[8 - code.len()..].copy_from_slice(code);
            assert_eq!(X86_64.ends_in_call(&before), is_call, "{code:x?}");
        }
        let relative = |offset: i32| {
            let mut before = [0xe8; 8];
            before[4..].copy_from_slice(&offset.to_le_bytes());
            X86_64.call_target(&before, 0x40_1005)
        };
        assert_eq!((relative(0x10), relative(-0x1005)), (Some(0x40_1015), Some(0x40_0000)));
        let branch = |insn: u32| AARCH64.call_target(&(u64::from(insn) << 32).to_le_bytes(), 0x40_1004);
        assert_eq!((branch(0x9400_0004), branch(0x97ff_ffff)), (Some(0x40_1010), Some(0x40_0ffc)));
        assert_eq!(branch(0x1400_0004), None);
        let arm = |insn: u32| AARCH64.ends_in_call(&(u64::from(insn) << 32).to_le_bytes());
        assert!(arm(0x9400_0010) && arm(0xd63f_0100) && arm(0xd73f_0901));
        assert!(!arm(0x1400_0010) && !arm(0xd65f_03c0));
    }
}
