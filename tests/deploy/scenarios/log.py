"""What the functions' lines of metrics tell."""

import json

from .stack import Stack


def counted(stack: Stack, function: str, metric: str) -> int:
    """The sum of a metric over all invocations of a function."""
    total = 0
    for line in stack.log(function):
        if "CloudWatchMetrics" in line:
            total += json.loads(line).get(metric, 0)
    return total
