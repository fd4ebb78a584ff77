"""Deploys the stack on a local account, lets it do its work, deletes it, and attaches another one to what it leaves."""

import platform
import signal
import time
from collections.abc import Callable

from . import attached, permissions, poison, rates, tokens, usage
from .account import Account
from .schedules import Reconcile, Repair
from .stack import Stack
from .wait import until

# What the local account needs to be different, and no more.
PARAMETERS = {
    "Architecture": {"aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    # Alarms that calculate, and saved queries, it does not know.
    "WatchMappings": "false",
    "CreateQueryDefinitions": "false",
    "DeletionProtection": "false",
    # It tries failed batches again without end but for their age.
    "RollupMaximumRecordAgeSeconds": "60",
    "KeeperMaximumRecordAgeSeconds": "60",
    "ReconcileRate": "rate(1 minute)",
    "S3ForcePathStyle": "true",
}

# More than five times as long as it takes.
LIMIT_SECONDS = 15 * 60


def main() -> None:
    # Whatever ends this process, ends the account's server.
    for stop in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(stop, end)
    signal.alarm(LIMIT_SECONDS)
    with Account() as account:
        alarms = poison.Alarms(account)
        stack = Stack(account)
        scenario("deploy", lambda: stack.deploy(**PARAMETERS, AlarmTopicArn=alarms.topic))
        scenario("usage: writes become snapshots and refills", lambda: usage.run(stack))
        # What schedules are to mend is broken early, and looked at when they have had their time.
        repair, reconcile = Repair(stack), Reconcile(stack)
        scenario("tokens: ends delete them", lambda: tokens.run(stack))
        scenario("poison: to the dead letters, and an alarm", lambda: poison.run(stack, alarms))
        scenario("schedules: the repair", repair.wait)
        scenario("schedules: the reconcile", reconcile.wait)
        scenario("rates: workers' files become a summary", lambda: rates.run(stack))
        scenario("permissions: what a role lacks is denied", lambda: permissions.run(stack))
        left = stack.outputs()
        scenario("delete: the data stay", lambda: delete(stack, left))
        second = Stack(account, "attached")
        scenario("attach: another stack goes on with them", lambda: attached.run(second, left, PARAMETERS))
        scenario("delete: the data stay", lambda: delete(second, left))
    print("\nDEPLOYED: the stacks did their work, and are gone")


def end(number: int, _frame: object) -> None:
    """Ends the scenarios in good order."""
    raise SystemExit(f"ended by {signal.Signals(number).name}, after {LIMIT_SECONDS} s at the latest")


def scenario(name: str, run: Callable[[], None]) -> None:
    """Runs a scenario, and tells how long it took."""
    print(f"\n-- {name}", flush=True)
    began = time.monotonic()
    run()
    print(f"   done in {time.monotonic() - began:.0f} s", flush=True)


def delete(stack: Stack, left: dict[str, str]) -> None:
    """Deletes a stack, after which functions are gone, and what was left by the first is not."""
    stack.delete()
    functions = stack.account.client("lambda")
    until("the functions to be gone", lambda: not functions.list_functions()["Functions"])
    kept = set(stack.account.client("dynamodb").list_tables()["TableNames"])
    assert {left[name] for name in ("BucketTable", "NonFungibleTable", "FungibleTable", "LimitTable")} <= kept, kept
    stack.account.client("s3").head_bucket(Bucket=left["RatesBucket"])


main()
