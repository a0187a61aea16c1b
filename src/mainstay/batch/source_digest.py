"""A digest of a function and its dependencies in its own project: the default version of the code.

It is computed from source files alone, so it is the same on every machine, and nothing is imported. The names in the
function lead to top-level definitions of its module (functions, classes, constants), and through imports to other
modules of the same project, and so on. Comments, docstrings, layout and unrelated definitions do not count: a changed
plot beside a simulation does not make the simulation run again.

The project is the folder of the function's top-level module or package; if it is installed among other packages, the
top-level package. The standard library, installed packages and Mainstay itself are not part of it. If a module is used
as a value, all of it counts. Lookups by text (`getattr`, `importlib`), data files and installed packages are not
noticed: set `version` for them.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import symtable
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

_DIGITS = 12
#: limit for modules that import a name from each other
_DEEPEST = 20
#: decorators that declare a function to Mainstay: their options do not change its results
_DECLARING = frozenset({"batch", "task"})
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source_digest(function: Callable[..., Any]) -> str:
    """12 hexadecimal digits; raises `OSError`, `TypeError` or `SyntaxError` if the source cannot be read. A function
    without dependencies has the digest of its own text."""
    function = inspect.unwrap(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    own = tree.body[0]
    if isinstance(own, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = [one for one in own.decorator_list if not _declares(one)]
        own.decorator_list = []
    else:
        decorators = []
    parts = [_text(own)]
    project = _project_of(function)
    if project is not None:
        parts += (f"{place}\n{text}" for place, text in sorted(_reached(project, function, own, decorators)))
    return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()[:_DIGITS]


class _Name(NamedTuple):
    """A top-level name of a module; an empty name stands for the whole module."""

    module: str
    name: str


class _Project(NamedTuple):
    root: Path
    module: str
    package: str
    """only modules of this package count; empty: all in the folder"""

    def file(self, module: str) -> Path | None:
        top = module.partition(".")[0]
        if not module or top in sys.stdlib_module_names or top == "mainstay" or (self.package and top != self.package):
            return None
        place = self.root.joinpath(*module.split("."))
        return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)

    def place(self, module: str) -> str:
        """The path of a module relative to the function's own: independent of import names."""
        file, own = self.file(module), self.file(self.module)
        assert file is not None
        assert own is not None
        return Path(os.path.relpath(file, own.parent)).as_posix()


def _project_of(function: Callable[..., Any]) -> _Project | None:
    source_file = inspect.getsourcefile(function)
    module = getattr(function, "__module__", None) or ""
    if source_file is None or not module:
        return None
    file = Path(source_file).absolute()
    if module == "__main__":
        module = _name_as_imported(file)
    parts = module.split(".")
    inner = parts if file.name == "__init__.py" else parts[:-1]
    root = file.parents[len(inner)] if len(inner) < len(file.parents) else file.parent
    project = _Project(root, module, parts[0] if _is_installed(file) else "")
    where = project.file(module)
    return project if where is not None and where == file else None


def _name_as_imported(file: Path) -> str:
    """The import name of a module that runs as a program here, from its file and packages."""
    folder, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _is_installed(file: Path) -> bool:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(
        path and file.is_relative_to(path) for path in paths
    )


def _reached(
    project: _Project, function: Callable[..., Any], own: ast.stmt, decorators: Iterable[ast.expr]
) -> Iterator[tuple[str, str]]:
    """The place and text of every definition that the function depends on, without itself."""
    module = _read(project, project.module)
    if module is None:
        return
    outer, _, inner = function.__qualname__.partition(".")
    todo: list[_Name] = []
    if inner:
        # it may use variables of the enclosing function
        todo.append(_Name(project.module, outer))
    names = module.global_names(outer) if not inner and outer in module.bound else _loaded([own])
    todo += module.targets(project, _used([own, *decorators], names | _at_definition(own) | _loaded(decorators)))
    seen = {_Name(project.module, outer)} if not inner else set()
    texts: dict[tuple[str, int], str] = {}
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        source = _read(project, one.module)
        if source is None:
            continue
        for statement in source.statements(one.name):
            key = one.module, statement.lineno
            if key not in texts or not one.name:
                imports = isinstance(statement, ast.Import | ast.ImportFrom)
                texts[key] = "" if imports else _text(statement)
                # a single name is resolved by `targets`; a whole module also needs all of its imports
                if not imports or not one.name:
                    todo += source.targets(project, source.uses(statement))
    # ordered like the file, but without line numbers, which a comment would change
    counts: dict[str, int] = {}
    for (name, _), text in sorted(texts.items()):
        if text:
            counts[name] = counts.get(name, 0) + 1
            yield f"{project.place(name)} {counts[name]:06d}", text


class _Use(NamedTuple):
    """A name with the chain of attributes that follows it; without attributes, it is used as a value."""

    name: str
    attributes: tuple[str, ...]
    through: ast.ImportFrom | ast.Import | None = None
    """the local import that binds the name"""


class _Module:
    """The top level of one source file."""

    def __init__(self, name: str, file: Path) -> None:
        text = file.read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
        self.name = name
        self.package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        self.bound: dict[str, list[ast.stmt]] = {}
        self.all: list[ast.stmt] = []
        self.stars: list[ast.ImportFrom] = []
        for statement in tree.body:
            if _is_main_guard(statement) or _is_docstring(statement):
                continue
            self.all.append(statement)
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                self.stars.append(statement)
            for bound in _bound_by(statement):
                self.bound.setdefault(bound, []).append(statement)
        self._tables: dict[str, list[symtable.SymbolTable]] = {}
        for table in symtable.symtable(text, str(file), "exec").get_children():
            self._tables.setdefault(table.get_name(), []).append(table)

    def statements(self, name: str) -> list[ast.stmt]:
        return self.bound.get(name, []) if name else self.all

    def global_names(self, name: str) -> set[str]:
        """The global names that a function or class of the module uses."""
        return set().union(*(_globals_in(table) for table in self._tables.get(name, [])))

    def uses(self, statement: ast.stmt) -> list[_Use]:
        if isinstance(statement, _Definition):
            names = self.global_names(statement.name) | _at_definition(statement)
            names |= _loaded(one for one in statement.decorator_list if not _declares(one))
        else:
            names = _loaded([statement])
        return _used([statement], names)

    def targets(self, project: _Project, uses: Iterable[_Use], depth: int = 0) -> Iterator[_Name]:
        """The definitions behind the names: here, or in imported modules of the project."""
        if depth > _DEEPEST:
            return  # modules that import a name from each other
        for use in uses:
            if use.through is not None:
                source = self._source(use.through) if isinstance(use.through, ast.ImportFrom) else use.name
                yield from self._imported(project, source, use.attributes, depth)
                continue
            if use.name in self.bound:
                yield _Name(self.name, use.name)
            for statement in self.bound.get(use.name, []):
                for inner in ast.walk(statement):
                    yield from self._through(project, inner, use, depth)
            if use.name not in self.bound:
                for star in self.stars:
                    yield from self._imported(project, self._source(star), (use.name, *use.attributes), depth)

    def _through(self, project: _Project, statement: ast.AST, use: _Use, depth: int) -> Iterator[_Name]:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname == use.name:
                    yield from self._imported(project, alias.name, use.attributes, depth)
                elif alias.asname is None and alias.name.partition(".")[0] == use.name:
                    yield from self._imported(project, use.name, use.attributes, depth)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == use.name:
                    attributes = (alias.name, *use.attributes)
                    yield from self._imported(project, self._source(statement), attributes, depth)

    def _source(self, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        parts = self.package.split(".")
        above = parts[: len(parts) - statement.level + 1]
        return ".".join([*above, *([statement.module] if statement.module else [])])

    def _imported(self, project: _Project, module: str, attributes: tuple[str, ...], depth: int) -> Iterator[_Name]:
        """The definitions that a chain of attributes leads to, with the package's own code."""
        if project.file(module) is None:
            return
        if not attributes:
            yield _Name(module, "")
            return
        inner = f"{module}.{attributes[0]}"
        source = _read(project, module)
        if source is not None and attributes[0] in source.bound:
            yield _Name(module, attributes[0])
            yield from source.targets(project, [_Use(attributes[0], attributes[1:])], depth + 1)
        elif project.file(inner) is not None:
            yield from self._imported(project, inner, attributes[1:], depth)
        elif source is not None and source.stars:
            yield from source.targets(project, [_Use(attributes[0], attributes[1:])], depth + 1)
        else:
            # other code sets it somewhere: count the whole module
            yield _Name(module, "")


def _read(project: _Project, module: str) -> _Module | None:
    file = project.file(module)
    if file is None:
        return None
    return _parsed(module, file, file.stat().st_mtime_ns)


@lru_cache(maxsize=1000)
def _parsed(module: str, file: Path, _: int) -> _Module | None:
    try:
        return _Module(module, file)
    except (OSError, SyntaxError, ValueError):
        return None  # it cannot be imported either


def _globals_in(table: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    for inner in table.get_children():
        names |= _globals_in(inner)
    return names


def _bound_by(statement: ast.stmt) -> set[str]:
    """The names that a top-level statement binds or changes: by assignment, in a block, by `global` in a function, or
    through an attribute, an item or a method (`TABLE["a"] = 1`, `TABLE.update(a=1)`)."""
    if isinstance(statement, _Definition):
        changed = {name for inner in ast.walk(statement) if isinstance(inner, ast.Global) for name in inner.names}
        return {statement.name, *changed}
    names: set[str] = set()
    for inner in ast.walk(statement):
        if isinstance(inner, _Definition):
            names.add(inner.name)
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in inner.names}
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store | ast.Del):
            names |= _base(inner)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        names |= _base(statement.value.func)
    return names


def _base(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {inner.id for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _at_definition(statement: ast.stmt) -> set[str]:
    """The names in defaults, annotations (also quoted ones) and base classes, which belong to the enclosing scope."""
    if not isinstance(statement, _Definition):
        return set()
    names: set[str] = set()
    for inner in ast.walk(statement):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = inner.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            notes = [one.annotation for one in every if one is not None and one.annotation is not None]
            names |= _loaded([*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)])
            names |= _noted([*notes, *([inner.returns] if inner.returns is not None else [])])
        elif isinstance(inner, ast.ClassDef):
            names |= _loaded([*inner.bases, *(keyword.value for keyword in inner.keywords)])
        elif isinstance(inner, ast.AnnAssign):
            names |= _noted([inner.annotation])
    return names


def _noted(annotations: Iterable[ast.expr]) -> set[str]:
    names: set[str] = set()
    for annotation in annotations:
        names |= _loaded([annotation])
        for inner in ast.walk(annotation):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                try:
                    names |= _loaded([ast.parse(inner.value, mode="eval")])
                except SyntaxError:
                    continue
    return names


def _used(nodes: Iterable[ast.AST], names: set[str]) -> list[_Use]:
    """The uses of the names, each with the attributes that follow it; local imports, too."""
    uses: list[_Use] = []
    chained: set[int] = set()
    named: set[str] = set()
    local: dict[str, list[_Use]] = {}
    everything = [inner for node in nodes for inner in ast.walk(node)]
    for inner in everything:
        for name, use in _imports_of(inner):
            local.setdefault(name, []).append(use)
    for inner in everything:
        chain = _chain(inner, chained)
        if chain is None:
            continue
        name, attributes = chain
        named.add(name)
        if name in names:
            uses.append(_Use(name, attributes))
        uses += [use._replace(attributes=use.attributes + attributes) for use in local.get(name, [])]
    # quoted annotations
    uses += [_Use(name, ()) for name in names - named]
    # imports whose names are not used: they still run the module
    return [*uses, *(use for name, some in local.items() if name not in named for use in some)]


def _imports_of(node: ast.AST) -> Iterator[tuple[str, _Use]]:
    """The names that an import binds, and their sources."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, _Use(alias.name if alias.asname else top, (), node)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, _Use("", () if alias.name == "*" else (alias.name,), node)


def _chain(node: ast.AST, chained: set[int]) -> tuple[str, tuple[str, ...]] | None:
    """`a.b.c` as ("a", ("b", "c")); only for the outermost node, which `ast.walk` visits first."""
    if id(node) in chained:
        return None
    attributes: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        chained.add(id(inner))
        attributes.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return None
    chained.add(id(inner))
    return inner.id, tuple(reversed(attributes))


def _declares(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in _DECLARING


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main_guard(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
    )


def _text(statement: ast.stmt) -> str:
    """Its source without comments, layout and docstrings."""
    copy = ast.parse(ast.unparse(statement)).body[0]
    for inner in ast.walk(copy):
        if isinstance(inner, _Definition):
            inner.body = [one for one in inner.body if not _is_docstring(one)] or [ast.Pass()]
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                inner.decorator_list = [one for one in inner.decorator_list if not _declares(one)]
    return ast.unparse(copy)
