from .errors import FittingError as FittingError, OutOfRangeError as OutOfRangeError
from .laws.cores import (
    AmdahlScaling as AmdahlScaling,
    ErnestScaling as ErnestScaling,
    UniversalScalability as UniversalScalability,
)
from .laws.estimators import (
    AmdahlRegression as AmdahlRegression,
    CmosPower as CmosPower,
    LinearPower as LinearPower,
    LogPathLength as LogPathLength,
    ReciprocalRegression as ReciprocalRegression,
)
from .laws.execution_time import execution_time as execution_time
