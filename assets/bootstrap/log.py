"""One line of log, stamped with the instance's own uptime, to the journal and to the box's file.

CloudWatch stamps arrive batched and reorder; the uptime in the line does not. Nothing secret is ever passed to `say`.
"""

import sys
import time

import paths


def uptime() -> float:
    """Seconds since the kernel started; no clock step moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(message: str) -> None:
    """Write one line. A full disk costs the file its line, not the box its boot: the journal still has it."""
    line = f"{uptime():.2f} {message}\n".encode(errors="backslashreplace").decode()  # JSON can name half a surrogate
    sys.stdout.write(line)
    sys.stdout.flush()
    try:
        paths.LOG.parent.mkdir(parents=True, exist_ok=True)
        with paths.LOG.open("a") as file:
            file.write(line)
    except OSError as error:
        sys.stderr.write(f"{paths.LOG}: {error}\n")
