"""Faults on purpose, for `fleetctl game-day --live --scenario N`: templates of AWS's fault injection service.

A stack of its own, which no deploy of the fleet makes: `make faults` does, `make faults ARGS=destroy` takes it away.
It names the fleet's tag, group and alarms and imports nothing of them, so that neither stack holds the other.
"""

import math
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam

from fleet.config.failover_bound import dark_seconds
from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import BaseStack, synthesize
from stacks.grants import GROUP_ARN_WILDCARD

SPOT_BOX, GROUP = "aws:ec2:spot-instance", "aws:ec2:autoscaling-group"
INTERRUPT, REFUSE = "aws:ec2:send-spot-instance-interruptions", "aws:ec2:asg-insufficient-instance-capacity-error"
NOTICE = "PT2M"  # the least, and what AWS gives
STOPPED_BY = ("nothing-serves", "function-failed")  # the watchdog had its time, or is not there: the market comes back
STOPPED_BY_GATEWAYS = ("gateway-nobody-answers",)  # callers are turned away


class FaultsStack(BaseStack):
    """One template a fault, the role that they run with, and the alarms that end them."""

    def __init__(self, app: cdk.App, settings: Settings) -> None:
        super().__init__(app, names.STACK_FAULTS, settings)
        self._settings, self._role = settings, self._fault_role(settings.fleet_name)
        one = {"box": self._boxes("COUNT(1)")}
        interrupts = self._action(INTERRUPT, {"SpotInstances": "box"}, {"durationBeforeInterruption": NOTICE})
        self._template(names.FAULT_NOTICE, "A notice for one spot box", one, {"notice": interrupts})
        zones, minutes = ",".join(settings.zones), math.ceil((names.NOTICE_SECONDS + dark_seconds(settings)) / 60)
        refuses = self._action(
            REFUSE,
            {"AutoScalingGroups": "group"},
            {"availabilityZoneIdentifiers": zones, "duration": f"PT{minutes}M", "percentage": "100"},
        )
        every = {"box": self._boxes("ALL"), "group": self._target(GROUP, "ALL")}
        self._template(
            names.FAULT_DRY, "Nothing sells, and every spot box goes", every, {"dry": refuses, "notice": interrupts}
        )

    def _template(self, fault: str, description: str, targets: dict[str, Any], actions: dict[str, Any]) -> None:
        fleet = self._settings.fleet_name
        fis.CfnExperimentTemplate(
            self,
            fault.capitalize(),
            description=f"{fleet}: {description}",
            role_arn=self._role.role_arn,
            targets=targets,
            actions=actions,
            stop_conditions=[
                fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(
                    source="aws:cloudwatch:alarm", value=self.arn("cloudwatch", f"alarm:{fleet}-{alarm}")
                )
                for alarm in (*STOPPED_BY, *(STOPPED_BY_GATEWAYS if self._settings.gateway else ()))
            ],
            experiment_options=fis.CfnExperimentTemplate.ExperimentTemplateExperimentOptionsProperty(
                account_targeting="single-account", empty_target_resolution_mode="fail"
            ),
            tags={names.TAG_FLEET: fleet, names.TAG_FAULT: fault},
        )

    def _boxes(self, how_many: str) -> fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty:
        running = fis.CfnExperimentTemplate.ExperimentTemplateTargetFilterProperty(
            path="State.Name", values=["running"]
        )
        return self._target(SPOT_BOX, how_many, filters=[running])

    def _target(
        self, kind: str, how_many: str, **more: Any
    ) -> fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty:
        return fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
            resource_type=kind,
            resource_tags={names.TAG_FLEET: self._settings.fleet_name},
            selection_mode=how_many,
            **more,
        )

    @staticmethod
    def _action(
        action: str, targets: dict[str, str], parameters: dict[str, str]
    ) -> fis.CfnExperimentTemplate.ExperimentTemplateActionProperty:
        return fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
            action_id=action, targets=targets, parameters=parameters
        )

    def _fault_role(self, fleet: str) -> iam.Role:
        group = self.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{names.group(fleet)}")
        own_boxes = {"StringEquals": {f"aws:ResourceTag/{names.TAG_FLEET}": fleet}}
        grants = [
            self.allow(
                "ec2:SendSpotInstanceInterruptions",
                on=self.arn("ec2", "instance/*"),
                when=own_boxes,
                because="boxes that do not exist yet: of this fleet only",
            ),
            self.allow(
                "ec2:InjectApiError",  # aws-behaviours: faults-of-one-group
                on="*",
                when={
                    "ForAnyValue:StringEquals": {"ec2:FisActionId": [REFUSE]},
                    "ForAnyValue:StringLike": {"ec2:FisTargetArns": [group]},
                },
                because=f"knows no resource; the conditions hold it to the one group ({GROUP_ARN_WILDCARD})",
            ),
            self.allow(
                "ec2:DescribeInstances",
                "autoscaling:DescribeAutoScalingGroups",
                on="*",
                because="reads, by which targets are found; they know no resource",
            ),
        ]
        return iam.Role(
            self,
            "FaultRole",
            assumed_by=iam.ServicePrincipal(
                "fis.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
            inline_policies={"calls": iam.PolicyDocument(statements=grants)},
        )


def build(app: cdk.App, settings: Settings) -> None:
    """The one stack."""
    FaultsStack(app, settings)
    cdk.Tags.of(app).add(names.TAG_FLEET, settings.fleet_name)


if __name__ == "__main__":
    synthesize(build)
