"""A client of zae-limiter under load. The endpoint of its table is in the environment.

It reads commands from its input, one JSON object a line, and answers each in one line.

    {"open": {"table": NAME}}
        opens the table with empty caches. The answer is null.
    {"closed_loop": {"acquires": N, "concurrency": C, "prefix": P, "entities": E, "tokens": T}}
        acquires N times one request and T tokens, C at once, of the entities P0, P1, ... in turn.
    {"open_loop": {"requests": [{"at_micros": A, "entity": ID, "tokens": T, "adjust": J, "hold_micros": H}, ...]}}
        starts an acquire at each time after the start, whether or not earlier ones are done. A granted one is held for
        H, adjusted by J tokens, and committed.

Each load is answered by what became of the acquires, the latencies in microseconds (from the scheduled start), and the
wall and CPU time of this process in seconds.
"""

import asyncio
import json
import sys
import time

from zae_limiter import RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository

RESOURCE = "gpt-4"


class Load:
    def __init__(self, limiter):
        self.limiter = limiter
        self.counts = {"granted": 0, "denied": 0, "unavailable": 0}
        self.latencies = []

    async def acquire(self, start, entity, tokens, adjust=0, hold=0):
        granted = False
        try:
            consume = {"requests": 1, "tokens": tokens}
            async with self.limiter.acquire(entity, RESOURCE, consume) as lease:
                granted = True
                self.done("granted", start)
                if hold:
                    await asyncio.sleep(hold)
                if adjust:
                    await lease.adjust(tokens=adjust)
        except RateLimitExceeded:
            self.done("denied", start)
        except RateLimiterUnavailable:
            if not granted:
                self.done("unavailable", start)

    def done(self, outcome, start):
        self.counts[outcome] += 1
        self.latencies.append(int((time.perf_counter() - start) * 1e6))

    async def closed_loop(self, acquires, concurrency, prefix, entities, tokens):
        numbers = iter(range(acquires))

        async def worker():
            for number in numbers:
                await self.acquire(time.perf_counter(), f"{prefix}{number % entities}", tokens)

        await asyncio.gather(*(worker() for _ in range(concurrency)))
        self.latencies = []

    async def open_loop(self, requests):
        begin = time.perf_counter()
        tasks = []
        for request in requests:
            at = begin + request["at_micros"] / 1e6
            if (wait := at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            acquire = self.acquire(
                at, request["entity"], request["tokens"], request["adjust"], request["hold_micros"] / 1e6
            )
            tasks.append(asyncio.create_task(acquire))
        await asyncio.gather(*tasks)


async def main():
    # Whatever the library prints must not end up among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    limiter = None
    for line in iter(sys.stdin.readline, ""):
        [(command, arguments)] = json.loads(line).items()
        if command == "open":
            limiter = RateLimiter(repository=await Repository.open("default", stack=arguments["table"]))
            answer = None
        else:
            load = Load(limiter)
            wall, cpu = time.perf_counter(), time.process_time()
            await getattr(load, command)(**arguments)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            answer = {**load.counts, "latencies": load.latencies, "wall_seconds": wall, "cpu_seconds": cpu}
        print(json.dumps(answer), file=answers, flush=True)
    if limiter:
        await limiter.close()


if __name__ == "__main__":
    asyncio.run(main())
