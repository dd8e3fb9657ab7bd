"""Atom or Westmere for Memcached, from the figures that were published?

Figures of Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10. They allow the ratio of
performance, of performance per watt, and the price ratio at which both machines break even; all
at the measured frequencies, because no power slope and no price was published.
"""

from __future__ import annotations

from ppw.cli import demo
from ppw.cli.demo import cpi_at
from ppw.decision.objectives import break_even_price_ratio, per_watt_ratio


def main() -> None:
    """Print the comparison, and the throughput ratio that the CPI curves alone would give."""
    atom, westmere = demo.ATOM, demo.WESTMERE
    for machine in (atom, westmere):
        for frequency in (*machine.measured_hz, 3.0e9):
            cpi = cpi_at(machine, frequency)
            print(f"{machine.machine:15} CPI {cpi:.3f} at {frequency / 1e9:.2f} GHz (derived)")
    rates = [m.cores * m.measured_hz[-1] / cpi_at(m, m.measured_hz[-1]) for m in (westmere, atom)]
    speedup, power = demo.THROUGHPUT_RATIO, demo.POWER_RATIO
    print(
        f"throughput ratio {speedup} measured (published), {rates[0] / rates[1]:.2f} from n·f/CPI"
    )
    print(f"power ratio {power} (published)")
    print(f"perf/W ratio {per_watt_ratio(speedup, power):.2f} (derived)")
    print(f"break-even price ratio {break_even_price_ratio(speedup)} (derived)")


if __name__ == "__main__":
    main()
