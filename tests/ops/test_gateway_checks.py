"""Preflight of a fleet with a gateway: a builder of images on this machine, and the fallback's key in the account."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fleet.account.aws_errors import MissingError
from fleet.config.gateway_settings import Fallback, Gateway
from fleet.config.settings import Settings
from fleet.ops import checks_gateway, preflight
from fleet.ops.checks import Ground, Level

FALLBACK = Fallback(url="https://cloud.example/v1", model="m", key_secret="llm/fallback")


def ground(answers: Any, settings: Settings, gateway: Gateway | None = None, **said: Any) -> Ground:
    return Ground(dataclasses.replace(settings, gateway=gateway or Gateway()), answers(said))


def test_a_fleet_without_a_gateway_is_asked_for_no_builder(settings: Settings) -> None:
    assert preflight.checks(settings) == preflight.CHECKS
    with_gateway = preflight.checks(dataclasses.replace(settings, gateway=Gateway()))
    assert list(with_gateway)[len(preflight.CHECKS) :] == ["container builder", "fallback's key"]


@pytest.mark.parametrize(
    ("script", "level", "found"),
    [
        ("exit 0", Level.PASS, "builder answers"),
        ("echo Cannot connect to the daemon >&2; exit 1", Level.FAIL, "does not answer: Cannot connect to the daemon"),
        ("exit 3", Level.FAIL, "does not answer: exit 3"),
    ],
)
def test_a_builder_must_answer(
    script: str,
    level: Level,
    found: str,
    answers: Any,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "builder"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CDK_DOCKER", str(program))
    finding = checks_gateway.builder(ground(answers, settings))
    assert finding.level is level
    assert finding.found.endswith(found)


def test_no_builder_is_told_with_what_may_be_one(
    answers: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDK_DOCKER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = checks_gateway.builder(ground(answers, settings))
    assert finding.level is Level.FAIL
    assert finding.found == "docker is not installed: the gateway's image cannot be built here"
    assert "CDK_DOCKER" in finding.remedy


def test_the_fallbacks_key_is_looked_for(answers: Any, settings: Settings) -> None:
    assert checks_gateway.secret(ground(answers, settings)).found == "there is no fallback"
    signed = dataclasses.replace(FALLBACK, key_secret="", sign_as="bedrock")
    assert checks_gateway.secret(ground(answers, settings, Gateway(fallback=signed))).level is Level.PASS
    gateway = Gateway(fallback=FALLBACK)
    there = {"secretsmanager DescribeSecret": {"Name": "llm/fallback"}}
    assert checks_gateway.secret(ground(answers, settings, gateway, **there)).level is Level.PASS
    gone = {"secretsmanager DescribeSecret": MissingError("no such secret", "make it")}
    finding = checks_gateway.secret(ground(answers, settings, gateway, **gone))
    assert finding.level is Level.WARN
    assert "aws secretsmanager create-secret --name llm/fallback" in finding.remedy


@pytest.mark.parametrize(
    ("told", "found"),
    [({"DeletedDate": 1}, "to be deleted"), ({"KmsKeyId": "arn:aws:kms:us-east-2:1:key/a"}, "a key of your own")],
)
def test_a_secret_that_no_task_could_read_is_told(answers: Any, settings: Settings, told: Any, found: str) -> None:
    there = {"secretsmanager DescribeSecret": {"Name": "llm/fallback", **told}}
    finding = checks_gateway.secret(ground(answers, settings, Gateway(fallback=FALLBACK), **there))
    assert (finding.level, found in finding.found) == (Level.WARN, True)
