"""Exports that another stack imports can be neither changed nor removed."""

import json
import re

from moto.cloudformation import models
from moto.cloudformation.exceptions import ValidationError


def importers(stack: models.Stack) -> dict[str, str]:
    """Names of exports that other stacks import, and one stack that does."""
    backend = models.cloudformation_backends[stack.account_id][stack.region_name]
    others = [other for other in backend.stacks.values() if other is not stack]
    return {
        name: other.name
        for other in others
        for name in re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(other.template_dict))
    }


def exported(stack: models.Stack) -> dict[str, str]:
    """Values by export name."""
    return {export.name: export.value for export in stack.exports}


def check_exports(stack: models.Stack, before: dict[str, str]) -> None:
    """Refuse a change of what another stack imports, in CloudFormation's own words (aws-behaviours: export-in-use)."""
    after = exported(stack)
    for name, user in importers(stack).items():
        if name in before and before[name] != after.get(name):
            verb = "updated" if name in after else "deleted"
            raise ValidationError(message=f"Export {name} cannot be {verb} as it is in use by {user}")


def publish_exports(stack: models.Stack) -> None:
    """What others may import of a stack is what it exports now: moto tells of an update's new exports to nobody."""
    exports = models.cloudformation_backends[stack.account_id][stack.region_name].exports
    for name in [name for name, export in exports.items() if export.exporting_stack_id == stack.stack_id]:
        del exports[name]
    exports.update({export.name: export for export in stack.exports})
