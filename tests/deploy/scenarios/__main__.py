"""Deploys the stack on a local account, lets it work, deletes it, and attaches another stack to what it leaves."""

import platform
import signal
import time
from collections.abc import Callable

from . import attached, capacity, first, metrics, permissions, poison, queries, rates, recovery, rollback, tokens, upgrade
from . import usage
from .account import Account
from .schedules import Reconcile, Repair
from .stack import Stack
from .wait import until

# What differs from samconfig.toml: the architecture of this machine, and schedules that are off by default.
PARAMETERS = {
    "Architecture": {"aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    "ReconcileSchedule": "ENABLED",
    "AggregationSchedule": "ENABLED",
}

# More than three times as long as it takes.
LIMIT_SECONDS = 20 * 60


def main() -> None:
    # Whatever ends this process ends the account's server.
    for stop in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(stop, end)
    signal.alarm(LIMIT_SECONDS)
    with Account() as account:
        alarms = poison.Alarms(account)
        stack = Stack(account, "prod")
        production = PARAMETERS | capacity.PARAMETERS | {"AlarmTopicArn": alarms.topic}
        scenario("production without a topic is refused", lambda: first.refuse_without_topic(stack, PARAMETERS))
        scenario("a first deployment fails and is repeated", lambda: first.fail_and_repeat(stack, production))
        scenario("the next deployment protects the tables", lambda: first.protect(stack, production))
        scenario("usage: writes become snapshots and refills", lambda: usage.run(stack))
        # The schedules mend this later.
        repair, reconcile = Repair(stack), Reconcile(stack)
        scenario("tokens: ends delete them", lambda: tokens.run(stack))
        scenario("poison: to the dead letters, and an alarm", lambda: poison.run(stack, alarms))
        scenario("schedules: the repair", repair.wait)
        scenario("schedules: the reconcile", reconcile.wait)
        scenario("rates: workers' files become a summary", lambda: rates.run(stack))
        scenario("capacity: announced work raises a minimum until it ends", lambda: capacity.run(stack))
        scenario("queries: their fields are in the logs", lambda: queries.run(stack))
        scenario("metrics: few are published", lambda: metrics.run(stack))
        scenario("permissions: everything else is denied", lambda: permissions.run(stack))
        scenario("recovery: mappings are replaced, and discarded batches redriven", lambda: recovery.run(stack, production))
        scenario("rollback: to a packaged version", lambda: rollback.run(stack, production))
        left = stack.outputs()
        scenario("delete: the data stay", lambda: delete(stack, left))
        second = Stack(account, "default", "attached")
        scenario("attach: another stack goes on with them", lambda: attached.run(second, left, PARAMETERS))
        scenario("delete: the data stay", lambda: delete(second, left))
        third = Stack(account, "default", "upgraded")
        scenario("upgrade: from the previous version", lambda: upgrade.run(third, PARAMETERS))
    print("\nDEPLOYED: the stacks did their work and are gone")


def end(number: int, _frame: object) -> None:
    """Ends the scenarios in order."""
    raise SystemExit(f"ended by {signal.Signals(number).name}, after {LIMIT_SECONDS} s at the latest")


def scenario(name: str, run: Callable[[], None]) -> None:
    """Runs a scenario and prints how long it took."""
    print(f"\n-- {name}", flush=True)
    began = time.monotonic()
    run()
    print(f"   done in {time.monotonic() - began:.0f} s", flush=True)


def delete(stack: Stack, left: dict[str, str]) -> None:
    """Deletes a stack. Its functions go, and the data of the first stack stay."""
    stack.delete()
    functions = stack.account.client("lambda")
    until("the functions to be gone", lambda: not functions.list_functions()["Functions"])
    kept = set(stack.account.client("dynamodb").list_tables()["TableNames"])
    assert {left[name] for name in ("BucketTable", "NonFungibleTable", "FungibleTable", "LimitTable")} <= kept, kept
    stack.account.client("s3").head_bucket(Bucket=left["RatesBucket"])


main()
