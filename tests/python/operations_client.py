"""A client of zae-limiter 0.17.0 in simulated time, for any entity. The endpoint of its table is in the environment.

It reads commands from its input, one JSON object a line, and answers each in one line. Times are in epoch
milliseconds.

    {"open": {"table": NAME, "at": T}}
        opens the table with empty caches. The answer is null.
    {"acquire": {"at": T, "entity": ID, "tokens": N, "adjust": M, "refund": BOOL}}
        acquires one request and N tokens, takes M tokens more, and leaves the lease: with an exception if it must
        refund. The answer tells whether the acquire was granted.
"""

import json
import sys
import types

from zae_limiter import RateLimitExceeded, SyncRateLimiter, SyncRepository, sync_config_cache

RESOURCE = "gpt-4"


class Refund(Exception):
    pass


class Client:
    def __init__(self):
        self.now = 0
        # The client reads three clocks: for buckets, for its configuration cache, and for its rejection cache.
        SyncRepository._now_ms = lambda repository: self.now
        sync_config_cache.time = types.SimpleNamespace(time=self.seconds)

    def seconds(self):
        return self.now / 1000

    def open(self, table, at):
        self.now = at
        repository = SyncRepository.open("default", stack=table)
        repository._rejection_cache._clock = self.seconds
        self.limiter = SyncRateLimiter(repository=repository)

    def acquire(self, at, entity, tokens, adjust, refund):
        self.now = at
        try:
            with self.limiter.acquire(entity, RESOURCE, {"requests": 1, "tokens": tokens}) as lease:
                if adjust:
                    lease.adjust(tokens=adjust)
                if refund:
                    raise Refund
        except RateLimitExceeded:
            return False
        except Refund:
            pass
        return True


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
