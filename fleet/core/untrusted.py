"""The one home of an outsider's text: what a box, a caller, an operator or a file wrote, before anybody is shown it.

What is not printable (an escape, a mark that turns the direction of writing, half of a pair) becomes U+FFFD, or a blank
where it is a space of its kind.
"""

from typing import Any

LINE_MOST = 200  # characters
KEPT = "\n\t\u200c\u200d"  # of a text of several lines; the joiners are how some scripts and emoji are spelled


def one_line(text: Any, most: int = LINE_MOST) -> str:
    """One printable line of at most so many characters."""
    line = str(text)[:most]
    return (line if line.isprintable() else "".join(char if char.isprintable() else " " for char in line)).strip()


def printable(text: str) -> str:
    """Several lines, each printable."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in KEPT else _instead(char) for char in text)


def plain(value: Any) -> Any:
    """A JSON value with every text in it printable, its keys too."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {plain(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def code(text: Any, most: int = LINE_MOST) -> str:
    """A code span of Markdown, in a table's cell too: no link, mention, heading or HTML begins in it."""
    return f"`{one_line(text, most).replace('`', chr(39)).replace('|', '¦') or ' '}`"


def _instead(char: str) -> str:
    return " " if char.isspace() else "\ufffd"
