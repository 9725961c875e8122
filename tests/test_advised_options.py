"""Each option that a text of dmods advises exists: as an option of dmods, or of the program that the text names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("dmods", "drgnext", "gdbext")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+[a-z]")
#: Options of other programs in texts of dmods: the option, and whose it is.
FOREIGN = {
    "--cap-add": "docker run",
    "--core": "prlimit",
    "--dataalignment": "pvcreate",
    "--debug-directory": "drgn",
    "--debug-link-directory": "drgn",
    "--directory": "journalctl",
    "--extra-symbols": "drgn",
    "--interleave": "numactl",
    "--kernel-directory": "drgn",
    "--live": "CPython's help",
    "--log-level": "drgn",
    "--no-symbols-by": "drgn",
    "--output-fields": "journalctl",
    "--plugin-name": "LLDB",
    "--qemu": "drgn",
    "--reassemble": "makedumpfile",
    "--security-opt": "docker run",
    "--split": "makedumpfile",
    "--style": "LLDB",
    "--try-symbols-by": "drgn",
    "--upgrade": "pip",
    "--vmcoreinfo": "drgn",
}


def _is_definition(node: ast.AST) -> bool:
    """Return whether the node is a call that defines an option: Argument(...), parser.add_argument(...)."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("Argument", "add_argument")


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, the parts of f-strings as well. Docstrings are not among them."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_the_options_that_texts_advise_exist() -> None:
    defined, advised = set(), {}
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        tree = ast.parse(path.read_text())
        for call in filter(_is_definition, ast.walk(tree)):
            defined |= {word.value for word in call.args if isinstance(word, ast.Constant)}
        for text in _strings(tree):
            if OPTION.fullmatch(text):  # a word of a command line: a verb compares it, or a program is started with it
                defined |= {text} if "cli" in path.parts else set()
            else:
                advised.update(dict.fromkeys(OPTION.findall(text), path.relative_to(ROOT).as_posix()))
    assert {"--top", "--sysroot", "--audit", "--clear"} <= defined
    assert {option: path for option, path in advised.items() if option not in defined and option not in FOREIGN} == {}
    assert sorted(FOREIGN.keys() - advised.keys()) == []
