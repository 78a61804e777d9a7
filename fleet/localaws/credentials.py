"""Who an access key stands for, and keys for who is asked for: an operator, CloudFormation itself, or a role.

A role's keys come from the embedded STS, so that the request log tells roles apart as CloudTrail would.
"""

from moto.sts.models import sts_backends

from fleet.localaws import ACCOUNT
from fleet.localaws.admission import Keys, access_key
from fleet.localaws.calls import Call

OPERATOR = "operator"
CLOUDFORMATION = "cloudformation"
CLOUDFORMATION_KEY = access_key()
operator = Keys()


def configure(keys: Keys) -> None:
    """The operator's keys of this run."""
    global operator
    operator = keys


def principal(call: Call) -> str | None:
    """`operator`, `cloudformation` or the role's name; None for a key that this run did not hand out."""
    if call.access_key == operator.id:
        return OPERATOR
    if call.access_key == CLOUDFORMATION_KEY:
        return CLOUDFORMATION
    session = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(call.access_key)
    return session.role_arn.split("/")[-1] if session else None


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
