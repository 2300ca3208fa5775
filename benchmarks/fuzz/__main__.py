"""Attack planc with inputs that are wrong in one place.

    python -m benchmarks.fuzz configs|manifests [--seed 0] [--count 1000] [--only TEXT] [--limit 10]

Without `--count` every case is tried, else so many, drawn by the seed. Each input that raises, ends in status 3 or
takes longer than the limit (seconds of the processor) is printed; the status is 1 where there was one.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.fuzz import configs, manifests
from benchmarks.fuzz.judging import Outcome, check_file, limit_memory

Cases = Callable[[], Iterator[tuple[str, bytes]]]
Judge = Callable[[bytes, Path, float], Outcome]
KINDS: dict[str, tuple[Cases, Judge]] = {
    "configs": (configs.cases, check_file),
    "manifests": (manifests.cases, check_file),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="how many cases to draw; all without it")
    parser.add_argument("--only", default="", help="only cases with this text in their title")
    parser.add_argument("--limit", type=float, default=10, help="seconds that one input may take")
    options = parser.parse_args()
    cases, judge = KINDS[options.kind]
    chosen = [case for case in cases() if options.only in case[0]]
    if options.count is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))
    limit_memory()
    faults, slowest = 0, (0.0, "")
    with tempfile.TemporaryDirectory() as folder:
        for title, content in chosen:
            outcome = judge(content, Path(folder), options.limit)
            slowest = max(slowest, (outcome.seconds, title))
            if outcome.fault:
                faults += 1
                print(f"{title}\n    {outcome.fault.strip()}", flush=True)
    print(f"{len(chosen)} inputs, {faults} faults, the slowest took {slowest[0]:.1f} s ({slowest[1]})")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
