"""The CDK app: one fleet from `cdk.json`, a stack a part. Runs at every synth, offline."""

import aws_cdk as cdk

from fleet.config.settings import Settings
from fleet.core import names
from stacks.base_stack import synthesize
from stacks.gateway import GatewayStack
from stacks.group import GroupStack
from stacks.lever import LeverStack
from stacks.store import StoreStack


def build(app: cdk.App, settings: Settings) -> None:
    """All stacks of one fleet, in the order in which they deploy."""
    store = StoreStack(app, settings)
    lever = LeverStack(app, settings)
    group = GroupStack(app, settings, store=store)
    group.add_stack_dependency(lever)
    if settings.gateway:
        GatewayStack(app, settings, settings.gateway, store=store, group=group)
    cdk.Tags.of(app).add(names.TAG_FLEET, settings.fleet_name)


if __name__ == "__main__":
    synthesize(build)
