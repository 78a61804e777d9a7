"""The gateway's code lies where its image finds it: below assets/, as packages."""

import sys
from pathlib import Path

ASSETS = Path(__file__).parents[2] / "assets"
sys.path.insert(0, str(ASSETS))
