"""The CDK app: one fleet, its stacks as rooms."""
