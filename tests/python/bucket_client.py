"""A client of zae-limiter, 0.10.3 or 0.17.0, in simulated time, for one bucket. The endpoint of its table is in the environment.

It reads commands from its input, one JSON object a line, and answers each in one line. Times are in epoch
milliseconds.

    {"open": {"table": NAME, "at": T, "capacity": C, "refill": R}}
        opens the table at the time T and gives the resource a limit of R tokens a second and at most C.
        The answer is null.
    {"acquire": {"at": [T, ...], "tokens": N}}
        acquires N tokens at each of these times. The answer has for each acquire whether it was admitted, and
        the operations of the requests that it sent: {"admitted": true, "requests": ["UpdateItem"]}
"""

import json
import sys
import types

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, sync_config_cache

ENTITY, RESOURCE, LIMIT = "customer-1", "api", "tokens"


class Client:
    def __init__(self):
        self.now = 0
        self.requests = []
        # The client reads three clocks: this one for buckets, another for its configuration cache, and a
        # third for its rejection cache, which older versions do not have.
        SyncRepository._now_ms = lambda repository: self.now
        sync_config_cache.time = types.SimpleNamespace(time=self.seconds)

    def seconds(self):
        return self.now / 1000

    def open(self, table, at, capacity, refill):
        self.now = at
        repository = SyncRepository.open("tidegate", stack=table)
        if hasattr(repository, "_rejection_cache"):
            repository._rejection_cache._clock = self.seconds
        repository._get_client().meta.events.register("before-send.dynamodb", self.note)
        self.limiter = SyncRateLimiter(repository=repository)
        limit = Limit.per_second(LIMIT, refill, burst=capacity)
        self.limiter.set_resource_defaults(RESOURCE, [limit], principal="test")

    def acquire(self, at, tokens):
        return [self.acquire_once(now, tokens) for now in at]

    def acquire_once(self, now, tokens):
        self.now, self.requests = now, []
        try:
            with self.limiter.acquire(ENTITY, RESOURCE, {LIMIT: tokens}):
                admitted = True
        except RateLimitExceeded:
            admitted = False
        return {"admitted": admitted, "requests": self.requests}

    def note(self, event_name, **_):
        self.requests.append(event_name.rpartition(".")[2])


def main():
    # Whatever the library prints must not end up among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    client = Client()
    commands = {"open": client.open, "acquire": client.acquire}
    for line in sys.stdin:
        [(command, arguments)] = json.loads(line).items()
        print(json.dumps(commands[command](**arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
