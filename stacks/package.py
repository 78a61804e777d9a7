"""What goes into each function's zip: repository files under their own paths, and few libraries. Built at every synth.

The same content makes the same hash: CDK hashes names and bytes, and its zip carries no times.
"""

import shutil
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.pyi", "py.typed")


@dataclass(frozen=True)
class Package:
    """Files and folders of the repository, and of the installed packages."""

    paths: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    @contextmanager
    def unpacked(self) -> Iterator[str]:
        """A temporary folder with the content of the zip, for as long as the block runs."""
        with tempfile.TemporaryDirectory() as folder:
            for base, paths in ((ROOT, self.paths), (SITE_PACKAGES, self.libraries)):
                for path in paths:
                    _copy(base / path, Path(folder, path))
            yield folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=NOT_SHIPPED)
    else:
        shutil.copyfile(source, target)


CUSTOM_RESOURCES = Package(paths=("lambdas/__init__.py", "lambdas/resources"))
WATCHDOG = Package(
    paths=(
        "fleet/__init__.py",
        "fleet/config/__init__.py",
        "fleet/config/gateway_settings.py",
        "fleet/config/pools.py",
        "fleet/config/section.py",
        "fleet/config/settings.py",
        "fleet/core/__init__.py",
        "fleet/core/names.py",
        "fleet/core/untrusted.py",
        "lambdas/__init__.py",
        "lambdas/watchdog",
    ),
    # The logger and the metrics of powertools with what they import, a tenth of it; the runtime brings boto3.
    libraries=(
        *(f"aws_lambda_powertools/{name}.py" for name in ("__init__", "package_logger", "utilities/__init__")),
        *(f"aws_lambda_powertools/{name}" for name in ("exceptions", "logging", "metrics", "shared", "tracing")),
        *(f"aws_lambda_powertools/{name}" for name in ("utilities/jmespath_utils", "warnings")),
        "jmespath",
        "typing_extensions.py",
    ),
)
