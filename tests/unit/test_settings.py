import dataclasses
import json
from pathlib import Path

import pytest

from fleet.config import validation
from fleet.config.gateway_settings import FreeTier, Gateway, Tiers
from fleet.config.section import RENAMED, from_plain, renamed
from fleet.config.settings import Settings
from fleet.core import names
from tests.synth import CDK_JSON
from tests.watchdog.still_cloud import SHIPPED as SETTINGS


def test_settings_survive_the_trip_to_the_lambda() -> None:
    assert Settings.from_json(SETTINGS.to_json()) == SETTINGS


def test_settings_that_just_pass_fit_into_the_functions_environment_as_lambda_measures_it() -> None:
    """4096 bytes for all of it as JSON: the refusals quote that string, with the quotes of its values escaped."""
    fleet, region = "a" * 19, "us-gov-west-1"
    raw = {**json.loads(CDK_JSON.read_text())["context"]["fleet"], "fleet_name": fleet, "region": region}
    raw["zones"] = [f"{region}{zone}" for zone in "abc"]
    for count in range(200):
        try:
            fits = validation.check({**raw, "network": {"callers": [f"10.0.0.{number}/32" for number in range(count)]}})
        except validation.SettingsError:
            break
    arn = f"arn:aws-us-gov:{{}}:{region}:123456789012:{{}}"
    environment = {
        names.ENV_SETTINGS: fits.to_json(),
        names.ENV_TOPIC_ARN: arn.format("sns", f"{fleet}-group-Mail0123ABCD-0123456789AB"),
        names.ENV_TARGET_GROUP_ARN: arn.format("elasticloadbalancing", f"targetgroup/{'a' * 32}/{'0' * 16}"),
        names.ENV_CLOCK_ARN: arn.format("states", f"stateMachine:{names.patience_clock(fleet)}"),
    }
    assert 3950 < len(json.dumps(environment, separators=(",", ":"))) <= 4096


def test_the_gateways_section_stays_at_home() -> None:
    with_gateway = dataclasses.replace(SETTINGS, gateway=Gateway())
    assert with_gateway.to_json() == SETTINGS.to_json()
    assert "gateway" not in SETTINGS.to_json()


def test_a_given_section_is_read_with_what_it_gives_and_an_absent_one_is_none() -> None:
    raw = dataclasses.asdict(SETTINGS)
    assert from_plain(Settings, raw) == SETTINGS
    raw["gateway"] = {"aliases": ["gpt"], "tiers": {"free": {"requests_per_day": 3}}}
    free = FreeTier(requests_per_day=3)
    assert from_plain(Settings, raw).gateway == Gateway(aliases=("gpt",), tiers=Tiers(free=free))


@pytest.mark.parametrize("levels", [300, 900, 100_000])
def test_a_value_nested_without_end_is_one_message(tmp_path: Path, levels: int) -> None:
    name = "[" * levels + "]" * levels
    path = tmp_path / "cdk.json"
    path.write_text(f'{{"context": {{"fleet": {{"fleet_name": {name}}}}}}}')
    with pytest.raises(validation.SettingsError, match=r"nested less deeply|2 to 19 of a-z"):
        validation.load(path)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_key_of_an_older_name_is_refused_with_its_new_one_or_that_it_is_gone(old: str, new: str) -> None:
    section, _, key = old.partition(".")
    says = f"its name is {new} now" if new else "it is gone"
    with pytest.raises(validation.SettingsError, match=rf"{old} = 1: nothing: {says}"):
        validation.check({**dataclasses.asdict(SETTINGS), section: {key: 1}})
    assert renamed(section, {key: 1}) == ({new.partition(".")[2]: 1} if new else {})
