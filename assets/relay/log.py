"""What a server's log may say of bytes that are no request: that there were some. They may be a prompt, or a key."""

import logging


def quote_nothing() -> None:
    """aiohttp quotes what it cannot read; from now on its errors have their names alone."""
    logging.getLogger("aiohttp.server").addFilter(_named)


def _named(record: logging.LogRecord) -> bool:
    if record.exc_info and record.exc_info[0]:
        record.msg, record.exc_info = f"{record.msg}: {record.exc_info[0].__name__}", None
    return True
