"""The demo in order: cloud, bootstrap, store, publish, deploy, four acts, the sum, destroy. Run by `make demo`."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from itertools import chain
from pathlib import Path

from fleet import localaws
from fleet.config import validation
from fleet.core import cdk_cli, names
from fleet.core.cdk_cli import Cdk, CdkError
from fleet.core.errors import UserError, exit_with
from fleet.demo import acts, callers, callers_picture, nights
from fleet.demo.acts import DemoError
from fleet.demo.screen import Narrator
from fleet.eventlog import events, html_report
from fleet.eventlog.measure import Measure
from fleet.localaws import EmbeddedError, artifacts, inventory
from fleet.localaws.deployed import Deployed

OUT = cdk_cli.ROOT / "out" / "demo"
TITLE = "The spot GPU fleet: two nights of July 2026, on an embedded AWS"
CLOCK = (
    "Decisions and mail are those of the deployed function, which reads this machine's clock; the log puts them at the "
    "night's own times."
)
WARM_BUDGET_SECONDS, FIRST_BUDGET_SECONDS = 90, 300  # reported, not enforced
MORNING = timedelta(hours=8)  # after the drought's midnight; the hour is the demo's, not recorded


def main(cdk_json: Path = cdk_cli.ROOT / "cdk.json") -> int:
    """Play all acts; 1 where the fleet did not do what it says."""
    screen = Narrator()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        app = cdk_cli.with_settings(OUT / "app", cdk_cli.anywhere(cdk_json), cdk_json)
        settings = validation.load(app / "cdk.json")
        with localaws.server(OUT / "aws", settings.region) as aws:
            _acts(Deployed(aws, settings), app, screen)
    except UserError as error:
        exit_with(error)
    except (DemoError, CdkError, EmbeddedError) as error:
        screen.console.print(f"\ndemo failed: {error}", style="red", markup=False)
        return 1
    return 0


def _acts(fleet: Deployed, app: Path, screen: Narrator) -> None:
    cdk = Cdk(fleet.aws.environment(), OUT / "cdk.log")
    assembly, changed = OUT / "cdk.out", OUT / "cdk.out.morning"
    store, group = (names.stack(fleet.settings.fleet_name, stack) for stack in ("store", "group"))

    screen.heading("From nothing to a fleet in service, on an AWS inside this machine")
    with ThreadPoolExecutor(max_workers=2) as background:
        with screen.step("cloud up; cdk synth and cdk bootstrap, side by side"):
            synth = background.submit(cdk.synth, assembly, app_dir=app)
            cdk.bootstrap(localaws.ACCOUNT, fleet.aws.region, OUT / "empty")
            synth.result()
        morning = background.submit(cdk.synth, changed, app_dir=_changed_user_data(fleet, app))
        with screen.step("cdk deploy: the model store"):
            cdk.deploy(assembly, store)
        with screen.step("fleetctl publish: engine, GGUF and Modelfile, with checksums"):
            _publish(fleet, app / "cdk.json")
        with screen.step("cdk deploy: network, lever, group, watchdog, monitoring"):
            cdk.deploy(assembly)
        morning.result()
    (box,) = fleet.boxes()
    screen.fact(f"In service: {box['InstanceId']}, {box['InstanceType']}, {box.get('InstanceLifecycle')}, lever 0.")

    screen.heading("Act 1. The night of 28 July 2026: an alarm that was better ignored")
    short = acts.declined(fleet, nights.short_night(), screen)
    screen.heading("Act 2. The drought of 22 July 2026: nobody at the keyboard")
    dry = acts.failed_over(fleet, nights.drought(), screen)
    screen.heading("Act 3. The next morning's deploy")
    at = dry[0].at.replace(hour=0) + MORNING
    deploy = acts.deployed_again(fleet, lambda: cdk.deploy(changed, group), at, screen)

    screen.heading("Act 4. What callers meet: the gateway, a notice, minutes without a box")
    met = callers.played(OUT / "callers", screen, callers.SCALE)
    callers.told(met, screen)
    picture = callers_picture.draw(met.everybody, OUT / "callers.svg", callers.SCALE)

    screen.heading("What the three nights came to")
    _sum(fleet, [short, dry, deploy], [html_report.Picture("what callers met", picture)], screen)
    screen.heading("Destroy")
    _destroy(fleet, cdk, assembly, screen)
    screen.fact(
        f"\nThe demo took {screen.elapsed:.0f} s; budgets on two cores: {WARM_BUDGET_SECONDS} s warm, "
        f"{FIRST_BUDGET_SECONDS} s for a first run with its set-up."
    )


def _publish(fleet: Deployed, cdk_json: Path) -> None:
    """The demo's tiny model, by the operator's own command in a process of its own."""
    files = [text for name, path in artifacts.write(OUT / "artifacts").items() for text in (f"--{name}", str(path))]
    program = [sys.executable, "-c", "from fleet.cli.fleetctl import main; main()"]
    done = subprocess.run(  # noqa: S603  (our own command)
        [*program, "--settings", str(cdk_json), "publish", *files],
        cwd=cdk_cli.ROOT,
        env={**os.environ, **fleet.aws.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"fleetctl publish ended with {done.returncode}:\n{done.stderr}")


def _changed_user_data(fleet: Deployed, app: Path) -> Path:
    """Settings of the next morning: something that the box reads at boot."""
    drain = asdict(fleet.settings.drain)
    changed = {**drain, "budget_seconds": drain["budget_seconds"] - 1}
    return cdk_cli.with_settings(OUT / "morning", {"drain": changed}, app / "cdk.json")


def _sum(fleet: Deployed, logs: list[acts.Log], charts: list[html_report.Picture], screen: Narrator) -> None:
    """Degraded minutes and dollars, from the log alone; then log and report on disk."""
    events.write(chain(*logs), OUT / "events.jsonl")
    degraded, usd, hours = 0.0, 0.0, 0.0
    chapters = []
    for number, log in enumerate(logs, 1):
        measure = Measure()
        for event in log:
            measure.add(event)
        degraded += measure.degraded_minutes
        usd += measure.cost_usd
        hours += (measure.end - measure.start) / 3600
        chapters.append(html_report.chapter(log, OUT, title=log[0].fields["name"], prefix=f"timeline-{number}"))
    price = fleet.settings.pool(fleet.settings.pools[0])
    all_on_demand = hours * price.on_demand_usd
    line = (
        f"{degraded:.0f} degraded minutes in {hours:.1f} hours; ${usd:.2f} against ${all_on_demand:.2f} all on-demand. "
        f"A quiet day costs ${24 * price.spot_usd:.2f} against ${24 * price.on_demand_usd:.2f}."
    )
    screen.fact(line)
    page = html_report.page(OUT, title=TITLE, chapters=chapters, charts=charts, notes=[line, CLOCK])
    screen.fact(f"Event log: {(OUT / 'events.jsonl').relative_to(cdk_cli.ROOT)}")
    screen.fact(f"Report:    {page.relative_to(cdk_cli.ROOT)}")


def _destroy(fleet: Deployed, cdk: Cdk, assembly: Path, screen: Narrator) -> None:
    """What is kept on purpose is all that is left."""
    name = fleet.settings.fleet_name
    kept = {
        f"bucket: {fleet.output('store', 'BucketName')}": "the published model; costs its storage",
        f"parameter: {names.lever_parameter(name)}": "the lever, so that no new deploy undoes a failover; free",
        f"parameter: {names.state_parameter(name)}": "the watchdog's state; free",
    }
    with screen.step("cdk destroy: everything"):
        cdk.destroy(assembly)
    left = inventory.listing(fleet.aws)
    acts.must(left == set(kept), f"after destroy only {sorted(kept)} are left, but {sorted(left)}")
    screen.fact("Left by listing, all of it on purpose:")
    for item, why in kept.items():
        screen.fact(f"  {item} ({why})")


if __name__ == "__main__":
    sys.exit(main())
