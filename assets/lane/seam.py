"""Slices of one answer, joined: the caller sees one stream, or one body. Pure: chunks in, chunks out.

Held together across the seams: id and created of the first slice, one role, one finish_reason, usage of the whole, the
caller's token limit, and a stop string that begins in one slice and ends in the next.
"""

from typing import Any, Optional

from relay import chat

LENGTH, STOP = "length", "stop"


class Joined:
    """One answer of `limit` tokens in slices."""

    def __init__(self, *, limit: int, stops: list[str], wants_usage: bool, chat: bool) -> None:
        self._limit, self._stops, self._wants_usage, self._chat = limit, stops, wants_usage, chat
        self._first: dict[str, Any] = {}
        self._role = False
        self._held = ""  # the end of a slice, which may be the beginning of a stop string
        self._slice_tokens = self._slice_usage = self._slice_limit = 0
        self._prompt_tokens = 0
        self.why = ""  # this slice ended
        self.text = ""  # what the engine said so far, as a continuation needs it
        self._given = ""  # of it to the caller: no stop string
        self.tokens = 0
        self.finish = ""  # the whole ended
        self.thinking = False  # in this slice: it cannot be continued

    def begin(self, tokens: int) -> None:
        """Another slice, of at most so many."""
        self._slice_tokens = self._slice_usage = 0
        self._slice_limit = tokens
        self.why = ""

    def chunk(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        """What the caller gets of a chunk of the engine's."""
        usage = chat.usage(chunk)
        if usage:
            self._slice_usage = int(usage.get("completion_tokens") or 0)
            # Ollama tells zeros first
            self._prompt_tokens = self._prompt_tokens or int(usage.get("prompt_tokens") or 0)
        choice = next(chat.choices(chunk), None)
        if choice is None or self.finish:
            return []
        self._first = self._first or {name: value for name, value in chunk.items() if name not in ("choices", "usage")}
        self.why = choice.get("finish_reason") or self.why
        text = self._text(choice)
        if self._chat and not text and chat.delivers(chunk):
            self.thinking = True
        if text:
            self.thinking = False
            self._slice_tokens += 1
            self.text += text
        out = self._held + text
        at = min((found for found in (out.find(stop) for stop in self._stops) if found >= 0), default=-1)
        if at >= 0:
            self.finish, out, self._held = STOP, out[:at], ""
        else:
            keep = max((_overlap(out, stop) for stop in self._stops), default=0)
            out, self._held = out[: len(out) - keep], out[len(out) - keep :]
        self._given += out
        if self._chat and not self._role and "role" in (choice.get("delta") or {}):
            self._role = True
            return [self._with({"delta": {"role": "assistant", "content": out}})]
        return [self._said(out)] if out else []

    def ended(self) -> list[dict[str, Any]]:
        """The slice is over: what is still to be said. `finish` tells whether the whole is."""
        tokens = self._slice_usage or self._slice_tokens
        self.tokens += tokens
        short = tokens < self._slice_limit  # the context is full
        if not self.finish and (self.why != LENGTH or short or self.tokens >= self._limit):
            self.finish = self.why
        if not self.finish:
            return []
        rest = [self._said(self._held)] if self._held else []
        self._given, self._held = self._given + self._held, ""
        return rest

    def last(self) -> list[dict[str, Any]]:
        """The last chunks: why it ended, and usage where the caller asked for it."""
        empty: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        told = [self._with(empty, self.finish)]
        return [*told, {**self._first, "choices": [], "usage": self.usage}] if self._wants_usage else told

    @property
    def usage(self) -> dict[str, int]:
        """Of all slices: the prompt counts once."""
        prompt = self._prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.tokens, "total_tokens": prompt + self.tokens}

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish}
        kind = "chat.completion" if self._chat else "text_completion"
        content = {"message": {"role": "assistant", "content": self._given}} if self._chat else {"text": self._given}
        return {**self._first, "object": kind, "choices": [{**choice, **content}], "usage": self.usage}

    def _text(self, choice: dict[str, Any]) -> str:
        found = (choice.get("delta") or {}).get("content") if self._chat else choice.get("text")
        return found if isinstance(found, str) else ""

    def _said(self, text: str) -> dict[str, Any]:
        return self._with({"delta": {"content": text}} if self._chat else {"text": text})

    def _with(self, content: dict[str, Any], finish: Optional[str] = None) -> dict[str, Any]:
        return {**self._first, "choices": [{"index": 0, **content, "finish_reason": finish}]}


def stops(value: Any) -> list[str]:
    """The caller's stop strings."""
    found = [value] if isinstance(value, str) else value
    return [each for each in found if isinstance(each, str) and each] if isinstance(found, list) else []


def _overlap(text: str, stop: str) -> int:
    """How much of the end of `text` is the beginning of `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
