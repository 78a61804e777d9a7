"""What outsiders may write, as hypothesis draws it: letters that do harm, strange values, cut files.

A text is drawn from pieces that have done harm somewhere before (escapes, markup, mathematics, halves of pairs) beside
arbitrary ones; a document from real ones with a value replaced, removed or made a hundred deep.
"""

import copy
import json
import sys
from typing import Any

from hypothesis import strategies as st

PIECES = (
    "\x1b[2J", "\x1b]8;;http://evil\x1b\\", "\x9b1m", "\x00", "\r", "\n", "\t", "\x7f", "\u202e", "\u2028", "\ud800",
    "\udcff", "\ufeff", "[/x]", "[bold]", "[link=http://evil]", "\\", "\\[", "$", "$5 #123 $6", "$\\frac{",
    "<script>", "</pre>",
    "<!-- ", "`", "|", "@all", "{{ 7*7 }}", "%s", "{0}", "../..", "'", '"', "=", " end=", "BOOTSTAGE ", " why=", "nan",
    "1e999", "-1", "0", "9" * 30, "i-0123456789abcdef0", "spot g6.xlarge healthy", "2026-07-22T00:00:00Z",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "llm", "é", "模", "👩\u200d💻", "x" * 300,
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=4), max_size=6).map("".join)
scalars = (
    texts
    | st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from([0, 1, -1, 10**18, 1e308])
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
keys = st.sampled_from(("at", "event", "box", "signal", "world", "Type", "Properties", "name", "key", "value")) | texts


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def bent(*documents: Any) -> st.SearchStrategy[Any]:
    """One of these documents with up to three of its values replaced, removed or put beside a stranger."""

    @st.composite
    def one(draw: st.DrawFn) -> Any:
        document = copy.deepcopy(draw(st.sampled_from(documents)))
        for _ in range(draw(st.integers(1, 3))):
            place, last = None, None
            inside = document
            while isinstance(inside, dict | list) and inside and draw(st.integers(0, 4)):
                choices = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
                place, last = inside, draw(st.sampled_from(choices))
                inside = inside[last]
            if place is None:
                return draw(values)
            match draw(st.integers(0, 4)):
                case 0:
                    del place[last]
                case 1 if isinstance(place, dict):
                    place[draw(keys)] = draw(values)
                case 2:
                    place[last] = deep(draw(st.sampled_from([60, 900])))
                case _:
                    place[last] = draw(values)
        return document

    return one()


def as_json(document: Any) -> str:
    """JSON as an outsider writes it: with NaN, halves of pairs as they are, and as deep as he likes."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    try:
        return json.dumps(document, ensure_ascii=False)
    finally:
        sys.setrecursionlimit(limit)


def files(*documents: str) -> st.SearchStrategy[bytes]:
    """One of these texts, cut, mixed with pieces, or anything at all."""

    @st.composite
    def one(draw: st.DrawFn) -> bytes:
        text = draw(st.sampled_from(documents))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[: draw(st.integers(0, len(text)))]
            case 1:
                lines = text.split("\n")
                at = draw(st.integers(0, len(lines) - 1))
                lines[at] = draw(st.sampled_from(["", lines[at] + " "])) + draw(texts)
                text = "\n".join(lines)
            case 2:
                at = draw(st.integers(0, len(text)))
                text = text[:at] + draw(texts) + text[at:]
            case _:
                return draw(st.binary(max_size=200))
        return text.encode(errors="surrogatepass")

    return one()
