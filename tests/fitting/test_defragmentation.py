"""Layouts worked by hand, and properties of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.defragmentation import ORDERS, FilePages
from fitting.errors import FittingError

PAGE = 8


def whole(*values):
    return np.array(values, dtype=np.int64)


def laid_out(file, page, order, device=None):
    pages = FilePages()
    file, page = whole(*file), whole(*page)
    device = np.zeros_like(file) if device is None else whole(*device)
    pages.add(device, file, page * PAGE, np.full(len(page), 4096))
    moved = pages.layout(order).move(device, page * PAGE, np.full(len(page), 4096))
    return moved.lbn // PAGE


class TestByHand:
    # File 0 at pages 10, 30 and 12 (read in that order), file 1 between at 11 and 20.
    FILE, PAGES = (0, 1, 0, 1, 0), (10, 11, 30, 20, 12)

    def test_address_keeps_the_order_of_a_files_pages(self):
        assert laid_out(self.FILE, self.PAGES, "address").tolist() == [10, 13, 12, 14, 11]

    def test_first_use_lays_pages_out_as_they_came(self):
        assert laid_out(self.FILE, self.PAGES, "first_use").tolist() == [10, 13, 11, 14, 12]

    def test_devices_are_apart(self):
        found = laid_out((0, 0), (50, 9), "first_use", device=(0, 1))
        assert found.tolist() == [50, 9]

    def test_a_request_keeps_its_place_in_the_page_and_may_be_broken(self):
        pages = FilePages()
        file = whole(0, 1, 0)
        lbn, size = whole(10 * PAGE + 3, 12 * PAGE, 11 * PAGE), whole(512, 512, 8192)
        device = np.zeros_like(file)
        pages.add(device, file, lbn, size)
        moved = pages.layout("address").move(device, lbn, size)
        # Page 12 is of file 1, which touched it first; the last request reaches into it.
        assert moved.lbn.tolist() == [10 * PAGE + 3, 12 * PAGE, 11 * PAGE]
        assert moved.end.tolist() == [10 * PAGE + 4, 12 * PAGE + 1, 13 * PAGE]
        assert not moved.broken.any()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=80),
    st.sampled_from(ORDERS),
    st.integers(1, 80),
)
def test_pages_stay_apart_and_batches_make_no_difference(requests, order, batch):
    # A page belongs to one file.
    page = whole(*(p for _, p in requests))
    file = page % 3
    device, size = np.zeros_like(page), np.full(len(page), 4096)
    once, parts = FilePages(), FilePages()
    once.add(device, file, page * PAGE, size)
    for i in range(0, len(page), batch):
        piece = slice(i, i + batch)
        parts.add(device[piece], file[piece], page[piece] * PAGE, size[piece])
    found = [p.layout(order).move(device, page * PAGE, size).lbn for p in (once, parts)]
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0])) == len(np.unique(page))
    for one in np.unique(file):
        places = np.unique(found[0][file == one]) // PAGE
        assert places[-1] - places[0] == len(places) - 1


def test_an_order_that_is_none_is_refused():
    with pytest.raises(FittingError, match="no order 'size'"):
        FilePages().layout("size")
