"""The wheel and the sdist can be built, and used in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import Bridge

import pqbridge

PACKAGE = Path(__file__).parents[1]

PROGRAM = """
import pqbridge, pqbridge.sync

with pqbridge.sync.Client() as client:
    jobs = client.priority_queue("jobs")
    pushed: pqbridge.PushAck = jobs.push({"to": "eve"}, priority=1)
    print(pqbridge.__version__, jobs.result(pushed.id).state)
"""


def run(*args: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(a) for a in args],
        env={**os.environ, **environment},
        cwd=PACKAGE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist; the wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    return folder


def test_what_they_have(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")

    names = zipfile.ZipFile(wheel).namelist()
    assert "pqbridge/py.typed" in names and "pqbridge/sync.py" in names
    assert any(n.endswith("/licenses/LICENSE") for n in names)
    with tarfile.open(sdist) as archive:
        names += archive.getnames()
    assert not [n for n in names if "driver" in n or "tests" in n]


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_an_empty_environment_can_use_it(built: Path, kind: str, tmp_path: Path, own_bridge: Bridge) -> None:
    [file] = built.glob(kind)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    printed = run(python, program, NATS_URL=own_bridge.url)
    assert printed == f"{pqbridge.__version__} ready\n"

    # Its types are found.
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, program)
