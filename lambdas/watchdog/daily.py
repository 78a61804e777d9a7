"""What is mailed at most once a day, so that nothing costs money in silence: on-demand that lasts, replacements."""

from dataclasses import replace
from datetime import datetime, timedelta

from fleet.config.settings import Settings
from lambdas.watchdog.decision import Action, Decision, recorded, transition
from lambdas.watchdog.signals import Signal
from lambdas.watchdog.state import Kind, Mode, State

DAY = timedelta(days=1)
REMEMBERED_IDS = 20  # of boxes with a recommendation: an event may come twice
ID_END = 8  # characters, which tell the boxes of a day apart
# Two boxes run at once from the successor's launch on: its boot, the warm-up, the way out of the other.
OVERLAP_SECONDS = 530


def since(state: State, now: datetime) -> State:
    """The state with when the fleet left spot, or without, once a spot box serves again."""
    on_spot = state.mode is Mode.ARMED
    if on_spot is (state.on_demand_since is None):
        return state
    return replace(state, on_demand_since=None if on_spot else now, reminders=0)


def reminded(decision: Decision, state: State, now: datetime) -> Decision:
    """A scan's decision, and the mail of a day that the fleet has spent off spot, pinned or not."""
    new = decision.state or state
    if new.mode is Mode.ARMED or decision.action is Action.TRANSITION:
        return decision
    days = (now - (new.on_demand_since or new.since or now)) // DAY
    if days <= new.reminders:
        return decision
    why = f"{days} day{'s' if days > 1 else ''} off spot, now {new.mode}"
    mailed = transition(replace(new, reminders=days), Kind.REMINDED, now, why)
    return replace(decision, action=mailed.action, state=mailed.state)


def replaced(signal: Signal, state: State, settings: Settings, now: datetime) -> Decision:
    """A recommendation: the group answers it with another box. Counted by UTC day."""
    day, box, limit = (
        f"{now:%Y-%m-%d}",
        signal.box[-ID_END:],
        settings.watchdog.replacements_per_day * settings.capacity.min,
    )
    if box in state.recommended:
        return recorded(signal)
    count = state.replaced + 1 if state.replaced_on == day else 1
    new = replace(state, replaced_on=day, replaced=count, recommended=(*state.recommended, box)[-REMEMBERED_IDS:])
    if count != limit + 1:
        return replace(recorded(signal), state=new)
    usd = count * OVERLAP_SECONDS / 3600 * max(settings.pool(name).spot_usd for name in settings.pools)
    why = f"{count} boxes by {now:%H:%M} UTC, two running for {OVERLAP_SECONDS // 60} min each time: about ${usd:.2f}"
    return transition(new, Kind.REPLACED, now, why)
