"""Who may import whom: packages by subject, arrows one way, a name one meaning."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each package with what it may import of the others: a table to read from the bottom of the house to its roof.
MAY_IMPORT: dict[str, set[str]] = {
    "fleet.core": set(),
    "fleet.config": {"fleet.core"},
    "lambdas.resources": set(),
    "lambdas.watchdog": {"fleet.core", "fleet.config"},
    "fleet.eventlog": {"fleet.core"},
    "stacks": {"fleet.core", "fleet.config", "lambdas.watchdog"},
    "fleet.account": {"fleet.core"},
    "fleet.modelstore": {"fleet.core", "fleet.config", "fleet.account"},
    "fleet.ops": {
        "fleet.core", "fleet.config", "lambdas.watchdog", "fleet.eventlog", "fleet.account", "fleet.modelstore",
    },
    "fleet.localaws": {"fleet.core", "fleet.config"},
    "fleet.demo": {"fleet.core", "fleet.config", "fleet.eventlog", "fleet.localaws"},
    "fleet.gameday": {
        "fleet.core", "fleet.config", "lambdas.watchdog", "fleet.eventlog", "fleet.account", "fleet.ops",
        "fleet.localaws",
    },
    "fleet.sim.markets": {"fleet.core", "fleet.config"},
    "fleet.sim.cloud": {"fleet.core", "fleet.config", "lambdas.watchdog", "fleet.eventlog", "fleet.sim.markets"},
    "fleet.sim.callers": {"fleet.core", "fleet.config", "fleet.eventlog", "fleet.sim.markets", "fleet.sim.cloud"},
    "fleet.sim.drills": {"fleet.core", "fleet.config", "fleet.eventlog", "fleet.sim.markets", "fleet.sim.cloud"},
    "fleet.sim.policies": {
        "fleet.core", "fleet.config", "lambdas.watchdog", "fleet.eventlog",
        "fleet.sim.markets", "fleet.sim.cloud", "fleet.sim.drills",
    },
    "fleet.sim.experiments": {
        "fleet.core", "fleet.config", "fleet.eventlog",
        "fleet.sim.markets", "fleet.sim.cloud", "fleet.sim.callers", "fleet.sim.drills", "fleet.sim.policies",
    },
    "fleet.cli": {
        "fleet.core", "fleet.config", "fleet.eventlog", "fleet.account", "fleet.modelstore", "fleet.ops",
        "fleet.gameday", "fleet.localaws", "fleet.sim.markets", "fleet.sim.cloud", "fleet.sim.callers",
        "fleet.sim.drills", "fleet.sim.policies", "fleet.sim.experiments",
    },
}  # fmt: skip
# In each a module's or a class's name stands once; `names` and `manifest` are one file on box and workstation.
RUNTIMES = {
    "workstation": ("fleet", "stacks", "lambdas/watchdog"),
    "function": ("lambdas", "fleet/core", "fleet/config"),
    "box": ("assets/bootstrap",),
    "gateway": ("assets/gateway", "assets/relay"),
    "lane": ("assets/lane", "assets/relay"),
}


def modules() -> dict[str, Path]:
    """Every module of the workstation and of the functions, by its dotted name."""
    paths = [path for folder in ("fleet", "lambdas", "stacks") for path in (ROOT / folder).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """Modules of ours that one file imports, wherever in it; but for what only its types are checked with."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    skipped = {id(inner) for node in for_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if found := next((name for name in (full, node.module) if name in MODULES), None):
                    yield found


@cache
def all_imports() -> dict[str, set[str]]:
    return {module: set(imports(path)) for module, path in MODULES.items()}


def package(module: str) -> str | None:
    """The package of the table that a module is in."""
    return next((name for name in MAY_IMPORT if module == name or module.startswith(f"{name}.")), None)


def test_every_module_is_in_a_package_of_the_table() -> None:
    empty = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    assert {module for module in MODULES if package(module) is None} - empty == set()
    assert set(MAY_IMPORT) - {package(module) for module in MODULES} == set()


def test_no_cycle_of_packages_or_modules() -> None:
    assert tuple(TopologicalSorter(MAY_IMPORT).static_order())
    own = {
        module: {other for other in found if not module.startswith(f"{other}.")}
        for module, found in all_imports().items()
    }
    assert tuple(TopologicalSorter(own).static_order())


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_package_imports_what_the_table_allows_and_the_table_allows_no_more(name: str) -> None:
    found = {
        package(other) for module, others in all_imports().items() if package(module) == name for other in others
    } - {
        name,
        None,
    }
    assert found == MAY_IMPORT[name]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_module_and_no_public_class_has_its_name_twice_within_one_runtime(runtime: str) -> None:
    paths = [path for folder in RUNTIMES[runtime] for path in (ROOT / folder).rglob("*.py") if path.name[:2] != "__"]
    classes = [
        node.name
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    for found in (Counter(path.stem for path in paths), Counter(classes)):
        assert {name for name, count in found.items() if count > 1} == set()


def test_one_place_knows_which_policy_is_on() -> None:
    """Whoever acts differently asks the settings what the policy does, not for its name."""
    asks = re.compile(r"settings\.policy\s*(==|!=|in\b)|self\.policy\s*(==|!=|in)\s*[\"{(]")
    files = [
        ROOT / "app.py",
        *(path for folder in ("fleet", "lambdas", "stacks") for path in (ROOT / folder).rglob("*.py")),
    ]
    assert [str(path.relative_to(ROOT)) for path in files if asks.search(path.read_text())] == [
        "fleet/config/settings.py"
    ]


def test_the_look_at_the_world_is_filled_in_by_observe_alone() -> None:
    """What was decided on and what is told of it are the same look."""
    writes = re.compile(r"\bworld\.\w+(, world\.\w+)* [-+|]?= ")
    files = (ROOT / "lambdas" / "watchdog").glob("*.py")
    assert [path.name for path in files if writes.search(path.read_text())] == ["observe.py"]
