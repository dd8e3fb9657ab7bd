"""What CPI will Memcached have on an Atom at 3.0 GHz, known at 1.66 and 1.80 GHz?

The two points are the curve published for the Atom D525 in Issa & Figueira (2012),
https://doi.org/10.1186/2192-113X-1-10, read at those frequencies.
"""

from __future__ import annotations

import warnings

import ppw

CPI_AT_HZ = {1.66e9: 6.519, 1.80e9: 6.057}


def main() -> None:
    """Print the answer of the bounded form and of the published one."""
    warnings.simplefilter("ignore", ppw.CaveatWarning)  # they are in the summary
    for form in ("amdahl", "reciprocal"):
        print(ppw.project(CPI_AT_HZ, freq=3.0e9, cores=2, form=form).summary())
        print()


if __name__ == "__main__":
    main()
