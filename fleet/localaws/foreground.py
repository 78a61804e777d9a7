"""`make cloud`: the embedded AWS in the foreground, for trying the real commands by hand. Ends with Ctrl-C.

It writes the environment that points every AWS client at it to `out/cloud/env` (`source` that file in another terminal)
and a model of a few bytes to `out/cloud/artifacts`.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from fleet import localaws
from fleet.config import validation
from fleet.core.cdk_cli import Cdk
from fleet.localaws import artifacts

OUT = Path(__file__).parents[2] / "out" / "cloud"
ENDS_WITH = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def main() -> int:
    """Serve until interrupted."""
    path, region = OUT / "env", validation.load().region
    artifacts.write(OUT / "artifacts")
    path.unlink(missing_ok=True)  # of one that was killed
    with localaws.server(OUT / "aws", region) as aws:
        Cdk(aws.environment(), OUT / "cdk.log").bootstrap(localaws.ACCOUNT, region, OUT / "empty")
        export(path, aws.environment())
        sys.stdout.write(
            f"An AWS inside this machine, at {aws.endpoint} (account {localaws.ACCOUNT}, bootstrapped, else empty).\n"
            "In another terminal:  source out/cloud/env\n"
            "It forgets everything when it ends: Ctrl-C.\n"
        )
        sys.stdout.flush()
        signal.sigwait(ENDS_WITH)
    path.unlink()
    return 0


def export(path: Path, environment: Mapping[str, str]) -> None:
    """A new file for `source`, of its owner alone: it holds the keys."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"export {name}='{value}'\n" for name, value in environment.items())


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS_WITH)  # before any thread: whoever starts one inherits it
    sys.exit(main())
