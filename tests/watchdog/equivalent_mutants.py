"""Mutants that no test can tell from the original, each with the reason why."""

EQUIVALENT: dict[str, str] = {
    "policy.Action: 'transition'  ->  'transition!'": "never shown: a transition goes by the name of its kind",
    "policy.Decision: None  ->  0": "neither is a state, and it is only looked at to see whether there is one",
    "policy.Decision.name: None  ->  0": "the same: only looked at to see whether there is one",
    "observe.Need: 0  ->  1": "nothing needed is then a bit of its own, which nobody looks for",
    "observe._needs: assert_never(signal.wake)  ->  pass": "unreachable; it is there for the type checker",
    "world.World.young: self.group and (not ever_launched)  ->  not ever_launched": (
        "asked only where the guards are, which read the group first; the other half is for the type checker"
    ),
}
