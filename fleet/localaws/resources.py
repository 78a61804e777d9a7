"""CloudFormation resource types that moto lacks: those which act are API calls, the others are kept as written.

A type that is in neither list fails the stack (see `custom_resources`): nothing is dropped in silence.
"""

import json
from collections.abc import Callable
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.logs.models import LogGroup

from fleet.localaws import ACCOUNT
from fleet.localaws.loopback import client
from fleet.localaws.patching import extend

Properties = dict[str, Any]


class Declared(CloudFormationModel):
    """Base of the types here: created and updated by `put`, deleted by `remove`."""

    TYPE = "?"
    NAME = ""
    put: Callable[[str, str, Properties], str | None] = staticmethod(lambda region, name, properties: None)
    remove: Callable[[str, str, Properties], None] = staticmethod(lambda region, name, properties: None)

    def __init__(self, name: str, properties: Properties, region: str) -> None:
        self.name = name
        self.properties = properties
        self.region = region

    @property
    def physical_resource_id(self) -> str:
        return self.name

    @classmethod
    def cloudformation_name_type(cls) -> str:
        return cls.NAME

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.TYPE

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        """The ARN; of these types no template asks for more."""
        service, _, kind = self.TYPE.removeprefix("AWS::").lower().partition("::")
        return f"arn:aws:{service}:{self.region}:{ACCOUNT}:{kind}:{self.name}"

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> "Declared":
        properties = cloudformation_json.get("Properties", {})
        name = cls.put(region_name, resource_name, properties) or resource_name
        return cls(name, properties, region_name)

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> "Declared":
        return cls.create_from_cloudformation_json(original_resource.name, cloudformation_json, account_id, region_name)

    def delete(self, account_id: str, region_name: str) -> None:
        """Undo `put`."""
        type(self).remove(region_name, self.name, self.properties)


def declare(type_name: str, name: str = "", put: Any = None, remove: Any = None) -> None:
    """Make a type known to moto's CloudFormation, which finds subclasses of its model class by itself."""
    body: dict[str, Any] = {"TYPE": type_name, "NAME": name, "__module__": "moto.embedded.models"}
    if put:
        body["put"] = staticmethod(put)
    if remove:
        body["remove"] = staticmethod(remove)
    KNOWN.append(type(type_name.replace("::", ""), (Declared, CloudFormationModel), body))


KNOWN: list[type] = []  # keeps the classes alive: moto finds them through their base's weak list


def _put_alarm(region: str, name: str, properties: Properties) -> None:
    client("cloudwatch", region).put_metric_alarm(**{**properties, "AlarmName": name})


def _remove_alarm(region: str, name: str, properties: Properties) -> None:
    client("cloudwatch", region).delete_alarms(AlarmNames=[name])


def _put_topic_policy(region: str, name: str, properties: Properties) -> None:
    for topic in properties["Topics"]:
        client("sns", region).set_topic_attributes(
            TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"])
        )


def _put_subscription(region: str, name: str, properties: Properties) -> str:
    arn: str = client("sns", region).subscribe(**properties, ReturnSubscriptionArn=True)["SubscriptionArn"]
    return arn


def _remove_subscription(region: str, name: str, properties: Properties) -> None:
    client("sns", region).unsubscribe(SubscriptionArn=name)


def _put_document(region: str, name: str, properties: Properties) -> str:
    ssm = client("ssm", region)
    name = properties.get("Name", name)
    content = json.dumps(properties["Content"])
    try:
        ssm.create_document(Name=name, Content=content, DocumentType=properties["DocumentType"], DocumentFormat="JSON")
    except ssm.exceptions.DocumentAlreadyExists:
        version = ssm.update_document(Name=name, Content=content, DocumentVersion="$LATEST")
        number = version["DocumentDescription"]["DocumentVersion"]
        ssm.update_document_default_version(Name=name, DocumentVersion=number)
    return name


def _remove_document(region: str, name: str, properties: Properties) -> None:
    client("ssm", region).delete_document(Name=name)


def _put_scaling_policy(region: str, name: str, properties: Properties) -> str:
    scaling, name = client("autoscaling", region), name.rpartition("/")[2]  # an update names it by its ARN
    cooldown = {"Cooldown": int(properties["Cooldown"])} if "Cooldown" in properties else {}
    scaling.put_scaling_policy(**{**properties, **cooldown, "PolicyName": name})
    (made,) = scaling.describe_policies(PolicyNames=[name])["ScalingPolicies"]
    return str(made["PolicyARN"])


def _remove_scaling_policy(region: str, name: str, properties: Properties) -> None:
    client("autoscaling", region).delete_policy(
        AutoScalingGroupName=properties["AutoScalingGroupName"], PolicyName=name.rpartition("/")[2]
    )


@extend(LogGroup, "get_cfn_attribute")
def log_group_attribute(original: Any, group: Any, name: str) -> Any:
    """A log group's ARN ends in `:*` in CloudFormation: a grant on it covers the streams."""
    return f"{original(group, name)}:*" if name == "Arn" else original(group, name)


declare("AWS::CloudWatch::Alarm", "AlarmName", _put_alarm, _remove_alarm)
declare("AWS::SNS::TopicPolicy", "", _put_topic_policy)
declare("AWS::SNS::Subscription", "", _put_subscription, _remove_subscription)
declare("AWS::SSM::Document", "Name", _put_document, _remove_document)  # moto's takes content as text only
declare("AWS::AutoScaling::ScalingPolicy", "", _put_scaling_policy, _remove_scaling_policy)

# Kept as written; nothing here acts on them, the templates' tests look at their properties.
declare("AWS::S3::BucketPolicy")  # moto would enforce it without its conditions: "deny unless TLS" denies everything
declare("AWS::Lambda::EventInvokeConfig")
declare("AWS::EC2::SecurityGroupEgress")
