"""The way out: let streams end, shut the gate, give the launch hook back, have the group end this box, say why, else
power off.

Run by fleet-leave.service, which the agent starts and which systemd starts when the boot fails, however it failed. The
group replaces the box; powering off terminates it too (the launch template says so).
"""

import subprocess
import time
import traceback

import config
import ending
import gate
import names
import paths
import telemetry
from aws import HOOK_SECONDS, Aws, AwsError
from config import Box
from imds import Imds, ImdsError, identity
from log import say
from systemctl import systemctl

UNIT = "fleet-leave.service"
TERMINATE_SECONDS = 60.0
TAG_SECONDS = 10.0  # the launch hook waits for it: without the tag a failed boot is not counted


def request(why: str) -> None:
    """Have the box leave. Returns at once; the first reason counts."""
    say(f"leaving: {why}")
    if not paths.WHY.exists():
        paths.mark(paths.WHY, why)
    systemctl("start", UNIT, "--no-block")


def leave(box: Box) -> None:
    """The shutdown sequence. Every step is tried whatever became of the one before; the last cannot be refused."""
    if paths.serves() and not paths.WHY.exists():
        return say("the boot's program was ended, the box serves on")
    why = paths.WHY.read_text() if paths.WHY.exists() else "the boot ended without a word"
    # nobody drained it, and its engine is not known to be wedged
    serving = paths.OPENED.exists() and not paths.LEAVING.exists() and gate.current() == gate.OPEN
    paths.mark(paths.LEAVING, why)
    gate.attempt(gate.DRAINING if serving else gate.CLOSED, box.port)
    if serving and not paths.COMPLETED.exists():
        _let_streams_end(box)
        serving = False
    try:
        aws = Aws(box, instance_id := identity(Imds()).instance_id)
    except ImdsError as error:
        say(f"leaving blindly: {error}")
        if serving:
            _let_streams_end(box)
        return _power_off()
    # asked before the launch is given up: the agent marks the end that this is to the group, too
    failed = not paths.COMPLETED.exists() and not paths.NOTICE.exists()
    if not paths.COMPLETED.exists():
        say(f"ended before serving: {why}")
        if failed:
            _tag_failed(aws)
        try:
            aws.complete_hook(names.LAUNCH_HOOK, "ABANDON", HOOK_SECONDS)
        except AwsError as error:
            say(f"launch hook not abandoned: {error}")
    try:
        aws.terminate(TERMINATE_SECONDS)
        terminated = True
        say("the group ends this box")  # which the agent hears from metadata: it lets the streams end
    except AwsError as error:
        terminated = False
        say(f"not terminated through the group: {error}")
        if serving:
            _let_streams_end(box)
    _report(box, aws, names.box_log_stream(instance_id, names.STREAM_LEAVING), failed)
    return None if terminated else _power_off()


def _report(box: Box, aws: Aws, stream: str, failed: bool) -> None:
    """Last, since CloudWatch may hang: neither the successor nor the launch hook waits for it."""
    if failed:
        telemetry.put(aws, [telemetry.metric(box, names.METRIC_BOOT_FAILED, 1, "Count")])
    telemetry.ship(aws, stream)
    paths.mark(paths.TOLD)


def _tag_failed(aws: Aws) -> None:
    """The watchdog counts failed boots by this tag: a launch that is given up may as well have been reclaimed."""
    # aws-behaviours: tag-seen
    try:
        aws.tag_boot(names.BOOT_FAILED, TAG_SECONDS)
    except AwsError as error:
        say(f"not tagged {names.BOOT_FAILED}: {error}")


def _let_streams_end(box: Box) -> None:
    """New callers are refused already. A notice that comes meanwhile leaves no less time than this."""
    seconds = min(box.drain_budget_seconds, names.NOTICE_SECONDS - box.safety_margin_seconds)
    say(f"before leaving: {ending.wait(box, time.monotonic() + seconds)}")
    gate.attempt(gate.CLOSED, box.port)


def _power_off() -> None:
    say("powering off")
    subprocess.run(["shutdown", "-h", "now"], check=True)


def main() -> None:
    """What the sequence did not foresee ends in its last step."""
    try:
        leave(config.load())
    except Exception:
        say(traceback.format_exc())
        _power_off()


if __name__ == "__main__":
    main()
