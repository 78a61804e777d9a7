"""`make cloud`: the embedded AWS in the foreground, for trying the real commands by hand. Ends with Ctrl-C.

It writes the environment that points every AWS client at it to `out/cloud/env`; `source` that file in another terminal.
"""

import signal
import sys
from pathlib import Path

from fleet import embedded
from fleet.embedded import assembly

OUT = Path(__file__).parents[2] / "out" / "cloud"


def main() -> int:
    """Serve until interrupted."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "env"
    with embedded.server(OUT / "aws") as aws:
        assembly.bootstrap(aws)
        lines = [f"export {name}='{value}'\n" for name, value in aws.environment().items()]
        path.write_text("".join(lines), encoding="utf-8")
        sys.stdout.write(
            f"An AWS inside this machine, at {aws.endpoint} (account {embedded.ACCOUNT}, bootstrapped, empty).\n"
            f"In another terminal:  source {path.relative_to(Path.cwd())}\n"
            "It forgets everything when it ends: Ctrl-C.\n"
        )
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    path.unlink()
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    sys.exit(main())
