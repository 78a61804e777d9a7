"""ECS on Fargate, as far as the gateway needs it: a service's tasks are real processes of this machine.

moto keeps a service's name and count. Here a task runs the command of the image (whose packages are installed for this
machine as well) with the environment of its definition and keys of its role, behind stand-ins for both balancers and
for the fallback (`task_host`). A deploy waits until its tasks are healthy, as CloudFormation does, and fails if they do
not become so. There is no Docker engine: an image counts as published.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from moto.ecs.models import EC2ContainerServiceBackend, ecs_backends
from moto.elbv2.models import elbv2_backends

from fleet.localaws import ACCOUNT, control, credentials, lambdas
from fleet.localaws.calls import Call
from fleet.localaws.loopback import client
from fleet.localaws.missing import operation
from fleet.localaws.patching import extend
from fleet.localaws.resources import Properties, declare

ROOT = Path(__file__).parents[2]


class Host:
    """The process that runs one service's tasks; it ends with this one."""

    def __init__(self, log_dir: Path) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(  # noqa: S603  (our own)
            [sys.executable, "-m", "fleet.localaws.task_host", str(log_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._lock = threading.Lock()

    def command(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """One message and its answer; raises ValueError with the reason where it failed."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a host without the pipes that were asked for")
        with self._lock:
            self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or '{"failed": "the host ended"}')
        if "failed" in answer:
            raise ValueError(answer["failed"])
        return answer

    def end(self) -> None:
        """Its tasks are told to go."""
        self._process.communicate()


_hosts: dict[str, Host] = {}


def _lower(value: Any) -> Any:
    """CloudFormation's names as the API has them: containerDefinitions. Log options stay as they are."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _lower(item) if key != "Options" else item for key, item in value.items()}
    return [_lower(item) for item in value] if isinstance(value, list) else value


def _put_definition(region: str, name: str, properties: Properties) -> str:
    typed = {**_lower({key: value for key, value in properties.items() if key != "Tags"})}
    made = client("ecs", region).register_task_definition(**typed)
    return str(made["taskDefinition"]["taskDefinitionArn"])


def _remove_definition(region: str, name: str, properties: Properties) -> None:
    client("ecs", region).deregister_task_definition(taskDefinition=name)


def _put_service(region: str, name: str, properties: Properties) -> str:
    ecs, service = client("ecs", region), properties["ServiceName"]
    cluster, definition = properties["Cluster"], properties["TaskDefinition"]
    wanted = {"cluster": cluster, "taskDefinition": definition, "desiredCount": properties["DesiredCount"]}
    host = _hosts.get(service) or _hosts.setdefault(service, Host(lambdas.log_dir() / "tasks" / service))
    try:
        host.command("deploy", count=properties["DesiredCount"], environment=_environment(region, definition))
    except ValueError:
        if service not in [item.name for item in ecs_backends[ACCOUNT][region].services.values()]:
            _hosts.pop(service).end()
        raise
    known = ecs.describe_services(cluster=cluster, services=[service])["services"]
    if known and known[0]["status"] == "ACTIVE":
        return str(ecs.update_service(service=service, **wanted)["service"]["serviceArn"])
    _lead_callers_to(host, region, properties)
    made = ecs.create_service(
        serviceName=service,
        launchType=properties["LaunchType"],
        loadBalancers=_lower(properties["LoadBalancers"]),
        networkConfiguration=_lower(properties["NetworkConfiguration"]),
        **wanted,
    )
    return str(made["service"]["serviceArn"])


def _lead_callers_to(host: Host, region: str, properties: Properties) -> None:
    """The balancer's address, which the stack tells as its endpoint, is the stand-in's on this machine."""
    backend = elbv2_backends[ACCOUNT][region]
    for wanted in properties["LoadBalancers"]:
        for balancer in backend.target_groups[wanted["TargetGroupArn"]].load_balancer_arns:
            backend.load_balancers[balancer].dns_name = host.command("state")["url"].removeprefix("http://")


def _remove_service(region: str, name: str, properties: Properties) -> None:
    service = properties["ServiceName"]
    if host := _hosts.pop(service, None):
        host.end()
    client("ecs", region).delete_service(cluster=properties["Cluster"], service=service, force=True)


def _environment(region: str, definition: str) -> dict[str, str]:
    """What a task of this definition finds: its container's variables, its role's keys, where AWS is."""
    found = client("ecs", region).describe_task_definition(taskDefinition=definition)["taskDefinition"]
    (container,) = found["containerDefinitions"]
    told = {item["name"]: item["value"] for item in container["environment"]}
    return {
        "PATH": os.environ["PATH"],
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{os.environ['MOTO_PORT']}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": region,
        **credentials.role_keys(found["taskRoleArn"], region),
        **told,
    }


declare("AWS::ECS::TaskDefinition", "", _put_definition, _remove_definition)
declare("AWS::ECS::Service", "", _put_service, _remove_service)


@extend(EC2ContainerServiceBackend, "describe_services")
def describe_services(original: Any, backend: Any, *args: Any) -> Any:
    """With the tasks that run, of which moto counts none; a deploy has ended by the time that anybody asks."""
    services, failures = original(backend, *args)
    for service in services:
        service.running_count = len(_hosts[service.name].command("state")["tasks"]) if service.name in _hosts else 0
        service.deployments[0] |= {"rolloutState": "COMPLETED"}
    return services, failures


@operation("ecr", "DescribeImages")
def describe_images(call: Call) -> dict[str, Any]:
    """Every image counts as published: there is nothing here to build one with."""
    wanted = call.parameters.get("imageIds", [])
    return {
        "imageDetails": [
            {"repositoryName": call.parameters["repositoryName"], "imageTags": [image["imageTag"]]} for image in wanted
        ]
    }


@control.verb
def tasks(service: str) -> dict[str, Any]:
    """Where callers find a service here (`url`), and the process ids of its tasks."""
    return _hosts[service].command("state")


@control.verb
def gpu(service: str, address: str | None) -> dict[str, Any]:
    """Who answers at the fleet's own balancer ("host:port"); None: connections are refused, as at first."""
    return _hosts[service].command("gpu", address=address)


@control.verb
def box(service: str, instance_id: str, address: str) -> dict[str, Any]:
    """Where a box answers by its own name ("host:port"); none does at first."""
    return _hosts[service].command("box", instance_id=instance_id, address=address)


@control.verb
def kill_task(service: str) -> dict[str, Any]:
    """The first task dies without a word; another takes its place."""
    return _hosts[service].command("kill")
