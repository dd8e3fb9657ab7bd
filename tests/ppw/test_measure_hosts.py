"""`ppw measure` on other hosts: over OpenSSH, and on two old ones that are compared."""

import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from made_up import answered
from peers.hadoop import program
from peers.old_host import OldHost, OldLaws
from peers.ssh_host import SshHost
from peers.synthetic_host import SyntheticHost
from peers.waiting import wait_for
from processes import ROOT, environment, ppw_inside, ppw_process, refused, started, worked

import ppw
from fitting import LogPathLength

QUICK = ("--settle", "0.05s", "--warm-ups", "0", "--idle", "0", "--metric", "time")
ONCE = ("--as-found", "--repeats", 1, *QUICK, "-o", "runs.csv", "--")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with SshHost(tmp_path_factory.mktemp("ssh") / "ssh", ROOT) as host:
        yield host


@pytest.mark.peer("ssh")
class TestSsh:
    @pytest.fixture
    def elsewhere(self, shared):
        """The other host, whose own programs are put back after a test."""
        before = shared.ppw.read_text()
        yield shared
        program(shared.there, "ppw", before)
        (shared.there / "tar").unlink(missing_ok=True)

    @pytest.fixture
    def synthetic(self, tmp_path):
        with SyntheticHost(tmp_path / "host") as host:
            yield host

    @pytest.fixture
    def run(self, elsewhere, tmp_path):
        def run(*given):
            asked = ("measure", "--ssh", "elsewhere", *given)
            return ppw_process(*asked, cwd=tmp_path, PATH=elsewhere.path)

        return run

    def test_the_table_and_the_raw_readings_come_here(self, run, elsewhere, synthetic, tmp_path):
        what = ("--sysfs", synthetic.sysfs, "--freq", "1.5GHz,2.2GHz", "--repeats", 2, *QUICK)
        done = worked(run(*what, "-o", "runs.parquet", "--", *synthetic.workload()))
        runs = pd.read_parquet(tmp_path / "runs.parquet")
        assert len(runs) == 4
        assert runs["power_w"].notna().all()
        assert len(list((tmp_path / "runs.samples" / "samples").iterdir())) == 4
        # What was there is here, and so no longer there.
        assert not list(elsewhere.cache.glob("*"))
        assert "not measured here: cpi" in done.stderr

    def test_a_command_with_spaces_arrives_and_a_greeting_is_no_run(self, run, elsewhere, tmp_path):
        """The other host's shell greets before ppw does."""
        own = elsewhere.ppw.read_text().partition("\n")[2]
        program(elsewhere.there, "ppw", f"echo Welcome\n{own}")
        script = f"printf '%s|' \"$@\" > {tmp_path / 'seen'}"
        done = worked(run(*ONCE, "sh", "-c", script, "sh", "a b", "$HOME"))
        assert (tmp_path / "seen").read_text() == "a b|$HOME|"
        assert done.stderr.splitlines()[0] == "Welcome"
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 1

    def test_an_interrupt_here_ends_it_there_and_it_goes_on(
        self, run, elsewhere, synthetic, tmp_path
    ):
        before = synthetic.kernel.state()
        what = ("measure", "--ssh", "elsewhere", "--sysfs", synthetic.sysfs, "--freq", "1.5GHz")
        asked = (*what, "--repeats", "8", *QUICK, "-o", "runs.csv", "--", *synthetic.workload())
        with started(*asked, cwd=tmp_path, PATH=elsewhere.path) as process:
            wait_for(lambda: synthetic.finished() >= 3)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        wait_for(lambda: synthetic.kernel.state() == before)
        assert synthetic.finished() < 8
        # What is to be measured stands there in the sweep's plan.
        worked(run("--resume", "--output=runs.csv"))
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 8
        assert synthetic.finished() <= 9

    def test_what_stands_in_the_way_is_said(self, run, elsewhere):
        # What the other ppw refuses is refused here.
        done = run("--freq", "1GHz", *QUICK, "-o", "runs.csv", "--", "true")
        assert done.returncode == 1
        assert "no frequency control" in done.stderr
        assert "Traceback" not in done.stderr
        elsewhere.ppw.unlink()
        try:
            refused(run(*ONCE, "true"), "elsewhere has no ppw")
        finally:
            elsewhere.ppw.touch()
        key = elsewhere.folder / "user_key"
        key.rename(key.with_suffix(".gone"))
        try:
            refused(run(*ONCE, "true"), "ssh elsewhere: no connection")
        finally:
            key.with_suffix(".gone").rename(key)

    def test_raw_readings_that_cannot_be_fetched_stay_there(self, run, elsewhere, tmp_path):
        program(elsewhere.there, "tar", "exit 2")
        done = run(*ONCE, "true")
        refused(done, "ppw: error: elsewhere: the raw readings could not be fetched: ")
        assert len(pd.read_csv(tmp_path / "runs.csv")) == 1
        assert list(elsewhere.cache.glob("*/runs.samples/plan.json"))


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_a_table_from_elsewhere_needs_a_file_here(tmp_path, output):
    asked = ("measure", "--ssh", "elsewhere", *output, "--", "true")
    refused(ppw_inside(*asked, cwd=tmp_path), "ppw: error: --ssh needs -o FILE")


@pytest.mark.parametrize(
    "stem", ["runs-$(touch X)", "runs-`touch X`", 'runs-";touch X;"', "a'b;touch X;'", "-$HOME b"]
)
def test_no_shell_of_another_host_expands_a_name(tmp_path, stem):
    """A stand-in of ssh runs the text that the other host's shell would get."""
    bin_folder = tmp_path / "bin"
    program(bin_folder, "ssh", 'for last in "$@"; do :; done\nexec sh -c "$last"')
    asked = tmp_path / "asked"
    program(bin_folder, "ppw", f'printf "%s|" "$@" "$PWD" > {asked}')
    given = ("--ssh", "h", "-o", tmp_path / f"{stem}.csv", "--", "echo", "$(touch X)", "a b")
    where = {"PATH": f"{bin_folder}:{environment()['PATH']}", "XDG_CACHE_HOME": f"{tmp_path}/c"}
    worked(ppw_inside("measure", *given, cwd=tmp_path, **where))
    assert not list(tmp_path.rglob("X"))
    *_, echo, touch, words, folder, _ = asked.read_text().split("|")
    assert (echo, touch, words) == ("echo", "$(touch X)", "a b")
    assert folder.startswith(f"{tmp_path}/c/ppw/{stem}-")


@pytest.mark.parametrize("host", ["-oProxyCommand=touch X", ""])
def test_a_host_that_is_an_option_is_refused(tmp_path, host):
    done = ppw_inside("measure", f"--ssh={host}", "-o", "a.csv", "--", "true", cwd=tmp_path)
    refused(done, "no name of a host")
    assert not list(tmp_path.iterdir())


CLOCKS = {"d510": 1.66e9, "d525": 1.80e9}
PRICES = {"d510": 80.0, "d525": 90.0}
ASKED_HZ = 2.13e9
LAWS = OldLaws()


def measured(host, name, cores, folder):
    host.cores = cores
    output = folder / f"{name}-{cores}.parquet"
    login = host.bmc.login
    done = ppw_process(
        *("measure", "--as-found", "--clock", f"{host.clock_hz / 1e9}GHz"),
        *("--cores", cores, "--repeats", 3, "--power", f"ipmi@{host.bmc.where}"),
        *("--settle", "1.5s", "--idle", "3s", "--host", name, "--family", "Atom D"),
        *("--workload", "wordcount", "--price", PRICES[name]),
        *("--data", f"{LAWS.data_bytes:.0f}", "-o", output, "--", *host.workload()),
        cwd=folder,
        # Before all else that the machine does, because times are compared with laws.
        before=("nice", "-n", "-15"),
        PATH=f"{host.root / 'bin'}:{environment()['PATH']}",
        PPW_IPMI_USER=login.user,
        PPW_IPMI_PASSWORD=login.password,
    )
    assert done.returncode == 0, done.stderr
    assert login.password not in done.stdout + done.stderr
    return ppw.read_runs(output)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    # Made here, because pytest's folder of folders is not made by two threads at once.
    roots = {name: tmp_path_factory.mktemp(name) for name in CLOCKS}

    def sweep(name):
        root = roots[name]
        with OldHost(root / "host", CLOCKS[name], LAWS) as host:
            return [measured(host, name, cores, root) for cores in (1, 2)]

    # Their commands sleep: the two hosts do not disturb each other.
    with ThreadPoolExecutor() as both:
        tables = [table for host in both.map(sweep, CLOCKS) for table in host]
    return pd.concat(tables, ignore_index=True)


@pytest.mark.peer("ipmi")
class TestOldHosts:
    """Two hosts of one family without RAPL and cpufreq, measured as found."""

    def test_the_rows_say_what_was_measured(self, runs):
        assert len(runs) == 12
        said = runs[["power_source", "family", "freq_source"]].drop_duplicates()
        assert said.to_numpy().tolist() == [["ipmi:dcmi", "Atom D", "stated"]]
        laws = LAWS
        for (name, cores), part in runs.groupby(["host", "cores"]):
            clock_hz, found = CLOCKS[name], part.median(numeric_only=True)
            assert found["cpi"] == pytest.approx(laws.cpi(clock_hz), rel=1e-6)
            assert found["time_s"] == pytest.approx(laws.time_s(clock_hz, cores), rel=0.03)
            assert found["power_w"] == pytest.approx(laws.power_w(clock_hz, cores), rel=0.04)
            assert found["instructions"] == pytest.approx(laws.instructions(cores), rel=1e-6)
            assert found["idle_power_w"] == pytest.approx(laws.idle_w, abs=1)

    def test_what_another_clock_will_do_and_which_is_faster_are_within_intervals(self, runs):
        per_byte = runs["instructions"] / runs["data_bytes"]
        both = runs[runs["cores"] == 2]
        projection = answered(
            ppw.project_points,
            list(zip(both["freq_hz"], both["cpi"], strict=True)),
            power_pts=list(zip(both["freq_hz"], both["power_w"], strict=True)),
            freq=ASKED_HZ,
            cores=2,
            data_bytes=LAWS.data_bytes,
            path_length=LogPathLength().fit(runs[["cores"]].to_numpy(), per_byte.to_numpy()),
            price=95.0,
            power_source="ipmi:dcmi",
            family="Atom D",
        )
        time_s, power_w = LAWS.time_s(ASKED_HZ, 2), LAWS.power_w(ASKED_HZ, 2)
        truths = {"time_s": time_s, "power_w": power_w, "perf_per_watt": 1 / (time_s * power_w)}
        for quantity, truth in (truths | {"perf_per_dollar": 1 / (time_s * 95.0)}).items():
            estimate = getattr(projection, quantity)
            assert estimate.lower < truth < estimate.upper, quantity
            if quantity in ("time_s", "perf_per_dollar"):
                # A BMC's whole watts at two near clocks say little of a third; cycles do.
                assert abs(np.log(estimate / truth)) < 0.03, quantity
        # Two hosts compared: the older one loses in time, by the ratio of the laws.
        sides = ({"host": "d510"}, {"host": "d525"})
        clocks = {"freq_a": CLOCKS["d510"], "freq_b": CLOCKS["d525"]}
        result = answered(ppw.compare, both, *sides, metric=["time"], **clocks)
        row = result.table.iloc[0]
        truth = LAWS.time_s(CLOCKS["d510"], 2) / LAWS.time_s(CLOCKS["d525"], 2)
        assert row["lower"] < truth < row["upper"]
