"""An operator with zae-limiter, 0.10.3 or 0.17.0, in simulated time. The endpoint of its table is in the environment.

It reads commands from its input, one JSON object a line, and answers each in one line.

    {"open": {"table": NAME, "at": T}}
        opens the table at the time T, in epoch milliseconds, where its clock stays. The answer is null.
    {"call": {"on": "limiter" or "repository", "method": NAME, "arguments": {...}}}
        calls a method. A limit is {"name": ..., "capacity": ..., "refill_amount": ..., "refill_period_seconds": ...}.
        The answer is what the method returns, or {"raised": NAME}.
    {"acquire": {"entity": ID, "resource": NAME, "consume": {LIMIT: N}}}
        The answer is whether it was admitted, or {"raised": NAME}.
"""

import dataclasses
import json
import sys
import types

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, sync_config_cache


def decoded(value):
    if isinstance(value, list):
        return [decoded(element) for element in value]
    if isinstance(value, dict) and "refill_amount" in value:
        return Limit(**value)
    return value


def encoded(value):
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: encoded(field) for name, field in fields.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(element) for element in value]
    if isinstance(value, dict):
        return {name: encoded(element) for name, element in value.items()}
    return value


class Operator:
    def open(self, table, at):
        SyncRepository._now_ms = lambda repository: at
        sync_config_cache.time = types.SimpleNamespace(time=lambda: at / 1000)
        repository = SyncRepository.open("default", stack=table)
        if hasattr(repository, "_rejection_cache"):
            repository._rejection_cache._clock = lambda: at / 1000
        self.on = {"limiter": SyncRateLimiter(repository=repository), "repository": repository}

    def call(self, on, method, arguments):
        try:
            return encoded(getattr(self.on[on], method)(**decoded_all(arguments)))
        except Exception as error:
            return {"raised": type(error).__name__, "message": str(error)}

    def acquire(self, entity, resource, consume):
        try:
            with self.on["limiter"].acquire(entity, resource, consume):
                return True
        except RateLimitExceeded:
            return False
        except Exception as error:
            return {"raised": type(error).__name__, "message": str(error)}


def decoded_all(arguments):
    return {name: decoded(value) for name, value in arguments.items()}


def main():
    # Whatever the library prints must not end up among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    operator = Operator()
    commands = {"open": operator.open, "call": operator.call, "acquire": operator.acquire}
    for line in sys.stdin:
        [(command, arguments)] = json.loads(line).items()
        print(json.dumps(commands[command](**arguments), default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
