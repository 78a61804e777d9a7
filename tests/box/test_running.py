"""A box that serves: notices, streams, a wedged or crashed engine, metadata and APIs that are ill."""

import json
import time
from pathlib import Path

import pytest

from fleet.core import names
from tests.box import world
from tests.box.conftest import Serving


def answered_since(log: Path, at: float) -> list[str]:
    """What a prober saw from a moment on."""
    return [probe["outcome"] for probe in world.probes(log) if probe["at"] >= at]


@pytest.mark.parametrize("prepare", ["", world.NO_NFT], ids=["nft", "iptables"])
def test_stream_in_flight_finishes_after_a_notice_while_new_connections_are_refused(
    serving: Serving, prepare: str
) -> None:
    box = serving(prepare=prepare)
    log = box.probe()
    stream = box.generate(tokens=25, stream=True, pace_seconds=0.15)  # about four seconds
    time.sleep(1)
    noticed = box.notice()
    seen = box.wait_for(r"^([\d.]+) DRAIN .*new connections refused after (\d+) ms")
    assert float(seen[2]) < 1000
    refused_at = float(seen[1]) + box.monotonic_at_kernel
    status, answer = stream.end()
    assert status == 0
    assert json.loads(answer.splitlines()[-1])["done"] is True
    assert len(answer.splitlines()) == 26
    finished_at = time.monotonic()
    assert finished_at > refused_at + 1
    assert set(answered_since(log, refused_at)) == {"refused"}
    assert refused_at - noticed < 1.5  # a poll comes every quarter of a second here
    box.wait_for("DRAINED 1 streams finished, 0 cut")
    world.wait(lambda: box.lifecycle() == "", why=box.journal)
    assert len(box.calls("DeregisterTargets")) == 1
    assert [metric["Value"] for metric in world.wait(lambda: box.metrics(names.METRIC_STREAMS_FINISHED))] == [1]
    assert [metric["Value"] for metric in box.metrics(names.METRIC_STREAMS_CUT)] == [0]
    assert 0 <= box.metrics(names.METRIC_NOTICE_TO_DRAINING_SECONDS)[0]["Value"] < 5


def test_long_prompt_and_a_request_that_does_not_stream_are_not_cut(serving: Serving) -> None:
    box = serving()
    request = box.generate(tokens=3, prompt_seconds=3)
    time.sleep(0.5)
    box.notice()
    box.wait_for("DRAIN ")
    status, answer = request.end()
    assert status == 0
    assert json.loads(answer)["done"] is True
    box.wait_for("DRAINED 1 streams finished, 0 cut")


def test_stream_that_outlives_the_budget_is_cut_and_counted(serving: Serving) -> None:
    box = serving(drain_budget_seconds=2)
    box.generate(tokens=200, stream=True, pace_seconds=0.2)
    time.sleep(0.5)
    box.notice()
    box.wait_for(r"DRAIN .* budget 2\.0 s")
    box.wait_for("DRAINED 0 streams finished, 1 cut")
    world.wait(lambda: box.metrics(names.METRIC_STREAMS_CUT))
    assert [metric["Value"] for metric in box.metrics(names.METRIC_STREAMS_CUT)] == [1]
    world.wait(lambda: box.lifecycle() == "", why=box.journal)


def test_two_notices_are_one_drain_and_a_recommendation_is_only_reported(serving: Serving) -> None:
    box = serving()
    log = box.probe()
    stamp = json.dumps({"noticeTime": "2026-07-28T09:00:00Z"})
    box.metadata.paths["meta-data/events/recommendations/rebalance"] = stamp
    box.wait_for("REBALANCE recommended at 2026-07-28T09:00:00Z")
    assert "DRAIN" not in box.log()
    world.wait(lambda: world.last(log) == "answered")
    assert set(answered_since(log, 0)) == {"answered"}
    box.notice()
    box.wait_for("DRAINED")
    box.notice(seconds=60)
    box.metadata.paths["meta-data/autoscaling/target-lifecycle-state"] = "Terminated"
    box.wait_for("termination hook")
    assert box.log().count("DRAIN ") == 1
    assert box.log().count("REBALANCE") == 1


def test_planned_termination_drains_and_completes_the_termination_hook(serving: Serving) -> None:
    box = serving()
    stream = box.generate(tokens=15, stream=True, pace_seconds=0.15)
    time.sleep(0.5)
    box.metadata.paths["meta-data/autoscaling/target-lifecycle-state"] = "Terminated"
    assert stream.end()[0] == 0
    box.wait_for("termination hook not completed: .*No active Lifecycle Action")  # the group deregisters first
    box.aws.control("lifecycle", instance_id=box.instance_id, state="Terminating:Wait")
    box.wait_for("termination hook completed")
    hooks = [call["resources"].get("LifecycleHookName") for call in box.calls("CompleteLifecycleAction")]
    assert hooks[:2] == [names.LAUNCH_HOOK, names.TERMINATION_HOOK]
    assert box.log().count("DRAIN ") == 1
    assert not box.calls("TerminateInstanceInAutoScalingGroup")


def test_throttled_deregistration_neither_stops_the_drain_nor_is_given_up(serving: Serving) -> None:
    box = serving()
    fault = {"service": "elasticloadbalancing", "action": "DeregisterTargets", "code": "Throttling"}
    box.aws.control("fault", **fault, times=4)
    log = box.probe()
    stream = box.generate(tokens=20, stream=True, pace_seconds=0.2)
    time.sleep(0.5)
    box.notice()
    seen = box.wait_for(r"^([\d.]+) DRAIN ")
    assert stream.end()[0] == 0
    assert set(answered_since(log, float(seen[1]) + box.monotonic_at_kernel)) == {"refused"}
    box.wait_for("^.* deregistered")
    assert len(box.calls("DeregisterTargets")) >= 4


def test_metadata_that_is_gone_slow_ill_or_odd_is_survived_and_the_notice_after_it_obeyed(serving: Serving) -> None:
    box = serving()
    log = box.probe()
    for mode in ("gone", "error", "slow"):
        box.metadata.mode = mode
        time.sleep(1.5)
    box.metadata.mode = ""
    box.wait_for("metadata is back")
    box.metadata.tokens.clear()
    for text in ("", "not json", '{"action": 3', "[]", '{"time": "2026-07-28T09:00:00Z"}'):
        box.metadata.paths["meta-data/spot/instance-action"] = text
        box.metadata.paths["meta-data/events/recommendations/rebalance"] = text
        time.sleep(0.4)
    assert "DRAIN" not in box.log()
    assert set(answered_since(log, 0)) == {"answered"}
    assert (401 in {status for _, _, status in box.metadata.asked}) is True
    box.notice()
    box.wait_for("DRAINED")


@pytest.mark.parametrize("off", [3600, -3600], ids=["behind", "ahead"])
def test_clock_that_jumped_an_hour_leaves_the_drain_its_two_minutes(serving: Serving, off: float) -> None:
    box = serving()
    box.notice(clock_off_seconds=off)
    seen = box.wait_for(r"DRAIN .* budget ([\d.]+) s")
    assert 95 < float(seen[1]) <= 105


def test_silent_engine_that_no_signal_ends_shuts_the_gate_and_the_box_is_replaced(serving: Serving) -> None:
    box = serving()
    log = box.probe(ask=False)
    box.signal("engine", "STOP")
    shut = box.wait_for(r"^([\d.]+) ENGINE shut: the engine has been silent")
    world.wait(lambda: world.last(log) == "refused")
    box.wait_for("ENGINE recover")
    box.wait_for("leaving: the engine was not started anew")
    world.wait(lambda: box.lifecycle() == "", why=box.journal)
    assert set(answered_since(log, float(shut[1]) + box.monotonic_at_kernel + 0.3)) == {"refused"}
    assert "fleet-engine.service: did not end" in box.journal()  # nor was it killed


def test_crashed_engine_is_restarted_behind_a_shut_gate_and_never_asked_cold(serving: Serving) -> None:
    box = serving(wedge_silent_seconds=60)
    log = box.probe()
    world.wait(lambda: world.last(log) == "answered")
    load_seconds = 2 * world.QUICK["wedge_confirm_seconds"]  # longer than a wedge is given
    box.standin("prompt_seconds", str(load_seconds))
    crashed = time.monotonic()
    box.signal("engine", "KILL")
    opened = box.wait_for(r"^([\d.]+) ENGINE warm-up: gate open again")
    outcomes = answered_since(log, crashed + 0.2)
    until = [
        probe["outcome"]
        for probe in world.probes(log)
        if crashed + 0.2 < probe["at"] < float(opened[1]) + box.monotonic_at_kernel - 0.1
    ]
    assert {"refused"} <= set(until) <= {"refused", "wrong"}, "by the gate, and before it shuts by the lane's own word"
    world.wait(lambda: world.last(log) == "answered")
    assert "hang" not in outcomes


def test_wedged_engine_is_started_anew_and_proved_and_its_caller_is_told(serving: Serving) -> None:
    box = serving()
    stuck = box.generate(tokens=1, prompt_seconds=300)
    world.wait(lambda: "reads a prompt for 300" in box.journal(), why=box.journal)
    behind = box.generate(tokens=1)
    box.wait_for("ENGINE shut: a request is open without a token for .* and the GPU is idle")
    box.wait_for("ENGINE recover")
    box.wait_for("ENGINE warm-up: gate open again")
    assert "error" in json.loads(stuck.end()[1])
    assert "error" in json.loads(behind.end()[1])
    assert box.generate().end()[0] == 0
    assert box.lifecycle() == "InService"


def test_lane_that_hangs_is_found_and_started_anew_and_the_box_serves_on(serving: Serving) -> None:
    box = serving(wedge_silent_seconds=60)
    box.signal("lane", "STOP")
    world.wait(lambda: "fleet-lane.service: watchdog timeout" in box.journal(), why=box.journal)
    log = box.probe()
    world.wait(lambda: world.last(log) == "answered", why=box.journal)
    assert box.generate().end()[0] == 0
    assert box.lifecycle() == "InService"


def test_idle_engine_is_primed_and_a_prime_makes_room_for_a_caller(serving: Serving) -> None:
    box = serving(self_prime_seconds=1.0, token_seconds=60)
    box.wait_for("ENGINE prime: done")
    box.standin("prompt_seconds", "60")  # as on a GPU that idled for hours
    world.wait(lambda: "reads a prompt for 60" in box.journal(), why=box.journal)
    request = box.generate(tokens=1, prompt_seconds=0)
    assert request.end(seconds=30)[0] == 0  # long before the prime would have ended
    box.wait_for("ENGINE prime: made room for a caller")


def test_engine_that_answers_500_to_everyone_is_found_by_the_token_that_does_not_come(serving: Serving) -> None:
    box = serving(prove_seconds=2.0)
    box.wait_for("ENGINE prove: no token of our own for")
    box.standin("failing")
    box.wait_for("ENGINE warm-up: 3 requests of our own were refused")
    box.wait_for("leaving: the engine did not come back: /api/generate: 500")
    world.wait(lambda: box.lifecycle() == "", why=box.journal)


def test_generation_without_an_end_is_told_with_its_age_and_ended_by_nobody(serving: Serving) -> None:
    box = serving(runaway_seconds=1.5, runaway_report_seconds=0.5)
    (box.here / "gpu").write_text("97\n")
    before = box.journal().count("reads a prompt")
    endless = box.generate(tokens=400, stream=True, pace_seconds=0.15)
    world.wait(lambda: box.journal().count("reads a prompt") > before)
    waiting = [box.generate(tokens=1) for _ in range(3)]
    box.wait_for(r"GENERATION has run for \d+ s, 3 callers wait; nothing here ends it")
    world.wait(lambda: box.metrics(names.METRIC_RUNAWAY_GENERATION_SECONDS), why=box.journal)
    assert endless.process.poll() is None
    endless.process.kill()  # its caller does
    assert [each.end()[0] for each in waiting] == [0, 0, 0]
    assert "ENGINE" not in box.log()


def test_emptied_instance_store_has_the_box_replaced_once_its_streams_have_ended(serving: Serving) -> None:
    box = serving()
    stream = box.generate(tokens=20, stream=True, pace_seconds=0.15)
    time.sleep(0.5)
    box.inside("/var/lib/fleet/nvme/fleet/models/manifests/registry.ollama.ai/library/tiny/latest").unlink()
    log = box.probe(ask=False)
    world.wait(lambda: world.last(log) == "refused")
    status, answer = stream.end()
    assert (status, len(answer.splitlines())) == (0, 21)
    box.wait_for("leaving: the instance store is empty")
    world.wait(lambda: box.lifecycle() == "", why=box.journal)


def test_killed_agent_comes_back_and_gives_streams_no_more_than_the_notice_has_left(serving: Serving) -> None:
    box = serving()
    box.signal("agent", "KILL")
    box.notice(seconds=60)  # of which the new agent knows only what the notice says
    seen = box.wait_for(r"DRAIN .* budget ([\d.]+) s")
    assert 0 < float(seen[1]) <= 60 - box.settings.drain.safety_margin_seconds
    assert box.log().count("agent: watching") == 2
    box.wait_for("DRAINED")
