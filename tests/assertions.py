"""Find tests that pass although they looked at nothing.

An assertion inside a loop proves nothing if the loop never runs. ``assert all(...)`` holds for an empty list. A test
needs one assertion that is always reached, and that fails when there is nothing to look at. A loop over a literal that
is not empty always runs. A call of a helper counts if the helper asserts. Where the test uses the helper's value, only
the helper's assertions on a size count (``assert rows``, ``assert len(rows) == 3``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Optional, Union

ROOT = Path(__file__).resolve().parents[1]
#: Helpers of these packages are looked up where a test imports them.
PACKAGES = ("tests", "fixtures", "tools")
#: Helpers are taken to assert if their names begin so.
JUDGES = ("check", "judge", "assert_", "_check", "_judge", "_assert_")

#: The result has something in it if the first argument has.
_KEEP = ("enumerate", "sorted", "reversed", "list", "tuple", "set", "frozenset", "dict", "iter")
_VIEWS = ("items", "keys", "values", "splitlines")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEEPEST = 8  # of names that stand for names: an import circle ends

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class Module:
    """A file of the tests: its functions, constants and imports."""

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self.functions: dict[str, Function] = {}
        self.tests: list[Function] = []
        self.constants: dict[str, ast.expr] = {}
        self.filled_names: dict[str, bool] = {}
        self.imports: dict[str, tuple[str, ...]] = {}
        package = path.relative_to(files.root).parent.parts
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                base += tuple(node.module.split(".")) if node.module else ()
                self.imports.update({name.asname or name.name: (*base, name.name) for name in node.names})
            elif isinstance(node, ast.ClassDef):
                self.tests += _tests(node.body)
            elif isinstance(node, _FUNCTIONS):
                self.functions[node.name] = node
            else:
                self.constants.update(_assigned(node))
        self.tests += _tests(self.functions.values())

    def function(self, name: ast.expr) -> Optional[tuple[Module, Function]]:
        """Return the function that the expression names, and its module."""
        found = self._named(name)
        return (found[0], found[0].functions[found[1]]) if found and found[1] in found[0].functions else None

    def filled(self, name: ast.expr) -> bool:
        """Return whether the module-level name that the expression is has something in it."""
        found = self._named(name)
        return found is not None and found[0]._filled(found[1])

    def _filled(self, name: str) -> bool:
        if name not in self.filled_names:
            self.filled_names[name] = False  # for a name that is assigned from itself
            self.filled_names[name] = name in self.constants and _Body(self).filled(self.constants[name])
        return self.filled_names[name]

    def _named(self, expression: ast.expr) -> Optional[tuple[Module, str]]:
        """Return the module that defines `NAME` or `MODULE.NAME`, and the name there."""
        if isinstance(expression, ast.Name):
            return self._defined(expression.id)
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            other = self.files.module(self.imports.get(expression.value.id, ()))
            return other._defined(expression.attr) if other else None
        return None

    def _defined(self, name: str, depth: int = 0) -> Optional[tuple[Module, str]]:
        if name in self.functions or name in self.constants:
            return self, name
        source = self.imports.get(name)
        other = self.files.module(source[:-1]) if source and depth < _DEEPEST else None
        return other._defined(source[-1], depth + 1) if source and other else None


class Files:
    """The modules below a root, each read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.known: dict[Path, Module] = {}
        self.judged: dict[tuple[Path, int, bool], bool] = {}

    def read(self, path: Path) -> Module:
        if path not in self.known:
            self.known[path] = Module(self, path)
        return self.known[path]

    def module(self, parts: tuple[str, ...]) -> Optional[Module]:
        """Return the module of that dotted name, or None if it is of another package."""
        if not parts or parts[0] not in PACKAGES:
            return None
        at = self.root.joinpath(*parts)
        return next((self.read(path) for path in (at.with_suffix(".py"), at / "__init__.py") if path.is_file()), None)

    def unproven(self) -> Iterator[str]:
        """Yield `FILE::TEST` of each test that no assertion makes fail when its loops do not run."""
        for path in sorted((self.root / "tests").rglob("test_*.py")):
            module = self.read(path)
            for test in module.tests:
                if not asserts(module, test):
                    yield f"{path.relative_to(self.root).as_posix()}::{test.name}"


def asserts(module: Module, function: Function, sizes: bool = False) -> bool:
    """Return whether the function always reaches an assertion. With ``sizes``, only assertions on a size count."""
    key = (module.path, function.lineno, sizes)
    judged = module.files.judged
    if key not in judged:
        judged[key] = False  # for a function that calls itself
        judged[key] = _Body(module, function).asserts(sizes)
    return judged[key]


class _Body:
    """The body of a function, or the module itself: what is known of its names and statements."""

    def __init__(self, module: Module, function: Optional[Function] = None) -> None:
        self.module = module
        self.function = function
        self.filled_names: dict[str, bool] = {}

    @cached_property
    def nested(self) -> dict[str, Function]:
        nodes = ast.walk(self.function) if self.function else ()
        return {node.name: node for node in nodes if isinstance(node, _FUNCTIONS)}

    @cached_property
    def locals(self) -> dict[str, list[ast.expr]]:
        """All values that the function assigns to each of its names."""
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.function) if self.function else ():
            for name, value in _assigned(node).items():
                found.setdefault(name, []).append(value)
        return found

    def asserts(self, sizes: bool) -> bool:
        reached = list(self._reached(self.function.body)) if self.function else []
        reached.sort(key=lambda each: not isinstance(each, ast.Assert))  # most functions have one that suffices
        return any(self._proof(each, sizes) for each in reached)

    def _reached(self, body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield the statements outside of loops, and those of loops that always run."""
        for statement in body:
            yield statement
            always = not isinstance(statement, (*_FUNCTIONS, ast.ClassDef))
            if isinstance(statement, (ast.For, ast.AsyncFor)):
                always = self.filled(statement.iter)
            elif isinstance(statement, ast.While):
                always = isinstance(statement.test, ast.Constant)
            if always:
                yield from self._reached(getattr(statement, "body", ()))
            for handler in getattr(statement, "handlers", ()):
                yield from self._reached(handler.body)
            yield from self._reached(getattr(statement, "orelse", ()))
            yield from self._reached(getattr(statement, "finalbody", ()))

    def _proof(self, statement: ast.stmt, sizes: bool) -> bool:
        if isinstance(statement, ast.Assert):
            return not self.true_of_nothing(statement.test) and (not sizes or _of_size(statement.test))
        if sizes:
            return False
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and self._judges(statement.value):
            return True
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            whole = [each.context_expr for each in statement.items if isinstance(each.context_expr, ast.Call)]
            if any(_called(each) in ("raises", "warns") or self._judges(each) for each in whole):
                return True
        return any(self._counts(call) for call in _calls(statement))

    def _judges(self, call: ast.Call) -> bool:
        """Return whether the call is an assertion where its value is not used."""
        found = self._helper(call)
        if found:
            return asserts(*found)
        return _called(call) == "raises" or _called(call).startswith(JUDGES)

    def _counts(self, call: ast.Call) -> bool:
        """Return whether the call asserts the size of something. It may be that of its value."""
        found = self._helper(call)
        return found is not None and asserts(*found, sizes=True)

    def _helper(self, call: ast.Call) -> Optional[tuple[Module, Function]]:
        found = self.module.function(call.func)
        if found is None and isinstance(call.func, ast.Name) and call.func.id in self.nested:
            return self.module, self.nested[call.func.id]
        return found

    def true_of_nothing(self, test: ast.expr) -> bool:
        """Return whether the condition also holds when there is nothing to look at."""
        if isinstance(test, ast.BoolOp):
            holds = [self.true_of_nothing(each) for each in test.values]
            return all(holds) if isinstance(test.op, ast.And) else any(holds)
        if isinstance(test, ast.Call) and _called(test) == "all":
            return not self.filled(test.args[0])
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._finds_none(test.operand)
        if isinstance(test, ast.Compare) and self._comprehends(test.left):
            if isinstance(test.ops[0], ast.LtE):  # a subset
                return not self.filled(test.left)
            return isinstance(test.ops[0], ast.Eq) and _is_empty(test.comparators[0]) and self._finds_none(test.left)
        return False

    def _finds_none(self, looked: ast.expr) -> bool:
        """Return whether `any(...)` or a comprehension may be empty because it has nothing to choose from."""
        if isinstance(looked, ast.Call) and _called(looked) == "any":
            return not self._has_source(looked.args[0])
        return self._comprehends(looked) and not self._has_source(looked)

    def _comprehends(self, expression: ast.expr) -> bool:
        expression = self._behind(expression)
        return isinstance(expression, _COMPREHENSIONS)

    def _has_source(self, expression: ast.expr) -> bool:
        """Return whether a comprehension has something to choose from, whatever it chooses."""
        expression = self._behind(expression)
        if isinstance(expression, _COMPREHENSIONS):
            return all(self.filled(each.iter) for each in expression.generators)
        return self.filled(expression)

    def _behind(self, expression: ast.expr, depth: int = 0) -> ast.expr:
        """Return what a name, or a call such as `sorted(NAME)`, stands for."""
        if depth < _DEEPEST:
            if isinstance(expression, ast.Name) and len(self.locals.get(expression.id, ())) == 1:
                return self._behind(self.locals[expression.id][0], depth + 1)
            if isinstance(expression, ast.Call) and _called(expression) in _KEEP and expression.args:
                return self._behind(expression.args[0], depth + 1)
        return expression

    def filled(self, expression: ast.expr) -> bool:  # noqa: PLR0911 (a line for each kind of expression)
        """Return whether the expression is known to have something in it. A number has if it is not 0."""
        filled = self.filled
        if isinstance(expression, ast.Constant):
            return bool(expression.value)
        if isinstance(expression, (ast.Tuple, ast.List, ast.Set)):
            return any(filled(each.value) if isinstance(each, ast.Starred) else True for each in expression.elts)
        if isinstance(expression, ast.Dict):
            return any(key or filled(value) for key, value in zip(expression.keys, expression.values))
        if isinstance(expression, ast.BinOp) and isinstance(expression.op, (ast.Add, ast.BitOr)):
            return filled(expression.left) or filled(expression.right)
        if isinstance(expression, ast.IfExp):
            return filled(expression.body) and filled(expression.orelse)
        if isinstance(expression, _COMPREHENSIONS):
            return all(filled(each.iter) and not each.ifs for each in expression.generators)
        if isinstance(expression, ast.Call):
            return self._filled_call(expression)
        return self._filled_name(expression)

    def _filled_name(self, expression: ast.expr) -> bool:
        name = getattr(expression, "id", None)
        if name not in self.locals:
            return self.module.filled(expression)
        if name not in self.filled_names:
            self.filled_names[name] = False  # for a name that is assigned from itself
            self.filled_names[name] = all(map(self.filled, self.locals[name]))
        return self.filled_names[name]

    def _filled_call(self, call: ast.Call) -> bool:
        name = _called(call)
        if name == "range":
            return len(call.args) == 1 and self.filled(call.args[0])
        if name in ("zip", "product"):
            return all(map(self.filled, call.args))
        if isinstance(call.func, ast.Attribute) and name in _VIEWS:
            return self.filled(call.func.value)
        if isinstance(call.func, ast.Attribute) and name == "split":
            return bool(call.args) or self.filled(call.func.value)
        return name in _KEEP and bool(call.args) and self.filled(call.args[0])


def _tests(nodes: Iterable[ast.stmt]) -> list[Function]:
    return [node for node in nodes if isinstance(node, _FUNCTIONS) and node.name.startswith("test_")]


def _assigned(node: ast.AST) -> dict[str, ast.expr]:
    """Return the names that the node assigns, and their values."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) or node.value is None:
        return {}
    pairs = [(each, node.value) for each in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    for target, value in list(pairs):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):  # A, B = 1, 2
            pairs += zip(target.elts, value.elts)
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name)}


def _called(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls in the statement itself: not in its body, nor where a comprehension or a lambda may not call."""
    left = [each for each in ast.iter_child_nodes(statement) if not isinstance(each, (ast.stmt, ast.ExceptHandler))]
    while left:
        node = left.pop()
        if isinstance(node, ast.Call):
            yield node
        if isinstance(node, _COMPREHENSIONS):
            left.append(node.generators[0].iter)
        elif not isinstance(node, ast.Lambda):
            left += ast.iter_child_nodes(node)


def _of_size(test: ast.expr) -> bool:
    """Return whether the condition is a name or a part of one, or has `len(...)` in it."""
    lengths = (node for node in ast.walk(test) if isinstance(node, ast.Call) and _called(node) == "len")
    return isinstance(test, (ast.Name, ast.Attribute, ast.Subscript)) or any(lengths)


def _is_empty(expression: ast.expr) -> bool:
    if isinstance(expression, ast.Call):
        return _called(expression) in _KEEP and not expression.args
    return ast.unparse(expression) in ("[]", "()", "{}")
