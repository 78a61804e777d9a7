"""`make cloud`: the embedded AWS in the foreground, for trying the real commands by hand. Ends with Ctrl-C.

It writes the environment that points every AWS client at it to `out/cloud/env` (`source` that file in another terminal)
and a model of a few bytes to `out/cloud/artifacts`.
"""

import signal
import sys
from pathlib import Path

from fleet import embedded, validation
from fleet.cdk_cli import Cdk
from fleet.demo import artifacts

OUT = Path(__file__).parents[2] / "out" / "cloud"
ENDS_WITH = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def main() -> int:
    """Serve until interrupted."""
    path, region = OUT / "env", validation.load().region
    artifacts.write(OUT / "artifacts")
    path.unlink(missing_ok=True)  # of one that was killed
    with embedded.server(OUT / "aws", region) as aws:
        Cdk(aws.environment(), OUT / "cdk.log").bootstrap(embedded.ACCOUNT, region, OUT / "empty")
        lines = [f"export {name}='{value}'\n" for name, value in aws.environment().items()]
        path.write_text("".join(lines), encoding="utf-8")
        sys.stdout.write(
            f"An AWS inside this machine, at {aws.endpoint} (account {embedded.ACCOUNT}, bootstrapped, else empty).\n"
            "In another terminal:  source out/cloud/env\n"
            "It forgets everything when it ends: Ctrl-C.\n"
        )
        sys.stdout.flush()
        signal.sigwait(ENDS_WITH)
    path.unlink()
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS_WITH)  # before any thread: whoever starts one inherits it
    sys.exit(main())
