"""A model small enough to publish in a blink: a real GGUF header without a tensor, a Modelfile, an engine's tarball."""

import io
import struct
import tarfile
from pathlib import Path

GGUF_VERSION = 3
STRING = 8  # GGUF's number for the type of a value


def write(folder: Path) -> dict[str, Path]:
    """Create the three source files; paths by artifact name (engine, gguf, modelfile)."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "engine": folder / "engine.tgz",
        "gguf": folder / "model.gguf",
        "modelfile": folder / "Modelfile",
    }
    with tarfile.open(paths["engine"], "w:gz") as archive:
        body = b"#!/bin/sh\necho 'the demo starts no engine'\n"
        entry = tarfile.TarInfo("bin/ollama")
        entry.size, entry.mode = len(body), 0o755
        archive.addfile(entry, io.BytesIO(body))
    values = {"general.architecture": "llama", "general.name": "tiny"}
    header = struct.pack("<4sIQQ", b"GGUF", GGUF_VERSION, 0, len(values))
    pairs = b"".join(_text(key) + struct.pack("<I", STRING) + _text(value) for key, value in values.items())
    paths["gguf"].write_bytes(header + pairs)
    paths["modelfile"].write_text("FROM ./model.gguf\n")
    return paths


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
