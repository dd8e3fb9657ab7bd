"""What the code of the packages has in one place only, and patterns that no text makes slow."""

import ast
import re
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    str(path.relative_to(ROOT).with_suffix("")): path.read_text(encoding="utf-8")
    for room in ("measurements", "fitting", "ppw")
    for path in (ROOT / room).rglob("*.py")
}
# What else opens files for writing: in folders of its own, or whole in the place of another.
WRITERS = """loads/load_files processes/private_network processes/settings_guard table/writing
traces/formats traces/record traces/recording_process traces/trace_files
workloads/hadoop/engines workloads/hadoop/install workloads/hadoop/jobs workloads/io_study/study
workloads/memcached/load_generators"""


def having(pattern, text):
    return [name for name in text if re.search(pattern, text[name], re.MULTILINE)]


def test_commands_for_other_hosts_and_texts_for_a_shell_are_made_in_one_place():
    assert having(r'"(ssh|scp|sftp|rsync|pdsh)",|shell=True', SOURCES) == [
        "measurements/sweep/measure"
    ]


def test_files_beside_results_are_opened_by_the_one_function():
    rooms = {n.partition("/")[2]: t for n, t in SOURCES.items() if n.startswith("measurements/")}
    writes = r"""(?<!fd)open\((path, )?"[wax]b?"|\.write_(text|bytes)\("""
    assert set(having(writes, rooms)) == set(WRITERS.split())


USES = "search|match|fullmatch|sub|split|findall|finditer"
UNITS = ("\n", " ", "\n ", "#\n", "1", "a", ",", "[", "(", '"', ".", "\t", ":1")


def patterns():
    """Every pattern that is written out, and how it is applied."""
    texts = [text for text in SOURCES.values() if "import re" in text]
    uses = defaultdict(set)
    for name, use in re.findall(rf"\b(\w+)\.({USES})\(", "\n".join(SOURCES.values())):
        uses[name].add(use)
    for node in (n for text in texts for n in ast.walk(ast.parse(text))):
        assigned = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        call = node.value if assigned else node
        if not (
            isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
        ):
            continue
        written = re.fullmatch(rf"re\.(compile|{USES})", ast.unparse(call.func))
        if not written:
            continue
        used = {written[1]}
        if assigned:
            used = uses[node.targets[0].id] or {"match"}
        flags = [ast.unparse(part) for part in call.args[1:]]
        flags = [eval(flag) for flag in flags if re.fullmatch(r"re\.[A-Z]+", flag)]
        ways = [how if "match" in how else "search" for how in used if how != "compile"]
        yield re.compile(call.args[0].value, *flags), ways


def test_no_text_makes_a_pattern_slow():
    """CPU time, which other load does not change; squares take ten times as long."""
    slow = set()
    for pattern, ways in patterns():
        words = re.findall(r"[A-Za-z][A-Za-z ,_:]{2,}", re.sub(r"\\.", "|", str(pattern.pattern)))
        texts = [b + u * (10_000 // len(u)) + "!" for b in ("", "1,1") for u in (*UNITS, *words)]
        for text in texts:
            for how in ways:
                started_s = time.process_time()
                getattr(pattern, how)(text.encode() if type(pattern.pattern) is bytes else text)
                if time.process_time() - started_s > 0.3:
                    slow.add((pattern.pattern, how, text[:9]))
    assert not slow
