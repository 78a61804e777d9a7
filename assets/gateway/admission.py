"""Admission: what a request may ask, judged before any target hears of it. Pure: bytes in, an Ask out, or a Refusal.

What is refused here fails the same anywhere; nothing that a caller writes chooses the cloud.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.config import Config
from relay import chat
from relay.refusal import Refusal, json_object

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
BYTES_PER_TOKEN = 4  # English text; what it gets wrong, the engine's own limit catches
IMAGE_TOKENS = 1024  # of one image, whatever its bytes


@dataclass(frozen=True)
class Ask:
    """One admitted request."""

    model: str  # as the caller named it
    engine_model: str
    stream: bool
    wants_usage: bool
    max_tokens: int
    prompt_tokens: int  # an estimate, for limits and reservations
    body: dict[str, Any]  # of `chat.FIELDS` alone
    fixed: bool  # its sampling is fixed: two targets may say the same
    continues: bool  # it ends in an assistant message: the answer so far
    tools: bool
    once: bool  # its caller marked it: never sent a second time


def admit(raw: bytes, headers: Mapping[str, str], config: Config) -> Ask:
    """The request in `raw`; raises Refusal."""
    body = json_object(raw)
    model = body.get("model")
    if not isinstance(model, str) or model not in config.models:
        raise Refusal(
            404, f"The model {_shown(model)} does not exist; there is {', '.join(config.models)}", "model_not_found"
        )
    messages = _messages(body)
    stream = _flag(body, "stream")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _bad("stream_options", "an object")
    prompt_tokens = _prompt_tokens(messages, body.get("tools"))
    if prompt_tokens > config.gateway.limits.prompt_tokens:
        limit = config.gateway.limits.prompt_tokens
        raise Refusal(413, f"The prompt has about {prompt_tokens} tokens; at most {limit}", "context_length_exceeded")
    max_tokens = _max_tokens(body, config)
    if _number(body, "n", 1, 1, config.gateway.limits.choices) > 1 and stream:
        raise _bad("n", "1 where the answer is streamed")
    kept = {name: body[name] for name in chat.FIELDS & body.keys() if body[name] is not None}
    if config.gateway.fixed_sampling:
        kept["temperature"] = 0
    return Ask(
        model=model,
        engine_model=config.models[model],
        stream=stream,
        wants_usage=options.get("include_usage") is True,
        max_tokens=max_tokens,
        prompt_tokens=prompt_tokens,
        body=kept,
        fixed=kept.get("temperature") == 0,
        continues=messages[-1]["role"] == "assistant",
        tools=bool(body.get("tools")),
        once=headers.get("x-replay", "").lower() == "never",
    )


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("messages", "a list of at least one message")
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in ROLES:
            raise _bad(f"messages[{index}].role", f"one of {', '.join(sorted(ROLES))}")
        content = message.get("content")
        if not (content is None or isinstance(content, str | list)):
            raise _bad(f"messages[{index}].content", "a string, or a list of parts")
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise _bad(f"messages[{index}].tool_calls", "a list")
        for call in calls:
            _tool_call(index, call)
    return messages


def _tool_call(index: int, call: Any) -> None:
    """A call whose arguments were cut in their JSON breaks chat templates: it is refused where it can be named."""
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    try:
        json.loads(arguments if isinstance(arguments, str) else "")
    except (ValueError, RecursionError):
        raise _bad(f"messages[{index}].tool_calls", "calls whose arguments are whole JSON") from None


def _prompt_tokens(messages: list[dict[str, Any]], tools: Any) -> int:
    size, images = len(json.dumps(tools)) if tools else 0, 0
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"text": content}]:
            if isinstance(part, dict) and part.get("type") in {"image_url", "input_image"}:
                images += 1
            else:
                size += (
                    len(str(part.get("text") or "").encode("utf-8", "replace"))
                    if isinstance(part, dict)
                    else len(str(part))
                )
        if message.get("tool_calls"):
            size += len(json.dumps(message["tool_calls"]))
    return size // BYTES_PER_TOKEN + images * IMAGE_TOKENS + 4 * len(messages)


def _max_tokens(body: dict[str, Any], config: Config) -> int:
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return _number(body, name, config.gateway.limits.default_max_tokens, 1, config.gateway.limits.max_tokens)


def _number(body: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _bad(name, f"a whole number from {low} to {high}")
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise _bad(name, "true or false")
    return bool(value)


def _bad(name: str, allowed: str) -> Refusal:
    return Refusal(400, f"{name}: {allowed}", "invalid_value")


def _shown(value: Any) -> str:
    return json.dumps(str(value)[:80])
