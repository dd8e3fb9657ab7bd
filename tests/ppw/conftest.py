"""Results of every kind, made once for all tests that only look at them."""

import functools

import made_results
import pytest

PLAIN = ("plainone", "plaintwo")
# Each has an escape sequence, line ends that would make lines of their own, a mark that turns the
# direction of reading, HTML, a formula or mathematics, and is long.
HOSTILE = (
    "\x1b[2J\x1b]0;mine\x07<b onclick=x>\r\nverdict: fine\n\u202e$\\bad$</script><!--<script>"
    + "x" * 200,
    "=cmd|' /C calc'!A0\n\x9b31m\"'><img src=x onerror=alert(1)>\u2066{{7*7}}&amp;日本\t_",
)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Result of a kind about hosts and workloads of these names."""
    make, folder = made_results.made, tmp_path_factory.mktemp
    return functools.cache(lambda kind, names=PLAIN: make(kind, *names, folder("made")))


@pytest.fixture(scope="session")
def documents(results):
    return functools.cache(lambda kind, names=PLAIN: results(kind, names).to_json())


@pytest.fixture(scope="session")
def pages(results):
    """Page of such a result, and its text."""

    @functools.cache
    def page(kind, names=PLAIN):
        made = made_results.PAGES[kind](results(kind, names))
        return made, made.render()

    return page
