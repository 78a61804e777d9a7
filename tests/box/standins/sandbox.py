"""Stand-in for what systemd does to a unit with a user of its own: reads the unit's file and applies its limits.

Every unit has its CapabilityBoundingSet and NoNewPrivileges (setpriv), and nothing else where it has no such user.
Real, by other means: User, ProtectSystem=strict, ReadWritePaths, PrivateTmp, TemporaryFileSystem, BindReadOnlyPaths and
ProtectProc (mounts in a mount namespace), IPAddressDeny and IPAddressAllow (iptables by user, where systemd filters by
control group). Not applied, and so not leant on: its filters of system calls, address families, namespaces and devices.
"""

import pwd
import shlex
from pathlib import Path

NETS = {"link-local": ("169.254.0.0/16", "fe80::/64"), "localhost": ("127.0.0.0/8", "::1/128")}
NETS["any"] = ("0.0.0.0/0", "::/0")
API_FILE_SYSTEMS = ("/dev", "/proc", "/sys")


def command(unit: dict[str, list[str]], words: list[str]) -> list[str]:
    """The words that run `words` within the limits of a unit (its values by key)."""
    if "User" not in unit:
        return ["setpriv", *shlex.split(" ".join(_privileges(unit))), "--", *words]
    steps = ["set -e", *_read_only(unit), *_hidden(unit), *_denied(unit)]
    steps.append(f'exec setpriv {" ".join(_privileges(unit))} -- "$@"')
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "\n".join(steps), "sandbox", *words]


def _all(unit: dict[str, list[str]], key: str) -> list[str]:
    return [word for value in unit.get(key, []) for word in value.split()]


def _on(unit: dict[str, list[str]], key: str, value: str = "yes") -> bool:
    return unit.get(key, [""])[-1] == value


def _mounts() -> list[str]:
    return list(dict.fromkeys(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()))


def _read_only(unit: dict[str, list[str]]) -> list[str]:
    if not _on(unit, "ProtectSystem", "strict"):
        return []
    held = [mount for mount in _mounts() if not _below(mount, *API_FILE_SYSTEMS)]
    writable = [path.lstrip("-") for path in _all(unit, "ReadWritePaths")]
    return [
        *(f"[ ! -e {path} ] || mount --bind {path} {path}" for path in writable),
        *(f"mount -o remount,bind,ro {mount}" for mount in held),
    ]


def _hidden(unit: dict[str, list[str]]) -> list[str]:
    steps = []
    for path in ("/tmp", "/var/tmp") if _on(unit, "PrivateTmp") else ():  # noqa: S108
        kept = [mount for mount in _mounts() if _below(mount, path) and mount != path]  # the checkout may lie there
        steps += [f"mount --rbind {path} /mnt", f"mount -t tmpfs -o mode=1777 tmpfs {path}"]
        steps += [f"mkdir -p {mount} && mount --bind /mnt{mount.removeprefix(path)} {mount}" for mount in kept]
        steps.append("umount -l /mnt")
    shown = [path for path in _all(unit, "BindReadOnlyPaths") if Path(path).exists()]
    steps += ["mount -t tmpfs tmpfs /mnt"] if shown else []
    steps += [f"{_point(path, f'/mnt/{n}')} && mount --bind {path} /mnt/{n}" for n, path in enumerate(shown)]
    for word in _all(unit, "TemporaryFileSystem"):
        path, _, options = word.partition(":")
        steps.append(f"mount -t tmpfs tmpfs {path}")
        for number, each in enumerate(shown):
            steps.append(f"{_point(each, each)} && mount --bind /mnt/{number} {each}")
        steps.append(f"mount -o remount,{options or 'rw'} {path}")
    steps += ["umount -l /mnt"] if shown else []
    if _on(unit, "ProtectProc", "invisible"):
        steps.append("mount -t proc -o hidepid=invisible proc /proc")
    return steps


def _point(path: str, at: str) -> str:
    """Makes what a path can be mounted on."""
    return f"mkdir -p {at}" if Path(path).is_dir() else f"mkdir -p {Path(at).parent} && touch {at}"


def _denied(unit: dict[str, list[str]]) -> list[str]:
    """Every start adds the rules again, which changes nothing."""
    user = pwd.getpwnam(unit["User"][-1]).pw_uid
    rules = [  # each is put before the others: what is allowed comes last
        (net, verdict)
        for key, verdict in (("IPAddressDeny", "REJECT"), ("IPAddressAllow", "ACCEPT"))
        for word in _all(unit, key)
        for net in NETS.get(word, (word,))
    ]
    return [
        f"{'ip6tables' if ':' in net else 'iptables'} -w 5 -I OUTPUT -d {net} -m owner --uid-owner {user} -j {verdict}"
        for net, verdict in rules
    ]


def _privileges(unit: dict[str, list[str]]) -> list[str]:
    words = []
    if "User" in unit:
        found = pwd.getpwnam(unit["User"][-1])
        words = [f"--reuid {found.pw_uid}", f"--regid {found.pw_gid}", "--clear-groups"]
    if "CapabilityBoundingSet" in unit:
        kept = "".join(f",+{name.removeprefix('CAP_').lower()}" for name in _all(unit, "CapabilityBoundingSet"))
        words.append(f"--bounding-set -all{kept} --inh-caps -all --ambient-caps -all")
    if _on(unit, "NoNewPrivileges"):
        words.append("--no-new-privs")
    return words


def _below(path: str, *roots: str) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
