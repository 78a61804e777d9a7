"""The registry of API operations that this package answers itself, before moto sees them.

An operation is a function from the call to its result in the API's own names; the result is written by botocore's model
of the operation. Raise `ApiError` for an error answer.
"""

from collections.abc import Callable
from typing import Any

from moto.core.exceptions import ServiceException

from fleet.localaws.calls import Call

Operation = Callable[[Call], dict[str, Any] | None]
OPERATIONS: dict[tuple[str, str], Operation] = {}


class ApiError(ServiceException):
    """An error answer: code and message. (moto would look for its own class's error model in "moto.core".)"""


def operation(service: str, name: str) -> Callable[[Operation], Operation]:
    """Register the answer to one operation; `service` is its IAM prefix."""

    def register(function: Operation) -> Operation:
        OPERATIONS[service, name] = function
        return function

    return register
