"""What of a chat completion's body reaches an engine, and what its events mean: which delivers, ends, is an error."""

from collections.abc import Iterator
from typing import Any, Optional

# Everything else of a body is left out: load-time options and other models are administration.
SAMPLING = frozenset({"temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty"})
FIELDS = SAMPLING | {"messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"}
FIELDS = FIELDS | {"n", "logit_bias", "logprobs", "top_logprobs"}
# Reasoning has two names: `reasoning` at Ollama, `reasoning_content` at llama.cpp and vLLM.
DELIVERING = ("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio")


def choices(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The choices of a chunk that are of the known shape."""
    found = chunk.get("choices")
    for choice in found if isinstance(found, list) else ():
        if isinstance(choice, dict):
            yield choice


def deltas(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The deltas of a chunk."""
    for choice in choices(chunk):
        delta = choice.get("delta")
        if isinstance(delta, dict):
            yield delta


def delivers(chunk: dict[str, Any]) -> bool:
    """Whether a caller gets something by it: content, reasoning or tool calls. A role alone is nothing."""
    return any(delta.get(name) for delta in deltas(chunk) for name in DELIVERING)


def content(chunk: dict[str, Any]) -> str:
    """The text of its first choice's delta."""
    for delta in deltas(chunk):
        text = delta.get("content")
        return text if isinstance(text, str) else ""
    return ""


def finished(chunk: dict[str, Any]) -> bool:
    """Whether it says why the generation ended."""
    return any(choice.get("finish_reason") for choice in choices(chunk))


def error(chunk: dict[str, Any]) -> Optional[str]:
    """The message of an error that travels inside a stream; None where the chunk is none."""
    found = chunk.get("error")
    if not found:
        return None
    return str(found.get("message") or found) if isinstance(found, dict) else str(found)


def usage(chunk: dict[str, Any]) -> Optional[dict[str, Any]]:
    """Token counts, where it carries them."""
    found = chunk.get("usage")
    return found if isinstance(found, dict) else None
