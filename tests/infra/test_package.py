"""The functions' zips: complete by themselves, lean, and the same bytes for the same content."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from fleet.config import box_config, validation
from fleet.core import names
from fleet.core.errors import UserError
from stacks.package import CUSTOM_RESOURCES, WATCHDOG, Package
from tests.synth import CDK_JSON, ROOT

HANDLERS = (
    (WATCHDOG, "lambdas.watchdog.handler"),
    (CUSTOM_RESOURCES, "lambdas.resources.create_if_absent"),
    (CUSTOM_RESOURCES, "lambdas.resources.require_artifacts"),
)
# What Lambda's own runtime brings: boto3 and what it needs.
RUNTIME_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six.py", "urllib3")


@pytest.mark.parametrize(("package", "module"), HANDLERS, ids=lambda value: value if isinstance(value, str) else "")
def test_handler_imports_with_nothing_but_its_zip_and_the_runtime(
    package: Package, module: str, tmp_path: Path
) -> None:
    site = Path(boto3.__file__).parent.parent
    for name in RUNTIME_PACKAGES:
        (tmp_path / name).symlink_to(site / name)
    with package.unpacked() as folder:
        settings = validation.load(CDK_JSON).to_json()
        run = subprocess.run(
            [sys.executable, "-S", "-c", f"import {module} as m; assert callable(m.handler)"],
            cwd=folder,
            env={"PYTHONPATH": f"{folder}:{tmp_path}", names.ENV_SETTINGS: settings, "AWS_REGION": "us-east-2"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("package", [WATCHDOG, CUSTOM_RESOURCES], ids=["watchdog", "custom resources"])
def test_zip_is_plain_python_and_small(package: Package) -> None:
    with package.unpacked() as folder:
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        assert {path.suffix for path in files} == {".py"}
        assert sum(path.stat().st_size for path in files) < 1_000_000
        assert not [path for path in files if "__pycache__" in path.parts]


def test_watchdogs_zip_keeps_repository_paths_and_leaves_the_rest_behind() -> None:
    with WATCHDOG.unpacked() as folder:
        ours = sorted(
            str(path.relative_to(folder))
            for path in Path(folder).rglob("*.py")
            if path.parent.name in ("fleet", "core", "config", "watchdog")
        )
        assert all((ROOT / path).read_bytes() == Path(folder, path).read_bytes() for path in ours)
        assert [path for path in ours if path.startswith("fleet/")] == [
            "fleet/__init__.py",
            "fleet/config/__init__.py",
            "fleet/config/gateway_settings.py",
            "fleet/config/pools.py",
            "fleet/config/section.py",
            "fleet/config/settings.py",
            "fleet/core/__init__.py",
            "fleet/core/names.py",
            "fleet/core/untrusted.py",
        ]


def test_bundle_is_the_same_bytes_wherever_it_is_packed_and_whatever_tools_leave_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, packed = box_config.bundle(), dict(box_config.PACKED)
    for place, (folder, kept) in packed.items():
        elsewhere = tmp_path / f"in-{place}"
        shutil.copytree(folder, elsewhere)  # other times, and no links
        for cache in (".mypy_cache/3.9/boot.json", "__pycache__/boot.pyc", "stages.pyc", ".lock"):
            (elsewhere / cache).parent.mkdir(parents=True, exist_ok=True)
            (elsewhere / cache).touch()
        next(elsewhere.glob("**/*.py")).chmod(0o600)
        monkeypatch.setitem(box_config.PACKED, place, (elsewhere, kept))
    assert box_config.bundle() == expected


def test_bundle_without_the_lanes_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_config, "PACKAGES", tmp_path)
    with pytest.raises(UserError, match="run `make setup`"):
        box_config.bundle()


def test_same_content_has_the_same_hash_in_every_synth(assembly: Path, other_assembly: Path) -> None:
    def hashes(path: Path) -> set[str]:
        files = [json.loads(file.read_text())["files"] for file in sorted(path.glob("*.assets.json"))]
        return {
            name
            for found in files
            for name, asset in found.items()
            if asset["source"]["packaging"] == "zip" or asset["source"]["path"].endswith(".zip")
        }

    assert hashes(assembly) == hashes(other_assembly)
    assert len(hashes(assembly)) == 3  # the watchdog's zip, the custom resources' zip, the box's bundle
