"""The port gate for itself: what it says to nft and iptables, and when it refuses."""

import gate
import paths
import pytest

pytestmark = pytest.mark.usefixtures("folder")


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
