"""Writes to the bucket table become exact snapshots and refills, by the deployed functions."""

import random
import time
from datetime import datetime, timezone

from .bucket import LIMIT, Bucket
from .stack import Stack
from .wait import until

BUCKETS = 12
ACQUIRES = 40


def run(stack: Stack) -> None:
    dynamodb, table = stack.account.client("dynamodb"), stack.outputs()["BucketTable"]
    chance = random.Random(1)
    buckets = [Bucket(dynamodb, table, f"tenant-{number}", capacity=100_000) for number in range(BUCKETS)]
    hours = {_hour()}
    granted = {}
    for bucket in buckets:
        amounts = [chance.randint(1, 900) for _ in range(ACQUIRES)]
        bucket.create(amounts[0])
        for amount in amounts[1:]:
            bucket.acquire(amount)
        granted[bucket.entity] = (sum(amounts), len(amounts))
    hours.add(_hour())
    until(f"snapshots of {BUCKETS} buckets, exact", lambda: _exact(buckets, granted, hours))
    _refill(dynamodb, table)


def _exact(buckets: list[Bucket], granted: dict[str, tuple[int, int]], hours: set[str]) -> bool:
    for bucket in buckets:
        snapshots = bucket.snapshots()
        for is_daily in (True, False):
            part = [counts for key, counts in snapshots.items() if key.endswith("#daily") == is_daily]
            tokens, events = sum(count[0] for count in part), sum(count[1] for count in part)
            most = granted[bucket.entity]
            assert (tokens, events) <= most, f"{bucket.entity}: {tokens} tokens of {events} events, granted {most}"
            if (tokens, events) != most:
                return False
        for key in snapshots:
            assert any(hour in key or f"{hour[:11]}00:00:00Z#daily" in key for hour in hours), key
    return True


def _hour() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:00:00Z")


def _refill(dynamodb: object, table: str) -> None:
    """A bucket that runs dry gets what has accrued, and no more."""
    bucket = Bucket(dynamodb, table, "dry", capacity=1_000, period_ms=10_000)
    bucket.create(101)
    began = bucket.refilled_ms
    for _ in range(15):
        bucket.acquire(20)

    def credited() -> int | None:
        now = bucket.read()
        taken = now[f"b_{LIMIT}_tc"]
        credit = now[f"b_{LIMIT}_tk"] + taken - bucket.capacity * 1000
        accrued = (int(time.time() * 1000) - began) * bucket.capacity * 1000 // bucket.period_ms
        assert 0 <= credit <= accrued, f"{credit} millitokens credited, {accrued} accrued"
        assert credit == 0 or now["rf"] > began
        # The keeper acts when what is left will not last, and half of the capacity has accrued.
        left = now[f"b_{LIMIT}_tk"] // 1000
        if credit == 0 and left > 0:
            bucket.acquire(max(1, left // 4))
        return credit or None

    credit = until("the refill of a dry bucket", credited)
    print(f"   {credit} millitokens were credited")
