"""What a refusal says, in one line."""

import pytest

from measurements.errors import MeasurementError


def refusal(ask, begins="", error=MeasurementError):
    with pytest.raises(error) as refused:
        ask()
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(begins)
    return message
