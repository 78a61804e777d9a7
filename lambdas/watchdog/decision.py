"""What a decision is: plain data that `policy` and `bridge` return and `act` carries out."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from lambdas.watchdog.signals import Signal
from lambdas.watchdog.state import Kind, State


class Action(StrEnum):
    """What one decision comes to."""

    IGNORED = "ignored"  # not for this watchdog
    RECORDED = "recorded"  # noted, perhaps remembered
    NOTHING = "nothing"  # the work is done, or there is none
    WAITING = "waiting"  # a drought whose patience has not run out; the clock is set
    SKIPPED = "skipped"  # a failover that a guard holds back; the scan tries again
    REFUSED = "refused"  # something else that a rule holds back
    TRANSITION = "transition"  # `Decision.state` says which
    FORGOT = "forgot"  # what the state of an earlier fleet would have begun
    FINISH = "finish"  # the transition that an earlier invocation began
    REFRESH = "refresh"  # the re-arm's roll, once the lever is down
    PROBE = "probe"


FIRST_ACTIONS, FIRST_KINDS = {Action.FORGOT, Action.FINISH}, {Kind.UNSUSPENDED, Kind.SUSPENDED}


@dataclass(frozen=True)
class Decision:
    """`state` is written before anything else is done; None leaves it as it is."""

    action: Action
    reason: str
    detail: str = ""
    state: State | None = None
    leaves_state: bool = False  # and the mails owed: it must show nothing but that a call can be made
    end_boxes: tuple[str, ...] = ()  # held by their launch hook, and for nothing
    deregister: tuple[str, ...] = ()  # targets that are no boxes
    suspend_rebalance: bool = False
    wake_at: datetime | None = None  # have this function woken then
    problem: str = ""  # raised once everything else is done

    @property
    def kind(self) -> Kind | None:
        """The transition that this decision begins."""
        unfinished = self.state.unfinished if self.state and self.action is Action.TRANSITION else None
        return unfinished.kind if unfinished else None

    @property
    def leads_on(self) -> bool:
        """Whether the same invocation looks and decides again: after what only comes first, and the re-arm's flip."""
        return self.comes_first or self.kind is Kind.REARM

    @property
    def comes_first(self) -> bool:
        """Whether the signal's own decision is still to be made."""
        return self.action in FIRST_ACTIONS or self.kind in FIRST_KINDS

    @property
    def name(self) -> str:
        """For the record: the transition's kind, or the action."""
        return str(self.kind or self.action)


def transition(state: State, kind: Kind, now: datetime, why: str, *, silent: bool = False) -> Decision:
    """This state, with a transition to carry out and, unless it is silent, to mail. Off spot, none of it is missed."""
    if state.evidence.dark_at and not state.exposed:
        state = replace(state, evidence=replace(state.evidence, dark_at=None))
    return Decision(Action.TRANSITION, why, state=state.begin(kind, now, why, silent=silent))


def recorded(signal: Signal) -> Decision:
    """The signal was noted."""
    return Decision(Action.RECORDED, " ".join(filter(None, [signal.wake, signal.box, signal.detail])))


def seconds(span: timedelta) -> int:
    """Whole seconds, as they stand in reasons."""
    return int(span.total_seconds())
