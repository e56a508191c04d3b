"""Runs kombu's and Celery's own integration tests on a bridge: make celery-suite.

They are in the source distributions, which pip fetches once, and of which nothing is kept in the
repository. skipped.txt lists the tests that are not run, and why. Redis keeps the results and side
effects of Celery's tests, as in their own runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
BIN = HERE.parents[2] / "bin"
SOURCES = {
    "kombu-5.7.0": "31e62fdfd2381caa3422f8e02b84a491d9a2180ddda74507b57f4cb1e1c2c2c9",
    "celery-5.7.0": "6a5dfcf6662287204f009a02002b9e66c83d4105e47ebabdc7079108772fc6f0",
}


def unpack(source: str, cache: Path) -> Path:
    """Return the folder of a source distribution, whose bytes are the expected ones."""
    archive, folder = cache / f"{source}.tar.gz", cache / source
    if not archive.exists():
        name, _, version = source.rpartition("-")
        download = ("download", "--quiet", "--no-deps", "--no-binary", name, "-d", str(cache))
        subprocess.run([sys.executable, "-m", "pip", *download, f"{name}=={version}"], check=True)
    got = hashlib.sha256(archive.read_bytes()).hexdigest()
    if got != SOURCES[source]:
        raise SystemExit(f"{archive} has the hash {got}, want {SOURCES[source]}")
    if not folder.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(cache)
    return folder


def skipped(source: str) -> list[str]:
    """Return the names of the tests that are not run: the first words of the lines with that source."""
    lines = [line.split(" ", 2) for line in (HERE / "skipped.txt").read_text().splitlines()]
    return [words[1] for words in lines if len(words) == 3 and source.startswith(words[0] + "-")]


@contextlib.contextmanager
def running(*command: str, ready: str, **environment: str) -> Iterator[str]:
    """Run a server until the end of the block, which gets what its log says of ready."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + 60
            while not (found := re.search(ready, os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace"))):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} is not ready:\n{os.pread(log.fileno(), 1 << 20, 0).decode()}")
                time.sleep(0.05)
            yield found[1]
        finally:
            process.terminate()
            process.wait(60)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def main(which: list[str]) -> int:
    cache = BIN / "celery-suite"
    cache.mkdir(parents=True, exist_ok=True)
    if not shutil.which("redis-server"):
        raise SystemExit("celery-suite needs redis-server, and PyPI")
    status = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        own = {"PQ_DEV_NATS_PORT": "0", "PQ_HTTP_ADDR": "off", "PQ_DATA_DIR": f"{folder}/data"}
        nats = servers.enter_context(
            running(str(BIN / "pqbridge"), "-dev", ready=r"NATS is at nats://([\d.]+:\d+)", **own)
        )
        port = str(free_port())
        redis = ("redis-server", "--port", port, "--save", "", "--dir", folder)
        servers.enter_context(running(*redis, ready=r"(Ready to accept connections)"))
        environment = os.environ | {
            "TEST_BROKER": f"pqbridge://{nats}",
            "TEST_BACKEND": f"redis://127.0.0.1:{port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": port,
            "PYTHONPATH": str(HERE),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # where celery is
        }
        for source in SOURCES:
            root = unpack(source, cache)
            tests = ["t/integration"]
            if source.startswith("kombu"):
                shutil.copy(HERE / "kombu_tests.py", root / "t/integration/test_pqbridge.py")
                tests = ["t/integration/test_pqbridge.py"]
            not_run = [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in skipped(source)]
            plugins = ("celery.contrib.pytest", "no:asyncio", "no:cacheprovider")
            options = ("-q", "-rfE", "--tb=short", *(f"-p{plugin}" for plugin in plugins))
            if not which or source.partition("-")[0] in which:
                command = [sys.executable, "-m", "pytest", *options, *not_run, *(which[1:] or tests)]
                status |= subprocess.run(command, cwd=root, env=environment).returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
