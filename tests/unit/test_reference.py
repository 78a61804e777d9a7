"""What the docs say of the code word for word: it is of now, and what they show to copy is allowed."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleet.config import reference, validation
from tests.docs.commands import ROOT

CDK_JSON: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())
SNIPPETS = [text.partition("```")[0] for text in (ROOT / "docs" / "settings.md").read_text().split("```json\n")[1:]]


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.name)
def test_a_page_holds_what_the_code_says_now(page: Path) -> None:
    assert reference.pages()[page] == page.read_text(encoding="utf-8"), "run `make reference`"


def test_each_setting_stands_once_with_its_unit_its_limits_and_its_reason() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert "| `watchdog.skip_cap_seconds` | 1800 s (30 min) | a whole number from 600 to 7200 | a churn loop " in page
    assert "| `watchdog.alarm_minutes` | 12 min | " in page
    assert "| `gateway.budgets.comment_seconds` | 20 s | a number above 0, at most 60 | a stream that " in page
    assert "| `zones` | must be given | a list, each a string | " in page
    keys = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert len(keys) == len(set(keys)) > 90


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_can_be_copied_into_cdk_json(snippet: str) -> None:
    assert validation.check(CDK_JSON["context"]["fleet"] | json.loads(snippet))


def test_every_section_has_a_snippet() -> None:
    shown = {key for snippet in SNIPPETS for key in json.loads(snippet)}
    assert shown >= set(reference.SECTIONS) - {"fleet"}


def test_the_schema_takes_what_the_settings_take_and_refuses_what_they_refuse() -> None:
    schema = jsonschema.Draft202012Validator(json.loads(reference.SCHEMA.read_text()))
    assert (ROOT / CDK_JSON["$schema"]) == reference.SCHEMA
    fleet = CDK_JSON["context"]["fleet"]
    for snippet in ({}, *map(json.loads, SNIPPETS)):
        assert list(schema.iter_errors({"context": {"fleet": fleet | snippet}})) == []
    for wrong in ({"watchdog": {"alarm_minutes": 2}}, {"policy": "both"}, {"fleet_nmae": "x"}, {"port": "11434"}):
        assert list(schema.iter_errors({"context": {"fleet": fleet | wrong}})), wrong
        with pytest.raises(validation.SettingsError):
            validation.check(fleet | wrong)


def test_the_schema_tells_the_reason_of_a_default_where_an_editor_shows_it() -> None:
    schema = json.loads(reference.SCHEMA.read_text())
    assert schema["$defs"]["Watchdog"]["properties"]["cooldown_seconds"]["description"] == "droughts run for hours"
    assert schema["$defs"]["FreeTier"]["properties"]["parallel"]["default"] == 2
