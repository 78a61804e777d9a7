"""Replays prompts against the fleet's endpoint from a few threads, and keeps what each request met."""

import itertools
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

KEY = "OPENAI_API_KEY"
TOKENS = 16
PROMPTS = (
    "hello",
    "Name three colours.",
    "What is the capital of France?",
    "Count from one to five.",
    "Write one sentence about rain.",
)


@dataclass(frozen=True)
class LoadRequest:
    """One request. `at` and `seconds` on the monotonic clock; `error` is "" for a success."""

    at: float
    seconds: float
    error: str


@dataclass(frozen=True)
class Summary:
    """What callers met between two moments."""

    requests: int
    failed: int
    longest_outage_seconds: float  # from the first failure of a run of failures to the next success
    errors: tuple[str, ...]

    @classmethod
    def of(cls, requests: Iterable[LoadRequest]) -> "Summary":
        """Pure arithmetic over requests in any order."""
        ordered = sorted(requests, key=lambda request: request.at)
        outage = 0.0
        dark_since: float | None = None
        for request in ordered:
            if request.error:
                dark_since = request.at if dark_since is None else dark_since
                outage = max(outage, request.at + request.seconds - dark_since)
            elif dark_since is not None:
                outage, dark_since = max(outage, request.at - dark_since), None
        return cls(
            requests=len(ordered),
            failed=sum(bool(request.error) for request in ordered),
            longest_outage_seconds=round(outage, 3),
            errors=tuple(sorted({request.error for request in ordered if request.error})),
        )


@dataclass
class Load:
    """`with Load(...)` keeps asking until the block ends."""

    endpoint: str
    model: str
    threads: int = 2
    pause_seconds: float = 0.05
    timeout_seconds: float = 60.0
    prompts: Sequence[str] = PROMPTS
    requests: list[LoadRequest] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Load":
        self._pool = ThreadPoolExecutor(max_workers=self.threads)
        for number in range(self.threads):
            self._pool.submit(self._ask_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool:
            self._pool.shutdown(wait=True)

    def _ask_on(self, number: int) -> None:
        for prompt in itertools.islice(itertools.cycle(self.prompts), number, None):
            if self._stop.is_set():
                return
            began = time.monotonic()
            error = self._ask(prompt)
            self.requests.append(LoadRequest(began, time.monotonic() - began, error))
            self._stop.wait(self.pause_seconds)

    def _ask(self, prompt: str) -> str:
        request, expected = self._by_gateway(prompt) if self.endpoint.endswith("/v1") else self._by_engine(prompt)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_seconds) as answer:  # noqa: S310
                return "" if expected in json.load(answer) else f"an answer without {expected}"
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        except (OSError, ValueError) as error:
            return type(getattr(error, "reason", error)).__name__

    def _by_engine(self, prompt: str) -> tuple[urllib.request.Request, str]:
        body = {"model": self.model, "prompt": prompt, "stream": False, "options": {"num_predict": TOKENS}}
        return urllib.request.Request(f"{self.endpoint}/api/generate", json.dumps(body).encode()), "response"  # noqa: S310

    def _by_gateway(self, prompt: str) -> tuple[urllib.request.Request, str]:
        """As any caller of it; the key is the one that OpenAI's clients take, and without one its day is short."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "max_tokens": TOKENS}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get(KEY, 'anonymous')}"}
        url = f"{self.endpoint}/chat/completions"
        return urllib.request.Request(url, json.dumps(body).encode(), headers), "choices"  # noqa: S310  (the fleet's own)

    def summary(self, since: float, until: float) -> Summary:
        """What was met by requests begun between two moments of the monotonic clock."""
        return Summary.of(request for request in self.requests if since <= request.at <= until)
