"""The sweep over all models and layouts runs where it is asked for."""

import os

collect_ignore = [] if "PLANC_SWEEP" in os.environ else ["test_sweep.py"]
