"""Lets the unit tests import the reference loop that the benchmark times, and the graphs they share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "experiments" / "benchmarks"))
