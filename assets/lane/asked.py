"""A request as the engine may see it. Pure: path, bytes and headers in, an Asked out, or a Refusal.

Both API families by an allowlist of paths and fields. What would load, unload or reshape the model is administration:
it is left out, whatever a body says of it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from lane.config import OLLAMA, Config
from relay import chat, lane_headers
from relay.refusal import Refusal, json_object

# Of `options`: how tokens are chosen. Never num_ctx, num_gpu, num_batch, use_mmap and the like: they load anew.
OPTIONS = chat.SAMPLING | {"top_k", "min_p", "typical_p", "repeat_penalty", "repeat_last_n", "num_keep"}
OPTIONS = OPTIONS | {"mirostat", "mirostat_eta", "mirostat_tau"}
TEXT = {"prompt", "suffix", "echo", "n", "logit_bias", "logprobs"}
FIELDS = {
    "/v1/chat/completions": chat.FIELDS | {"stream", "stream_options"},
    "/v1/completions": chat.SAMPLING | TEXT | {"stream", "stream_options"},
    "/api/chat": frozenset({"messages", "tools", "format", "think", "stream"}),
    # no template: it is a program that the engine would run, and ten lines of one can fill its memory
    "/api/generate": frozenset({"prompt", "suffix", "images", "format", "system", "raw", "context", "think", "stream"}),
}
PROMPT = {"/v1/chat/completions": "messages", "/api/chat": "messages"}  # of the others: "prompt"
READ = {OLLAMA: ("/v1/models", "/api/tags", "/api/ps", "/api/version")}  # what tells and changes nothing
# What a continuation would not carry: shapes of the whole, thoughts, and counts of what was said before.
WHOLE_ONLY = {"tools", "response_format", "format", "logprobs", "top_logprobs", "think", "reasoning_effort", "suffix"}
WHOLE_ONLY = WHOLE_ONLY | {"echo", "presence_penalty", "frequency_penalty"}
CHOICES_MOST = 4
LOGPROBS_MOST = 20  # OpenAI's and Ollama's own bound; llama.cpp's server has none, and holds them all in memory
FILLING = ("prompt", "messages", "images", "tools", "context", "system", "suffix")  # what fills the prompt
BYTES_PER_TOKEN = 4  # English text; what it gets wrong the estimates learn
IMAGE_TOKENS = 1024
IMAGE = re.compile("data:[^,]{0,100};base64,|[A-Za-z0-9+/_=-]{4096}")
CALLER_CHARACTERS = 128


@dataclass(frozen=True)
class Asked:
    """One request that may stand in the line."""

    path: str
    body: dict[str, Any] = field(repr=False)
    stream: bool
    limit: int  # tokens
    prompt_tokens: int  # an estimate
    whole: bool  # never sliced, whatever its sampling
    fixed: bool  # temperature 0

    @property
    def openai(self) -> bool:
        """Events and OpenAI's errors; else lines and Ollama's."""
        return self.path.startswith("/v1/")


@dataclass(frozen=True)
class Terms:
    """Whose request it is, and by when it must be answered."""

    caller: str
    kind: str
    deadline_seconds: float
    continued: bool = False  # another target goes on where this one stops


def paths(engine: str) -> tuple[str, ...]:
    """Where prompts are posted: llama.cpp's server knows one family alone."""
    return tuple(path for path in FIELDS if engine == OLLAMA or path.startswith("/v1/"))


def readable(engine: str) -> tuple[str, ...]:
    """What may be got."""
    return READ.get(engine, ("/v1/models",))


def terms(headers: Mapping[str, str], config: Config) -> Terms:
    """What a gateway says in its headers; from anybody else they are hearsay. A word that is none lowers the class."""
    if not config.gateway:
        return Terms("", lane_headers.INTERACTIVE, config.deadline_seconds)
    said = headers.get(lane_headers.CLASS, lane_headers.INTERACTIVE)
    kind = lane_headers.INTERACTIVE if said == lane_headers.INTERACTIVE else lane_headers.BACKGROUND
    try:
        seconds = float(headers.get(lane_headers.DEADLINE, config.deadline_seconds))
    except ValueError:
        seconds = config.deadline_seconds
    if math.isnan(seconds):
        seconds = config.deadline_seconds
    caller = headers.get(lane_headers.CALLER, "")[:CALLER_CHARACTERS]
    continued = headers.get(lane_headers.CONTINUED) == lane_headers.YES
    return Terms(caller, kind, min(max(0.0, seconds), config.deadline_most_seconds), continued)


def read(path: str, raw: bytes, config: Config) -> Asked:
    """The request in `raw`; raises Refusal."""
    body = json_object(raw)
    _model(body.get("model"), config)
    prompt = body.get(PROMPT.get(path, "prompt"))
    _prompt(prompt, PROMPT.get(path, "prompt"))
    openai = path.startswith("/v1/")
    stream = body.get("stream")
    stream = not openai if stream is None else stream
    if not isinstance(stream, bool):
        raise _bad("stream", "true or false")
    kept = {name: value for name, value in body.items() if name in FIELDS[path] and value is not None}
    sampling = kept if openai else _options(body)
    limit = _limit(body, openai, config)
    answers = _answers(kept, prompt) if openai else 1
    if openai:
        kept["max_tokens"] = limit
    else:
        kept["options"] = {**sampling, "num_predict": limit}
    # Ollama puts a completion's prompt into the chat's template: what follows would be another answer
    torn = not openai or (path == "/v1/completions" and config.engine == OLLAMA)
    whole = answers > 1 or torn or bool(WHOLE_ONLY & kept.keys()) or not _plain(prompt)
    return Asked(
        path=path,
        body={**kept, "model": config.model, "stream": stream},
        stream=stream,
        limit=limit * answers,
        prompt_tokens=_tokens([kept.get(name) for name in FILLING]),
        whole=whole,
        fixed=sampling.get("temperature") == 0,
    )


def _model(model: Any, config: Config) -> None:
    if not isinstance(model, str) or _tagged(model) != _tagged(config.model):
        shown = model if isinstance(model, str) else json.dumps(model)
        raise Refusal(404, f"The model {shown[:100]!r} does not exist; there is {config.model}", "model_not_found")


def _tagged(model: str) -> str:
    return model if ":" in model else f"{model}:latest"


def _prompt(prompt: Any, name: str) -> None:
    kind = list if name == "messages" else (str, list)
    if not isinstance(prompt, kind) or not prompt:
        raise _bad(name, "a list of at least one message" if name == "messages" else "text (an empty one is a load)")
    if name == "messages" and not all(isinstance(message, dict) for message in prompt):
        raise _bad(name, "a list of objects")


def _answers(kept: dict[str, Any], prompt: Any) -> int:
    """How many there will be: choices, times prompts, since a list that is not of tokens is as many prompts."""
    choices = kept.get("n", 1)
    if type(choices) is not int or not 1 <= choices <= CHOICES_MOST:
        raise _bad("n", f"a whole number from 1 to {CHOICES_MOST}")
    for name in ("logprobs", "top_logprobs"):
        if not isinstance(kept.get(name, 0), int) or not 0 <= kept.get(name, 0) <= LOGPROBS_MOST:
            raise _bad(name, f"at most {LOGPROBS_MOST}")
    several = "prompt" in kept and isinstance(prompt, list) and not any(type(each) is int for each in prompt)
    answers = choices * (len(prompt) if several else 1)
    if answers > CHOICES_MOST:
        raise _bad("prompt", f"at most {CHOICES_MOST} prompts, times `n`")
    return answers


def _options(body: dict[str, Any]) -> dict[str, Any]:
    found = body.get("options")
    if found is not None and not isinstance(found, dict):
        raise _bad("options", "an object")
    return {name: value for name, value in (found or {}).items() if name in OPTIONS}


def _limit(body: dict[str, Any], openai: bool, config: Config) -> int:
    """The caller's token limit, capped; one where it is missing. Ollama's -1 and -2 are endless: capped."""
    if openai:
        named = [(name, body.get(name)) for name in ("max_completion_tokens", "max_tokens")]
    else:
        named = [("options.num_predict", (body.get("options") or {}).get("num_predict"))]
    most = min(config.max_tokens, config.context_length)
    for name, value in named:
        if value is None:
            continue
        if type(value) is not int or (openai and value < 1):
            raise _bad(name, f"a whole number from 1 to {most}")
        return min(value, most) if value > 0 else most
    return min(config.default_max_tokens, most)


def _plain(prompt: Any) -> bool:
    """Text alone, as a continuation needs it: no image, no answer that is begun already."""
    if isinstance(prompt, str):
        return True
    messages = [message for message in prompt if isinstance(message, dict)]
    texts = all(isinstance(message.get("content"), str) and not message.get("images") for message in messages)
    return bool(messages) and len(messages) == len(prompt) and texts and messages[-1].get("role") != "assistant"


def _tokens(value: Any) -> int:
    """About how many tokens the texts of a prompt have, each image as one size."""
    total, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            total += IMAGE_TOKENS if IMAGE.match(each) else -(-len(each.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif each is not None:
            total += 1
    return total


def _bad(name: str, allowed: str) -> Refusal:
    return Refusal(400, f"`{name}` must be {allowed}", "invalid_request")


def continued(asked: Asked, text: str, tokens: int) -> Optional[dict[str, Any]]:
    """The body that goes on after `text`, at most so many tokens; None where there is no such thing."""
    if asked.whole:
        return None
    body = {**asked.body, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}}
    if text and "messages" in body:
        body["messages"] = [*body["messages"], {"role": "assistant", "content": text}]
    elif text:
        body["prompt"] = body["prompt"] + text
    return body
