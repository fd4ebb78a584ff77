"""A client of rate-limiter-py for fungible tokens. Its tables' base name and their endpoint are in the environment.

It reads commands from its input, one JSON object a line, and answers each in one line.

    {"resource": NAME, "account": ID, "times": N, "at": T}
        takes one token after the other, N times. At the time T, in epoch milliseconds, or in real time if T is null. The
        answer is how many were granted.

Its default limit is ten tokens a minute.
"""

import json
import sys

from limiter import fungible_limiter, managers
from limiter.exceptions import CapacityExhaustedException

REAL_TIME = managers.now_utc_ms


def count(resource, account, times, at):
    managers.now_utc_ms = REAL_TIME if at is None else lambda: at
    limiter = fungible_limiter(resource, account, 10, 60)
    granted = 0
    for _ in range(times):
        try:
            with limiter:
                granted += 1
        except CapacityExhaustedException:
            pass
    return granted


if __name__ == "__main__":
    # Whatever the library prints must not end up among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(count(**json.loads(line))), file=answers, flush=True)
