"""A caller outside the box that connects every 50 ms on both families and writes down what became of it, as JSON lines.

    {"at": 8123.45, "family": 6, "outcome": "refused" | "answered" | "hang" | "reset" | "cut" | ..., "ms": 0.1}

`at` is the monotonic clock before the connect. With `ask` it sends a request and wants an answer within two seconds;
without, it closes at once, as a balancer's TCP probe does ("accepted").

    prober.py LOG IPV4 IPV6 PORT ask|connect SECONDS
"""

import errno
import json
import socket
import sys
import threading
import time
from pathlib import Path

REQUEST = b"GET /api/version HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n"


def probe(family: int, address: str, port: int, ask: bool) -> str:
    """One connection's fate."""
    with socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET) as caller:
        caller.settimeout(2.0)
        try:
            caller.connect((address, port))
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "hang"
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "error")
        if not ask:
            return "accepted"
        try:
            caller.sendall(REQUEST)
            answer = caller.recv(200)
            return "answered" if b" 200 " in answer else "wrong" if answer else "cut"
        except TimeoutError:
            return "hang"
        except OSError:
            return "reset"


def main() -> None:
    """Probe until killed."""
    log, v4, v6, port, ask, every = sys.argv[1:]
    file = Path(log).open("w")  # noqa: SIM115 - open until killed
    lock = threading.Lock()

    def loop(family: int, address: str) -> None:
        while True:
            at = time.monotonic()
            outcome = probe(family, address, int(port), ask == "ask")
            line = {"at": at, "family": family, "outcome": outcome, "ms": round((time.monotonic() - at) * 1000, 2)}
            with lock:
                file.write(json.dumps(line) + "\n")
                file.flush()
            time.sleep(max(0.0, at + float(every) - time.monotonic()))

    threading.Thread(target=loop, args=(6, v6), daemon=True).start()
    loop(4, v4)


if __name__ == "__main__":
    main()
