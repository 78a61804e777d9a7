"""A port of loopback for a server that is about to start."""

import socket


def free_port() -> int:
    """Nothing listens there now, and the kernel gives it to nobody else for a while."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
