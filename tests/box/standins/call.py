"""A command of the box that another process carries out: its words, environment and output go to whoever listens.

    call.py SOCKET WORD ...      exits with the status that is answered

A boot calls some twenty times, and `socket` and `json` take three times as long to load as the rest of Python.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket


def call(path: str, words: list[str]) -> int:
    """One call; its exit status."""
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    connection.connect(path)
    outputs = b"".join(number.to_bytes(4, sys.byteorder) for number in (1, 2))
    connection.sendmsg([repr((words, dict(os.environ))).encode()], [(SOL_SOCKET, SCM_RIGHTS, outputs)])
    return int(connection.recv(8) or b"255")


if __name__ == "__main__":
    sys.exit(call(sys.argv[1], sys.argv[2:]))
