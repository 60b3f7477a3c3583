"""Makes `python -m brickd` the same as `brickd`; owns nothing else."""

import sys

from brickd.cli import main

sys.exit(main())
