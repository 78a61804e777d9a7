"""Preflight checks of a fleet with a gateway: what its deploy needs of this machine, its fallback of the account."""

import os
import shutil
import subprocess

from fleet.ops.checks import Check, Finding, Ground, failed, passed, warned

BUILDER_VARIABLE, BUILDER = "CDK_DOCKER", "docker"  # the CDK CLI's own
ANSWER_SECONDS = 20


def builder(ground: Ground) -> Finding:
    """Whether something here can build the gateway's image: the CDK CLI does so at a deploy."""
    program = os.environ.get(BUILDER_VARIABLE, BUILDER)
    remedy = (
        f"install and start Docker, or name another builder of images, such as finch or podman, in {BUILDER_VARIABLE}; "
        "nothing is run in the image, so any platform will do"
    )
    found = shutil.which(program)
    if found is None:
        return failed(f"{program} is not installed: the gateway's image cannot be built here", remedy)
    try:
        done = subprocess.run(  # noqa: S603  the operator's own builder
            [found, "version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(f"{program} does not answer ({type(error).__name__})", remedy)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return failed(f"{program} does not answer: {said[-1] if said else f'exit {done.returncode}'}", remedy)
    return passed(f"{program} answers")


def secret(ground: Ground) -> Finding:
    """Whether the fallback's key is there: tasks start without it, and the fallback refuses them."""
    gateway = ground.settings.gateway
    if gateway is None or not gateway.fallback.key_secret:
        return passed("the fallback needs no secret" if gateway and gateway.fallback.url else "there is no fallback")
    name = gateway.fallback.key_secret
    found = ground.aws.find("secretsmanager", "DescribeSecret", SecretId=name)
    if found is None:
        return warned(
            f"the secret {name} does not exist: the fallback would refuse every request",
            f"aws secretsmanager create-secret --name {name} --secret-string KEY; it is read at the next request",
        )
    if "DeletedDate" in found:
        return warned(
            f"the secret {name} is to be deleted: nobody can read it",
            f"aws secretsmanager restore-secret --secret-id {name}",
        )
    key = str(found.get("KmsKeyId", ""))
    if key and not key.endswith("alias/aws/secretsmanager"):
        return warned(
            f"the secret {name} has a key of your own ({key}), which the gateway's role has no grant on",
            "let the key's policy allow kms:Decrypt to the task role of the gateway's stack, or use AWS's own key",
        )
    return passed(f"the secret {name} is there")


CHECKS: dict[str, Check] = {"container builder": builder, "fallback's key": secret}
