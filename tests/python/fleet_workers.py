"""Workers of Bulk Executor in simulated time, on one prefix of a bucket. The endpoint of S3 is in the environment.

The folder of its module `rate_limiter` is the only argument. It reads commands from its input, one JSON object a line,
and answers each in one line. Times are in seconds since the epoch.

    {"start": {"at": T, "count": N, "bucket": NAME, "prefix": PREFIX, "cap": C, "maximum": M}}
        creates N workers whose fleet may read C capacity units a second, and each of them M. The answer is null.
    {"second": {"at": T}}
        lets the workers read as much as they may for a second that ends at T. Each worker synchronises every five seconds.
        The answer is the list of what each has read.
"""

import importlib
import json
import random
import sys
import types
from contextlib import redirect_stdout

import boto3


class Once:
    """The stop event of a worker's loop: the loop runs once."""

    def __init__(self):
        self.waits = 0

    def is_set(self):
        return self.waits > 1

    def wait(self, timeout):
        self.waits += 1
        return self.waits > 1


class Fleet:
    def __init__(self, folder):
        package = types.ModuleType("rate_limiter")
        package.__path__ = [folder]
        sys.modules["rate_limiter"] = package
        self.module = importlib.import_module("rate_limiter.DistributedDynamoDBMonitorWorker")
        self.now = 0
        clock = types.SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        self.module.time = clock
        importlib.import_module("rate_limiter.TokenBucket").time = clock
        self.random = random.Random(1)

    def start(self, at, count, bucket, prefix, cap, maximum):
        self.now = at
        self.workers = [
            self.module.DistributedDynamoDBMonitorWorker(
                boto3.Session(),
                bucket,
                prefix,
                aggregate_max_read_rate=cap,
                worker_max_read_rate=maximum,
                autostart=False,
            )
            for _ in range(count)
        ]
        self.due = [at + self.random.uniform(0, 5) for _ in self.workers]

    def second(self, at):
        self.now = at
        read = [worker.monitor.max_read_rate for worker in self.workers]
        for place, worker in enumerate(self.workers):
            with worker.monitor.metrics_lock:
                worker.monitor.metrics["read_capacity"] += read[place]
            if at >= self.due[place]:
                self.due[place] += 5 * self.random.uniform(0.9, 1.1)
                worker.stop_event = Once()
                # The worker prints its errors. On standard output they would corrupt the answer.
                with redirect_stdout(sys.stderr):
                    worker._sync_loop()
        return read


def main():
    fleet = Fleet(sys.argv[1])
    for line in sys.stdin:
        [(command, arguments)] = json.loads(line).items()
        print(json.dumps(getattr(fleet, command)(**arguments)), flush=True)


if __name__ == "__main__":
    main()
