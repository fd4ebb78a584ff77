"""The custom metrics that the functions publish. Each costs money in the months in which it is published."""

import json

from .stack import Stack

SCHEDULED = ("bucket-repair", "token-reconciler", "rate-aggregator", "capacity-coordinator")
OTHERS = ("usage-rollup", "bucket-keeper", "token-sweeper")


def run(stack: Stack) -> None:
    """Without any event, only the schedules publish metrics. They publish the same ones whatever they do."""
    idle, all_ = _published(stack, SCHEDULED), _published(stack, SCHEDULED + OTHERS)
    print(f"   metrics: {len(idle)} when idle with every schedule on, {len(all_)} in all")
    assert 10 <= len(idle) <= 25 and len(all_) <= 40, sorted(all_)


def counted(stack: Stack, function: str, count: str) -> int:
    """The sum of a count over all invocations of a function."""
    return sum(line.get(count, 0) for line in _lines(stack, function))


def _published(stack: Stack, functions: tuple[str, ...]) -> set[tuple[str, str, str]]:
    """Namespace, service and name of each metric in the log lines of these functions."""
    return {
        (group["Namespace"], line["service"], metric["Name"])
        for function in functions
        for line in _lines(stack, function)
        for group in line["_aws"]["CloudWatchMetrics"]
        for metric in group["Metrics"]
    }


def _lines(stack: Stack, function: str) -> list[dict]:
    """The log lines from which CloudWatch extracts metrics."""
    return [json.loads(line) for line in stack.log(function) if "CloudWatchMetrics" in line]
