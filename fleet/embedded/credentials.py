"""Who an access key stands for, and keys for who is asked for: an operator, CloudFormation itself, or a role.

A role's keys come from the embedded STS, so that the request log tells roles apart as CloudTrail would.
"""

from moto.sts.models import sts_backends

from fleet.embedded import ACCOUNT, OPERATOR_KEY
from fleet.embedded.calls import Call

OPERATOR = "operator"
CLOUDFORMATION = "cloudformation"
CLOUDFORMATION_KEY = "AKIAFLEETCFNSERVICE0"  # pragma: allowlist secret


def principal(call: Call) -> str:
    """`operator`, `cloudformation` or the role's name; an unknown key says so."""
    if call.access_key == OPERATOR_KEY:
        return OPERATOR
    if call.access_key == CLOUDFORMATION_KEY:
        return CLOUDFORMATION
    session = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(call.access_key)
    return session.role_arn.split("/")[-1] if session else f"unknown key {call.access_key}"


def role_keys(role: str, region: str) -> dict[str, str]:
    """Environment variables with a new session of a role, named by its ARN or its name."""
    arn = role if role.startswith("arn:") else f"arn:aws:iam::{ACCOUNT}:role/{role}"
    session = sts_backends[ACCOUNT]["aws"].assume_role(
        region_name=region,
        role_session_name="embedded",
        role_arn=arn,
        policy="",
        duration=3600,
        external_id="",
    )
    return {
        "AWS_ACCESS_KEY_ID": session.access_key_id,
        "AWS_SECRET_ACCESS_KEY": session.secret_access_key,
        "AWS_SESSION_TOKEN": session.session_token,
    }
