"""The purchase lever and the watchdog's state: two SSM parameters, created if absent, then never touched by a deploy.

`AWS::SSM::Parameter` would hold a literal value, and any update of it would write that value back over a failover of
last night. So a custom resource creates them; its update and its delete do nothing. See docs/decisions/lever.md.
"""

import aws_cdk as cdk

from fleet.config.settings import Settings
from fleet.core import names
from lambdas.watchdog.state import Mode, State
from stacks.base_stack import BaseStack, python_function
from stacks.package import CUSTOM_RESOURCES


class LeverStack(BaseStack):
    """Both parameters, with the first values that the settings ask for."""

    def __init__(self, app: cdk.App, settings: Settings) -> None:
        super().__init__(app, "lever", settings)
        fleet, mode = settings.fleet_name, Mode(settings.initial_mode)
        first_values = {
            names.lever_parameter(fleet): str(State(mode).expected_lever),
            names.state_parameter(fleet): State(mode).dumps(),
        }
        function = python_function(
            self,
            "CreateIfAbsent",
            package=CUSTOM_RESOURCES,
            handler="lambdas.resources.create_if_absent.handler",
            description="Creates the lever and the state of the fleet where they do not exist",
            grants=[self.allow("ssm:PutParameter", on=[self.arn("ssm", f"parameter{name}") for name in first_values])],
            timeout_seconds=60,
        )
        cdk.CustomResource(
            self,
            "Parameters",
            service_token=function.function_arn,
            resource_type="Custom::CreateIfAbsent",
            removal_policy=cdk.RemovalPolicy.RETAIN,  # a fleet that comes back finds its mode
            properties={"Parameters": first_values},
        )
