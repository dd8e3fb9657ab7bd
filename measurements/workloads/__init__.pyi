from . import fio as fio, service as service, simulated as simulated
from .hadoop import install as install, job_sweep as job_sweep
from .io_study import cpu_accounting as cpu_accounting, study as study
from .memcached import load_sweep as load_sweep, servers as servers
