"""Calls about spot capacity that moto lacks: placement scores and service quotas, with answers that tests can set."""

from typing import Any

from moto.ec2.models import ec2_backends

from fleet.core import names
from fleet.localaws import ACCOUNT, control
from fleet.localaws.calls import Call
from fleet.localaws.missing import ApiError, operation

_score = {"value": 3}
# Quota codes of G and VT instances, vCPUs: two xlarge boxes each.
_quotas = {names.QUOTA_SPOT: 8.0, names.QUOTA_ON_DEMAND: 8.0}


@operation("ec2", "GetSpotPlacementScores")
def get_spot_placement_scores(call: Call) -> dict[str, Any]:
    """The set score for every zone of the region; always 1 for fewer than three types, as AWS answers."""
    types = set(call.parameters.get("InstanceTypes", []))
    region = call.parameters.get("RegionNames", [call.region])[0]
    zones = {subnet.availability_zone_id for subnet in ec2_backends[ACCOUNT][region].describe_subnets()}
    score = _score["value"] if len(types) >= 3 else 1  # aws-behaviours: score-needs-three-types
    return {
        "SpotPlacementScores": [
            {"Region": region, "AvailabilityZoneId": zone, "Score": score} for zone in sorted(zones)
        ]
    }


@operation("servicequotas", "GetServiceQuota")
def get_service_quota(call: Call) -> dict[str, Any]:
    """An EC2 quota, in vCPUs."""
    code = call.parameters["QuotaCode"]
    if code not in _quotas:
        raise ApiError("NoSuchResourceException", f"The request failed because {code} does not exist.")
    return {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": _quotas[code], "Unit": "None"}}


@control.verb
def score(value: int) -> None:
    """The placement score of every zone from now on, 1 to 10."""
    _score["value"] = value


@control.verb
def quota(code: str, vcpus: float) -> None:
    """An EC2 quota from now on."""
    _quotas[code] = vcpus
