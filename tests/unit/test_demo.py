"""The demo's times are the recorded ones."""

from datetime import UTC, datetime
from pathlib import Path

from fleet.demo import artifacts, nights


def at(day: int, clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-07-{day}T{clock}").replace(tzinfo=UTC)


def test_drought_has_its_recorded_times() -> None:
    night = nights.drought()
    assert (night.gone, night.alarm, night.failover) == (at(22, "00:14:30"), at(22, "00:35:41"), at(22, "00:35:43"))
    assert night.serving == at(22, "00:40:30")
    assert (night.launched - night.alarm).total_seconds() == 7.6


def test_short_night_finds_a_ten_minute_old_box() -> None:
    night = nights.short_night()
    assert (night.gone, night.alarm, night.ok) == (at(28, "02:04:00"), at(28, "02:20:04"), at(28, "02:22:04"))
    assert (night.alarm - night.launched).total_seconds() == 600
    assert night.serving == at(28, "02:16:00")


def test_tiny_model_is_a_gguf_file(tmp_path: Path) -> None:
    paths = artifacts.write(tmp_path)
    assert paths["gguf"].read_bytes()[:8] == b"GGUF\x03\x00\x00\x00"
    assert paths["modelfile"].read_text().startswith("FROM ")
