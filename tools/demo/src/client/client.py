"""A client of zae-limiter, 0.10.3 or 0.17.0, on one table. The table's endpoint is in the environment.

Its argument is the table. It reads one JSON object from its input: the namespace, and a list of steps.

    {"acquire": ENTITY, "take": {LIMIT: N, ...}, "adjust": N, "refund": BOOL}
        takes tokens, adjusts the limit "tokens", and commits or refunds
    {"limits": ENTITY, "capacity": {LIMIT: N, ...}}
        sets the entity's limits to so many tokens a minute

It prints one JSON array: for each acquire whether it was granted.
"""

import json
import sys

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import InvalidNameError

RESOURCE = "api"


class Refund(Exception):
    pass


def acquire(limiter, entity, take, adjust, refund):
    try:
        with limiter.acquire(entity, RESOURCE, take) as lease:
            if adjust:
                lease.adjust(tokens=adjust)
            if refund:
                raise Refund
    except (RateLimitExceeded, InvalidNameError):
        # 0.10 gives the child's tokens back and calls the denial of its parent an invalid name.
        return False
    except Refund:
        pass
    return True


def main():
    # Whatever the library prints must not end up in the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    plan = json.load(sys.stdin)
    repository = SyncRepository.open(plan["namespace"], stack=sys.argv[1])
    limiter = SyncRateLimiter(repository=repository)
    granted = []
    for step in plan["steps"]:
        if "limits" in step:
            limits = [Limit.per_minute(name, capacity) for name, capacity in step["capacity"].items()]
            limiter.set_limits(step["limits"], limits, RESOURCE, principal="test")
        else:
            granted.append(acquire(limiter, step["acquire"], step["take"], step["adjust"], step["refund"]))
    print(json.dumps(granted), file=answer)


main()
