"""What is counted, as Prometheus text: few enough to be written without a library. The names' home is `names`."""

from collections.abc import Mapping

import names


class Metrics:
    """One process's counts."""

    def __init__(self) -> None:
        self.tokens = 0
        self.wasted = 0  # decoded, never delivered
        self.aborted = 0  # ended by the box, of those that had begun
        self.begun, self.wait_seconds = 0, 0.0  # turns, and the waits until then together

    def text(
        self, *, depth: int, expected_seconds: float, refusals: Mapping[str, int], box: Mapping[str, float]
    ) -> str:
        """Prometheus' text format; `box`: gauges of the box's other programs."""
        lines = [
            *_told(names.LANE_DEPTH, "gauge", depth),
            *_told(names.LANE_EXPECTED_WAIT, "gauge", round(expected_seconds, 3)),
            f"# TYPE {names.LANE_WAIT} summary",
            f"{names.LANE_WAIT}_count {self.begun}",
            f"{names.LANE_WAIT}_sum {self.wait_seconds:.3f}",
            f"# TYPE {names.LANE_REFUSALS}_total counter",
            *(f'{names.LANE_REFUSALS}_total{{reason="{why}"}} {count}' for why, count in sorted(refusals.items())),
            *_told(f"{names.LANE_TOKENS}_total", "counter", self.tokens),
            *_told(names.SPOT_WASTED_TOKENS, "counter", self.wasted),
            *_told(names.SPOT_ABORTED_RATIO, "gauge", round(self.aborted / max(1, self.begun), 4)),
            *(line for name, value in box.items() for line in _told(name, "gauge", value)),
        ]
        return "\n".join(lines) + "\n"


def _told(name: str, kind: str, value: float) -> list[str]:
    return [f"# TYPE {name} {kind}", f"{name} {value}"]
