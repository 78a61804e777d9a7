"""The gateway's stack keeps every promise, each broken one is noticed; without its section nothing of it is there."""

import email.parser
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fleet.config import validation
from fleet.config.settings import Settings
from stacks import image
from stacks.package import SITE_PACKAGES
from tests.conftest import GATEWAY_SETTINGS, PUBLIC_GATEWAY
from tests.infra import templates
from tests.infra.checks.gateway import GATEWAY_CHECKS
from tests.infra.checks.shared import Check, without
from tests.infra.templates import Templates, properties, resources
from tests.infra.test_properties import FREE, survivors
from tests.synth import CDK_JSON, ROOT, in_process

pytestmark = pytest.mark.slow  # synthesizes stacks of its own

FREE_HERE = {**FREE, r"Custom::CreateTable/DependsOn": "an order that the reference to the function implies"}


@pytest.fixture(scope="module")
def read(gateway_assembly: Path) -> Templates:
    return templates.read(gateway_assembly)


@pytest.fixture(scope="module")
def settings() -> Settings:
    fleet = json.loads(CDK_JSON.read_text())["context"]["fleet"]
    return validation.check({**fleet, **GATEWAY_SETTINGS})


@pytest.mark.parametrize("check", GATEWAY_CHECKS, ids=lambda check: check.__name__)
def test_gateways_template_keeps_its_promise(check: Check, read: Templates, settings: Settings) -> None:
    check(read, settings)


def test_every_broken_property_of_the_gateway_is_noticed(gateway_assembly: Path, settings: Settings) -> None:
    unexplained, _ = survivors(templates.read(gateway_assembly), "gateway", GATEWAY_CHECKS, settings, FREE_HERE)
    assert unexplained == []


def raw(assembly: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in assembly.glob("*.template.json")}


def test_without_the_section_the_templates_are_those_of_a_fleet_that_knows_no_gateway(
    assembly: Path, gateway_assembly: Path
) -> None:
    bare, whole = raw(assembly), raw(gateway_assembly)
    assert sorted(bare) == ["llm-group.template.json", "llm-lever.template.json", "llm-store.template.json"]
    assert bare["llm-lever.template.json"] == whole["llm-lever.template.json"]
    assert bare["llm-store.template.json"]["Resources"] == whole["llm-store.template.json"]["Resources"]
    before, after = (each["llm-group.template.json"]["Resources"] for each in (bare, whole))
    assert before.keys() < after.keys()
    assert "GatewayGroup" not in json.dumps(before)
    assert "dynamodb" not in json.dumps(before)
    changed = {templates.short(name) for name in before if before[name] != after[name]}
    assert changed == {"BalancerGroup", "Dashboard", "Template"}  # a box believes headers where there is one
    assert {templates.short(name) for name in after.keys() - before.keys()} == {
        "VpcDynamoDb",
        "GatewayGroup",
        "GatewayBalancerGroup",
        *(
            templates.short(name)
            for name, resource in after.items()
            if resource["Type"].startswith("AWS::EC2::SecurityGroup") and name not in before
        ),
    }


def test_callers_are_admitted_to_the_gateways_balancer_and_the_gateway_alone_to_the_fleets(
    read: Templates, settings: Settings
) -> None:
    stack = read["group"]["Resources"]
    tcp = {"IpProtocol": "tcp"}
    admitted = [
        without(rule, "Description") for rule in stack["GatewayBalancerGroup"]["Properties"]["SecurityGroupIngress"]
    ]
    assert admitted == [{**tcp, "CidrIp": caller, "FromPort": 80, "ToPort": 80} for caller in settings.network.callers]
    assert "SecurityGroupIngress" not in stack["BalancerGroup"]["Properties"]
    rules = {
        (rule["SourceSecurityGroupId"], rule["GroupId"], rule["FromPort"], rule["ToPort"])
        for rule in (each["Properties"] for each in resources(read["group"], "AWS::EC2::SecurityGroupIngress"))
    }
    balancer, box, tasks, front = (
        f"<{name}.GroupId>" for name in ("BalancerGroup", "BoxGroup", "GatewayGroup", "GatewayBalancerGroup")
    )
    port = settings.port
    assert rules == {(balancer, box, port, port), (tasks, balancer, port, port), (front, tasks, 8080, 8080)}
    out = {
        (rule["GroupId"], rule["DestinationSecurityGroupId"], rule["FromPort"], rule["ToPort"])
        for rule in (each["Properties"] for each in resources(read["group"], "AWS::EC2::SecurityGroupEgress"))
    }
    assert out == {(balancer, box, port, port), (tasks, balancer, port, port), (front, tasks, 8080, 8080)}
    (web,) = stack["GatewayGroup"]["Properties"]["SecurityGroupEgress"]
    assert without(web, "Description") == {**tcp, "CidrIp": "0.0.0.0/0", "FromPort": 443, "ToPort": 443}


def test_among_several_boxes_the_gateway_may_choose_and_with_one_nothing_of_it_is_there(
    gateway_assembly: Path, several_assembly: Path
) -> None:
    def named(assembly: Path) -> dict[str, Any]:
        return {name: each for stack in templates.read(assembly).values() for name, each in stack["Resources"].items()}

    one, two = named(gateway_assembly), named(several_assembly)
    port, box, tasks = 11434, "<BoxGroup.GroupId>", "<GatewayGroup.GroupId>"
    rules = [without(two[name]["Properties"], "Description") for name in sorted(two.keys() - one.keys())]
    tcp = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port}
    assert rules == [
        {**tcp, "GroupId": box, "SourceSecurityGroupId": tasks},
        {**tcp, "GroupId": tasks, "DestinationSecurityGroupId": box},
    ]
    by_size = {"Group", "NoHealthyTarget", "nothingserves", "Watchdog"}
    assert {name for name in one if one[name] != two[name]} - by_size == {"Task", "TaskRole", "Template"}
    before, after = (each["Template"]["Properties"]["LaunchTemplateData"] for each in (one, two))
    assert after == {**before, "PrivateDnsNameOptions": {"EnableResourceNameDnsARecord": True}}
    before, after = (
        json.loads(each["Task"]["Properties"]["ContainerDefinitions"][0]["Environment"][0]["Value"])
        for each in (one, two)
    )
    told = {"target_group": "<TargetGroup>", "box_url": "http://{}.us-east-2.compute.internal:11434"}
    assert after == {**before, **told}
    added = set(templates.grants(two["TaskRole"])) - set(templates.grants(one["TaskRole"]))
    assert added == {("elasticloadbalancing:DescribeTargetHealth", "*", "{}")}


def test_dynamodb_is_reached_by_a_gateway_endpoint_from_every_subnet(read: Templates) -> None:
    endpoints = {
        each["Properties"]["ServiceName"]: each["Properties"]
        for each in resources(read["group"], "AWS::EC2::VPCEndpoint")
    }
    s3, dynamodb = (endpoints[f"com.amazonaws.<AWS::Region>.{name}"] for name in ("s3", "dynamodb"))
    assert {**s3, "ServiceName": ""} == {**dynamodb, "ServiceName": "", "Tags": s3["Tags"]}


def test_dashboard_gets_a_row_of_who_answered_how_fast_and_for_how_much(read: Templates) -> None:
    body = json.loads(properties(read["group"], "AWS::CloudWatch::Dashboard")["DashboardBody"])
    titles = [widget["properties"]["title"] for widget in body["widgets"]]
    assert titles[-3:] == [
        "Requests by who answered",
        "First token and whole answer, p95 seconds",
        "Fallback, dollars an hour",
    ]


def test_public_gateway_speaks_tls_to_whom_it_names(tmp_path: Path) -> None:
    read = templates.read(in_process(tmp_path, PUBLIC_GATEWAY))
    listener = properties(read["gateway"], "AWS::ElasticLoadBalancingV2::Listener")
    assert (listener["Port"], listener["Protocol"]) == (443, "HTTPS")
    assert listener["Certificates"] == [{"CertificateArn": PUBLIC_GATEWAY["gateway"]["certificate_arn"]}]
    assert listener["SslPolicy"].startswith("ELBSecurityPolicy-TLS13-")
    assert read["gateway"]["Outputs"]["Endpoint"]["Description"].endswith("with a certificate, by a name that it holds")
    assert properties(read["gateway"], "AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internet-facing"
    ingress = read["group"]["Resources"]["GatewayBalancerGroup"]["Properties"]["SecurityGroupIngress"]
    assert [(rule["CidrIp"], rule["ToPort"]) for rule in ingress] == [("0.0.0.0/0", 443)]
    assert [
        found["Properties"]["Scheme"] for found in resources(read["group"], "AWS::ElasticLoadBalancingV2::LoadBalancer")
    ] == ["internal"]
    role = templates.grants(read["gateway"]["Resources"]["TaskRole"])
    assert ("bedrock:InvokeModel", "arn:aws:bedrock:us-east-2::foundation-model/openai.gpt-oss-20b*", "{}") in role
    assert not [action for action, _, _ in role if action.startswith("secretsmanager:")]


# --- the image --------------------------------------------------------------------------------------------------


def held() -> dict[str, str]:
    """Names and versions of what the image holds."""
    found = {}
    for path in image.PACKAGES.glob("*.dist-info/METADATA"):
        told = email.parser.Parser().parsestr(path.read_text())
        found[told["Name"].lower()] = told["Version"]
    return found


def test_image_holds_the_same_pins_that_are_installed_for_this_machine() -> None:
    assert {"httptools", "boto3", "prometheus_client"} <= set(held())
    assert held() == {name: metadata.version(name) for name in held()}


def test_image_is_of_its_platform_and_of_the_python_that_its_dockerfile_names() -> None:
    (version,) = re.findall(r"^FROM \S+/python:3\.(\d+)-slim$", image.DOCKERFILE.read_text(), re.MULTILINE)
    binaries = {path.name.split(".", 1)[1] for path in image.PACKAGES.rglob("*.so")}
    assert binaries == {f"cpython-3{version}-aarch64-linux-gnu.so"}
    instructions = {line.split()[0] for line in image.DOCKERFILE.read_text().splitlines() if line[:1].isupper()}
    assert instructions == {"FROM", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}  # no RUN: any builder will do


def test_images_files_belong_to_its_user_whatever_the_umask_of_the_checkout() -> None:
    dockerfile = image.DOCKERFILE.read_text()
    (user,) = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    copied = re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE)
    assert copied == [f"--chown={user}"] * 2


def test_gateway_imports_with_nothing_but_what_its_image_holds(tmp_path: Path) -> None:
    """This machine's build of the same packages, and the image's own descriptions of AWS."""
    names = {*held(), "typing_extensions"}  # which the image's newer Python has no need of
    tops = {file.parts[0] for name in names for file in metadata.files(name) or ()} - {"..", "__pycache__"}
    (tmp_path / "packages").mkdir()
    for top in tops:
        (tmp_path / "packages" / top).symlink_to(SITE_PACKAGES / top)
    for path in image.CODE:
        link = tmp_path / "app" / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT / path)
    program = (
        "import gateway.__main__, botocore.session as s; x = s.get_session();"
        "[x.create_client(name, region_name='us-east-2') for name in ('dynamodb', 'elbv2', 's3', 'secretsmanager')]"
    )
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=tmp_path,
        env={
            "PYTHONPATH": f"{tmp_path}/app/assets:{tmp_path}/app:{tmp_path}/packages",
            "AWS_DATA_PATH": str(image.PACKAGES / "botocore" / "data"),
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_image_is_made_of_code_and_packages_and_nothing_that_a_run_leaves_behind(gateway_assembly: Path) -> None:
    assets = json.loads((gateway_assembly / "llm-gateway.assets.json").read_text())["dockerImages"]
    (built,) = assets.values()
    assert built["source"]["platform"] == "linux/arm64"
    folder = gateway_assembly / built["source"]["directory"]
    assert sorted(path.name for path in folder.iterdir()) == ["Dockerfile", "app", "packages"]
    assert not [path for path in folder.rglob("*") if path.name == "__pycache__" or path.is_symlink()]
    assert (folder / "app/assets/gateway/__main__.py").read_bytes() == (
        ROOT / "assets/gateway/__main__.py"
    ).read_bytes()
