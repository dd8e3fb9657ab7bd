"""Instructions of programs whose count is known by hand, by every way to count them."""

import subprocess
import sys
from functools import partial

import pytest
from refusals import refusal

from measurements.counters import instructions
from measurements.errors import MeasurementError
from measurements.processes.programs import compile_c

PEER = pytest.mark.peer("instructions")
ROUNDS = 1_000_000
# mov; then dec and jnz in each round; then mov, xor and the system call that ends it.
BY_HAND = 1 + 2 * ROUNDS + 3
LOOP = f"""
.globl _start
_start:
    mov ${ROUNDS}, %rcx
1:  dec %rcx
    jnz 1b
    mov $60, %eax
    xor %edi, %edi
    syscall
"""
# A child executes twice what its parent did before the fork; six instructions a round.
FORKING = """
#include <sys/wait.h>
#include <unistd.h>
static void spin(long n) { for (volatile long i = 0; i < n; i++); }
int main(void)
{
    int status;
    spin(1000000);
    if (!fork()) { spin(2000000); _exit(0); }
    wait(&status);
    return 0;
}
"""
A_FEW_HUNDRED = 500


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, text in (("loop.S", LOOP), ("forking.c", FORKING)):
        (folder / name).write_text(text)
    for command in ("gcc -nostdlib -static -o loop loop.S", "gcc -O1 -o forking forking.c"):
        subprocess.run(command.split(), check=True, cwd=folder)
    return {name: str(folder / name) for name in ("loop", "forking")}


@PEER
class TestEmulators:
    @pytest.mark.parametrize("method", ["callgrind", "qemu"])
    def test_a_loop_counted_by_hand(self, built, method):
        twice = (instructions.count_instructions([built["loop"]], method=method) for _ in "12")
        found, again = twice
        assert abs(found.instructions - BY_HAND) <= A_FEW_HUNDRED
        assert (found.method, found.label, found.modes) == (method, "emulated", "user")
        assert found.time_s > 0
        assert found.caveats == ()
        assert again.instructions == found.instructions

    def test_both_agree_on_a_program_of_the_c_library(self):
        command = ["perl", "-e", "$s += $_ for 1..100000"]
        count = partial(instructions.count_instructions, command)
        one, other = count(method="callgrind"), count(method="qemu")
        # They emulate different processors, whose string functions differ.
        assert one.instructions == pytest.approx(other.instructions, rel=0.02)

    def test_a_forked_child_counts_for_itself_or_is_told(self, built):
        found = instructions.count_instructions([built["forking"]], method="qemu")
        assert found.instructions == pytest.approx(3_000_000 * 6, rel=0.02)
        # Callgrind's child has its parent's counts.
        found = instructions.count_instructions([built["forking"]], method="callgrind")
        assert found.instructions == pytest.approx(4_000_000 * 6, rel=0.02)
        assert "2 processes ran" in found.caveats[0]

    def test_callgrind_follows_into_programs_and_qemu_refuses(self, built):
        command = ["sh", "-c", f"{built['loop']}; {built['loop']}; true"]
        found = instructions.count_instructions(command, method="callgrind")
        alone = instructions.count_instructions(["sh", "-c", "true"], method="callgrind")
        assert found.instructions - alone.instructions == pytest.approx(2 * BY_HAND, rel=0.02)
        with pytest.raises(MeasurementError, match="starts other programs, and QEMU"):
            instructions.count_instructions(command, method="qemu")

    def test_without_counters_an_emulator_is_taken_and_the_label_says_so(self, built):
        found = instructions.count_instructions([built["loop"]])
        assert found.label in ("counted", "emulated")
        row = found.columns()
        assert row["instructions_label"] == found.label
        assert row["instructions"] == found.instructions

    def test_qemu_of_another_interface_is_asked_for_its_own(self, monkeypatch, tmp_path, built):
        monkeypatch.setattr(instructions, "_FIRST_API", 9)
        found = instructions.count_instructions([built["loop"]], method="qemu")
        assert abs(found.instructions - BY_HAND) <= A_FEW_HUNDRED
        for name in ("qemu-x86_64", "true"):
            (tmp_path / name).symlink_to(f"/usr/bin/{name}")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MeasurementError, match=r"qemu: no C compiler on this host: apt in"):
            instructions.count_instructions([built["loop"]], method="qemu")

    def test_a_source_that_does_not_compile_says_the_compilers_words(self, tmp_path, monkeypatch):
        (tmp_path / "bad_package").mkdir()
        (tmp_path / "bad_package/__init__.py").touch()
        (tmp_path / "bad_package/bad.c").write_text("int main(void) { return x; }\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(MeasurementError, match=r"cannot make bad\.c: .*error.*x"):
            compile_c("bad_package", "bad.c", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_cpu_time_by_hand():
    busy = [sys.executable, "-c", "sum(range(3000000))"]
    found = instructions.count_instructions(busy, method="cpu-time", clock_hz=1.5e9, cpi=1.2)
    assert found.label == "estimated"
    assert found.instructions == (found.user_s + found.system_s) * 1.5e9 / 1.2
    assert "1.5 GHz / 1.2" in found.caveats[0]


CPU_TIME = {"method": "cpu-time", "clock_hz": 1e9, "cpi": 1.0}


@pytest.mark.cases(
    "command, options, said",
    ([], {}, "no command"),
    (["true"], {"method": "oracle"}, "unknown method 'oracle': give one of perf"),
    (["true"], {"method": "cpu-time"}, "needs core frequency and CPI"),
    (["true"], {**CPU_TIME, "cpi": 0.0}, "both must be above 0"),
    (["false"], CPU_TIME, "false ended with exit code 1: it printed nothing"),
    (["sh", "-c", "kill -9 $$"], CPU_TIME, "sh ended with signal 9"),
    pytest.param(["false"], {"method": "callgrind"}, "ended with exit code 1", marks=PEER),
    pytest.param(["no-such"], {"method": "qemu"}, "no-such: cannot be started", marks=PEER),
)
def test_what_cannot_be_counted(command, options, said):
    with pytest.raises(MeasurementError, match=said):
        instructions.count_instructions(command, **options)


def test_what_is_missing_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refusal(lambda: instructions.count_instructions([sys.executable, "-c", "pass"]))
    for said in ("perf: ", "apt install valgrind", "apt install qemu-user", "needs core frequency"):
        assert said in message


def test_files_of_callgrind_and_of_the_plugin(tmp_path):
    one, other, file = (tmp_path / name for name in ("callgrind.1", "callgrind.2", "counts"))
    one.write_text("cmd:  ./a\nevents: Ir\nsummary: 12\n\ntotals: 15\n")
    other.write_text("cmd:  ./b\nevents: Ir\ntotals: 5\n")
    assert instructions.read_callgrind([one, other]) == (20, ["./a", "./b"])
    other.write_text("cmd:  ./b\nevents: Ir\n")
    with pytest.raises(MeasurementError, match=r"callgrind\.2: no totals of callgrind"):
        instructions.read_callgrind([one, other])
    with pytest.raises(MeasurementError, match="callgrind wrote nothing"):
        instructions.read_callgrind([])
    file.write_text("7 100 exit\n8 30 exec\n8 45 exit\n")
    assert instructions.read_qemu(file) == (145, True)
    file.write_text("7 100 exit\n8 30 exec\n")
    assert instructions.read_qemu(file) == (100, False)
    file.write_text("7 100\n")
    with pytest.raises(MeasurementError, match="'7 100' is not a count"):
        instructions.read_qemu(file)
