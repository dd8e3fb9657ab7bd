"""The host catalogue: every entry holds together, and user files are checked."""

import json
import math
import os

import pytest
from processes import ROOT

from measurements.errors import MeasurementError
from ppw.catalogue.hosts import Host, HostFigure, choose_hosts, find_host, host_steps, load_hosts
from ppw.errors import PpwError, UnknownHostError

OWN_HOST = """
name = "Rack node"
maker = "Own"
kind = "server"
family = "Zen 4"

cores = { value = 8, source = "me" }
threads = { value = 16, source = "me" }
base_hz = { value = 3.0e9, source = "me", note = "read with lscpu" }
l2_bytes = { value = 1_048_576, scope = "core", source = "me" }
dvfs = { value = true, source = "me" }

[sources]
me = "read on the machine"
"""
MHZ = 1e6
# Unit, least and most of what servers and small cores since 2007 have, by figure.
PLAUSIBLE = {
    "cores": ("1", 1, 512),
    "threads": ("1", 1, 1024),
    "base_hz": ("Hz", 1e9, 4.2e9),
    "turbo_hz": ("Hz", 1.5e9, 6e9),
    "min_hz": ("Hz", 4e8, 2e9),
    "step_hz": ("Hz", 25e6, 134e6),
    "steps_hz": ("Hz", 4e8, 4e9),
    **dict.fromkeys(("l1i_bytes", "l1d_bytes"), ("B", 2**14, 2**17)),
    "l2_bytes": ("B", 2**17, 2**23),
    "l3_bytes": ("B", 2**21, 2**30),
    "memory_bandwidth_bytes_s": ("B/s", 5e9, 2e12),
    "tdp_w": ("W", 5, 600),
    "launch_price_usd": ("USD", 50, 20e3),
    **dict.fromkeys(("rapl", "dvfs"), (None, False, True)),
    "launched": (None, "2007-Q1", "2026-Q4"),
}
BCLK_HZ = 400e6 / 3


@pytest.fixture
def own(tmp_path):
    def write(text=OWN_HOST, name="own.toml"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    return write


every_host = pytest.mark.parametrize("host", load_hosts().values(), ids=lambda host: host.name)


def of_family(*families):
    return [host for host in load_hosts().values() if host.family in families]


class TestRegistry:
    def test_the_machines_of_the_published_studies_are_there(self):
        names = ["D510", "D525", "X5570", "L5640", "X5660", "X5670", "E5620", "E5405", "E5-2690"]
        assert [find_host(name).name.split()[-1] for name in names] == names
        assert len(load_hosts()) >= 80

    @every_host
    def test_every_figure_has_a_source_a_unit_and_a_plausible_value(self, host):
        assert {figure.source for figure in host.figures.values()} == set(host.sources)
        assert all("https://" in citation for citation in host.sources.values())
        for key, figure in host.figures.items():
            unit, low, high = PLAUSIBLE[key]
            assert figure.unit == unit
            values = figure.value if isinstance(figure.value, tuple) else (figure.value,)
            assert all(low <= value <= high for value in values), (key, values)
        assert (host.cores or 0) <= (host.threads or math.inf)
        assert (host.min_hz or 0) <= (host.base_hz or math.inf) <= (host.turbo_hz or math.inf)
        steps = host_steps(host)
        assert steps == tuple(sorted(set(steps)))
        # The base frequency is printed to 10 MHz.
        assert not steps or steps[-1] == pytest.approx(host.base_hz, rel=2e-3)
        if host.step_hz:
            ratio = host.base_hz / host.step_hz
            assert ratio == pytest.approx(round(ratio), abs=0.06)

    @every_host
    def test_figures_are_attributes_rows_and_lines_and_come_back_from_json(self, host):
        for key, figure in host.figures.items():
            assert getattr(host, key) == figure.value
        again = Host.from_json(host.to_json())
        assert (again, again.to_json()) == (host, host.to_json())
        frame = host.to_frame()
        assert list(frame["figure"]) == list(host.figures)
        assert frame["source"].str.contains("https://").all()
        assert list(frame["value"]) == [figure.value for figure in host.figures.values()]
        text = host.summary()
        assert all(key in text for key in (*host.figures, *host.sources.values()))

    def test_rapl_began_with_sandy_bridge(self):
        without = of_family("Bonnell", "Harpertown", "Nehalem", "Westmere", "Neoverse N1")
        having = of_family("Sandy Bridge-EP", "Sapphire Rapids", "Emerald Rapids", "Zen 3", "Zen 4")
        assert {host.rapl for host in without} == {False, None}
        assert {host.rapl for host in having} == {True, None}

    def test_steps_of_single_hosts(self):
        for host in of_family("Bonnell"):
            assert (host.dvfs, host.turbo_hz, host.step_hz) == (False, None, None)
            assert host_steps(host) == (host.base_hz,)
        # Ratios 12 to 22 of the bus clock.
        expected = [ratio * BCLK_HZ for ratio in range(12, 23)]
        assert host_steps(find_host("X5670")) == pytest.approx(expected, abs=1)
        assert host_steps(find_host("E5-2690")) == tuple(100 * MHZ * r for r in range(12, 30))
        # The lowest is not known.
        assert host_steps(find_host("EPYC 9654")) == ()

    def test_a_summary_has_a_line_a_figure_and_names_what_is_not_known(self):
        lines = find_host("Atom D525").summary().splitlines()
        assert lines[0] == "Atom D525 (Intel, Bonnell, processor)"
        assert [line for line in lines if line.startswith(("  base_hz", "  l2", "  dvfs"))] == [
            "  base_hz                  1.8 GHz [intel]",
            "  l2_bytes                 512 KiB a core [intel] (half of the 1 MB stated for two "
            "cores)",
            "  dvfs                     no [intel] (no Enhanced SpeedStep: one frequency only)",
        ]
        missing = "turbo_hz, min_hz, step_hz, steps_hz, l3_bytes, launch_price_usd"
        assert f"  not known: {missing}" in lines


class TestFinding:
    @pytest.mark.parametrize("name", ["Xeon X5670", "xeon-x5670", "INTEL XEON X 5670", "x5670"])
    def test_spelling_does_not_matter(self, name):
        assert find_host(name).name == "Xeon X5670"

    @pytest.mark.cases(
        "name, said",
        ("Xeon X5671", r"'Xeon X5671'.*nearest: .*Xeon X5670"),
        ("####", r"Altra Max M128-26.*Xeon X7560.*PPW_HOSTS_DIR"),
        # The last word of two hosts.
        ("node", "Rack node"),
    )
    def test_an_unknown_host_suggests_others(self, name, said, own):
        own(OWN_HOST.replace("Rack node", "Other node"), "other.toml")
        with pytest.raises(UnknownHostError, match=said):
            find_host(name, own())

    # Launches, cores and makers as the sources of the built-in hosts give them.
    @pytest.mark.cases(
        "where, found",
        ("launched > 2023-Q3,maker=intel,cores>=128", ["Xeon 6766E", "Xeon 6780E", "Xeon 6980P"]),
        ("launched=2011,family=westmere", ["Xeon E7-4870", "Xeon E7-8870", "Xeon X5690"]),
        ("launched=2009-Q1,launched=2008-Q1", ["Xeon E5520", "Xeon E5540", "Xeon L5420"]),
        ("base_hz > 3.8GHz", ["EPYC 9374F"]),
        ("tdp_w<=10,rapl=no", []),
        ("dvfs=no,tdp_w<=13", ["Atom D510", "Atom D525"]),
    )
    def test_conditions_choose_hosts(self, where, found):
        if not found:
            with pytest.raises(PpwError, match=f"no host has all of {where}; loosen --where"):
                choose_hosts(load_hosts().values(), [where])
            return
        names = {host.name for host in choose_hosts(load_hosts().values(), [where])}
        assert names >= set(found)
        assert names - set(found) <= {"Xeon X5570"}

    @pytest.mark.cases(
        "where, message",
        ("launched", "'launched' is not a condition; write one like 'launched > 2022'"),
        ("lunched > 2022", "no figure 'lunched'.*launched.*; there are name, maker"),
        ("tdp_w > 3GHz", "3GHz"),
    )
    def test_what_is_no_condition_is_refused(self, where, message):
        with pytest.raises((PpwError, MeasurementError), match=message):
            choose_hosts(load_hosts().values(), [where])


class TestUserFiles:
    def test_a_folder_adds_a_host(self, own):
        host = find_host("rack-node", own())
        assert (host.cores, host.base_hz, host.l2_bytes, host.tdp_w) == (8, 3.0e9, 2**20, None)
        assert host.figures["base_hz"] == HostFigure(3.0e9, "me", "Hz", "read with lscpu")
        assert host.figures["l2_bytes"].scope == "core"

    def test_a_folder_overrides_whatever_the_spelling(self, own):
        hosts = load_hosts(own(OWN_HOST.replace("Rack node", "xeon x-5670")))
        assert len(hosts) == len(load_hosts())
        assert "Xeon X5670" not in hosts
        assert hosts["xeon x-5670"].cores == 8

    def test_the_environment_names_folders_and_arguments_override_it(self, own, monkeypatch):
        later = own() / "later"
        later.mkdir()
        (later / "own.toml").write_text(OWN_HOST.replace("value = 8,", "value = 4,"))
        monkeypatch.setenv("PPW_HOSTS_DIR", os.pathsep.join([str(own()), ""]))
        assert find_host("Rack node").cores == 8
        assert find_host("Rack node", later).cores == 4

    def test_one_file_may_hold_hosts_that_share_keys(self, own):
        head, figures = OWN_HOST.split("\n\n", 1)
        shared = head.replace('name = "Rack node"\n', "") + "\nsource = 'me'\n[[host]]\n"
        second = "\n[[host]]\nname = 'Other node'\nfamily = 'Zen 5'\ncores = 4\n"
        lines, sources = figures.split("\n\n", 1)
        text = f'{shared}name = "Rack node"\n{lines}\n{second}\n{sources}spare = "unread"\n'
        hosts = load_hosts(own(text))
        assert hosts["Rack node"] == find_host("Rack node", own(OWN_HOST))
        assert hosts["Other node"].figures == {"cores": HostFigure(4, "me", "1")}
        assert (hosts["Other node"].maker, hosts["Other node"].family) == ("Own", "Zen 5")
        with pytest.raises(PpwError, match="host 2: key 'cores': a figure without source"):
            load_hosts(own(text.replace("source = 'me'\n", "", 1)))
        with pytest.raises(PpwError, match=r"key 'host': not tables; write \[\[host\]\]"):
            load_hosts(own("host = 3"))

    def test_listed_steps_come_before_derived_ones(self, own):
        listed = "steps_hz = { value = [1.5e9, 2_000_000_000], source = 'me' }\ncores ="
        host = find_host("Rack node", own(OWN_HOST.replace("cores =", listed, 1)))
        assert host_steps(host) == host.steps_hz == (1.5e9, 2.0e9)
        assert Host.from_json(host.to_json()) == host
        assert "1.5 GHz, 2 GHz" in host.summary()

    def test_the_documented_example_is_complete_and_loads(self, own):
        document = ROOT / "docs" / "catalogue.md"
        example = document.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
        host = load_hosts(own(example))["Rack A node"]
        assert host.summary().count("not known") == 0
        assert host_steps(host) == (1.5e9, 2.0e9, 2.4e9)


BAD_FILES = [
    ("cores =", "coers =", r"key 'coers': unknown; did you mean 'cores'\?"),
    ("cores =", '"\\n" =', r"key '\\n': unknown; use one of name, "),
    ('"me" }', '"me", sauce = 1 }', r"key 'cores.sauce': unknown; did you mean 'source'\?"),
    ('{ value = 8, source = "me" }', "8", "key 'cores': a figure without source"),
    ('8, source = "me"', "8", "key 'cores': a figure without source"),
    ('8, source = "me"', '8, source = "him"', "key 'cores': source 'him' is not in"),
    ('value = 8, source = "me"', 'source = "me"', "key 'cores': no value; add one, or leave"),
    ("= 8,", "= 8.5,", "key 'cores': 8.5 is not a whole number"),
    ("= 8,", "= true,", "key 'cores': True is not a whole number"),
    ("= 8,", "= 0,", "key 'cores': 0 is not positive; give a positive value, or leave"),
    ("= 8,", "= 32,", "key 'threads': 16 is below cores = 32"),
    ("= 8,", f"= 1{'0' * 400},", "key 'cores': not a finite figure"),
    ("= 3.0e9", "= nan", "key 'base_hz': not a finite figure"),
    ("= 3.0e9", "= 3.0", r"key 'base_hz': 3.0 Hz is below 1 MHz; .*3.0 GHz is 3.0e9"),
    ("base_hz", "steps_hz", "key 'steps_hz': .* is not a list of frequencies"),
    ("base_hz = { value = 3.0e9", "steps_hz = { value = [2e9, 1e9]", "'steps_hz': not asc"),
    ("base_hz = { value = 3.0e9", "steps_hz = { value = []", "not a list of frequencies"),
    ("= true", "= 1", "key 'dvfs': 1 is not true or false"),
    ("dvfs = { value = true", "launched = { value = '2010'", "not a quarter like"),
    (', scope = "core"', "", "key 'l2_bytes': a cache without scope; add scope = one of core"),
    ('scope = "core"', 'scope = "die"', "key 'l2_bytes': unknown scope 'die'"),
    ('8, source = "me"', '8, source = "me", scope = "core"', "only caches have a scope"),
    ('note = "read with lscpu"', "note = 1", "key 'base_hz.note': not a text"),
    ('family = "Zen 4"', "", "key 'family': missing; write family = \"...\""),
    ('name = "Rack node"', 'name = ""', "key 'name': not a text"),
    ('me = "read on the machine"', "me = 1", "key 'sources.me': not a text"),
    ("[sources]\n", "", "key 'me': unknown"),
    ("[sources]\nme =", "sources =", "key 'sources': not a table"),
    ("[sources]", "[sources", "not TOML: "),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_refused_in_one_line(own, old, new, message):
    assert old in OWN_HOST
    folder = own(OWN_HOST.replace(old, new, 1))
    with pytest.raises(PpwError, match=message) as caught:
        load_hosts(folder)
    assert str(caught.value).startswith(f"{folder / 'own.toml'}: ")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_of_hosts_is_refused(own, tmp_path):
    listed = "steps_hz = { value = [1e9, 2e9]"
    text = OWN_HOST.replace("= true", "= false").replace("base_hz = { value = 3.0e9", listed)
    with pytest.raises(PpwError, match="several steps, yet dvfs is false"):
        load_hosts(own(text))
    with pytest.raises(PpwError, match=r"own.toml: not UTF-8 text; write the host as a TOML file"):
        load_hosts(own(b"\xff\xfe\x00\x80"))
    (tmp_path / "x" / "x.toml").mkdir(parents=True)
    with pytest.raises(PpwError, match=r"x.toml: .*; give a file that can be read"):
        load_hosts(tmp_path / "x")
    with pytest.raises(PpwError, match="no such folder of host files"):
        load_hosts(tmp_path / "none")


def test_json_carries_schema_and_package_version():
    table = json.loads(find_host("X5670").to_json())
    assert table["schema_version"] == 1
    assert table["ppw_version"]
    assert table["host"]["figures"]["tdp_w"] == {"value": 95, "source": "intel"}


@pytest.mark.cases(
    "text, message",
    ("{", "not JSON: .*give what to_json\\(\\) wrote"),
    ("[]", "not a document of schema_version 1"),
    ('{"schema_version": 2}', "not a document of schema_version 1"),
    ('{"schema_version": 1, "kind": "host"}', "key 'figures': must be a table"),
    ('{"schema_version": 1, "kind": "host", "host": {"figures": {}}}', "key 'name': missing"),
)
def test_bad_json_is_refused(text, message):
    with pytest.raises(PpwError, match=message):
        Host.from_json(text)
