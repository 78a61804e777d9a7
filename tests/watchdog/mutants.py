"""Mutation testing of what decides and what acts: `make mutants`, a few minutes on two cores.

Every mutant of `mutate` must be noticed by the watchdog's tests. They are collected once, and lived through once to
learn which test runs which line. Then one child is forked for each mutant: where the change lies in a function, the
child gives that function its new code in place, and runs the tests that come through it, first those that caught its
neighbours, then those that come by its line, up to the first failure. What counts at import (a constant, a table) is
served to the import system instead, and every test is collected anew. The properties are left out: they are random,
and a mutant should be caught by a test that says what is wrong.

A survivor fails the run unless `EQUIVALENT` names it with the reason why nobody could tell it from the original; so
does an entry there that no longer survives.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import boto3  # noqa: F401 - loaded once, before the forks
import click
import hypothesis  # noqa: F401
import pytest
from aws_lambda_powertools import Logger, Metrics  # noqa: F401

from tests.watchdog.equivalent_mutants import EQUIVALENT
from tests.watchdog.mutate import MODULES, ROOT, Mutant, mutants, source

__all__ = ["MODULES", "ROOT", "mutants"]
# The last cost more, and few mutants live to see them.
NAMES = (
    *("alarm", "scan", "rearm", "group_events", "held", "suspension", "operators", "record", "bridge"),
    *("turns", "lasting", "failures", "edges", "shares", "partial", "faults", "state", "mail", "histories"),
)
FILES = [str(ROOT / "tests" / "watchdog" / f"test_{name}.py") for name in NAMES]
# Without what is random: hypothesis fails a test that draws slowly, and a busy machine would "catch" every mutant.
OPTIONS = ["-x", "-q", "-s", "--noconftest", "--assert=plain", "-p", "no:cacheprovider", "-k", "not always_fits"]
CAUGHT, SURVIVED, UNFIT = 0, 1, 2
CPU_SECONDS = 40  # all tests take 12; a mutant that computes for longer has lost its way, which the tests would notice

Seen = dict[str, dict[str, list[int]]]  # by test, by file: the lines that it ran


# --- in a child -------------------------------------------------------------------------------------------------


class Served(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves one module from a mutant's source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source(), self._mutant.name, "exec"), module.__dict__)  # noqa: S102 - our own source


def survives_import(mutant: Mutant) -> int:
    """Whether all tests pass on a mutant that is there from the import on."""
    sys.meta_path.insert(0, Served(mutant))
    name = mutant.module.rpartition(".")[2]
    files = sorted(FILES, key=lambda file: f"test_{name}." not in file)  # its own first
    return SURVIVED if pytest.main([*OPTIONS, *files]) == pytest.ExitCode.OK else CAUGHT


def survives_in_place(mutant: Mutant, items: list[pytest.Item], note: Path) -> int:
    """Whether these tests pass on a mutant of one function; who caught it is noted."""
    if not replaced(mutant):
        return UNFIT
    for item in items:
        before = item.session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if item.session.testsfailed > before:
            note.write_text(item.nodeid)
            return CAUGHT
    return SURVIVED


def replaced(mutant: Mutant) -> bool:
    """Give the loaded function the mutant's code; False: its closure does not fit, or it is no plain function."""
    function: Any = sys.modules[mutant.module]
    for name in mutant.function.split("."):
        function = vars(function).get(name)
    function = getattr(function, "fget", None) or getattr(function, "func", None) or function
    function = getattr(function, "__wrapped__", function)
    made = compile(mutant.source(), mutant.name, "exec")
    code = next((each for each in codes(made) if each.co_qualname == mutant.function), None)
    if not isinstance(function, FunctionType) or code is None or code.co_freevars != function.__code__.co_freevars:
        return False
    function.__code__ = code
    return True


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of everything that is defined in it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def start(child: Callable[[], int]) -> int:
    """Fork a child; its exit code is what it returns."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    code = CAUGHT
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        code = child()
    finally:
        os._exit(code)


def trace(items: list[pytest.Item], into: Path) -> int:
    """Live through the tests, slowly, and write down which lines each ran; the quickest tests stand first."""
    watched = {str((ROOT / module.replace(".", "/")).with_suffix(".py")) for module in MODULES}
    seen: dict[str, set[int]] = {}

    def local(frame: FrameType, event: str, argument: object) -> Any:
        seen.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return local

    def calls(frame: FrameType, event: str, argument: object) -> Any:
        return local(frame, event, argument) if frame.f_code.co_filename in watched else None

    took: dict[str, tuple[float, dict[str, list[int]]]] = {}
    for item in items:
        seen.clear()
        began = time.process_time()
        sys.settrace(calls)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        sys.settrace(None)
        took[item.nodeid] = (time.process_time() - began, {file: sorted(lines) for file, lines in seen.items()})
        if item.session.testsfailed:
            return CAUGHT
    into.write_text(json.dumps({test: lines for test, (_, lines) in sorted(took.items(), key=lambda pair: pair[1][0])}))
    return SURVIVED


# --- in the parent ----------------------------------------------------------------------------------------------


class Run:
    """Mutants under way, each in a child, and what became of them."""

    def __init__(self, at_once: int) -> None:
        self.alive: list[str] = []
        self.unfit: list[Mutant] = []
        self._at_once = at_once
        self._running: dict[int, tuple[Mutant, Path | None]] = {}
        self._catchers: dict[tuple[str, str], list[str]] = defaultdict(list)

    def in_place(self, chosen: list[Mutant], items: list[pytest.Item], seen: Seen, room: Path) -> None:
        """Mutants of functions, each in the tests that come through it."""
        by_name = {item.nodeid: item for item in items}
        for number, mutant in enumerate(chosen):
            note = room / str(number)
            tests = [by_name[test] for test in self._order(mutant, seen)]
            self._start(mutant, partial(survives_in_place, mutant, tests, note), note)
        self.finish()

    def at_import(self, chosen: list[Mutant]) -> None:
        """Mutants of what counts at import, each in all tests."""
        for mutant in chosen:
            self._start(mutant, partial(survives_import, mutant), None)
        self.finish()

    def finish(self) -> None:
        """Wait for all that are under way."""
        while self._running:
            self._wait()

    def _order(self, mutant: Mutant, seen: Seen) -> list[str]:
        file = str((ROOT / mutant.module.replace(".", "/")).with_suffix(".py"))
        span = lines_of(mutant.module, mutant.function)
        through = [test for test, files in seen.items() if not span.isdisjoint(files.get(file, ()))]
        catchers = self._catchers[mutant.module, mutant.function][::-1]
        ranks = {test: rank for rank, test in enumerate(dict.fromkeys(catchers))}
        return sorted(through, key=lambda test: (ranks.get(test, len(ranks)), mutant.line not in seen[test][file]))

    def _start(self, mutant: Mutant, child: Callable[[], int], note: Path | None) -> None:
        while len(self._running) >= self._at_once:
            self._wait()
        self._running[start(child)] = (mutant, note)

    def _wait(self) -> None:
        pid, status = os.wait()
        mutant, note = self._running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == UNFIT:
            self.unfit.append(mutant)
        elif code == SURVIVED:
            self.alive.append(mutant.name)
            if mutant.name not in EQUIVALENT:
                click.echo(f"survived: {mutant.name}")
        elif note and note.exists():
            self._catchers[mutant.module, mutant.function].append(note.read_text())


@cache
def lines_of(module: str, function: str) -> set[int]:
    """The lines of a function."""
    code = compile(source(module), module, "exec")
    inside = [each for each in codes(code) if f"{each.co_qualname}.".startswith(f"{function}.")]
    return {line for each in inside for _, _, line in each.co_lines() if line}


class Collected:
    """A pytest plugin: lives through mutants instead of the tests, once those are collected."""

    def __init__(self, run: Run, chosen: list[Mutant]) -> None:
        self._run, self._chosen = run, chosen
        self.sound = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # a child would copy what is loaded, only to look through it
        gc.enable()
        with TemporaryDirectory() as room:
            seen = Path(room, "seen")
            pid = start(partial(trace, session.items, seen))
            self.sound = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == SURVIVED
            if self.sound:
                self._run.in_place(self._chosen, session.items, json.loads(seen.read_text()), Path(room))
        return True


@click.command()
@click.option("--every", default=1, show_default=True, help="Take each n-th mutant only.")
@click.option("--only", default="", help="Take the mutants with this text in their names.")
@click.option("--jobs", default=os.cpu_count(), show_default=True)
def main(every: int, only: str, jobs: int) -> None:
    """Mutate what decides and what acts; exit 1 if the tests miss one."""
    began = time.monotonic()
    gc.disable()
    whole = [mutant for module in MODULES for mutant in mutants(module)]
    chosen = [mutant for mutant in whole[::every] if only in mutant.name]
    run = Run(jobs)
    run.at_import([mutant for mutant in chosen if not mutant.function])
    collected = Collected(run, [mutant for mutant in chosen if mutant.function])
    pytest.main([*OPTIONS, *FILES], plugins=[collected])
    if not collected.sound:
        raise click.ClickException("the tests fail without any change: nothing they say of a mutant means anything")
    alive = run.alive
    missed = [name for name in alive if name not in EQUIVALENT]
    names = {mutant.name for mutant in chosen}
    stale = [
        name for name in EQUIVALENT if (name in names and name not in alive) or name not in {m.name for m in whole}
    ]
    click.echo(
        f"{len(chosen)} of {len(whole)} mutants in {time.monotonic() - began:.0f} s: "
        f"{len(chosen) - len(alive)} caught, {len(alive) - len(missed)} equivalent, {len(missed)} missed"
    )
    for name in stale:
        click.echo(f"listed as equivalent, but it is caught or gone: {name}")
    for mutant in run.unfit:
        click.echo(f"could not be put in place: {mutant.name}")
    sys.exit(bool(missed or stale or run.unfit))


if __name__ == "__main__":
    main()
