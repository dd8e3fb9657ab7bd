"""The surface: every public name with its signature equals the kept list, so that reviews see it.

After a change that is meant, write the list anew and read the difference:

    python tests/test_surface.py
"""

import importlib
import inspect
import re
from pathlib import Path

KEPT = Path(__file__).parent / "surface.txt"
MODULES = ("ppw", "ppw.fleet", "measurements", "fitting")


def members(kind):
    """Signatures of the public methods and properties that a class defines, or has from ours."""
    for name, member in sorted(inspect.getmembers_static(kind)):
        home = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__module__", "")
        if name.startswith("_") or not str(home).startswith(("ppw", "measurements", "fitting")):
            continue
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield f"  {name}{inspect.signature(function)}"


def surface():
    """Lines of all public names."""
    for module in map(importlib.import_module, MODULES):
        for name in sorted(module.__all__):
            member = getattr(module, name)
            is_error = inspect.isclass(member) and issubclass(member, BaseException)
            callable_ = inspect.isfunction(member) or inspect.isclass(member)
            signature = inspect.signature(member) if callable_ and not is_error else ""
            yield f"{module.__name__}.{name}{signature}"
            if keywords := re.search(r"Unpack\[(\w+)\]", str(signature)):
                declared = member.__globals__[keywords[1]].__annotations__
                yield f"  {keywords[1]}: {', '.join(declared)}"
            if inspect.isclass(member):
                yield from members(member)


def test_public_names_and_signatures_are_those_of_the_kept_list():
    assert list(surface()) == KEPT.read_text().splitlines()


if __name__ == "__main__":
    KEPT.write_text("\n".join(surface()) + "\n")
