"""The port gate for itself: what it says to nft and iptables, and when it refuses."""

import runpy
import sys
from pathlib import Path

import config
import gate
import paths
import pytest

from tests.box.conftest import a_box


def test_nft_script_replaces_the_table_in_one_transaction() -> None:
    closed, draining, opened = (gate.nft_script(state, 11434) for state in (gate.CLOSED, gate.DRAINING, gate.OPEN))
    for script in (closed, draining, opened):
        assert script.startswith("table inet fleet\ndelete table inet fleet\n")
    assert "tcp dport 11434 reject with tcp reset" in closed
    assert "tcp dport 11434 tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset" in draining
    assert "reject" not in opened


def test_gate_is_not_changed_for_the_keeper_once_the_box_leaves() -> None:
    paths.mark(paths.GATE, gate.DRAINING)
    paths.mark(paths.LEAVING)
    for state in (gate.CLOSED, gate.DRAINING, gate.OPEN):
        with pytest.raises(gate.GateError, match="the box is leaving: the gate stays draining"):
            gate.set_state(state, 11434, unless_leaving=True)
    assert gate.current() == gate.DRAINING


def test_gate_that_is_closed_stays_closed_where_an_engine_starts_or_a_drain_begins() -> None:
    paths.mark(paths.GATE, gate.CLOSED)
    gate.set_state(gate.DRAINING, 11434)
    assert gate.current() == gate.CLOSED


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """A machine whose only tools are these programs."""
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


NO_SUCH_RULE = "#!/bin/sh\nexit 1\n"
HANGING = f"#!{sys.executable}\nimport time\ntime.sleep(2)\nraise SystemExit(1)\n"


@pytest.mark.parametrize(
    "ill",
    ["#!/bin/sh\nexit 4\n", "#!/bin/sh\nkill -9 $$\n", HANGING, "#!/nowhere\n"],
    ids=["lock held", "killed", "hanging", "no interpreter"],
)
@pytest.mark.parametrize("which", ["iptables", "ip6tables"])
def test_gate_is_not_called_open_where_a_tool_cannot_tell_its_rules(
    folder: Path, monkeypatch: pytest.MonkeyPatch, which: str, ill: str
) -> None:
    tools(folder, monkeypatch, **{"iptables": NO_SUCH_RULE, "ip6tables": NO_SUCH_RULE, which: ill})
    monkeypatch.setattr(gate, "TOOL_SECONDS", 0.3)
    paths.mark(paths.GATE, gate.CLOSED)
    with pytest.raises(gate.GateError, match=f"^{which}: "):
        gate.set_state(gate.OPEN, 11434)
    assert gate.current() == gate.CLOSED


def test_gate_is_open_where_both_tools_hold_none_of_its_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(folder, monkeypatch, iptables=NO_SUCH_RULE, ip6tables=NO_SUCH_RULE)
    paths.mark(paths.GATE, gate.CLOSED)
    gate.set_state(gate.OPEN, 11434)
    assert gate.current() == gate.OPEN


@pytest.mark.parametrize("state", [gate.CLOSED, gate.DRAINING])
def test_gate_that_fails_at_a_start_of_the_engine_is_no_reason_to_leave(
    state: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd starts the engine again. A reason that stands would have a later planned end refuse callers at once."""
    tools(folder, monkeypatch)
    monkeypatch.setattr(config, "load", a_box)
    monkeypatch.setattr(sys, "argv", ["gate.py", state])
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(gate.__file__, run_name="__main__")
    assert "gate: no firewall tool" in paths.LOG.read_text()
    assert paths.WHY.exists() is (state == gate.CLOSED)  # whose unit has the box leave
