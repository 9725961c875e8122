//! Prints one instruction.

use iced_x86::{Decoder as X86Decoder, DecoderOptions, Formatter, GasFormatter};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64;

/// Returns the instruction that `code` begins with, in the assembler syntax of gdb and objdump, and its length. None
/// where the bytes are not an instruction, or too few.
///
/// Branch targets are absolute on x86. They are relative to the instruction on AArch64 (`$+0x10`).
pub fn instruction(arch: &str, code: &[u8], address: u64) -> Option<(String, usize)> {
    match arch {
        "x86_64" => x86(64, code, address),
        "i386" => x86(32, code, address),
        "aarch64" => {
            let word = code.get(..4)?;
            let decoded = a64::InstDecoder::default().decode(&mut U8Reader::new(word)).ok()?;
            Some((decoded.to_string(), 4))
        }
        _ => None,
    }
}

fn x86(bits: u32, code: &[u8], address: u64) -> Option<(String, usize)> {
    let decoded = X86Decoder::with_ip(bits, code, address, DecoderOptions::NONE).decode();
    if decoded.is_invalid() {
        return None;
    }
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_space_after_operand_separator(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.options_mut().set_small_hex_numbers_in_decimal(false);
    let mut text = String::new();
    formatter.format(&decoded, &mut text);
    Some((text, decoded.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaks_as_objdump_does() {
        // What objdump -d (binutils 2.40) says of these bytes; of a branch it also names the symbol.
        let x86: [(&[u8], &str); 6] = [
            (&[0x8b, 0x07], "mov (%rdi),%eax"),
            (&[0xc7, 0x04, 0x25, 0, 0, 0, 0, 1, 0, 0, 0], "movl $0x1,0x0"),
            (&[0xf7, 0xf9], "idiv %ecx"),
            (&[0xff, 0xd0], "call *%rax"),
            (&[0xe8, 0x0b, 0, 0, 0], "call 0x401010"),
            (&[0x0f, 0x0b], "ud2"),
        ];
        for (code, text) in x86 {
            assert_eq!(instruction("x86_64", code, 0x40_1000), Some((text.to_string(), code.len())));
        }
        assert_eq!(instruction("x86_64", &[0x8b], 0), None);
        assert_eq!(instruction("x86_64", &[0x06], 0), None);
        assert_eq!(instruction("i386", &[0x06], 0).map(|(_, length)| length), Some(1));
        assert_eq!(instruction("aarch64", &[0x00, 0x00, 0x40, 0xb9], 0), Some(("ldr w0, [x0]".to_string(), 4)));
        assert_eq!(instruction("aarch64", &[0, 0, 0x40], 0), None);
    }
}
