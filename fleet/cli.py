"""`fleetctl`, the one command line."""

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Operate the spot GPU fleet."""
