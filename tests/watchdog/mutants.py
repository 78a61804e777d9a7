"""Mutation testing of what decides and what acts: `make mutants`, a few minutes on two cores.

Every comparison, constant, guard, operator and statement of the files below is changed, one at a time, in the syntax
tree, and the watchdog's tests must notice. The parent has the libraries loaded and forks one child for each mutant; the
child serves the mutant's source to the import system and runs the tests up to the first failure. The properties are
left out: they are random, and a mutant should be caught by a test that says what is wrong.

A survivor fails the run unless `EQUIVALENT` names it with the reason why nobody could tell it from the original; so
does an entry there that no longer survives.
"""

import ast
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3  # noqa: F401 - loaded once, before the forks
import click
import hypothesis  # noqa: F401
import pytest
from aws_lambda_powertools import Logger, Metrics  # noqa: F401

from tests.watchdog.equivalent_mutants import EQUIVALENT

ROOT = Path(__file__).parents[2]
MODULES = [
    "lambdas.watchdog.policy",
    "lambdas.watchdog.rearm",
    "lambdas.watchdog.suspension",
    "lambdas.watchdog.turns",
    "lambdas.watchdog.daily",
    "lambdas.watchdog.failures",
    "lambdas.watchdog.bridge",
    "lambdas.watchdog.decision",
    "lambdas.watchdog.act",
    "lambdas.watchdog.world",
    "lambdas.watchdog.observe",
]
# In two rounds: the second costs more, and few mutants live to see it.
ROUNDS = [
    [
        *("alarm", "scan", "rearm", "group_events", "held", "suspension", "operators", "record", "bridge"),
        *("turns", "lasting", "failures"),
    ],
    ["faults", "state", "mail", "histories"],
]
CAUGHT, SURVIVED = 0, 1
SECONDS = 60  # a mutant that runs longer than this has lost its way, which the tests would notice


@dataclass(frozen=True)
class Mutant:
    """One change. `name` says what and where, and stays the same while the lines around it move."""

    module: str
    name: str
    source: Callable[[], str]  # written out only for those that are run: there are many


# --- making them ------------------------------------------------------------------------------------------------

BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip
SWAPPED = {"max": "min", "min": "max", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What this one node could be instead."""
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                for table in (BOUNDARY, OPPOSITE):
                    if type(op) in table:
                        others = [*ops[:index], table[type(op)](), *ops[index + 1 :]]
                        yield ast.Compare(node.left, others, node.comparators)
        case ast.Set(elts=elements):
            for fewer in without_one(elements):
                yield ast.Set(fewer) if fewer else ast.Call(ast.Name("set", ast.Load()), [], [])
        case ast.MatchOr(patterns=patterns):
            for fewer in without_one(patterns):
                yield fewer[0] if len(fewer) == 1 else ast.MatchOr(fewer)
        case ast.match_case(guard=ast.expr()):
            yield ast.match_case(node.pattern, None, node.body)
        case ast.BoolOp(values=values):
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), values)
            for rest in without_one(values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case ast.Constant(value=str()):
            yield ast.Constant(node.value + "!")
        case ast.Constant(value=None):
            yield ast.Constant(True)  # not 0: most of ours only ask whether there is something
        case ast.If():
            for value in (True, False):
                yield ast.If(ast.Constant(value), node.body, node.orelse)
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
            yield ast.Call(ast.Name(SWAPPED[name], ast.Load()), node.args, node.keywords)
        case ast.Subscript(slice=ast.Slice()):
            yield node.value
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case _:
            return


def without_one(items: list[Any]) -> Iterator[list[Any]]:
    """The list less one of its items, each in turn."""
    for index in range(len(items)):
        yield items[:index] + items[index + 1 :]


def source(module: str) -> str:
    """A module's text."""
    return (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module; two of one name are told apart by a number."""
    tree = ast.parse(source(module))
    seen: dict[str, int] = {}
    for path, place, node in nodes(tree, (), module.rpartition(".")[2]):
        for changed in changes(node):
            if isinstance(changed, ast.stmt):
                changed = ast.copy_location(changed, node)
            before, after = (ast.unparse(each).split("\n")[0] for each in (node, changed))
            name = f"{place}: {before}  ->  {after}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += f"  #{seen[name]}"
            yield Mutant(module, name, partial(rewritten, tree, path, changed))


Path_ = tuple[tuple[str, int | None], ...]


def nodes(node: ast.AST, path: Path_, place: str) -> Iterator[tuple[Path_, str, ast.AST]]:
    """Every node that may change, with the way to it and the function it stands in; no annotations, no docstrings."""
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            inside = f"{place}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else place
            here = (*path, (field, index))
            yield here, inside, child
            yield from nodes(child, here, inside)


def rewritten(tree: ast.Module, path: Path_, new: ast.AST) -> str:
    """The tree's source with another node at the end of the path."""
    result = copy.deepcopy(tree)
    parent: Any = result
    for field, index in path[:-1]:
        parent = getattr(parent, field) if index is None else getattr(parent, field)[index]
    field, index = path[-1]
    if index is None:
        setattr(parent, field, copy.deepcopy(new))
    else:
        getattr(parent, field)[index] = copy.deepcopy(new)
    return ast.unparse(ast.fix_missing_locations(result))


# --- running them -----------------------------------------------------------------------------------------------


class Served(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves one module from a mutant's source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source(), self._mutant.name, "exec"), module.__dict__)  # noqa: S102 - our own source


def survives(mutant: Mutant) -> bool:
    """In a child: whether all tests pass on the mutant."""
    sys.meta_path.insert(0, Served(mutant))
    for files in ROUNDS:
        paths = [str(ROOT / "tests" / "watchdog" / f"test_{name}.py") for name in files]
        options = ["-x", "-q", "--noconftest", "--assert=plain", "-p", "no:cacheprovider"]
        if pytest.main([*options, *paths]) != pytest.ExitCode.OK:
            return False
    return True


def start(mutant: Mutant) -> int:
    """Fork a child for one mutant; its exit code tells."""
    if pid := os.fork():
        return pid
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    code = CAUGHT
    try:
        signal.alarm(SECONDS)
        code = SURVIVED if survives(mutant) else CAUGHT
    finally:
        os._exit(code)


def survivors(chosen: list[Mutant], at_once: int) -> list[str]:
    """Names of the mutants that no test noticed."""
    running: dict[int, Mutant] = {}
    waiting, alive = list(reversed(chosen)), []
    while waiting or running:
        while waiting and len(running) < at_once:
            mutant = waiting.pop()
            running[start(mutant)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        if os.waitstatus_to_exitcode(status) == SURVIVED:
            alive.append(mutant.name)
            if mutant.name not in EQUIVALENT:
                click.echo(f"survived: {mutant.name}")
    return alive


@click.command()
@click.option("--every", default=1, show_default=True, help="Take each n-th mutant only.")
@click.option("--only", default="", help="Take the mutants with this text in their names.")
@click.option("--jobs", default=os.cpu_count(), show_default=True)
def main(every: int, only: str, jobs: int) -> None:
    """Mutate what decides and what acts; exit 1 if the tests miss one."""
    began = time.monotonic()
    whole = [mutant for module in MODULES for mutant in mutants(module)]
    chosen = [mutant for mutant in whole[::every] if only in mutant.name]
    pid = start(Mutant(MODULES[0], "untouched", partial(source, MODULES[0])))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != SURVIVED:
        raise click.ClickException("the tests fail without any change: nothing they say of a mutant means anything")
    alive = survivors(chosen, jobs)
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
    sys.exit(bool(missed or stale))


if __name__ == "__main__":
    main()
