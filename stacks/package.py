"""What goes into each function's zip: repository files under their own paths, and few libraries. Built at every synth.

The same content makes the same hash: CDK hashes names and bytes, and its zip carries no times.
"""

import importlib.metadata
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyi", "py.typed")


@dataclass(frozen=True)
class Package:
    """Files and folders of the repository, and installed distributions whose folders come along."""

    paths: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    @contextmanager
    def unpacked(self) -> Iterator[str]:
        """A temporary folder with the content of the zip, for as long as the block runs."""
        with tempfile.TemporaryDirectory() as folder:
            for path in self.paths:
                _copy(ROOT / path, Path(folder, path))
            for library in self.libraries:
                for entry in _top_level(library):
                    _copy(entry, Path(folder, entry.name))
            yield folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=NOT_SHIPPED)
    else:
        shutil.copyfile(source, target)


def _top_level(library: str) -> list[Path]:
    """The importable files and folders of an installed distribution."""
    files = importlib.metadata.files(library) or []
    names = sorted({file.parts[0] for file in files if file.parts[0] != ".." and ".dist-info" not in file.parts[0]})
    return [Path(str(importlib.metadata.distribution(library).locate_file(name))) for name in names]


CUSTOM_RESOURCES = Package(paths=("lambdas/__init__.py", "lambdas/resources"))
WATCHDOG = Package(
    paths=(
        "fleet/__init__.py",
        "fleet/names.py",
        "fleet/pools.py",
        "fleet/settings.py",
        "lambdas/__init__.py",
        "lambdas/watchdog",
    ),
    # Logger and metrics; the runtime brings boto3. jmespath and typing_extensions are what powertools imports.
    libraries=("aws-lambda-powertools", "jmespath", "typing_extensions"),
)
