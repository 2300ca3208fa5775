"""Write the manifests of the bundled models: `python -m planc.model.building.bundle [NAME…]`."""

import sys

from planc.model import bundled
from planc.model.building.builder import build_manifest, build_model
from planc.model.manifest import Manifest


def manifest_of(name: str) -> Manifest:
    """The manifest that belongs to a bundled config, by its short name."""
    return Manifest(build_manifest(build_model(name), name))


def main(names: list[str]) -> None:
    for name in names or bundled.index():
        path = bundled.manifest_path(name)
        path.parent.mkdir(exist_ok=True)
        manifest_of(name).save(path)
        print(f"{path.stat().st_size:>8,} bytes  {path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
