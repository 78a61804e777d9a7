"""A real llama.cpp server in a process of its own, with a tiny model that takes its time: see `main`."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.core.ports import free_port

CONTEXT = 2048
READY_SECONDS = 60


@contextmanager
def server(folder: Path, slots: int = 1, context: int = CONTEXT, times: int = 1) -> Iterator[str]:
    """Its URL, once it serves. `context`: of all slots together; `times`: of the model's size."""
    port = free_port()
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.lane.llama", str(folder), str(port)]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [*command, str(slots), str(context), str(times)], stdout=log, stderr=log, cwd=Path(__file__).parents[2]
        )
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + READY_SECONDS
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=2).close()  # noqa: S310  loopback
                break
            except OSError:
                if time.monotonic() > deadline or child.poll() is not None:
                    raise RuntimeError((folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)
        yield url
    finally:
        child.kill()
        child.wait()


def main(folder: Path, port: int, slots: int, context: int, times: int) -> None:
    """Serve until killed."""
    import xllamacpp

    from tests.box import tiny_model

    tiny_model.write(folder / "model.gguf", seed=3, lively=True, context=context, times=times)
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = (
        str(folder / "model.gguf"),
        context,
        slots,
        False,
    )
    params.cpuparams.n_threads, params.verbosity = 1, 0
    params.hostnames, params.port = ["127.0.0.1"], port
    running = xllamacpp.Server(params)
    while running:
        time.sleep(3600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
