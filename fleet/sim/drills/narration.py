"""One line of plain words per event: a drill as it happens."""

from fleet.eventlog.events import Event
from fleet.eventlog.spans import QUIET_ACTIONS, words

ALARM_WORDS = {"ALARM": "no box had answered for a whole window, told minutes late", "OK": "callers had been served"}


def sentence(event: Event) -> str | None:
    """What a bystander would say; None: not worth a line."""
    fields = event.fields
    match event.kind:
        case "start":
            return f"{fields['name']}: {fields['desired']} box(es) wanted"
        case "end":
            return "end"
        case "box.launched":
            kind, price = f"{fields['purchase']} {fields['pool']}", fields["usd_per_hour"]
            return f"launch    {_short(fields['box'])}: {kind} at ${price:.3f}/h boots"
        case "box.serving":
            return f"serving   {_short(fields['box'])} answers callers"
        case "box.unserving":
            return f"leaving   {_short(fields['box'])} takes no new callers ({fields['why']})"
        case "box.ended":
            return f"gone      {_short(fields['box'])} ({fields['why']})"
        case "launch.failed":
            return f"refused   a {fields['purchase']} launch: {fields['why']}"
        case "notice":
            return f"NOTICE    {_short(fields['box'])} will be taken back in two minutes"
        case "rebalance":
            return f"warning   {_short(fields['box'])} may be taken back"
        case "market":
            return f"market    {fields['pool']} {'sells' if fields['sells'] else 'refuses'}"
        case "alarm":
            return f"ALARM     {fields['state']}: {ALARM_WORDS.get(fields['state'], 'nothing known yet')}"
        case "lever":
            return f"LEVER     {fields['percentage']} % on-demand"
        case "mode":
            return f"MODE      {fields['mode']}"
        case "mail":
            return f"MAIL      {fields['subject']}"
        case "decision" if fields.get("action") not in QUIET_ACTIONS:
            return f"watchdog  {words(fields['action'], fields.get('reason', ''))}"
    return None


def _short(box: str) -> str:
    return f"i-{box.removeprefix('i-').lstrip('0') or '0'}"
