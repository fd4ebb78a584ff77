"""A client of rate-limiter-py, for one account and one resource. Its tables' base name and their endpoint
are in the environment.

    limiter_client.py limit N            sets the account's limit
    limiter_client.py start J...         starts resources with these ids, until the limit refuses one
    limiter_client.py reserve            makes a reservation, if the limit allows, and starts nothing
    limiter_client.py crowd N            makes reservations from N threads at once
    limiter_client.py fail               makes a reservation for a resource that cannot be started

Each prints, as JSON, which resources were started, whether there was capacity, or how many reservations were made.
"""

import contextlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
from limiter import non_fungible_limiter
from limiter.exceptions import CapacityExhaustedException

RESOURCE, ACCOUNT = "emr-cluster", "123456789012"


def limiter():
    return non_fungible_limiter(RESOURCE, ACCOUNT, 1)


def limit(number):
    table = boto3.resource("dynamodb").Table(os.environ["LIMITER_TABLES_BASE_NAME"] + "-limits")
    table.put_item(
        Item={
            "resourceName": RESOURCE,
            "accountId": ACCOUNT,
            "limit": int(number),
            "windowSec": 0,
            "serviceName": "emr",
        }
    )
    return True


def start(*resources):
    started = []
    for resource in resources:
        try:
            with limiter() as reservation:
                reservation.create_token(resource)
        except CapacityExhaustedException:
            break
        started.append(resource)
    return started


def reserve():
    try:
        limiter().get_reservation()
    except CapacityExhaustedException:
        return False
    return True


def crowd(callers):
    with ThreadPoolExecutor(int(callers)) as pool:
        return sum(pool.map(lambda _: reserve(), range(int(callers))))


def fail():
    try:
        # The library prints the exception.
        with contextlib.redirect_stdout(sys.stderr), limiter():
            raise RuntimeError("the resource cannot be started")
    except RuntimeError:
        return True


if __name__ == "__main__":
    command = {"limit": limit, "start": start, "reserve": reserve, "crowd": crowd, "fail": fail}[sys.argv[1]]
    print(json.dumps(command(*sys.argv[2:])))
