"""How long a boot takes, the one place: as 27 warm boots were measured, and as modelled for a load that streams.

Seconds, of the instance's own uptime unless they say otherwise; the drills, the bench and docs/box.md have them here.
"""

from dataclasses import dataclass

Spread = tuple[float, float, float]  # low, high, mode: drawn from a triangle

# 27 warm boots, each stage after the other.
LAUNCH_TO_KERNEL: Spread = (15, 90, 15)
LAUNCH_TO_KERNEL_SECONDS = 30  # what is assumed where only the launch is known
KERNEL_TO_SERVING: Spread = (229, 355, 232)  # a median of 267
COLD_KERNEL_TO_SERVING = 941.0
MEDIANS = {"user data": 27.0, "telemetry": 40.0, "engine": 11.0, "restore": 101.0, "load": 97.0}
FASTEST_LOAD = 37.0  # the disk hardly in the way: what engine and card take at their best
MODEL_BYTES = 18.2e9

# Not measured one by one on a box: what their work costs in the tests, store and plan side by side.
ASSUMED = {"gate": 3.0, "plan": 1.5, "start_engine": 2.0, "warm_up": 2.0, "open": 0.1}

# Documented of g5.xlarge and g6.xlarge, bytes per second.
BASELINE, BURST = 312.5e6, 1250e6
OF_THE_LINE = 1.1  # the bound on what a load that streams takes of the slower of network and reader (`make bench-boot`)


@dataclass(frozen=True)
class Streamed:
    """A boot whose engine loads the model while it arrives, at a network's rate."""

    bytes_per_second: float

    @property
    def begins(self) -> float:
        """The store is there and the plan is known: engine and model begin to arrive."""
        return MEDIANS["user data"] + ASSUMED["gate"] + ASSUMED["plan"]

    @property
    def engine(self) -> float:
        """The engine answers."""
        return self.begins + MEDIANS["engine"] + ASSUMED["start_engine"]

    @property
    def arrived(self) -> float:
        """The model has come, after an engine that had the network for itself."""
        return self.begins + MEDIANS["engine"] + OF_THE_LINE * MODEL_BYTES / self.bytes_per_second

    @property
    def read(self) -> float:
        """The engine has read it, were all of it there."""
        return self.engine + OF_THE_LINE * FASTEST_LOAD

    @property
    def serving(self) -> float:
        """The gate is open."""
        return max(self.arrived, self.read) + ASSUMED["warm_up"] + ASSUMED["open"]
