"""No credential is ever committed: a kept scanner over every file of the repository."""

import subprocess
from pathlib import Path

import pytest
from detect_secrets import SecretsCollection
from detect_secrets.core.scan import get_plugins
from detect_secrets.settings import default_settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Hashes of public packages.
HASHES = ("package-lock.json", "requirements.lock", "requirements-uv.lock", "requirements-lane.lock")


def scan(paths: list[str], root: Path) -> list[str]:
    """What the scanner finds line by line in files in which a plugin finds anything at all: a fifth of the time."""
    found = SecretsCollection(root=str(root))
    with default_settings():
        for path in paths:
            text = (root / path).read_text(errors="replace")
            if any(plugin.analyze_line(filename=path, line=text, line_number=1) for plugin in get_plugins()):
                found.scan_file(path)
    return [f"{secret.filename}:{secret.line_number}: {secret.type}" for _, secret in found]


def test_no_file_holds_a_secret() -> None:
    """A line that only looks like one says so beside itself: `# pragma: allowlist secret`."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    assert len(tracked) > 100
    assert scan([path for path in tracked if path and path not in HASHES], ROOT) == []


def test_the_scan_finds_a_planted_key(tmp_path: Path) -> None:
    (tmp_path / "oops.py").write_text('NAME = "x"\nAWS_KEY = "AKIA' + "Q3EGRX7J2LMN5VTA" + '"\nMORE = 1\n')
    assert [line.endswith("oops.py:2: AWS Access Key") for line in scan(["oops.py"], tmp_path)] == [True]
