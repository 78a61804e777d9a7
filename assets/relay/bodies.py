"""Large bodies: how much memory they may take together, while their requests are here. Small ones always find room."""

from typing import Optional

from relay.refusal import Refusal

SMALL_BYTES = 64 << 10  # a prompt of text


class Bodies:
    """Those of one process: each counts as what it says of its length, and as the most that one may have otherwise."""

    def __init__(self, *, together: int, most: int) -> None:
        self._together, self._most, self._here = together, most, 0

    def take(self, length: Optional[int]) -> int:
        """The bytes that it now holds, to be given back; raises Refusal where those that are here leave no room."""
        size = self._most if length is None else min(length, self._most)
        if size <= SMALL_BYTES:
            return 0
        if self._here and self._here + size > self._together:
            raise Refusal(503, "Too many large requests are here at once", "too_many_large", 1, retry=True)
        self._here += size
        return size

    def give_back(self, size: int) -> None:
        """Its request is over."""
        self._here -= size
