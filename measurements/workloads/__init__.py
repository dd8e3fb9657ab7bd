"""Real workloads: servers under load and jobs, each giving rows of the runs table."""

from measurements import load_late

# A command loads them when it measures, and not to print its help.
__getattr__, __dir__, __all__ = load_late(
    __name__,
    {
        **{module: module for module in ("fio", "service", "simulated")},
        **{module: f"hadoop.{module}" for module in ("install", "job_sweep")},
        **{module: f"io_study.{module}" for module in ("cpu_accounting", "study")},
        **{module: f"memcached.{module}" for module in ("load_sweep", "servers")},
    },
)
