"""A packaged version replaces a bad one without a build."""

import shutil
import tempfile
import time
from pathlib import Path

from .bucket import Bucket
from .stack import BUILD, Stack
from .wait import until


def run(stack: Stack, parameters: dict[str, str]) -> None:
    functions, outputs = stack.account.client("lambda"), stack.outputs()
    with tempfile.TemporaryDirectory(prefix="tidegate-release-") as folder:
        good, bad = Path(folder, "good.yaml"), Path(folder, "bad")
        stack.package(good)
        before = _code(functions, stack)
        _break(bad)
        stack.deploy(template=bad / "template.yaml", **parameters)
        assert _code(functions, stack) != before, "the bad version was not deployed"
        # The build of the good version is gone; only its packaged template is left.
        began = time.monotonic()
        stack.deploy(template=good, **parameters)
        print(f"   rolled back in {time.monotonic() - began:.0f} s")
    assert _code(functions, stack) == before
    bucket = Bucket(stack.account.client("dynamodb"), outputs["BucketTable"], "rolled-back")
    bucket.create(4)
    until("the snapshots after the rollback", lambda: sorted(bucket.snapshots().values()) == [(4, 1), (4, 1)])


def _break(folder: Path) -> None:
    """A build whose usage-rollup ends at once."""
    shutil.copytree(BUILD.parent, folder)
    bootstrap = folder / "UsageRollup" / "bootstrap"
    bootstrap.write_text("#!/bin/sh\nexit 1\n")
    bootstrap.chmod(0o755)


def _code(functions: object, stack: Stack) -> dict[str, str]:
    """The checksum of the code of each function."""
    listed = functions.list_functions()["Functions"]
    return {function["FunctionName"]: function["CodeSha256"] for function in listed}
