"""The memory that an instruction was about to access."""

from __future__ import annotations

from typing import Optional

import pytest

from drgnext.kernel.crash import operand

REGISTERS = {"rax": 0x1000, "rbx": 0x10, "rbp": 0xFFFFFFFF_00000000, "rcx": 0xFFFFFFFF_FFFFFFF0}


@pytest.mark.parametrize(
    ("instruction", "address"),
    [
        ("movl $0x1,(%rax)", 0x1000),
        ("mov 0x28(%rax,%rbx,8),%rax", 0x10A8),
        ("mov -0x8(%rbp),%eax", 0xFFFFFFFE_FFFFFFF8),
        ("mov (,%rbx,4),%rax", 0x40),
        ("callq *0x20(%rax)", 0x1020),
        ("mov 0x20(%rcx),%rax", 0x10),  # around the end of the address space
        ("mov %gs:0x0(%rax),%rax", None),
        ("mov %rax,%rbx", None),
        ("lea 0x8(%rax),%rbx", None),
        ("rep movsb (%rsi),(%rdi)", None),
        ("mov 0x8(%r12),%rax", None),
        ("ud2", None),
    ],
)
def test_the_address(instruction: str, address: Optional[int]) -> None:
    assert operand.address(instruction, REGISTERS) == address
