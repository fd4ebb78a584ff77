"""Terminations told to EventBridge delete the tokens of what has ended, and nothing else."""

import json
import time
import uuid
from datetime import datetime, timezone

from .stack import Stack
from .wait import until

# Source, detail-type, and what the detail says of an end.
ENDS = [
    ("aws.emr", "EMR Cluster State Change", {"clusterId": "j-1", "state": "TERMINATED"}),
    ("aws.emr", "EMR Step Status Change", {"stepId": "s-1", "state": "INTERRUPTED"}),
    ("aws.emr-serverless", "EMR Serverless Job Run State Change", {"jobRunId": "00f1", "state": "SUCCESS"}),
    ("aws.emr-containers", "EMR Job Run State Change", {"id": "0000000310", "state": "FAILED"}),
    ("aws.emr-containers", "EmrContainers Job Run State Change", {"id": "0000000311", "state": "COMPLETED"}),
    ("aws.glue", "Glue Job State Change", {"jobRunId": "jr_1", "state": "TIMEOUT"}),
]
# Some are of resources that have a token; none of them reports an end.
NO_ENDS = [
    ("aws.emr", "EMR Cluster State Change", {"clusterId": "j-running", "state": "RUNNING"}),
    ("aws.emr", "EMR Step Status Change", {"stepId": "s-running", "state": "TERMINATED"}),
    ("aws.glue", "Glue Job State Change", {"jobRunId": "jr_running", "state": "STARTING"}),
    # It may be retried.
    ("aws.glue", "Glue Job State Change", {"jobRunId": "jr_failed", "state": "FAILED"}),
    # Its rule is not enabled.
    ("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-1", "state": "terminated"}),
]
LATE = ("aws.emr", "EMR Cluster State Change", {"clusterId": "j-late", "state": "TERMINATED_WITH_ERRORS"})


class Tokens:
    """The table of non-fungible tokens, and the bus."""

    def __init__(self, stack: Stack) -> None:
        outputs = stack.outputs()
        self._table, self._index = outputs["NonFungibleTable"], outputs["NonFungibleResourceIndex"]
        self._dynamodb, self._bus = stack.account.client("dynamodb"), stack.account.client("events")

    def create(self, resource: str, expires_in: int = 28_800) -> None:
        """A token with a resource's id."""
        item = {
            "resourceCoordinate": {"S": "cluster:123456789012"},
            "reservationId": {"S": str(uuid.uuid4())},
            "resourceId": {"S": resource},
            "resourceName": {"S": "cluster"},
            "accountId": {"S": "123456789012"},
            "expirationTime": {"N": str(int(time.time()) + expires_in)},
        }
        self._dynamodb.put_item(TableName=self._table, Item=item)

    def count(self, resource: str) -> int:
        """How many tokens have a resource's id."""
        return self._dynamodb.query(
            TableName=self._table,
            IndexName=self._index,
            KeyConditionExpression="resourceId = :resource",
            ExpressionAttributeValues={":resource": {"S": resource}},
            Select="COUNT",
        )["Count"]

    def tell(self, *events: tuple[str, str, dict]) -> None:
        """Puts events on the account's default bus."""
        entries = [
            {"Time": datetime.now(timezone.utc), "Source": source, "DetailType": kind, "Detail": json.dumps(detail)}
            for source, kind, detail in events
        ]
        refused = [entry for entry in self._bus.put_events(Entries=entries)["Entries"] if "ErrorCode" in entry]
        assert not refused, refused


def run(stack: Stack) -> None:
    tokens = Tokens(stack)
    ended = [_resource(end) for end in ENDS]
    running = [_resource(event) for event in NO_ENDS] + ["j-unheard-of"]
    for resource in ended + running:
        tokens.create(resource)
    # An end before its token is written, and one of a resource that has none and will have none.
    tokens.tell(LATE, ("aws.emr", "EMR Cluster State Change", {"clusterId": "j-nobodys", "state": "TERMINATED"}))
    tokens.tell(*NO_ENDS)
    tokens.tell(*ENDS, *ENDS[:2])
    until(f"{len(ended)} tokens to go", lambda: sum(map(tokens.count, ended)) == 0)
    tokens.create(_resource(LATE))
    until("a token written after its end event to be deleted", lambda: tokens.count(_resource(LATE)) == 0)
    assert [tokens.count(resource) for resource in running] == [1] * len(running), "a token of what runs was deleted"


def _resource(event: tuple[str, str, dict]) -> str:
    return next(value for name, value in event[2].items() if name != "state")
