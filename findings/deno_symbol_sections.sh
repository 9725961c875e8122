#!/usr/bin/env bash
# Deno 2.9.6 for Linux (npm: @deno/linux-x64-glibc), read with pyelftools 0.33: each of the 215 functions in its dynamic symbol table names
# the section .init, which has 23 bytes. All of them lie in .text, which is millions of bytes before.
#
# A reader that finds a function by its section (st_shndx), as a symbolizer does that looks into executable sections by
# their names, puts napi_* and uv_* where no code is. Their values (st_value) are right, so the dynamic linker sees nothing
# of it, and `nm -D` prints "T" for either section. The section must be found by the address.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent @deno/linux-x64-glibc@2.9.6 >/dev/null
tar xzf deno-linux-x64-glibc-2.9.6.tgz package/deno
python3 -m venv tools
tools/bin/pip install --quiet pyelftools==0.33
tools/bin/python - <<'PYTHON'
from collections import Counter

from elftools.elf.elffile import ELFFile

with open("package/deno", "rb") as stream:
    elf = ELFFile(stream)
    sections = list(elf.iter_sections())
    said, true = Counter(), Counter()
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if isinstance(symbol["st_shndx"], int):
            at = symbol["st_value"]
            said[sections[symbol["st_shndx"]].name] += 1
            true[next((s.name for s in sections if s["sh_addr"] <= at < s["sh_addr"] + s["sh_size"]), None)] += 1
    init = elf.get_section_by_name(".init")["sh_size"]
print(f"said by st_shndx: {dict(said)}; by address: {dict(true)}; .init has {init} bytes")
assert said == {".init": 215} and true == {".text": 215} and init == 23
PYTHON
