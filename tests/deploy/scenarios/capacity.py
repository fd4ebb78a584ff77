"""Announced work raises the minimum of a table, by the deployed function, and the schedule restores it."""

import json
import time

from .account import ACCOUNT, REGION
from .metrics import counted
from .stack import Stack
from .wait import until

# The stack is deployed with them before they exist.
ORDERS, EVENTS = "coordinated-orders", "coordinated-events"
PARAMETERS = {
    "CoordinatedTableArns": ",".join(f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}" for name in (ORDERS, EVENTS)),
    "MaxAnnouncedUnits": "20000",
}
DIMENSION = "dynamodb:table:WriteCapacityUnits"
MINIMUM, MAXIMUM, UTILIZATION = 10, 40_000, 70.0


class Coordinator:
    """The deployed function, and the tables for which work is announced."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._lambda = stack, stack.account.client("lambda")
        self._dynamodb = stack.account.client("dynamodb")
        self._scaling = stack.account.client("application-autoscaling")
        self._state = stack.physical("CapacityStateTable")
        self._create(ORDERS, ProvisionedThroughput={"ReadCapacityUnits": MINIMUM, "WriteCapacityUnits": MINIMUM})
        self._create(EVENTS, BillingMode="PAY_PER_REQUEST")
        self._target = {"ServiceNamespace": "dynamodb", "ResourceId": f"table/{ORDERS}", "ScalableDimension": DIMENSION}
        self._scaling.register_scalable_target(**self._target, MinCapacity=MINIMUM, MaxCapacity=MAXIMUM)
        self._scaling.put_scaling_policy(
            **self._target,
            PolicyName="writes",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": UTILIZATION,
                "PredefinedMetricSpecification": {"PredefinedMetricType": "DynamoDBWriteCapacityUtilization"},
            },
        )

    def _create(self, table: str, **capacity: object) -> None:
        self._dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            **capacity,
        )

    def invoke(self, **request: object) -> dict:
        """The function's answer, or its error."""
        name = self._stack.outputs()["CapacityCoordinatorArn"]
        answer = self._lambda.invoke(FunctionName=name, Payload=json.dumps(request).encode())
        return json.loads(answer["Payload"].read())

    def announce(self, id: str, units: int, table: str = ORDERS, for_seconds: int = 600) -> dict:
        announced = {"id": id, "table": table, "dimension": "write", "units": units, "for_seconds": for_seconds}
        return self.invoke(action="announce", **announced)

    def minimum(self) -> int:
        targets = self._scaling.describe_scalable_targets(ServiceNamespace="dynamodb", ResourceIds=[f"table/{ORDERS}"])
        return targets["ScalableTargets"][0]["MinCapacity"]

    def set_minimum(self, minimum: int) -> None:
        """What the table's owner may do at any time."""
        self._scaling.register_scalable_target(**self._target, MinCapacity=minimum)

    def provisioned(self) -> int:
        return self._dynamodb.describe_table(TableName=ORDERS)["Table"]["ProvisionedThroughput"]["WriteCapacityUnits"]

    def stored(self, kind: str) -> list[str]:
        """The ids of the items of a kind in the state table."""
        items = self._dynamodb.scan(TableName=self._state, ConsistentRead=True)["Items"]
        return [item["id"]["S"] for item in items if item["kind"]["S"] == kind]


def run(stack: Stack) -> None:
    coordinator = Coordinator(stack)
    _announce(coordinator)
    _refuse(coordinator)
    _on_demand(coordinator)
    _restore(stack, coordinator)


def _announce(coordinator: Coordinator) -> None:
    answer = coordinator.announce("load-42", 700)
    assert (answer["ready"], answer["provisioned"]) == (True, 1000), answer
    assert answer["until"] > time.time(), answer
    assert (coordinator.minimum(), coordinator.provisioned()) == (1000, 1000)
    assert coordinator.stored("announcement") == ["load-42"]
    assert coordinator.stored("target") == [f"table/{ORDERS}#write"]
    # The same id twice is one announcement, and units of several add up.
    assert coordinator.announce("load-42", 700)["provisioned"] == 1000
    assert coordinator.announce("load-43", 1400)["provisioned"] == 3000
    listed = coordinator.invoke(action="list")["announcements"]
    assert sorted(announcement["id"] for announcement in listed) == ["load-42", "load-43"], listed
    status = coordinator.invoke(action="status", table=ORDERS, dimension="write")
    assert (status["minimum"], status["owner_minimum"], status["announced"]) == (3000, MINIMUM, 2100), status


def _refuse(coordinator: Coordinator) -> None:
    refused = [coordinator.announce("a", 20_000), coordinator.announce("b", 1, table="elsewhere")]
    assert [answer["errorType"] for answer in refused] == ["LimitExceeded", "NotCoordinated"], refused
    unknown = coordinator.invoke(action="release", id="load-42", at="once")
    assert unknown["errorType"] == "MalformedRequest" and "at" in unknown["errorMessage"], unknown


def _on_demand(coordinator: Coordinator) -> None:
    """Tables have no warm throughput here."""
    answer = coordinator.announce("load-44", 4000, table=EVENTS)
    target = answer["targets"][0]
    assert (answer["ready"], answer["provisioned"], target["missing"]) == (False, None, 4000), answer
    assert abs(target["price_usd"] - 2.6) < 0.001, answer
    assert coordinator.invoke(action="release", id="load-44") == {"id": "load-44", "released": True}


def _restore(stack: Stack, coordinator: Coordinator) -> None:
    """The schedule raises a minimum again that its owner has changed, and restores it when the work has ended."""
    coordinator.set_minimum(20)
    changed = lambda: counted(stack, "capacity-coordinator", "OwnerChanged") > 0  # noqa: E731
    until("the owner's change to be seen, by the schedule", changed, seconds=150)
    assert coordinator.minimum() == 3000
    assert coordinator.announce("load-45", 700, for_seconds=5)["provisioned"] == 4000
    for id in ("load-42", "load-43"):
        assert coordinator.invoke(action="release", id=id) == {"id": id, "released": True}
    assert coordinator.invoke(action="release", id="load-42") == {"id": "load-42", "released": False}
    until("the owner's minimum, by the schedule", lambda: coordinator.minimum() == 20, seconds=150)
    # Auto scaling lowers the capacity, later.
    assert coordinator.provisioned() == 4000
    assert coordinator.invoke(action="list") == {"announcements": []}
    # They are kept for some minutes, with what was released.
    assert set(coordinator.stored("announcement")) == {"load-42", "load-43", "load-44", "load-45"}
    assert counted(stack, "capacity-coordinator", "Succeeded") > 0
