"""The AWS that every box of this session starts from, furnished once; each test gets a copy."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from fleet import localaws
from fleet.config import box_config
from fleet.config.settings import Settings

sys.path.insert(0, str(box_config.BUNDLE))

import config
import paths

from tests.box import world
from tests.embedded_fleet import shared

GRANTED = {action for actions in box_config.ACTIONS.values() for action in actions}
GRANTED_AS = {"HeadObject": "GetObject", "HeadBucket": "ListBucket", "ListObjectsV2": "ListBucket"}


@dataclass(frozen=True)
class Base:
    """The furnished AWS, without a cache and with one, whose keys are by role: manifest, model, ..."""

    aws: localaws.Aws
    cached: localaws.Aws
    keys: dict[str, str]
    target_group: str
    sources: dict[str, Path]
    settings: Settings


@pytest.fixture(scope="session")
def base(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    """An AWS with everything."""
    folder, own = run_folder / "box-aws", tmp_path_factory.mktemp("cached")
    sources = world.artifact_paths(run_folder / "sources")

    def furnish(aws: localaws.Aws) -> None:
        world.furnish(aws, world.artifacts(run_folder / "sources"))

    with shared(folder, furnish) as aws, aws.fork(own / "aws") as cached:
        keys = world.fill_cache(cached, sources, own / "store")
        yield Base(aws, cached, keys, (folder / "target-group").read_text(), sources, world.settings_for(sources))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every path of the box lies for what a test runs itself: nothing of it reaches the machine's own folders."""
    for name, path in vars(paths).items():
        if isinstance(path, Path):
            monkeypatch.setattr(paths, name, tmp_path.joinpath(*path.parts[1:]))
    return tmp_path


def a_box() -> config.Box:
    """A box's values as the app writes them."""
    raw = box_config.box_config(world.SETTINGS, bucket="b", target_group_arn="t")
    for name in ("engine", "gguf", "modelfile"):
        raw[name] = config.Artifact(**raw[name])
    return config.Box(**raw)


@pytest.fixture
def box() -> config.Box:
    """The same as a fixture; hypothesis wants none."""
    return a_box()


class MakeWorld(Protocol):
    """Makes boxes."""

    def __call__(
        self,
        *,
        cached: bool = True,
        change: Callable[[localaws.Aws, dict[str, str]], None] | None = None,
        aws: localaws.Aws | None = None,
        **more: Any,
    ) -> world.World: ...


@pytest.fixture
def make(base: Base, tmp_path: Path) -> Iterator[MakeWorld]:
    """Makes boxes, each on a copy of the AWS (or on `aws`); `cached` fills the cache, `change` then spoils something.

    In the end no box may have made a call that its role is not granted.
    """
    with ExitStack() as stack:
        copies: list[localaws.Aws] = []

        def one(
            *,
            cached: bool = True,
            change: Callable[[localaws.Aws, dict[str, str]], None] | None = None,
            aws: localaws.Aws | None = None,
            settings: Settings = base.settings,
            **more: Any,
        ) -> world.World:
            number = len(list(tmp_path.iterdir()))
            if aws is None:
                origin = base.cached if cached else base.aws
                aws = stack.enter_context(origin.fork(tmp_path / f"aws-{number}"))
                copies.append(aws)
                if change:
                    change(aws, base.keys)
            here = tmp_path / f"box-{number}"
            return stack.enter_context(world.world(here, aws, base.target_group, settings, **more))

        yield one
        for copy in copies:
            assert called(copy) <= GRANTED


def called(aws: localaws.Aws) -> set[str]:
    """Every action that a box called, as IAM names it."""
    calls = {(call["service"], call["action"]) for call in aws.requests() if call["principal"] == world.ROLE}
    return {f"{service}:{GRANTED_AS.get(action, action)}" for service, action in calls}


Serving = Callable[..., world.World]


@pytest.fixture
def serving(make: MakeWorld) -> Serving:
    """Makes boxes that serve already, by a warm boot."""

    def one(**more: Any) -> world.World:
        box = make(**more)
        box.boot()
        box.wait_for("BOOTPATH")
        return box

    return one
