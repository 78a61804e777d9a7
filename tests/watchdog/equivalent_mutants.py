"""Mutants that no test can tell from the original, each with the reason why."""

TYPE_CHECKER = "the other half is there for the type checker: "

EQUIVALENT: dict[str, str] = {
    "decision.Action: 'transition'  ->  'transition!'": "never shown: a transition goes by the name of its kind",
    "decision.Decision.kind: self.state and self.action is Action.TRANSITION  ->  self.action is Action.TRANSITION": (
        TYPE_CHECKER + "a transition always has its state"
    ),
    "policy._decide: assert_never(signal.wake)  ->  pass": "unreachable; it is there for the type checker",
    "policy._launched: signal.at or now  ->  signal.at": TYPE_CHECKER + "an event has its time",
    "policy._launch_failed: signal.at or now  ->  signal.at": TYPE_CHECKER + "an event has its time",
    "policy._refused: signal.began and (state.since is None or signal.began > state.since)  ->  "
    "state.since is None or signal.began > state.since": TYPE_CHECKER + "a launch that failed was begun",
    "suspension.step: state.suspended_at and now < state.suspended_at + wait  ->  now < state.suspended_at + wait": (
        TYPE_CHECKER + "`seen` has set it where AWS suspended"
    ),
    "rearm._before_scores: 3600  ->  3599": "no window that settings allow (1 to 168 h) has another number of hours",
    "turns._tried: state.turns and state.since and world.alive  ->  state.turns and world.alive": (
        TYPE_CHECKER + "a turn has its time"
    ),
    "bridge.learn: signal.began or now  ->  signal.began": TYPE_CHECKER + "a launch that failed was begun",
    "act.act: state and decision.action is Action.REFRESH  ->  decision.action is Action.REFRESH": (
        TYPE_CHECKER + "a roll is decided on a state"
    ),
    "observe.Need: 0  ->  1": "nothing needed is then a bit of its own, which nobody looks for",
    "observe._needs: assert_never(signal.wake)  ->  pass": "unreachable; it is there for the type checker",
    "world.World.busy: None  ->  True": "neither is the id of a refresh",
    "world.World.capped: None  ->  True": TYPE_CHECKER + "what is lit exists",
    "world.World.capped: self.alarm is not None and self.lit and (now - self.alarm.since >= cap)"
    "  ->  self.lit and now - self.alarm.since >= cap": TYPE_CHECKER + "what is lit exists",
    "world.World.young: self.group and (not ever_launched)  ->  not ever_launched": (
        TYPE_CHECKER + "asked only where the guards are, which read the group first"
    ),
}
