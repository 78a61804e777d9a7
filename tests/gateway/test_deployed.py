"""The gateway as it is deployed: a standing fleet gets it, its tasks answer, die, roll and go; the table stays."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.account.access import Aws
from fleet.config import immutable, validation
from fleet.config.settings import Capacity, Settings
from fleet.core import names
from fleet.localaws import EmbeddedError
from fleet.localaws import assembly as cloud_assembly
from fleet.localaws.deployed import Deployed
from fleet.ops import deploy, deployed_stacks, fleet_view, review, status
from gateway.boxes import TARGETS_SECONDS, WAITS_SECONDS
from gateway.callers import Key, key_hash
from gateway.store import DynamoStore
from tests import permissions, synth
from tests.conftest import SEVERAL_BOXES
from tests.gateway.kept import put_key
from tests.gateway.running import HELLO, on_loop
from tests.gateway.targets import Target, answers
from tests.lane.processes import Parts
from tests.permissions import LOG_DELIVERY, Role
from tests.synth import CDK_JSON

pytestmark = pytest.mark.slow  # loads CDK and moto

STACK = "llm-gateway"
KEY = "sk-deployed"
SECRET = "llm/fallback"  # noqa: S105  its name  # pragma: allowlist secret
BEFORE_IT_RUNS = "ECS pulls the image and delivers the log before and beside the task: no call of ours"
UNCALLED = {
    ("ExecutionRole", "ecr:*", "*"): BEFORE_IT_RUNS,
    ("ExecutionRole", "logs:*", "*:log-group:*"): BEFORE_IT_RUNS,
    ("CreateTableRole", "logs:*", "*:log-group:*"): LOG_DELIVERY,
}


@pytest.fixture(scope="module")
def standing(
    deployed: Deployed, several_assembly: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    """The standing fleet, given the section and a second box."""
    raw = json.loads(CDK_JSON.read_text())["context"]["fleet"]
    settings = validation.check({**raw, **SEVERAL_BOXES})
    with deployed.aws.fork(tmp_path_factory.mktemp("gateway")) as aws:
        fleet = dataclasses.replace(deployed, aws=aws, settings=settings)
        aws.client("secretsmanager").create_secret(Name=SECRET, SecretString="the cloud's key")
        bucket, key = fleet.output("store", names.OUTPUT_BUCKET), settings.model.modelfile.key
        aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"FROM ./model.gguf\nPARAMETER temperature 0.7\n")
        for stack in cloud_assembly.stacks(several_assembly):
            cloud_assembly.deploy(aws, several_assembly, stack)
        table = DynamoStore(names.gateway_table("llm"), aws.client("dynamodb"))
        asyncio.run(put_key(table, key_hash(KEY), Key("k1", "pro", "interactive")))
        yield fleet


async def asked(fleet: Deployed, headers: dict[str, str] | None = None, **body: Any) -> tuple[int, str, str]:
    """One chat completion by the balancer's door: status, who served it, text."""
    told = {"model": "gpt", "messages": HELLO, "max_tokens": 20, **body}
    url, headers = f"{fleet.gateway()['url']}/v1/chat/completions", headers or {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession() as session, session.post(url, json=told, headers=headers) as answer:
        return answer.status, answer.headers.get("x-served-by", ""), await answer.text()


def update(fleet: Deployed, old: str, new: str) -> str:
    """A deploy of the gateway's stack with something else in its tasks' settings; the stack's status."""
    cloudformation = fleet.aws.client("cloudformation")
    template = cloudformation.get_template(StackName=STACK, TemplateStage="Original")["TemplateBody"]
    body = json.loads(json.dumps(template))
    (definition,) = [each for each in body["Resources"].values() if each["Type"] == "AWS::ECS::TaskDefinition"]
    (container,) = definition["Properties"]["ContainerDefinitions"]
    parts = container["Environment"][0]["Value"]["Fn::Join"][1]
    assert old in parts[-1]
    parts[-1] = parts[-1].replace(old, new)
    cloudformation.update_stack(StackName=STACK, TemplateBody=json.dumps(body), Capabilities=["CAPABILITY_NAMED_IAM"])
    return str(cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"])


@on_loop
async def test_gpu_answers_and_while_it_is_gone_the_fallback_does_and_says_what_it_is(standing: Deployed) -> None:
    service = names.gateway_service("llm")
    async with Target(answers()) as engine:
        standing.aws.control("gpu", service=service, address=engine.url.removeprefix("http://"))
        status, by, text = await asked(standing)
        assert (status, by) == (200, "gpu"), text
        assert engine.asked[0].body["model"] == standing.settings.model.name
    standing.aws.control("gpu", service=service, address=None)
    for _ in range(3):  # a table that is late, on a full machine, has a task count in its memory
        before = counted(standing)
        status, by, text = await asked(standing)
        assert (status, by) == (200, "fallback"), text
        assert "The embedded AWS's stand-in for a model." in text
        status, by, text = await asked(standing, stream=True)
        assert (status, by) == (200, "fallback"), text
        assert text.endswith("data: [DONE]\n\n")
        if counted(standing) - before == Counter(requests=2, fallbacks=2):
            return
    pytest.fail(f"not counted: {counted(standing)}")


def counted(fleet: Deployed) -> Counter[str]:
    """The caller's counts of today."""
    table = fleet.aws.client("dynamodb").scan(TableName=names.gateway_table("llm"))["Items"]
    used: dict[str, Any] = next((item for item in table if item["pk"]["S"].startswith("use#")), {})
    return Counter({name: int(used.get(name, {"N": 0})["N"]) for name in ("requests", "fallbacks")})


def test_callers_find_it_by_the_stacks_output_and_status_tells_of_its_tasks(standing: Deployed) -> None:
    aws = Aws(standing.aws.region, standing.aws.environment())
    assert standing.output("gateway", names.OUTPUT_ENDPOINT) == f"{standing.gateway()['url']}/v1"
    found = status.judge(fleet_view.look(standing.settings, aws), standing.settings, datetime.now(UTC))
    assert found.gateway == "2 of 2 tasks"
    standing.aws.client("cloudwatch").set_alarm_state(
        AlarmName="llm-gateway-spend", StateValue="ALARM", StateReason="a test"
    )
    found = status.judge(fleet_view.look(standing.settings, aws), standing.settings, datetime.now(UTC))
    assert "alarm gateway-spend is lit: docs/runbook/gateway-spend.md" in found.problems


def test_its_table_expires_and_can_be_restored_to_a_point_in_time(standing: Deployed) -> None:
    table = standing.aws.client("dynamodb")
    name = names.gateway_table("llm")
    assert table.describe_time_to_live(TableName=name)["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED"
    recovery = table.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    assert recovery["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    assert table.describe_table(TableName=name)["Table"]["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


@asynccontextmanager
async def box(fleet: Deployed, id: str, engine: Target, folder: Path) -> AsyncIterator[Parts]:
    """A box of the fleet: its lane, a process, before this engine."""
    parts = Parts(folder, engine.url, "")
    folder.mkdir()
    await parts.lane(id, fleet.settings.model.name)
    address = parts.url_of_lane.removeprefix("http://")
    fleet.aws.control("box", service=names.gateway_service("llm"), instance_id=id, address=address)
    try:
        yield parts
    finally:
        await parts.end("lane")


@on_loop
async def test_shorter_line_gets_the_request_then_the_box_that_is_left_and_the_balancer_while_aws_says_nothing(
    standing: Deployed, tmp_path: Path
) -> None:
    aws, health = standing.aws, {"service": "elasticloadbalancing", "action": "DescribeTargetHealth"}
    one, other = (each["InstanceId"] for each in standing.boxes())
    async with Target(answers(every=60)) as busy, Target() as idle, Target() as balancer:

        async def answered_by() -> Target:
            """A lane's own proofs ask something else."""
            engines = (busy, idle, balancer)
            before = {engine: sum(each.body.get("messages") == HELLO for each in engine.asked) for engine in engines}
            assert (await asked(standing))[:2] == (200, "gpu")
            (found,) = [e for e in engines if sum(x.body.get("messages") == HELLO for x in e.asked) > before[e]]
            return found

        async def chosen() -> Target:
            """The balancer answers where a machine is too busy to tell in time."""
            while (found := await answered_by()) is balancer:
                await asyncio.sleep(WAITS_SECONDS)
            return found

        aws.control("gpu", service=names.gateway_service("llm"), address=balancer.url.removeprefix("http://"))
        async with (
            box(standing, one, busy, tmp_path / "one") as first,
            box(standing, other, idle, tmp_path / "other") as second,
        ):
            async with aiohttp.ClientSession() as session:
                body = {"model": standing.settings.model.name, "messages": HELLO, "max_tokens": 1000}
                served = asyncio.create_task(session.post(f"{first.url_of_lane}/v1/chat/completions", json=body))
                for _ in range(2):
                    await asyncio.sleep(WAITS_SECONDS)
                    assert await chosen() is idle
                served.cancel()
            busy.script = [answers()]
            await second.end("lane")
            await asyncio.sleep(WAITS_SECONDS)
            assert await chosen() is busy
            aws.control("fault", **health, code="Throttling", times=-1)
            await asyncio.sleep(TARGETS_SECONDS)
            assert await answered_by() is balancer
            aws.control("clear_faults")


@on_loop
async def test_a_task_that_dies_is_replaced_and_a_deploy_breaks_no_answer(standing: Deployed) -> None:
    service, before = names.gateway_service("llm"), standing.gateway()["tasks"]
    await asyncio.to_thread(standing.aws.control, "kill_task", service=service)
    after = standing.gateway()["tasks"]
    assert len(after) == 2
    assert len({*before, *after}) == 3
    async with Target(answers(every=0.5)) as engine:
        standing.aws.control("gpu", service=service, address=engine.url.removeprefix("http://"))
        stream = asyncio.create_task(asked(standing, stream=True))
        await asyncio.sleep(0.5)
        assert await asyncio.to_thread(update, standing, '"whole_seconds":90', '"whole_seconds":1') == "UPDATE_COMPLETE"
        assert not {*after} & {*standing.gateway()["tasks"]}
        assert (await asked(standing))[:2] == (200, "fallback")  # the new ones give the GPU one second
        status, by, text = await stream
    assert (status, by) == (200, "gpu"), text
    assert text.endswith("data: [DONE]\n\n")
    assert '"error"' not in text


@on_loop
async def test_whom_nobody_could_answer_gets_the_count_and_the_idempotency_key_back(standing: Deployed) -> None:
    standing.aws.control("gpu", service=names.gateway_service("llm"), address=None)
    tries, told = 0, []
    async with asyncio.timeout(60):
        # on a full machine the store may be the one that does not answer in time, also when it is to take things back
        while not [call for call in standing.aws.requests() if call["action"] == "DeleteItem"]:
            tries += 1
            status, _, text = await asked(standing, {"Idempotency-Key": f"try-{tries}"})  # no key: no cloud for it
            assert status == 503, text
            told.append("nobody_answers" in text)
            await asyncio.sleep(0.5)
    assert any(told)


@on_loop
async def test_tasks_that_do_not_come_up_fail_the_deploy_and_the_old_ones_serve_on(standing: Deployed) -> None:
    before = standing.gateway()["tasks"]
    assert await asyncio.to_thread(update, standing, '"table":', '"no_such_setting":1,"table":') != "UPDATE_COMPLETE"
    assert standing.gateway()["tasks"] == before
    assert (await asked(standing))[0] == 200


def test_another_port_behind_a_gateway_that_chooses_among_boxes_is_refused_before_the_deploy_fails(
    standing: Deployed, tmp_path: Path
) -> None:
    raw = json.loads(CDK_JSON.read_text())["context"]["fleet"]
    other = {**SEVERAL_BOXES, "port": 12000}
    wanted = validation.check({**raw, **other})
    synth.synthesized(tmp_path / "cdk.out", other)
    with standing.aws.fork(tmp_path / "copy") as copy, pytest.raises(EmbeddedError, match="in use by llm-gateway"):
        cloud_assembly.deploy(copy, tmp_path / "cdk.out", "llm-group")
    told = Settings.from_json(standing.settings.to_json())  # as its function has them
    (problem,) = immutable.refused(told, wanted)
    assert str(problem).startswith("port = 12000: 11434 while a gateway chooses among boxes")
    one, bare = dataclasses.replace(told, capacity=Capacity()), dataclasses.replace(wanted, gateway=None)
    assert immutable.refused(one, wanted) == immutable.refused(told, bare) == ()


@on_loop
async def test_taken_out_it_leaves_its_table_and_the_fleets_own_balancer_admits_callers_again(
    standing: Deployed, assembly: Path, tmp_path: Path
) -> None:
    aws = standing.aws
    with aws.fork(tmp_path / "copy") as copy, pytest.raises(EmbeddedError, match="in use by llm-gateway"):
        cloud_assembly.deploy(copy, assembly, "llm-group")
    ended, operator = standing.gateway()["url"], Aws(aws.region, aws.environment())
    bare = dataclasses.replace(standing.settings, gateway=None)
    stacks = deployed_stacks.observed(operator, "llm", deployed_stacks.synthesized(assembly))
    told = review.review(stacks).notes
    assert "llm-gateway is not in the settings any more: `make deploy` deletes it first, after asking" in told
    deploy.end_gateway(operator, bare, ["--require-approval=never"])
    cloud_assembly.deploy(aws, assembly, "llm-group")
    assert "table llm-gateway" in "".join(deploy.kept(operator, bare))
    assert fleet_view.gateway_view(operator, "llm").rollout == "not deployed"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{ended}/v1/health")
    key = {"pk": {"S": f"key#{key_hash(KEY)}"}, "sk": {"S": "-"}}
    assert aws.client("dynamodb").get_item(TableName=names.gateway_table("llm"), Key=key)["Item"]["id"] == {"S": "k1"}


def test_permissions_of_the_gateways_roles_hold_both_ways(standing: Deployed) -> None:
    """Last: over everything that this file has asked of it, its deploys with it."""
    roles = [Role(**role) for role in ROLES]
    assert permissions.findings(roles, standing.aws.requests(), UNCALLED) == []


ROLES: list[dict[str, Any]] = []


@pytest.fixture(scope="module", autouse=True)
def known_roles(standing: Deployed) -> None:
    found = permissions.roles_of(standing)
    ROLES.extend(role for role in found if role["name"].startswith(STACK))
