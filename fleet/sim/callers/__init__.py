"""Callers in a drill: what each request meets, by the gateway's and the lane's own decisions on the simulated clock.

traffic   who asks, when, for how much: drawn, or read from a file or a ledger
box       one box: the lane's own line before an engine that serves one request at a time
front     the gateway: admission, caps, who is asked next, the breakers, the cloud model
tally     what came of it
live      the listener: an event log in, a tally out
"""

import sys

from fleet.core.cdk_cli import ROOT

sys.path.insert(0, str(ROOT / "assets"))  # gateway and lane lie where their machines find them
