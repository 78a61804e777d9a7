"""What `make` installs is what the locks name by hash, and nothing of it runs while it is installed."""

import base64
import hashlib
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENTS = sorted(ROOT.glob("requirements*.txt"))
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(r"^([a-z0-9-]+(?:\[[a-z]+\])?)==(\S+)", re.MULTILINE)


def makefile() -> str:
    return (ROOT / "Makefile").read_text().replace("\\\n", " ")


def installer() -> list[str]:
    """The words of the one command by which the Makefile installs Python packages, without its lock."""
    (line,) = re.findall(r"^INSTALL := (.*)$", makefile(), re.MULTILINE)
    return [word for word in shlex.split(line) if word not in ("-c", "requirements.lock")]


def test_every_package_is_pinned_with_hashes_and_no_place_of_a_registry() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(entries) > 80
    for entry in entries:
        assert PIN.match(entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    for path in (*REQUIREMENTS, *ROOT.glob("requirements*.lock"), ROOT / "package-lock.json"):
        assert "://" not in path.read_text(), path
        assert "index" not in re.sub(r"#.*", "", path.read_text()), path


def test_the_locks_hold_what_the_requirements_ask_for_and_each_says_why() -> None:
    lanes = (ROOT / "requirements-lane.lock").read_text()  # for the box's older Python
    locked = {f"{name}=={version}" for name, version in PIN.findall(LOCK + lanes)}
    for path in REQUIREMENTS:
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "-r ")):
                pin, _, why = line.partition("#")
                assert re.sub(r"\[.*\]", "", pin.strip()) in locked, line
                assert len(why) > 10, line
    (backend,) = re.findall(r'requires = \["(.*)"\]', (ROOT / "pyproject.toml").read_text())
    assert backend in locked  # the one that is installed here: nothing is fetched to build with


def test_the_makefile_installs_by_the_locks_alone() -> None:
    lines = [line.strip() for line in makefile().splitlines() if re.search(r"\b(pip|npm|npx|uvx|pipx)\b", line)]
    installs = [line for line in lines if "install" in line or "npm" in line]
    allowed = ("--require-hashes", "--no-index", "npm ci")
    assert [line for line in installs if not any(word in line for word in allowed)] == []
    assert len(installs) == 5


def wheel(folder: Path, text: str) -> Path:
    """A package of one module."""
    path = folder / "harmless-1.0-py3-none-any.whl"
    files = {
        "harmless.py": text,
        "harmless-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n",
        "harmless-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(body.encode()).digest()).rstrip(b'=').decode()},"
        for name, body in files.items()
    ]
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
        archive.writestr("harmless-1.0.dist-info/RECORD", "\n".join([*records, "harmless-1.0.dist-info/RECORD,,"]))
    return path


def install(folder: Path, requirement: str, lock: str) -> subprocess.CompletedProcess[str]:
    """By the Makefile's own command, from a folder in place of the registry."""
    (folder / "wanted.txt").write_text(requirement)
    (folder / "lock").write_text(lock)
    local = ["--no-index", "--find-links", str(folder), "--target", str(folder / "there"), "--python", sys.executable]
    command = [*installer(), "--no-cache", *local, "-c", "lock", "-r", "wanted.txt"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_package_of_other_bytes_than_the_lock_names_is_not_installed(tmp_path: Path) -> None:
    good = hashlib.sha256(wheel(tmp_path, "print('good')").read_bytes()).hexdigest()
    pin = f"harmless==1.0 --hash=sha256:{good}\n"
    done = install(tmp_path, "harmless==1.0", pin)
    assert done.returncode == 0, done.stderr
    wheel(tmp_path, "print('evil')")
    for lock, words in ((pin, "Hash mismatch"), ("harmless==1.0\n", "hash"), ("", "hash")):
        subprocess.run(["rm", "-rf", str(tmp_path / "there")], check=True)
        done = install(tmp_path, "harmless==1.0", lock)
        assert done.returncode != 0
        assert words in done.stderr
        assert not (tmp_path / "there" / "harmless.py").exists()


def test_no_code_of_a_package_runs_while_it_is_installed(tmp_path: Path) -> None:
    """A source distribution would run its setup.py."""
    source = tmp_path / "harmless-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n")
    subprocess.run(["tar", "-czf", "harmless-1.0.tar.gz", "harmless-1.0"], cwd=tmp_path, check=True)
    digest = hashlib.sha256((tmp_path / "harmless-1.0.tar.gz").read_bytes()).hexdigest()
    done = install(tmp_path, "harmless==1.0", f"harmless==1.0 --hash=sha256:{digest}\n")
    assert done.returncode != 0
    assert not (tmp_path / "ran").exists()


def test_no_script_of_an_npm_package_runs(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text((ROOT / ".npmrc").read_text())
    (tmp_path / "package.json").write_text('{"name": "x", "version": "1.0.0", "scripts": {"postinstall": "touch ran"}}')
    done = subprocess.run(["npm", "install", "--offline"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["test", "review"])
def test_what_ci_installs_is_listed_with_its_reason(name: str) -> None:
    """The page names every package of the system and every action, each with a reason."""
    page = (ROOT / "docs" / "deploys.md").read_text()
    listed = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE))
    (packages,) = re.findall(r"^BOX_PACKAGES := (.*)$", makefile(), re.MULTILINE)
    workflows = "\n".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    wanted = {"test": set(packages.split()), "review": set(re.findall(r"uses: ([a-z/-]+)@", workflows))}[name]
    assert wanted <= listed.keys()
    assert all(len(listed[item]) > 7 for item in wanted)
