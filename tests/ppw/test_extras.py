"""Optional libraries: the core does without, and a command says how to install what it needs."""

import re
import subprocess
import sys
import tomllib
from unittest import mock

import pytest
from processes import ROOT, environment, ppw_inside, refused, worked

from measurements.errors import EXTRAS, LateModule, install_command, naming_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {
    "ibis": "ibis-framework",
    "pynvml": "nvidia-ml-py",
    "pyvisa_py": "pyvisa-py",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
}
LIBRARIES = [library for libraries in EXTRAS.values() for library in libraries]
RUNS = ROOT / "examples" / "simulated_runs.csv"
# In an interpreter without the optional libraries: of each command its exit code.
CORE = f"""
import contextlib, io, sys
sys.modules.update(dict.fromkeys({LIBRARIES!r}))
import ppw
from ppw.cli import main

for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as written:
        code = main(command.split(), standalone_mode=False)
    print(command.split()[0], code or 0, bool(written.getvalue()))
"""


def distributions(requirements):
    return {re.split(r"[<>=!\[; ]", line)[0] for line in requirements}


def test_the_table_of_extras_is_that_of_the_distribution():
    declared = PROJECT["optional-dependencies"]
    assert not distributions(PROJECT["dependencies"]) & {*LIBRARIES, *DISTRIBUTIONS.values()}
    for extra, libraries in EXTRAS.items():
        wanted = {DISTRIBUTIONS.get(library, library) for library in libraries} - {"duckdb"}
        assert wanted <= distributions(declared[extra])
    assert f"perf-per-watt[{','.join(EXTRAS)}]" in declared["all"]


def test_the_core_answers_without_any_optional_library():
    # The folder of this checkout may have any name: commands name the table as it is in there.
    commands = [
        "project simulated_runs.csv --freq 3.6GHz --metric time",
        "check simulated_runs.csv",
        "plan simulated_runs.csv --freq 3.6GHz --metric time",
        "best simulated_runs.csv --objective time",
        "compare simulated_runs.csv --a workload=kmeans --b workload=wordcount --freq 3.6GHz",
        "fit simulated_runs.csv",
        "validate simulated_runs.csv",
        "demo --report -",
    ]
    words = [sys.executable, "-W", "error", "-c", CORE, *commands]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=RUNS.parent, env=environment(), check=False
    )
    assert worked(done).stdout.splitlines() == [f"{c.split()[0]} 0 True" for c in commands]


@pytest.mark.cases(
    "missing, words, said",
    ("matplotlib", f"validate {RUNS} --format html -o p.html", "[plots]"),
    ("pyarrow", "trace fit t.csv -o m.json", "trace fit needs pyarrow: "),
    ("numba", "trace fit t.csv -o m.json", "trace fit needs numba: "),
    ("jsonschema", f"procure {ROOT / 'examples' / 'procurement.toml'}", "[procure]"),
    ("pooch", "datasets mqsim-traces --fetch --folder x", "fetching data needs pooch: "),
    ("ibis", f"fleet fit {RUNS}", "fleet fit needs ibis: "),
    ("pyarrow", "check r.parquet", "a Parquet file needs pyarrow: "),
)
def test_a_command_says_how_to_install_what_it_needs(missing, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("time,op,offset,size\n0,R,0,4096\n", encoding="utf-8")
    (tmp_path / "r.parquet").write_bytes(b"PAR1")
    for name in [n for n in sys.modules if n.startswith(("ppw.storage", "ppw.fleet", "fitting."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = ppw_inside(*words.split(), cwd=".")
    refused(done, said, install_command(missing), code=2)


def test_python_says_the_same():
    def told(library, *who):
        use = LateModule(library).__getattr__
        for one in reversed(who):
            use = naming_extra(one)(use)
        with pytest.raises(ModuleNotFoundError) as error:
            use("name")
        return str(error.value)

    with mock.patch.dict(sys.modules, {"numba": None}):
        said = "ppw trace fit needs numba: pip install 'perf-per-watt[traces]'"
        assert told("numba", "ppw trace fit", "ppw.fit_trace") == said
        assert told("numba", "ppw trace fit", "a plot") == said.replace("ppw trace fit", "a plot")
    assert told("absent", "x") == "No module named 'absent'"
