"""Every mutant of what decides and acts: a comparison, constant, guard, operator or statement is changed."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODULES = [
    "lambdas.watchdog.policy",
    "lambdas.watchdog.rearm",
    "lambdas.watchdog.suspension",
    "lambdas.watchdog.turns",
    "lambdas.watchdog.failover",
    "lambdas.watchdog.shares",
    "lambdas.watchdog.daily",
    "lambdas.watchdog.failures",
    "lambdas.watchdog.bridge",
    "lambdas.watchdog.decision",
    "lambdas.watchdog.act",
    "lambdas.watchdog.world",
    "lambdas.watchdog.observe",
]


@dataclass(frozen=True)
class Mutant:
    """One change. `name` says what and where, and stays the same while the lines around it move."""

    module: str
    name: str
    line: int
    function: str  # qualified: the outermost that it stands in the body of; empty: none, it counts at import
    source: Callable[[], str]  # written out only for those that are run: there are many


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
    line = 0
    for path, place, node in nodes(tree, (), module.rpartition(".")[2]):
        line = getattr(node, "lineno", line)  # a comprehension has none of its own
        for changed in changes(node):
            if isinstance(changed, ast.stmt):
                changed = ast.copy_location(changed, node)
            before, after = (ast.unparse(each).split("\n")[0] for each in (node, changed))
            name = f"{place}: {before}  ->  {after}"
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name += f"  #{seen[name]}"
            yield Mutant(module, name, line, function_of(tree, path), partial(rewritten, tree, path, changed))


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


def function_of(tree: ast.AST, path: Path_) -> str:
    """The qualified name of the outermost function whose body holds what the path leads to; empty: none."""
    node: Any = tree
    names: list[str] = []
    for field, index in path:
        if isinstance(node, ast.FunctionDef):
            return ".".join(names) if field == "body" else ""
        node = getattr(node, field) if index is None else getattr(node, field)[index]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
    return ""


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
