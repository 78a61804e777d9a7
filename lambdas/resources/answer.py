"""How a custom resource's function answers CloudFormation: every request exactly once, a failure with its reason."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

ANSWER_TIMEOUT_SECONDS = 10


def answered(work: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any], Any], None]:
    """Wrap `work` as a Lambda handler: what it raises is the stack's failure reason, at once, not in an hour."""

    def handler(event: dict[str, Any], _context: Any) -> None:
        answer = {
            "Status": "SUCCESS",
            # One fixed id for life: a changed id would make CloudFormation replace, and so delete, the resource.
            "PhysicalResourceId": event["LogicalResourceId"],
            "StackId": event["StackId"],
            "RequestId": event["RequestId"],
            "LogicalResourceId": event["LogicalResourceId"],
        }
        try:
            work(event)
        except Exception as error:  # every failure must reach CloudFormation, or the deploy hangs for an hour
            answer.update(Status="FAILED", Reason=f"{type(error).__name__}: {error}")
        print(json.dumps(answer))  # noqa: T201  the function's log
        request = urllib.request.Request(  # noqa: S310  the address comes from CloudFormation
            event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT", headers={"Content-Type": ""}
        )
        urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS).close()  # noqa: S310

    return handler
