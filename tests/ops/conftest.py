"""A scripted AWS for the operator's reads: answers by call name, for what the embedded AWS cannot be brought to say."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from fleet.account.access import Aws
from fleet.account.aws_errors import MissingError
from fleet.config.settings import Artifact, Model, Settings
from fleet.ops import run_command


class Answers(Aws):
    """Stands in for AWS: an answer is a value, an exception to raise, or a function of the arguments."""

    def __init__(self, answers: Mapping[str, Any] | None = None) -> None:
        super().__init__("us-east-2")
        self.answers = dict(answers or {})
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        name = f"{service} {operation}"
        self.asked.append((name, arguments))
        if name not in self.answers:
            raise MissingError(f"{name}: not found", "script an answer")
        answer = self.answers[name]
        answer = answer(**arguments) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def items(self, service: str, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
        yield from self.call(service, operation, **arguments)[key]


@pytest.fixture
def answers() -> type[Answers]:
    return Answers


@pytest.fixture
def fleet_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """A fleet of boxes with this health, which take commands; `ended` is how one ends, or a function of the box."""
    monkeypatch.setattr(run_command, "POLL_SECONDS", 0.01)

    def make(health: Mapping[str, str], ended: Any = None) -> Answers:
        targets = [{"Target": {"Id": box}, "TargetHealth": {"State": state}} for box, state in health.items()]
        script = {
            "autoscaling DescribeAutoScalingGroups": {"AutoScalingGroups": [{"TargetGroupARNs": ["arn:tg"]}]},
            "elbv2 DescribeTargetHealth": {"TargetHealthDescriptions": targets},
            "ssm SendCommand": {"Command": {"CommandId": "c-1"}},
            "ssm GetCommandInvocation": ended,
        }
        return Answers(script)

    return make


@pytest.fixture
def settings() -> Settings:
    artifact = Artifact(key="artifacts/model.gguf")
    model = Model(
        name="house-model:31b-q4",
        engine_version="0.11.4",
        engine=Artifact(key="artifacts/engine-0.11.4.tgz"),
        gguf=artifact,
        modelfile=Artifact(key="artifacts/Modelfile"),
    )
    return Settings(fleet_name="llm", region="us-east-2", zones=("us-east-2a", "us-east-2b"), model=model)
