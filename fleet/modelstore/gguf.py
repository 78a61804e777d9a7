"""What a GGUF's header says that keeps every box from serving it. `fleetctl publish` refuses such a file.

The format is documented in ggml's docs/gguf.md: magic, version, counts, then typed values and where each tensor begins.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from fleet.config.settings import Model

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # 1 had 32-bit counts; nobody writes it any more
FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # by type number
TEXT, ARRAY = 8, 9
UNQUANTIZED = (0, 1, 32)  # general.file_type: F32, F16, BF16
PROJECTOR = "clip"


class CutShortError(Exception):
    """The file ends inside its header."""


def problems(path: Path, model: Model) -> Iterator[str]:
    """Everything that speaks against this file, as far as its header tells."""
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            yield "not a GGUF file; its first four bytes are GGUF"
            return
        try:
            version = _number(file, "I")
            if version not in VERSIONS:
                kind = "a big-endian GGUF" if version >> 24 in VERSIONS else f"GGUF version {version}"
                yield f"{kind}; the engine reads versions {' and '.join(map(str, VERSIONS))}, little-endian"
                return
            tensors, count = _number(file, "Q"), _number(file, "Q")
            values = dict(_value(file) for _ in range(count))
            begins = [_tensor_begins(file) for _ in range(tensors)]
        except CutShortError:
            yield "cut short: it ends inside its header"
            return
        size, data_begins = path.stat().st_size, file.tell()
    if begins and data_begins + max(begins) >= size:
        yield f"cut short: its last tensor begins at byte {data_begins + max(begins)}, the file has {size}"
    yield from _value_problems(values, model)


def _value_problems(values: dict[str, Any], model: Model) -> Iterator[str]:
    architecture = values.get("general.architecture")
    if not architecture:
        yield "no general.architecture in its header: not a model"
    elif architecture == PROJECTOR or values.get("general.type") in ("adapter", "mmproj"):
        yield f"an adapter or projector ({architecture}), not a whole model"
    elif f"{architecture}.pooling_type" in values:
        yield f"an embedding model ({architecture}): it generates nothing, and a box must generate before it opens"
    if values.get("split.count", 1) > 1:
        yield f"part {values.get('split.no', 0) + 1} of {values['split.count']}; merge them (llama-gguf-split --merge)"
    trained = values.get(f"{architecture}.context_length")
    if trained is not None and trained < model.context_length:
        asked = f"model.context_length is {model.context_length}"
        yield f"trained for a context of {trained}: the engine gives no more, {asked}"
    kind = values.get("general.file_type", UNQUANTIZED[0])
    if model.quantize != "none" and kind not in UNQUANTIZED:
        yield f"quantized already: the engine quantizes F32, F16 and BF16 alone, model.quantize is {model.quantize}"


def _value(file: BinaryIO) -> tuple[str, Any]:
    return _text(file), _of_type(file, _number(file, "I"))


def _of_type(file: BinaryIO, kind: int) -> Any:
    if kind in FIXED:
        return _number(file, FIXED[kind])
    if kind == TEXT:
        return _text(file)
    if kind != ARRAY:
        raise CutShortError  # no such type: what follows is no header
    inner, count = _number(file, "I"), _number(file, "Q")
    if inner in FIXED:
        _read(file, count * struct.calcsize(FIXED[inner]))
        return None
    for _ in range(count):
        _of_type(file, inner)
    return None  # vocabularies: long, and nothing here asks for them


def _tensor_begins(file: BinaryIO) -> int:
    """Where a tensor's data begin, counted from the end of the header (give or take its padding)."""
    _text(file)
    _read(file, 8 * _number(file, "I"))
    _number(file, "I")
    return int(_number(file, "Q"))


def _text(file: BinaryIO) -> str:
    return _read(file, _number(file, "Q")).decode(errors="replace")


def _number(file: BinaryIO, kind: str) -> Any:
    return struct.unpack(f"<{kind}", _read(file, struct.calcsize(f"<{kind}")))[0]


def _read(file: BinaryIO, count: int) -> bytes:
    if count > 1 << 30:
        raise CutShortError  # nothing in a header is that long
    data = file.read(count)
    if len(data) < count:
        raise CutShortError
    return data
