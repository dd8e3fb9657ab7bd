"""The house: its rooms as the pages and contracts name them, its modules, names and words."""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
from walked_commands import COMMANDS, options

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
PACKAGES = ("ppw", "measurements", "fitting")
each_package = pytest.mark.parametrize("package", PACKAGES)


def folders(package):
    """Names of the rooms: folders with Python files."""
    return {path.parent.name for path in (ROOT / package).glob("*/*.py")}


def layers(package):
    """Rooms by their layer in the contract, the highest first."""
    lines = next(c["layers"] for c in CONTRACTS if c.get("containers") == [package])
    return [{room.strip() for room in line.split("|")} for line in lines]


def picture(package):
    """Rooms by their line of the picture, below the name of the package."""
    drawn = PAGE.split("```")[1].splitlines()
    (top,) = [n for n, line in enumerate(drawn) if f"{package}/" in line]
    left = drawn[top].index(f"{package}/")
    # A column ends where the next package begins.
    ends = [drawn[top].find(f"{other}/") for other in PACKAGES]
    right = min([end for end in ends if end > left], default=None)
    rows = []
    for line in drawn[top + 1 :]:
        if "─" in line:
            break
        rows.append(set(line[left:right].split()))
    return [row for row in rows if row]


@each_package
def test_the_table_names_each_room(package):
    section = re.split(rf"^## {package}$", PAGE, flags=re.M)[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)/` \| \S", section, flags=re.M)
    assert len(named) == len(set(named))
    assert set(named) == folders(package)


@each_package
def test_the_picture_shows_the_layers_of_the_import_contract(package):
    assert picture(package) == layers(package)
    assert set().union(*layers(package)) == folders(package)


def test_the_page_is_one_page_and_names_modules_that_exist():
    assert len(PAGE.splitlines()) <= 110
    for path in re.findall(r"`((?:ppw|measurements|fitting)/[\w/]+(?:\.py)?)`", PAGE):
        assert (ROOT / path).exists(), path


def hunks():
    """File and old lines of each place that the diffs of CONTRIBUTING.md change."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for diff in re.findall(r"^```diff\n(.*?)^```$", page, flags=re.M | re.S):
        for part in re.split(r"^--- ", diff, flags=re.M)[1:]:
            old, new, *body = part.splitlines()
            for hunk in re.split(r"^@@ .*\n", "\n".join([*body, ""]), flags=re.M)[1:]:
                lines = [line[1:] for line in hunk.splitlines() if line[0] in " -"]
                yield new.removeprefix("+++ b/"), "\n".join(lines), old == "/dev/null"


def test_the_changes_that_contributing_shows_still_apply():
    found = list(hunks())
    assert len(found) >= 15
    for file, lines, is_new in found:
        path = ROOT / file
        assert path.exists() != is_new, file
        text = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        assert is_new or set(lines.splitlines()) <= set(text), (file, lines)


MODULES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
# What every room may have one of.
IN_ANY_ROOM = {"__init__", "caveats", "errors", "options", "plots", "reading", "report", "result"}
PUBLIC = set(re.findall(r"(\w+)(?=\(|$)", (ROOT / "tests/surface.txt").read_text(), re.M))
# Of this name in every room that prints; properties that the surface does not list.
KEPT_NAMES = PUBLIC | {"shown", "passed", "suspects", "GapLaws"}


@cache
def nodes(module):
    """Nodes of the syntax tree, the module first."""
    return list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))


def name_of(module):
    return ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def repeated(names):
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_a_room_has_at_most_twenty_modules():
    assert [room for room, n in Counter(m.parent for m in MODULES).items() if n > 20] == []


def test_a_file_name_tells_its_subject():
    assert repeated(m.stem for m in MODULES if m.stem not in IN_ANY_ROOM) == []


def test_a_public_class_name_stands_once():
    classes = (node for module in MODULES for node in nodes(module)[0].body)
    names = (node.name for node in classes if isinstance(node, ast.ClassDef))
    assert repeated(name for name in names if not name.startswith("_")) == []


def imports(module):
    """Import statements, those for annotations and those inside functions too."""
    return [n for n in nodes(module) if isinstance(n, ast.Import | ast.ImportFrom)]


def test_imports_are_a_small_part_of_the_lines():
    lines = sum(m.read_text(encoding="utf-8").count("\n") for m in MODULES)
    spent = sum(n.end_lineno - n.lineno + 1 for m in MODULES for n in imports(m))
    assert spent / lines <= 0.05


def importers():
    """Modules that import each module."""
    known = {name_of(module): module for module in MODULES}
    found = defaultdict(set)
    for module in MODULES:
        for node in imports(module):
            above = getattr(node, "module", None)
            for alias in node.names:
                full = f"{above}.{alias.name}" if above else alias.name
                target = known.get(full) or known.get(above)
                if target not in (None, module):
                    found[target].add(module)
    return found


def test_a_small_module_that_one_neighbour_imports_stands_in_it():
    found = [
        module.relative_to(ROOT)
        for module, by in importers().items()
        if len(by) == 1 and next(iter(by)).parent == module.parent
        if module.stem not in IN_ANY_ROOM
        if module.read_text(encoding="utf-8").count("\n") <= 200
    ]
    assert found == []


def words(name):
    return [w.lower() for w in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


# Words that say nothing of what they name, or something else in this field.
DROPPED = set(
    words(
        "advice asked asking card chances choices clocks companion condensed course deck decks "
        "drawn duel duels gap gaps joules known leans lookup lookups marks met numbering octave "
        "octaves outlook pace placing pulled reaper recency said splits suspect suspects thief "
        "told touched tour walk watts"
    )
)
# Participles that do not end in -ed.
IRREGULAR = set(words("begun chosen driven found given got grown held kept laid lost made paid"))
IRREGULAR |= set(words("put sent shown spread taken written"))
NO_PARTICIPLES = {"seed", "feed", "need", "speed", "embed"}


def is_bare_participle(name):
    one, *more = words(name) or [""]
    return not more and (one in IRREGULAR or (one.endswith("ed") and one not in NO_PARTICIPLES))


def test_names_have_the_words_of_the_field_and_verbs_have_objects():
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{module.relative_to(ROOT)}:{node.lineno} {node.name}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, defined) and node.name not in KEPT_NAMES
        if is_bare_participle(node.name) or DROPPED & set(words(node.name))
    ]
    assert found == []


def test_help_of_an_option_begins_with_a_noun_or_a_verb():
    vague = "Of|What|Where|Whether|That|Which|How|When|On|To|From|For|By|Only|Past|Instead|The same"
    said = {o.help: words for words, command in COMMANDS.items() for o in options(command)}
    assert [(w, text) for text, w in said.items() if re.match(rf"({vague})\b", text or "")] == []


# In what users read: terms on the left of the list of words.
SAID_OTHERWISE = re.compile(
    r"\b(watts|joules|such as|leans? on|h[eo]ld against|long lever|suspects?|as far as|"
    r"and that is said|stalled share|duels?|thief)\b"
)
# Headers of others' files, a folder in an example of a command, and a column of a table.
EXEMPT = ("(?:average |avg", "avgpower", "ppw fleet join runs/ watts/", "watts         | W ")
IMPORTS = ROOT / "measurements" / "imports"


def texts(module):
    """Strings of a module that are no docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [n for n in nodes(module) if isinstance(n, kinds)]
    docstrings = {ast.get_docstring(n, clean=False) for n in documented}
    for node in nodes(module):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text and text not in docstrings:
            yield node.lineno, text


def test_messages_have_the_terms_of_the_field():
    found = [
        f"{module.relative_to(ROOT)}:{line} {match.group()}"
        for module in MODULES
        for line, text in (() if module.parent == IMPORTS else texts(module))
        if (match := SAID_OTHERWISE.search(text)) and not any(part in text for part in EXEMPT)
    ]
    assert found == []
