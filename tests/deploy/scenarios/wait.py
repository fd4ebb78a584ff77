"""Waiting, aloud."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Long enough for a poller that polls each second and a cold start, on a busy machine.
PATIENCE_SECONDS = 90


def until(what: str, ask: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """Asks until the answer is neither None nor False, and returns it."""
    print(f"   waiting for {what}", end="", flush=True)
    began = time.monotonic()
    while True:
        answer = ask()
        waited = time.monotonic() - began
        if answer is not None and answer is not False:
            print(f": {waited:.0f} s", flush=True)
            return answer
        if waited > seconds:
            print(": in vain", flush=True)
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.5)
