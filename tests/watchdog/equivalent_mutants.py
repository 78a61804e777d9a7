"""Mutants that no test can tell from the original, each with the reason why."""

TYPE_CHECKER = "the other half is there for the type checker: "

SAME = "the same value, "

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
    "rearm.begin: decision.state or state  ->  decision.state": TYPE_CHECKER + "a market that was read has its state",
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
    "world.World.newborn: self.group and (not ever_launched)  ->  not ever_launched": (
        TYPE_CHECKER + "asked only where the guards are, which read the group first"
    ),
    "world.World.capped: None  ->  True": TYPE_CHECKER + "what is lit exists",
    "world.World.capped: self.alarm is None or not self.lit  ->  not self.lit": TYPE_CHECKER + "what is lit exists",
    "policy._decide_known: replace(decision, problem=problem) if problem else decision  ->  "
    "replace(decision, problem=problem)": SAME + "made anew",
    "policy._scan: replace(decision, suspend_rebalance=suspend, problem=missing) if suspend or missing else "
    "decision  ->  replace(decision, suspend_rebalance=suspend, problem=missing)": SAME + "made anew",
    "policy._of_a_box: new if new != state else None  ->  new": "a state that is as it was is not written",
    "rearm.refused: signal.refused and state.rearm_from and signal.began and (signal.began >= state.rearm_from)  ->  "
    "signal.refused and state.rearm_from and (signal.began >= state.rearm_from)": (
        TYPE_CHECKER + "a launch that failed was begun"
    ),
    "bridge.learn: {box.id for box in world.group.boxes} if world.group else ()  ->  "
    "{box.id for box in world.group.boxes}": (TYPE_CHECKER + "a notice has the group read"),
    "bridge.learn: replace(seen, drought_at=None) if seen.drought_at else seen  ->  replace(seen, drought_at=None)": (
        SAME + "None is replaced by None"
    ),
    "bridge.learn: state if seen is state.evidence else replace(state, evidence=seen)  ->  "
    "replace(state, evidence=seen)": SAME + "made anew",
    "bridge.learn: if short:  ->  if True:": SAME + "where enough serve, none is missing",
    "turns.learn: replace(seen, drought_at=None) if seen.drought_at else seen  ->  replace(seen, drought_at=None)": (
        SAME + "None is replaced by None"
    ),
    "turns.learn: state if seen is state.evidence else replace(state, evidence=seen)  ->  "
    "replace(state, evidence=seen)": SAME + "made anew",
    "policy.due_failover: if not (world.lit or world.churns(settings)):  ->  if False:": (
        SAME + "the first guard says so as well; this is asked at every scan"
    ),
    "policy._ending_held: decision.leaves_state or not world.held  ->  decision.leaves_state": (
        SAME + "what is ended is held; this is asked at every scan"
    ),
    "world.World.churns: bool(limits.served_percent) and self.dark_seconds >= limits.dark_seconds_allowed  ->  "
    "self.dark_seconds >= limits.dark_seconds_allowed": "where it is off the metric is not read",
    "world.World._ours: self.group is None or target in [box.id for box in self.group.boxes]  ->  "
    "target in [box.id for box in self.group.boxes]": TYPE_CHECKER + "targets are read with their group",
    "world.World._ours: None  ->  True": TYPE_CHECKER + "targets are read with their group",
    "observe.observe: state.mode is Mode.ARMED and Need.GUARDS in needs and (signal.wake in CHURN) and (not world.lit)"
    "  ->  state.mode is Mode.ARMED and signal.wake in CHURN and (not world.lit)": (
        "those wakes have an armed fleet's guards read"
    ),
    "turns.learn: seen.drought_at is None and signal.refused and signal.began and after(state, signal.began)  ->  "
    "seen.drought_at is None and signal.refused and after(state, signal.began)": (
        TYPE_CHECKER + "a launch that failed was begun"
    ),
    "bridge._told_again: state.mode is Mode.FAILOVER and signal.began is not None and (not turns.after(state, "
    "signal.began))  ->  state.mode is Mode.FAILOVER and (not turns.after(state, signal.began))": (
        TYPE_CHECKER + "a launch that failed was begun"
    ),
    "bridge._told_again: None  ->  True": TYPE_CHECKER + "a launch that failed was begun",
    "decision.transition: state.evidence.dark_at and (not state.exposed)  ->  not state.exposed": (
        SAME + "None is replaced by None"
    ),
    "shares.part: 0 < boxes < above_base(settings)  ->  0 <= boxes < above_base(settings)": SAME + "no box is lever 0",
    "shares.part: 0  ->  -1": SAME + "no box is lever 0",
    "rearm.expired: 0  ->  1": SAME + "a group that was not read counts as what should serve",
    "rearm.expired: 0  ->  -1": SAME + "a group that was not read counts as what should serve",
    "shares.bought: 0  ->  1": SAME + "fewer boxes than what should serve count as that",
    "shares.bought: 0  ->  -1": SAME + "fewer boxes than what should serve count as that",
    "daily.replaced: 60  ->  61": SAME + "530 s are eight minutes of that length as well",
    "daily.replaced: 60  ->  59": SAME + "530 s are eight minutes of that length as well",
    "suspension: 0  ->  -1": "the first wait is over when the suspension is seen, either way",
}
