"""The notebook of the tutorial: it runs from an empty folder, and shows what it prints today.

After a change of the output that is meant, write it anew and read the difference:

    PPW_WRITE_DOCS=1 python -m pytest tests/docs/test_notebook.py
"""

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "tutorial.ipynb"


def shown(notebook):
    """Tables, texts and kinds of pictures that the cells show; not the bytes of a picture."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    data = [output.get("data", {"text": output.get("text")}) for of in outputs for output in of]
    return [
        {k: v for k, v in d.items() if not k.startswith("image/")} | {"kinds": sorted(d)}
        for d in data
    ]


def test_the_notebook_shows_what_it_prints(tmp_path):
    kept = nbformat.read(NOTEBOOK, as_version=4)
    run = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        run, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    if "PPW_WRITE_DOCS" in os.environ:
        for cell in run.cells:
            # When each cell ran says nothing to a reader.
            cell.metadata.pop("execution", None)
        nbformat.write(run, NOTEBOOK)
        kept = run
    assert shown(run) == shown(kept)
    assert {"text/html", "image/png"} <= {kind for data in shown(run) for kind in data["kinds"]}
    assert list(tmp_path.iterdir()) == []
