"""The fields of an HTTP message."""

from collections.abc import Iterator, Mapping
from typing import Any

HEAD_BYTES = 16 << 10  # of a whole head, as in Node; proxies' bounds are about as large


class Headers(Mapping[str, str]):
    """Fields by name, in any case; one that came several times is joined, as RFC 9110 (5.2) lets a reader do."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, name: bytes, value: bytes) -> None:
        """As it came."""
        key, text = name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape")
        self._fields[key] = f"{self._fields[key]}, {text}" if key in self._fields else text

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def get(self, name: str, default: Any = None) -> Any:
        """Mapping's own raises and catches, at each field that is not there."""
        return self._fields.get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
