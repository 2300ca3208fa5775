"""How long `check` takes on plans of thousands of faults, as multiples of a plan without any.

    python -m benchmarks.many_faults

Prints a table; asserts nothing.
"""

import tempfile
import time
from pathlib import Path

import planc

HEAD = "model: qwen3-0.6b\ntp_size: 2\ntp_plan:"
PLANS = {
    "dead rules": "".join(f"  model.layers.*.mlp.gone{i}: colwise\n" for i in range(4_900)),
    "unknown styles": "".join(f"  model.layers.*.mlp.x{i}: styleless{i}\n" for i in range(4_900)),
    "a long style": f"  model.layers.*.mlp.up_proj: {'a' * 100_000}\n",
}


def write(kind: str, folder: Path) -> Path:
    """The plan of `kind`, in a file."""
    path = folder / "plan.yaml"
    path.write_text(f"{HEAD}\n{PLANS[kind]}")
    return path


def seconds(path: Path) -> float:
    """Processor seconds of one check."""
    start = time.process_time()
    planc.check(None, path)
    return time.process_time() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        plain = Path(name) / "plain.yaml"
        plain.write_text(f"{HEAD} auto\n")
        seconds(plain)
        base = seconds(plain)
        print(f"{'no fault':16}{base:8.3f} s")
        for kind in PLANS:
            found = seconds(write(kind, Path(name)))
            print(f"{kind:16}{found:8.3f} s{found / base:10.1f} times")


if __name__ == "__main__":
    main()
