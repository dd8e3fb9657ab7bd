"""What a refusal says, in one line."""

import pytest

from measurements.errors import MeasurementError


def refusal(ask, begins="", error=MeasurementError):
    """Message of the error that a call ends with."""
    with pytest.raises(error) as refused:
        ask()
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(begins)
    return message
