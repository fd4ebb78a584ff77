"""The saved queries name fields that log lines of the deployed functions have."""

import json
import re

import yaml

from .stack import ROOT, Stack

# Fields of Logs Insights itself, and of the report that Lambda logs for each invocation and this account does not:
# https://docs.aws.amazon.com/lambda/latest/dg/telemetry-schema-reference.html
OF_AWS = {"@timestamp", "@log", "type", "record.requestId", "record.status"} | {
    f"record.metrics.{name}" for name in ("billedDurationMs", "durationMs", "initDurationMs", "maxMemoryUsedMB")
}
WORDS = {"fields", "filter", "sort", "desc", "limit", "stats", "by", "as", "in", "and", "or", "like", "ispresent"} | {
    "count", "sum", "avg", "max", "min", "pct", "bin",
}


class Template(yaml.SafeLoader):
    """Reads a template. A function of CloudFormation becomes its argument, and !If its value if the condition holds."""


Template.add_multi_constructor("!", lambda loader, function, node: _argument(loader, function, node))


def _argument(loader: yaml.Loader, function: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    arguments = loader.construct_sequence(node, deep=True)
    return arguments[1] if function == "If" else arguments


def run(stack: Stack) -> None:
    # The queries name the fields of errors as well, and no function has failed so far.
    stack.account.client("lambda").invoke(FunctionName=f"{stack.name}-bucket-repair", Payload=b'{"action": "unknown"}')
    template = yaml.load((ROOT / "template.yaml").read_text(), Template)
    checked = 0
    for name, resource in template["Resources"].items():
        if isinstance(resource, list) or resource["Type"] != "AWS::Logs::QueryDefinition":
            continue
        properties = resource["Properties"]
        written = set().union(*(_written(stack, group) for group in properties["LogGroupNames"]))
        missing = fields(properties["QueryString"]) - OF_AWS - written
        assert not missing, f"{name} names fields that no log line has: {sorted(missing)}"
        checked += 1
    print(f"   {checked} queries name only fields that were logged")
    assert checked >= 7


def fields(query: str) -> set[str]:
    """The names of fields in a query: what is neither a word of the language, nor text, a number or an alias."""
    query = re.sub(r'"[^"]*"', "", query)
    aliases = set(re.findall(r"\bas (\w+)", query))
    names = set(re.findall(r"@?[A-Za-z_][\w.]*", re.sub(r"\b\d+\w*", "", query)))
    return names - WORDS - aliases


def _written(stack: Stack, group: str) -> set[str]:
    """The names of fields in the log lines of a group, by the group's logical id."""
    function = re.sub(r"(?<!^)([A-Z])", r"-\1", group.removesuffix("Logs")).lower()
    lines = (line for line in stack.log(function) if line.startswith("{"))
    return set().union(*(json.loads(line).keys() for line in lines))
