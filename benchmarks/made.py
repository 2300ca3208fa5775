"""Which tree made a page of `docs/`, and when."""

import subprocess
from datetime import date
from pathlib import Path


def made() -> str:
    """`Made on 2026-11-30 at commit 1a2b3c4.`, with a word where the tree had changes that no commit holds."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = ", with changes" if _git("status", "--porcelain", "--", "planc") else ""
    return f"Made on {date.today().isoformat()} at commit {commit}{changed}."


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
