"""Everything that would fail a deploy at 3 p.m. or a failover at 3 a.m., checked now: pass, warn or fail, and remedy.

A check that could not be made has not passed.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from fleet.account.aws_errors import CredentialsError, OperatorError
from fleet.config.settings import Settings
from fleet.ops import checks_account as account
from fleet.ops import checks_deploy as deploy
from fleet.ops import checks_fleet as fleet
from fleet.ops import checks_flip as flip
from fleet.ops import checks_gateway as gateway
from fleet.ops import checks_network as network
from fleet.ops.checks import Check, Finding, Ground, failed

# In the order in which an operator would want to hear of them.
CHECKS: dict[str, Check] = {
    "credentials": account.credentials,
    "bootstrap": account.bootstrap,
    "stacks": fleet.stacks,
    "alarm": deploy.alarm,
    "spot quota": account.spot_quota,
    "on-demand quota": account.on_demand_quota,
    "room": account.room,
    "Lambda concurrency": account.lambda_concurrency,
    "service-linked roles": account.linked_roles,
    "EBS key": account.ebs_key,
    "offered types": fleet.offerings,
    "machine image": fleet.image,
    "network": network.network,
    "artifacts": fleet.artifacts,
    "release": fleet.released,
    "subscriptions": fleet.subscriptions,
    "lever and mode": fleet.lever,
    **deploy.IN_THE_WAY,
    "watchdog's role": flip.watchdog_role,
}


def checks(settings: Settings) -> Mapping[str, Check]:
    """Those that the settings ask for."""
    return CHECKS | gateway.CHECKS if settings.gateway else CHECKS


def run(checks: Mapping[str, Check], ground: Ground) -> dict[str, Finding]:
    """Run every check at the same time; in the order of the list. Without credentials no other check says anything."""

    def one(check: Check) -> Finding:
        try:
            return check(ground)
        except CredentialsError:
            raise
        except OperatorError as error:
            return failed(f"could not be checked: {error.message}", error.remedy)
        except Exception as error:  # one check that stumbles says so in its line, and the others are still heard
            return failed(f"could not be checked: {type(error).__name__}: {error}", "report this")

    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(checks, pool.map(one, checks.values()), strict=True))
