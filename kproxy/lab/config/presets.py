"""The labs that are in the package: files like any other, in presets/, each with what it shows in its first line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).with_name("presets")


def preset_names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def preset_file(name: str) -> str:
    """The file of one of `preset_names`."""
    return str(DIRECTORY / f"{name}.yaml")


def about_preset(name: str) -> str:
    """What a preset shows, in one sentence."""
    with open(preset_file(name), encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
