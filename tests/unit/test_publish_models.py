"""Which Modelfiles and model files `fleetctl publish` takes, and what it says of the others, with the line."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.config.settings import Settings
from fleet.modelstore import upload

NEWER = "0.14.0"  # the shared settings pin 0.11.4
ELSEWHERE = "is not the published file: a box has ./model.gguf (model.gguf.key) and pulls nothing"

MODELFILES: dict[str, tuple[str, list[str]]] = {
    "the least": ("FROM ./model.gguf\n", []),
    "without ./": ("from model.gguf", []),
    "of another system": ("\ufeffFROM ./model.gguf\r\nPARAMETER temperature 0.7\r\n", []),
    "in full": (
        '# house model\nFROM "./model.gguf"\nPARAMETER num_ctx 8192\nPARAMETER stop "<|im_end|>"\n'
        'SYSTEM """Answer shortly.\nFROM now on.\n"""\nMESSAGE user Is Toronto in Canada?\n'
        'TEMPLATE """{{ if .System }}{{ .System }}\n{{- end }}{{ .Prompt }}"""\nLICENSE MIT\n',
        [],
    ),
    "without a source": ("PARAMETER temperature 0\n", ["no FROM line; a Modelfile says what it is built from"]),
    "a source in a text alone": (
        'SYSTEM """\nFROM ./model.gguf\n"""\n',
        ["no FROM line; a Modelfile says what it is built from"],
    ),
    "a name to pull": (
        "# mine\nFROM llama3.2:3b\n",
        [f"line 2: FROM llama3.2:3b {ELSEWHERE}"],
    ),
    "another file": (
        "FROM ./house.gguf\n",
        [f"line 1: FROM ./house.gguf {ELSEWHERE}"],
    ),
    "a file of another machine": (
        "FROM /home/me/model.gguf\n",
        [f"line 1: FROM /home/me/model.gguf {ELSEWHERE}"],
    ),
    "a comment that is none": (
        "FROM ./model.gguf # ours\n",
        [f"line 1: FROM ./model.gguf # ours {ELSEWHERE}"],
    ),
    "two sources": (
        "FROM ./model.gguf\n\nFROM ./model.gguf\n",
        ["line 3: a second FROM; a box has one file, the published GGUF"],
    ),
    "an adapter": (
        "FROM ./model.gguf\nADAPTER ./lora.gguf\n",
        ["line 2: ADAPTER ./lora.gguf: a box has no file but the GGUF; publish one with the adapter merged into it"],
    ),
    "a draft model": (
        "FROM ./model.gguf\nDRAFT ./small.gguf\n",
        ["line 2: DRAFT ./small.gguf: a box has no file but the GGUF; publish one with the adapter merged into it"],
    ),
    "a context of its own": (
        "FROM ./model.gguf\nPARAMETER num_ctx 2048\n",
        [
            "line 2: PARAMETER num_ctx 2048: model.context_length is 8192, and callers would get this one; "
            "drop the line, or make them the same"
        ],
    ),
    "half of it on the processor": (
        "FROM ./model.gguf\nPARAMETER num_gpu 20\n",
        [
            "line 2: PARAMETER num_gpu 20: a box serves nothing but the whole model from GPU memory; drop the line",
        ],
    ),
    "a value of the wrong kind": (
        "FROM ./model.gguf\nPARAMETER temperature warm\nPARAMETER top_k 0.5\n",
        [
            "line 2: PARAMETER temperature warm: a number is needed",
            "line 3: PARAMETER top_k 0.5: a whole number is needed",
        ],
    ),
    "a role that is none": (
        "FROM ./model.gguf\nMESSAGE bot Hello\n",
        ["line 2: MESSAGE bot: a role is one of system, user, assistant"],
    ),
    "a template cut short": (
        'FROM ./model.gguf\nTEMPLATE """{{ if .System }}{{ .System }}"""\n',
        ["line 2: TEMPLATE: 1 of if, range, with, define and block, but 0 of end"],
    ),
    "a quote without an end": (
        'FROM ./model.gguf\nSYSTEM """You are\na pirate.\n',
        ['line 2: SYSTEM begins with """ and nothing ends it'],
    ),
    "an empty value": ("FROM ./model.gguf\nPARAMETER stop\n", ["line 2: PARAMETER says nothing"]),
    "for a newer engine": (
        "FROM ./model.gguf\nPARSER qwen3\nREQUIRES 0.14.2\n",
        [
            "line 2: PARSER: engines know it since 0.12.0, model.engine_version is 0.11.4",
            "line 3: REQUIRES: engines know it since 0.14.0, model.engine_version is 0.11.4",
            "line 3: REQUIRES 0.14.2, but model.engine_version is 0.11.4",
        ],
    ),
}


@pytest.mark.parametrize("name", MODELFILES)
def test_modelfile_is_taken_or_refused_with_its_line(name: str, settings: Settings, tmp_path: Path) -> None:
    text, problems = MODELFILES[name]
    path = tmp_path / "Modelfile"
    path.write_bytes(text.encode())
    assert list(upload.LOOKS["modelfile"](path, settings)) == problems


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        (
            "FROM ./model.gguf\n  FORM ./model.gguf\n",
            "line 2: FORM is no instruction; allowed: FROM, PARAMETER, TEMPLATE",
        ),
        (
            "FROM ./model.gguf\nPARAMETER tfs_z 1\n",
            "line 2: PARAMETER tfs_z: no parameter of the engine; allowed: draft",
        ),
    ],
)
def test_word_that_the_engine_does_not_know_is_refused_with_those_that_it_knows(
    text: str, beginning: str, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "Modelfile"
    path.write_text(text)
    (problem,) = upload.LOOKS["modelfile"](path, settings)
    assert problem.startswith(beginning)


def test_source_is_the_file_as_the_box_names_it_and_instructions_count_by_the_pinned_engine(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "Modelfile"
    path.write_text("FROM ./house-q4.gguf\nRENDERER qwen3\nREQUIRES v0.13.1\nPARAMETER num_ctx 4096\n")
    model = replace(settings.model, engine_version=NEWER, context_length=4096)
    moved = replace(model, gguf=replace(model.gguf, key="models/house-q4.gguf"))
    assert list(upload.LOOKS["modelfile"](path, replace(settings, model=moved))) == []


# --- model files ----------------------------------------------------------------------------------------------

NUMBER, TEXT, ARRAY = 4, 8, 9  # GGUF's numbers for the types of values


def gguf(values: dict[str, Any], *, version: int = 3, tensors: int = 0, order: str = "<") -> bytes:
    """A GGUF's header: these values, and so many tensors of 64 bytes, of which nothing follows."""

    def text(value: str) -> bytes:
        return struct.pack(f"{order}Q", len(value)) + value.encode()

    def typed(value: Any) -> bytes:
        if isinstance(value, str):
            return struct.pack(f"{order}I", TEXT) + text(value)
        if isinstance(value, list):
            items = b"".join(map(text, value))
            return struct.pack(f"{order}IIQ", ARRAY, TEXT, len(value)) + items
        return struct.pack(f"{order}II", NUMBER, value)

    body = b"".join(text(key) + typed(value) for key, value in values.items())
    for number in range(tensors):
        body += text(f"blk.{number}") + struct.pack(f"{order}IQIQ", 1, 16, 0, 64 * number)
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, len(values)) + body


LLAMA = {"general.architecture": "llama", "llama.context_length": 8192, "tokenizer.ggml.tokens": ["<s>", "a"]}

FILES: dict[str, tuple[bytes, list[str]]] = {
    "a model": (gguf(LLAMA, tensors=2) + bytes(160), []),
    "one that says nothing of its context": (gguf({"general.architecture": "llama"}), []),
    "weights of another kind": (b"PK\3\4", ["not a GGUF file; its first four bytes are GGUF"]),
    "of the first version": (
        gguf(LLAMA, version=1),
        ["GGUF version 1; the engine reads versions 2 and 3, little-endian"],
    ),
    "of another byte order": (
        gguf(LLAMA, order=">"),
        ["a big-endian GGUF; the engine reads versions 2 and 3, little-endian"],
    ),
    "cut amid its header": (gguf(LLAMA)[:-1], ["cut short: it ends inside its header"]),
    "cut after its header": (
        gguf(LLAMA, tensors=2),
        ["cut short: its last tensor begins at byte 308, the file has 244"],
    ),
    "no model": (gguf({"general.name": "notes"}), ["no general.architecture in its header: not a model"]),
    "a projector": (
        gguf({"general.architecture": "clip"}),
        ["an adapter or projector (clip), not a whole model"],
    ),
    "an adapter": (
        gguf({"general.architecture": "llama", "general.type": "adapter"}),
        ["an adapter or projector (llama), not a whole model"],
    ),
    "one that embeds": (
        gguf({"general.architecture": "bert", "bert.pooling_type": 1}),
        ["an embedding model (bert): it generates nothing, and a box must generate before it opens"],
    ),
    "a part": (
        gguf({**LLAMA, "split.no": 0, "split.count": 3}),
        ["part 1 of 3; merge them (llama-gguf-split --merge)"],
    ),
    "trained for less": (
        gguf({**LLAMA, "llama.context_length": 4096}),
        ["trained for a context of 4096: the engine gives no more, model.context_length is 8192"],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_model_file_is_taken_or_refused_by_its_header(name: str, settings: Settings, tmp_path: Path) -> None:
    data, problems = FILES[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    assert list(upload.LOOKS["gguf"](path, settings)) == problems


def test_quantized_file_is_not_quantized_again(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    quantizing = replace(settings, model=replace(settings.model, quantize="q4_K_M"))
    for kind, problems in (
        (1, []),
        (15, ["quantized already: the engine quantizes F32, F16 and BF16 alone, model.quantize is q4_K_M"]),
    ):
        path.write_bytes(gguf({**LLAMA, "general.file_type": kind}))
        assert list(upload.LOOKS["gguf"](path, quantizing)) == problems
        assert list(upload.LOOKS["gguf"](path, settings)) == []
