"""How long the dark may last before the watchdog fails over: what game days and their faults wait for."""

from fleet.config.settings import Settings

ALARM_TOLD_SECONDS = 540  # how late an alarm was told at the most: measured, as the drills have it


def dark_seconds(settings: Settings) -> int:
    """From the dark to the failover, at the most: the policy's bound."""
    if settings.on_events:
        return settings.bridge.patience_seconds + settings.bridge.stale_event_seconds
    return settings.watchdog.alarm_minutes * 60 + ALARM_TOLD_SECONDS
