"""Engines behind one adapter: whether one serves, what it says it took, and whether it goes on exactly.

A continuation is asked for by a trailing assistant message (chat) or by the text so far (completions): both engines
know these. llama.cpp's is run for real in the tests; Ollama's by its documents.
"""

import asyncio
from typing import Any, Optional

from lane.asked import Asked, continued
from lane.config import Config
from relay import chat, sse, upstream
from relay.http_client import Client

PROOF_TOKENS = 24
PROOF_SECONDS = 60.0  # a token's patience on a box: 46 s was the worst
LOOK_SECONDS, LOOK_BYTES = 2.0, 4 << 20  # for what an engine tells of itself
PROMPT = [{"role": "user", "content": "Count from one to one hundred, in words."}]


class Engine:
    """llama.cpp's server; Ollama where it differs."""

    def __init__(self, config: Config, client: Client) -> None:
        self._config, self._client = config, client
        self.thinks = False  # as far as the proof has shown

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a read, asked again as in `post`; raises UpstreamError."""
        url, by = self._config.engine_url + path, asyncio.get_running_loop().time() + LOOK_SECONDS
        try:
            answer, status = await upstream.ask(self._client, "GET", url, {}, b"", by)
        except upstream.ResetError:
            answer, status = await upstream.ask(self._client, "GET", url, {}, b"", by)
        try:
            return status, await answer.read(by, LOOK_BYTES)
        except (asyncio.TimeoutError, OSError) as error:
            raise upstream.BrokenError(str(error)) from None
        finally:
            answer.close()

    async def post(self, path: str, body: dict[str, Any], by: float) -> upstream.Answer:
        """Asked; once more where a connection that was kept had been closed meanwhile. Raises UpstreamError."""
        url = self._config.engine_url + path
        try:
            payload = sse.dumps(body)
        except RecursionError:  # what could just be read may be too deep to be written again
            told = {"message": "The body is nested too deeply", "code": "invalid_json"}
            raise upstream.StatusError(400, {}, sse.dumps({"error": told})) from None
        try:
            return await upstream.post(self._client, url, payload, {}, by)
        except upstream.ResetError:
            return await upstream.post(self._client, url, payload, {}, by)

    async def unready(self) -> str:
        """Why it would not serve a request now; empty: it would. The engine's half of "does it serve?"."""
        try:
            status, body = await self.get(self._health)
        except upstream.UpstreamError as error:
            return f"no answer: {error}"
        return self._judged(status, sse.parsed(body) or {})

    _health = "/health"

    def _judged(self, status: int, body: dict[str, Any]) -> str:
        return "" if status == upstream.HTTP_OK else f"it answers {status}"

    def measured(self, last: dict[str, Any]) -> Optional[tuple[float, float, int]]:
        """Seconds of the prompt, seconds of the tokens, tokens: as the engine says, where it does."""
        timings = last.get("timings")
        if not isinstance(timings, dict):
            return None
        try:
            seconds = float(timings["prompt_ms"]) / 1000, float(timings["predicted_ms"]) / 1000
            return (*seconds, int(timings["predicted_n"]))
        except (KeyError, TypeError, ValueError):
            return None

    async def proved(self) -> bool:
        """Whether two slices say the same as one answer, at temperature 0; raises UpstreamError.

        A model that thinks is never sliced: a thought cannot be continued.
        """
        body = {"model": self._config.model, "messages": PROMPT, "temperature": 0}
        asked = Asked("/v1/chat/completions", body, True, PROOF_TOKENS, 1, whole=False, fixed=True)
        whole = await self._said(asked, "", PROOF_TOKENS)
        half = await self._said(asked, "", PROOF_TOKENS // 2)
        if not whole or not half:
            return False
        return half + await self._said(asked, half, PROOF_TOKENS - PROOF_TOKENS // 2) == whole

    async def _said(self, asked: Asked, text: str, tokens: int) -> str:
        """Empty where it thought, or said nothing."""
        loop = asyncio.get_running_loop()
        by, said = loop.time() + PROOF_SECONDS, ""
        answer = await self.post(asked.path, continued(asked, text, tokens) or {}, by)
        try:
            async for event in answer.events(lambda: by):
                chunk = sse.parsed(event.data) or {}
                if not chat.content(chunk) and chat.delivers(chunk):
                    self.thinks = True
                    return ""
                said += chat.content(chunk)
        finally:
            answer.close()
        return said


class Ollama(Engine):
    """Ollama: the model must be resident, whole, with its configured context."""

    _health = "/api/ps"

    def _judged(self, status: int, body: dict[str, Any]) -> str:
        models = body.get("models")
        for model in models if isinstance(models, list) else ():
            if model.get("name") in (self._config.model, f"{self._config.model}:latest"):
                if model.get("context_length") != self._config.context_length:
                    return f"its context is {model.get('context_length')}, not {self._config.context_length}"
                return "" if model.get("size_vram") == model.get("size") else "part of it is not on the GPU"
        return f"{self._config.model} is not loaded"

    def measured(self, last: dict[str, Any]) -> Optional[tuple[float, float, int]]:
        """In nanoseconds, in the last line of its own family; its /v1 says nothing."""
        try:
            seconds = float(last.get("prompt_eval_duration", 0)) / 1e9, float(last["eval_duration"]) / 1e9
            return (*seconds, int(last["eval_count"]))
        except (KeyError, TypeError, ValueError):
            return None
