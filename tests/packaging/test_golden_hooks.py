"""The pre-commit hook and the GitHub Action run `kproxy golden check`, and fail as it does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.paths import GOLDEN, ROOT

SCENARIO = "clusterip-single-endpoint"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with one scenario whose Service has another port than its golden files."""
    shutil.copytree(GOLDEN / SCENARIO, tmp_path / "rules_golden" / SCENARIO)
    cluster = tmp_path / "rules_golden" / SCENARIO / "cluster.yaml"
    text = cluster.read_text()
    assert "port: 80," in text
    cluster.write_text(text.replace("port: 80,", "port: 81,", 1))
    return tmp_path


def run(command: list[str], where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=where, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True, check=False
    )


def test_the_hook_of_pre_commit(repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    done = run(shlex.split(hook["entry"]), repository)
    assert done.returncode == 1, done.stderr
    assert f"rules_golden/{SCENARIO} differs" in done.stdout


def test_the_action(repository: Path) -> None:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    assert step["env"] == {"PATHS": "${{ inputs.paths }}"}
    summary = repository / "summary"
    environment = {
        "PATHS": action["inputs"]["paths"]["default"],
        "RUNNER_TEMP": str(repository),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    # As GitHub runs `shell: bash`.
    script = repository / "script.sh"
    script.write_text(step["run"])
    done = run(["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)], repository, **environment)
    assert done.returncode == 1, done.stderr
    assert f"rules_golden/{SCENARIO} differs" in done.stdout
    assert done.stdout in summary.read_text()
