"""Stand-in for systemd: runs the units' own commands in their order inside a test's box.

Of a unit's sandbox: capabilities, more for a unit with a user of its own (see `sandbox`), there all but "+" commands.

It is process 1 of the box. Honoured: Type oneshot, simple and notify, WatchdogSec (at 1:2), Requires, OnFailure,
ExecStartPre, ExecStart, Restart, RestartSec, RemainAfterExit, Environment, EnvironmentFile, the three directories,
TimeoutStopSec (above ten seconds at 1:20), SendSIGKILL. Verbs beyond `systemctl`'s: `cloud-init FILE` runs user data,
`kill SIGNAL UNIT` signals it, `reboot` and `poweroff` end every unit.

    systemd.py SOCKET JOURNAL      process 1, which `call.py` asks: what the box calls as `systemctl`
"""

import ast
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNITS = Path("/etc/systemd/system")
DIRECTORIES = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "LogsDirectory": "/var/log"}
PREFIXES = "+-!@"  # of a command
NOTIFY = Path("/run/systemd/notify")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unit:
    """One unit and its process."""

    def __init__(self, name: str, manager: "Manager") -> None:
        self.lock = threading.Lock()
        self.name, self.manager = name, manager
        self.state = "inactive"
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping = False
        self.told_to_end: subprocess.Popen[bytes] | None = None
        self.told_at = 0.0  # when it last told that it lives
        self.values: dict[str, list[str]] = {}
        for line in (UNITS / name).read_text().splitlines():
            key, separator, value = line.partition("=")
            if separator and not line.startswith("#"):
                self.values.setdefault(key.strip(), []).append(value.strip())

    def get(self, key: str, default: str = "") -> str:
        return self.values.get(key, [default])[-1]

    def words(self, key: str) -> list[str]:
        return [word for value in self.values.get(key, []) for word in value.split()]

    def environment(self) -> dict[str, str]:
        found = dict(self.manager.environment)
        for file in self.values.get("EnvironmentFile", []):
            for line in Path(file).read_text().splitlines():
                key, _, value = line.partition("=")
                found[key] = value.strip("'")
        if self.get("Type") == "notify":
            found |= {"NOTIFY_SOCKET": str(NOTIFY), "WATCHDOG_USEC": str(int(5e5 * self.watchdog_seconds()))}
        for word in self.words("Environment"):
            key, _, value = word.partition("=")
            found[key] = value
        return found

    def watchdog_seconds(self) -> float:
        return float(self.get("WatchdogSec", "0")) / 2  # a busy machine holds up the liveliest

    def start(self) -> int:
        for needed in self.words("Requires"):
            if (UNITS / needed).exists() and self.manager.unit(needed).ensure():
                return self.fail()
        return self.run()

    def ensure(self) -> int:
        """Start it unless it runs; a start that is under way is waited for, not begun again."""
        with self.lock:
            under_way, runs = self.state == "activating", self.state == "active"
            if not runs:
                self.state = "activating"
        while under_way and self.state == "activating":
            time.sleep(0.05)
        return int(self.state == "failed") if runs or under_way else self.start()

    def run(self) -> int:
        self.stopping = False
        for key, root in DIRECTORIES.items():
            for name in self.words(key):
                (Path(root) / name).mkdir(parents=True, exist_ok=True)
        self.state = "activating"
        oneshot = self.get("Type") == "oneshot"
        for command in [*self.values.get("ExecStartPre", []), *(self.values["ExecStart"] if oneshot else [])]:
            if not self.succeeds(command):
                return 0 if self.stopping else self.fail()
        if oneshot:
            self.state = "active" if self.get("RemainAfterExit") == "yes" and not self.stopping else "inactive"
            return 0
        try:
            self.process = self.spawn(self.values["ExecStart"][0])
        except OSError as error:
            self.manager.note(f"{self.name}: {error}")
            return self.fail()
        self.told_at = 0.0
        while self.get("Type") == "notify" and not self.told_at and self.process.poll() is None:
            time.sleep(0.02)  # until it says that it is ready
        self.state = "active"
        threading.Thread(target=self.watch, args=(self.process,), daemon=True).start()
        return int(self.process.poll() is not None)

    def succeeds(self, command: str) -> bool:
        """Run a command to its end. A "-" among its prefixes forgives every failure, a missing program too."""
        forgiven = "-" in command[: len(command) - len(command.lstrip(PREFIXES))]
        try:
            self.process = self.spawn(command)
            return not self.process.wait() or forgiven
        except OSError as error:
            self.manager.note(f"{self.name}: {error}")
            return forgiven

    def spawn(self, command: str) -> "subprocess.Popen[bytes]":
        words = shlex.split(command.lstrip(PREFIXES))
        if "+" not in command[: len(command) - len(command.lstrip(PREFIXES))]:
            import sandbox  # beside this file, which tests import from elsewhere

            words = sandbox.command(self.values, words)
        return subprocess.Popen(
            words,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self.manager.journal,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )

    def watch(self, process: "subprocess.Popen[bytes] | None") -> None:
        limit = self.watchdog_seconds()
        while limit and process and process.poll() is None:
            time.sleep(0.05)
            if time.monotonic() - self.told_at > limit:
                self.manager.note(f"{self.name}: watchdog timeout")
                for number in (signal.SIGABRT, signal.SIGKILL):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                    time.sleep(0.2)  # TimeoutAbortSec
                limit = 0.0
        status = process.wait() if process else 0
        if process is self.told_to_end:  # though the unit may have been started again by now
            return
        self.manager.note(f"{self.name}: ended with {status}")
        self.state = "failed" if status else "inactive"
        if self.get("Restart") == "always" or (self.get("Restart") == "on-failure" and status):
            time.sleep(float(self.get("RestartSec", "0.1")))
            if process is self.process and not self.stopping:
                self.ensure()

    def fail(self) -> int:
        self.state = "failed"
        for name in self.words("OnFailure"):
            threading.Thread(target=self.manager.unit(name).start, daemon=True).start()
        return 1

    def stop(self) -> None:
        self.stopping, self.told_to_end = True, self.process
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(timeout=scaled(self.get("TimeoutStopSec", "5")))
            except subprocess.TimeoutExpired:
                self.manager.note(f"{self.name}: did not end")
            if self.get("SendSIGKILL", "yes") == "yes":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
        self.state = "inactive"


def scaled(text: str) -> float:
    """Seconds of a unit's file; what a real machine waits a minute for would make a test wait."""
    seconds = float(text)
    return seconds / 20 if seconds > 10 else seconds


class Manager:
    """Process 1."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal.open("ab", buffering=0)
        self.environment = {"PATH": PATH, "LANG": "C.UTF-8"}
        for key in ("AWS_ENDPOINT_URL", "AWS_CA_BUNDLE", "SSL_CERT_FILE"):
            if key in os.environ:
                self.environment[key] = os.environ[key]
        self.units: dict[str, Unit] = {}
        NOTIFY.parent.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self.listen, daemon=True).start()
        self.enabled: list[str] = []
        self.lock = threading.Lock()

    def unit(self, name: str) -> Unit:
        name = name if name.endswith(".service") else f"{name}.service"
        with self.lock:
            if name not in self.units:
                self.units[name] = Unit(name, self)
            return self.units[name]

    def listen(self) -> None:
        """What units say of themselves, each known by its process."""
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ear.bind(str(NOTIFY))
        NOTIFY.chmod(0o777)
        while True:
            _, ancillary, _, _ = ear.recvmsg(4096, socket.CMSG_SPACE(12))
            pid = int.from_bytes(ancillary[0][2][:4], "little")
            for unit in list(self.units.values()):
                if unit.process and unit.process.pid == pid:
                    unit.told_at = time.monotonic()

    def note(self, text: str) -> None:
        self.journal.write(f"systemd stand-in: {text}\n".encode())

    def end_all(self) -> None:
        for unit in list(self.units.values()):
            unit.stop()

    def command(self, words: list[str]) -> int:
        verb, names = words[0], [word for word in words[1:] if not word.startswith("-")]
        background = "--no-block" in words
        if verb == "daemon-reload":
            return 0
        if verb == "enable":
            self.enabled += [name for name in names if name not in self.enabled]
            return 0
        if verb == "cloud-init":
            script = subprocess.Popen(
                ["bash", names[0]], env=self.environment, stdout=self.journal, stderr=subprocess.STDOUT, cwd="/"
            )
            return script.wait()
        if verb == "kill":
            unit = self.unit(names[1])
            if unit.process:
                os.killpg(unit.process.pid, signal.Signals[f"SIG{names[0]}"])
            return 0 if unit.process else 3
        if verb == "poweroff":
            threading.Thread(target=self.end_all, daemon=True).start()
            return 0
        if verb == "reboot":
            return self.reboot()
        actions: dict[str, Callable[[Unit], Any]] = {"start": Unit.ensure, "stop": Unit.stop}
        status = 0
        for name in names:
            if background:
                threading.Thread(target=actions[verb], args=(self.unit(name),), daemon=True).start()
            else:
                status = actions[verb](self.unit(name)) or status
        return status

    def reboot(self) -> int:
        """Everything ends, /run is empty, the instance store too; enabled units start, the gate's first."""
        self.end_all()
        self.units.clear()
        shutil.rmtree("/run/fleet", ignore_errors=True)
        subprocess.run(["umount", "/var/lib/fleet/nvme"], check=False, capture_output=True)
        subprocess.run(["nft", "flush", "ruleset"], check=False, capture_output=True)
        Path("/proc/sys/kernel/random/boot_id").write_text(f"{time.time_ns()}\n")
        self.note("rebooted")
        for name in sorted(self.enabled, key=lambda name: name != "fleet-gate.service"):
            threading.Thread(target=self.unit(name).ensure, daemon=True).start()
            time.sleep(0.3)
        return 0


def serve(socket_path: str, journal: str) -> None:
    """Answer commands for ever."""
    manager = Manager(Path(journal))
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(socket_path)
    server.listen(64)

    def handle(connection: socket.socket) -> None:
        with connection:
            try:
                words, _ = ast.literal_eval(connection.recv(1 << 20).decode())
                status = manager.command(words)
            except (OSError, KeyError, ValueError) as error:
                manager.note(f"{type(error).__name__}: {error}")
                status = 5
            connection.sendall(b"%d" % status)

    while True:
        threading.Thread(target=handle, args=(server.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
