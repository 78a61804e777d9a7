"""What a Modelfile asks for that a box cannot give. Pure; `fleetctl publish` refuses it, with the line.

Read as the engine's own parser reads it (docs/modelfile.mdx and the messages of `ollama create`): instructions in any
case, a comment only on a line of its own, values that a quote carries over lines. What it would refuse on a box, after
the whole download, is refused here; so is what an import takes and the box does not serve.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.config.settings import Model

SINCE = {"RENDERER": (0, 12, 0), "PARSER": (0, 12, 0), "REQUIRES": (0, 14, 0)}  # engine versions; the others are older
INSTRUCTIONS = ("FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "DRAFT", "LICENSE", "MESSAGE", *SINCE)
ROLES = ("system", "user", "assistant")
WHOLE = "num_ctx num_batch num_gpu main_gpu num_thread draft_num_predict num_keep seed num_predict top_k repeat_last_n"
FRACTIONS = "top_p min_p typical_p temperature repeat_penalty presence_penalty frequency_penalty"
LEFT_ALONE = (  # taken without a look at the value: words, and what newer engines only warn of
    "stop mirostat mirostat_tau mirostat_eta penalize_newline low_vram f16_kv logits_all vocab_only use_mlock"
)
VALUES = {
    **dict.fromkeys(WHOLE.split(), (r"[+-]?[0-9]+", "a whole number")),
    **dict.fromkeys(FRACTIONS.split(), (r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", "a number")),
    "use_mmap": (r"(?i:true|false|t|f|1|0)", "true or false"),
    **dict.fromkeys(LEFT_ALONE.split(), (r"(?s:.*)", "")),
}
OPENS, CLOSES = re.compile(r"\{\{-?\s*(if|range|with|define|block)\b"), re.compile(r"\{\{-?\s*end\b")


@dataclass(frozen=True)
class Instruction:
    """One instruction, its name in capitals, its argument without quotes, and the line that it begins on."""

    line: int
    name: str
    argument: str


class ModelfileError(Exception):
    """No Modelfile: the engine's parser would stop here. The message names the line."""


def parse(text: str) -> list[Instruction]:
    """The instructions in their order; raises ModelfileError."""
    lines, found, at = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), list[Instruction](), 0
    while at < len(lines):
        first, line = at, lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        name, _, value = line.replace("\t", " ", 1).partition(" ")
        if name.upper() not in INSTRUCTIONS:
            raise ModelfileError(f"line {first + 1}: {name} is no instruction; allowed: {', '.join(INSTRUCTIONS)}")
        key = ""
        if name.upper() in ("PARAMETER", "MESSAGE"):
            key, _, value = value.strip().replace("\t", " ", 1).partition(" ")
        value = value.strip()
        quote = next((each for each in ('"""', '"') if value.startswith(each)), "")
        while quote and not (len(value) >= 2 * len(quote) and value.rstrip().endswith(quote)):
            if at == len(lines):
                raise ModelfileError(f"line {first + 1}: {name.upper()} begins with {quote} and nothing ends it")
            value += "\n" + lines[at]
            at += 1
        value = value.rstrip()[len(quote) : -len(quote)] if quote else value
        if not value:
            raise ModelfileError(f"line {first + 1}: {name.upper()} says nothing")
        found.append(Instruction(first + 1, name.upper(), f"{key} {value}" if key else value))
    return found


def problems(text: str, model: Model) -> Iterator[str]:
    """Everything that speaks against this Modelfile, each with its line."""
    try:
        instructions = parse(text)
    except ModelfileError as error:
        yield str(error)
        return
    sources = [each for each in instructions if each.name == "FROM"]
    if not sources:
        yield "no FROM line; a Modelfile says what it is built from"
    for second in sources[1:]:
        yield f"line {second.line}: a second FROM; a box has one file, the published GGUF"
    for each in instructions:
        yield from (f"line {each.line}: {problem}" for problem in _problems(each, model))


def _problems(found: Instruction, model: Model) -> Iterator[str]:
    name, argument = found.name, found.argument
    version = tuple(map(int, model.engine_version.split(".")))
    if version < SINCE.get(name, version):
        since = ".".join(map(str, SINCE[name]))
        yield f"{name}: engines know it since {since}, model.engine_version is {model.engine_version}"
    if name == "FROM":
        gguf = posixpath.basename(model.gguf.key)
        if posixpath.normpath(argument) != gguf:
            yield f"FROM {argument} is not the published file: a box has ./{gguf} (model.gguf.key) and pulls nothing"
    elif name in ("ADAPTER", "DRAFT"):
        yield f"{name} {argument}: a box has no file but the GGUF; publish one with the adapter merged into it"
    elif name == "PARAMETER":
        yield from _parameter_problems(*argument.partition(" ")[::2], model)
    elif name == "MESSAGE" and argument.partition(" ")[0] not in ROLES:
        yield f"MESSAGE {argument.partition(' ')[0]}: a role is one of {', '.join(ROLES)}"
    elif name == "TEMPLATE":
        opened, closed = len(OPENS.findall(argument)), len(CLOSES.findall(argument))
        if opened != closed:
            yield f"TEMPLATE: {opened} of if, range, with, define and block, but {closed} of end"
    elif name == "REQUIRES":
        needed = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+)", argument)
        if not needed:
            yield f"REQUIRES {argument}: a version such as 0.14.0"
        elif tuple(map(int, needed.groups())) > version:
            yield f"REQUIRES {argument}, but model.engine_version is {model.engine_version}"


def _parameter_problems(key: str, value: str, model: Model) -> Iterator[str]:
    if key not in VALUES:
        yield f"PARAMETER {key}: no parameter of the engine; allowed: {', '.join(sorted(VALUES))}"
        return
    pattern, allowed = VALUES[key]
    if not re.fullmatch(pattern, value):
        yield f"PARAMETER {key} {value}: {allowed} is needed"
    elif key == "num_ctx" and int(value) != model.context_length:
        yield (
            f"PARAMETER num_ctx {value}: model.context_length is {model.context_length}, and callers would get this "
            "one; drop the line, or make them the same"
        )
    elif key == "num_gpu":
        yield f"PARAMETER num_gpu {value}: a box serves nothing but the whole model from GPU memory; drop the line"
