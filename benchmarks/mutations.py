"""Small faults to be put into a source, a sample of them that edits elsewhere leave as it is.

The operators are cosmic-ray's: those after which an expression still has the kind it had, so that a
mutant is a plausible slip and not an immediate ``TypeError``. Annotations, decorators and what only
a type checker reads do nothing when a program runs, and are left alone.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SWAPS = {
    "BinaryOperator": "Add_Sub Sub_Add Mul_Div Div_Mul Pow_Mul FloorDiv_Mod Mod_FloorDiv"
    " RShift_LShift LShift_RShift BitOr_BitAnd BitAnd_BitOr BitXor_BitOr",
    "ComparisonOperator": "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt"
    " Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is",
    "UnaryOperator": "USub_UAdd Invert_UAdd Delete_Not",
}
OPERATORS = (
    *(f"core/Replace{kind}_{swap}" for kind, swaps in _SWAPS.items() for swap in swaps.split()),
    "core/AddNot",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ExceptionReplacer",
    "core/NumberReplacer",
    "core/ZeroIterationForLoop",
)

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """One fault: the function that has it, its line before and after, and the module's new text."""

    module: str
    function: str
    before: str
    after: str
    text: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What tells it from others, wherever its line stands."""
        return (self.module, self.function, self.before, self.after)


class Drawn(NamedTuple):
    """A mutant with its place in a random order, which edits elsewhere leave as it is."""

    order: int
    mutant: Mutant


def sample(path: Path, module: str, count: int, seed: int) -> list[Drawn]:
    """``count`` mutants of a module, or all where it has fewer: one a place, places at random."""
    source = path.read_text()
    places: dict[Position, list[tuple[str, int]]] = {}
    for operator, occurrence, position in _possible(source):
        places.setdefault(position, []).append((operator, occurrence))
    tree, lines = ast.parse(source), source.splitlines()
    inert, functions = list(_inert(tree)), list(_functions(tree))
    live = [p for p in places if not any(start <= p < end for start, end in inert)]

    def draw(position: Position) -> int:
        line, column = position
        label = (seed, module, _home(functions, position), lines[line - 1].strip(), column)
        return int(hashlib.sha256(repr(label).encode()).hexdigest(), 16)

    made: dict[tuple[str, ...], Drawn] = {}
    for position in sorted(live, key=draw):
        changes = places[position]
        operator, occurrence = changes[draw(position) % len(changes)]
        text = mutate_code(source, get_operator(operator)(), occurrence)
        if _compiles(text):
            home = _home(functions, position)
            mutant = Mutant(module, home, *_changed(source, text), text)
            made.setdefault(mutant.name, Drawn(draw(position), mutant))
        if len(made) == count:
            break
    return list(made.values())


def _possible(source: str) -> Iterator[tuple[str, int, Position]]:
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator: Any = get_operator(name)()
        found = (start for node in nodes for start, _ in operator.mutation_positions(node))
        yield from ((name, occurrence, start) for occurrence, start in enumerate(found))


def _inert(tree: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Where expressions stand that say nothing when the program runs."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = [
            getattr(node, "annotation", None),
            getattr(node, "returns", None),
            *getattr(node, "decorator_list", []),
        ]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts.append(node)
        yield from (_span(part) for part in parts if isinstance(part, ast.AST))


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Position, Position]]:
    """Functions and methods by their qualified names; those inside others belong to the others."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield (within + node.name, *_span(node))


def _home(functions: list[tuple[str, Position, Position]], position: Position) -> str:
    return next((name for name, start, end in functions if start <= position < end), "<module>")


def _span(node: Any) -> tuple[Position, Position]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _changed(source: str, text: str) -> tuple[str, str]:
    pairs = zip(source.splitlines(), text.splitlines(), strict=False)
    before, after = next(pair for pair in pairs if pair[0] != pair[1])
    return before.strip(), " ".join(after.split())


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
