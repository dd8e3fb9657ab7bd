"""Files beside a table, in a folder where another user has planted links and files."""

import os
import stat
from pathlib import Path

import pandas as pd
import pytest

from measurements import write_runs
from measurements.host import files
from measurements.host.cpu_placement import execute
from measurements.power.sampler import SampleWriter
from measurements.sweep.session import Session
from measurements.timeseries.series import Writer
from ppw.cli import output as out

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
EITHER = (OSError, ValueError)


@pytest.fixture
def folder(tmp_path):
    """A session's folder that is to be made; beside it is a file that nobody asked to write."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    yield tmp_path / "runs.samples"
    assert victim.read_text() == "precious"
    assert not [*tmp_path.rglob("*-no")]
    assert not (tmp_path / "output").exists()


WRITERS = {
    "output/0000.txt": lambda s: execute([["echo"]], output=s.output(0)),
    "samples/0000.csv": lambda s: SampleWriter().open(s.samples(0)),
    "runs.jsonl": lambda s: s.append({}),
    "plan.json": lambda s: Session.create(s.folder, {}),
}
PLANTS = (os.symlink, os.link, lambda _, at: os.mkfifo(at), lambda _, at: at.symlink_to(f"{at}-no"))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_link_is_not_written_through(folder, name, plant):
    session = Session.create(folder, {})
    (folder / name).unlink(missing_ok=True)
    plant(folder.with_name("victim"), folder / name)
    with pytest.raises(EITHER, match=r"in its place|cannot be written|No such device|holds a"):
        WRITERS[name](session)


@as_root
def test_links_and_folders_of_another_user_are_refused(folder):
    for name in ("output", ""):
        for plant in (Path.mkdir, lambda path: path.symlink_to(folder.parent)):
            (folder / name).parent.mkdir(exist_ok=True)
            plant(folder / name)
            os.lchown(folder / name, NOBODY, NOBODY)
            with pytest.raises(EITHER, match=f"of user id {NOBODY}: remove it"):
                Session.create(folder, {})
            folder.rename(folder.with_name(f"{plant}{name}".replace("/", "")))
    # One that was exchanged in a sweep, and one in the place of a series.
    session = Session.create(folder, {})
    (folder / "output").rmdir()
    for name in ("output", "a.csv", "b.parquet.part.jsonl"):
        (folder / name).symlink_to(folder.parent if name == "output" else folder / "../victim")
        os.lchown(folder / name, NOBODY, NOBODY)
    with pytest.raises(EITHER, match=f"output is a link or folder of user id {NOBODY}"):
        WRITERS["output/0000.txt"](session)
    for name in ("a.csv", "b.parquet"):
        with pytest.raises(EITHER, match="a link is in its place: remove it"):
            Writer(folder / name)


def test_own_links_on_the_way_are_followed_and_outputs_are_private(tmp_path, folder):
    output = tmp_path / "disk/output/0001.txt"
    (tmp_path / "disk").mkdir()
    folder.symlink_to("../" + tmp_path.name + "/disk")
    session = Session.create(folder, {})
    for text in ("one", "2"):
        execute([["echo", text]], output=session.output(1))
        assert (output.read_text(), stat.S_IMODE(output.stat().st_mode)) == (f"{text}\n", 0o600)
    folder.with_name("loop").symlink_to("loop")
    with pytest.raises(OSError, match="a link is in its place"):
        files.open_for_writing(folder.with_name("loop") / "a")


def test_a_result_that_is_replaced_keeps_its_mode(tmp_path):
    for name, write in (("a.txt", out.write), ("b.csv", write_runs)):
        (tmp_path / name).touch(0o600)
        write("a" if name == "a.txt" else pd.DataFrame({"a": [1]}), str(tmp_path / name))
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
