"""How this package extends moto: one decorator, used at import time by the modules beside it."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def extend(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace `owner.name` by the decorated function, which gets the original as its first argument.

    Works for methods and class methods alike: the function is called as `function(original, self_or_cls, ...)`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        raw = owner.__dict__.get(name) or getattr(owner, name)
        is_class_method = isinstance(raw, classmethod)
        original = raw.__func__ if is_class_method else raw

        @wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, classmethod(replacement) if is_class_method else replacement)
        return function

    return decorate
