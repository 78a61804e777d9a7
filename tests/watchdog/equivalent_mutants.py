"""Mutants that no test can tell from the original, each with the reason why."""

TYPE_CHECKER = "the other half is there for the type checker: "

EQUIVALENT: dict[str, str] = {
    "decision.Action: 'transition'  ->  'transition!'": "never shown: a transition goes by the name of its kind",
    "decision.Decision: None  ->  0": "neither is a state, and it is only looked at to see whether there is one",
    "decision.Decision.name: None  ->  0": "the same: only looked at to see whether there is one",
    "decision.Decision: None  ->  0  #2": "no time either way: only looked at to see whether there is one",
    "decision.Decision.name: self.state and self.action is Action.TRANSITION  ->  self.action is Action.TRANSITION": (
        "a transition has a state; the other half is for the type checker"
    ),
    "act.act: state and decision.action is Action.REFRESH  ->  decision.action is Action.REFRESH": "the same",
    "bridge.learn: signal.began or now  ->  signal.began": "a failed launch says when it began; for the type checker",
    "bridge.react: None  ->  0": "neither is a decision, and it is only looked at to see whether there is one",
    "bridge.react: None  ->  0  #2": "the same",
    "bridge._warned: None  ->  0": "no time either way, and written as none",
    "bridge._warned: None  ->  0  #2": "no decision either way",
    "bridge._failed_since_rearm: state.rearm_from and signal.began and (signal.began >= state.rearm_from)"
    "  ->  state.rearm_from and signal.began >= state.rearm_from": (
        "asked of failed launches, which all began; for the type checker"
    ),
    "bridge._left: None  ->  0": "no time either way, and written as none",
    "bridge._left: None  ->  0  #3": "the same",
    "policy._decide: assert_never(signal.wake)  ->  pass": "unreachable; it is there for the type checker",
    "policy._rearm: 3600  ->  3599": "no window that settings allow (1 to 168 h) has another number of whole hours",
    "policy._rearm: state.cooldown_from and _cooling(state, settings, now)  ->  _cooling(state, settings, now)": (
        TYPE_CHECKER + "nothing cools without a time to cool from"
    ),
    "policy._rearm: state.scored_at and _just_scored(state, settings, now)  ->  _just_scored(state, settings, now)": (
        TYPE_CHECKER + "nothing was just scored without a time of it"
    ),
    "policy._advance: 0  ->  -1  #3": "only one refresh has our id",
    "policy._launched: signal.at or now  ->  signal.at": TYPE_CHECKER + "an event has its time",
    "policy._launch_failed: signal.at or now  ->  signal.at": TYPE_CHECKER + "an event has its time",
    "policy._launch_failed: signal.began and (state.since is None or signal.began > state.since)  ->  "
    "state.since is None or signal.began > state.since": TYPE_CHECKER + "a launch that failed was begun",
    "policy._busy: None  ->  True": "neither is the id of a refresh",
    "observe.Need: 0  ->  1": "nothing needed is then a bit of its own, which nobody looks for",
    "observe._needs: assert_never(signal.wake)  ->  pass": "unreachable; it is there for the type checker",
    "world.World.young: self.group and (not ever_launched)  ->  not ever_launched": (
        TYPE_CHECKER + "asked only where the guards are, which read the group first"
    ),
}
