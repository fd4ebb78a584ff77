"""Bucket items as a client writes them."""

import time
from dataclasses import dataclass, field

NAMESPACE = "dGlkZWdhdGU"
LIMIT = "rpm"
RESOURCE = "api"


@dataclass
class Bucket:
    """A bucket with one limit beside the reserved one, as zae-limiter makes them."""

    dynamodb: object
    table: str
    entity: str
    capacity: int = 600
    period_ms: int = 60_000
    shards: int = 1
    refilled_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def key(self, shard: int = 0) -> dict:
        """The key of one of its shards."""
        return {"PK": {"S": f"{NAMESPACE}/BUCKET#{self.entity}#{RESOURCE}#{shard}"}, "SK": {"S": "#STATE"}}

    def create(self, consumed: int) -> None:
        """The first acquire, which creates the bucket with the consumption in it."""
        entity, whole = self.entity, self.capacity * 1000
        texts = {
            "entity_id": entity,
            "resource": RESOURCE,
            "GSI2PK": f"{NAMESPACE}/RESOURCE#{RESOURCE}",
            "GSI2SK": f"BUCKET#{entity}#0",
            "GSI3PK": f"{NAMESPACE}/ENTITY#{entity}",
            "GSI3SK": f"BUCKET#{RESOURCE}#0",
            "GSI4PK": NAMESPACE,
            "GSI4SK": f"BUCKET#{entity}#{RESOURCE}#0",
        }
        numbers = {
            "rf": self.refilled_ms,
            "shard_count": self.shards,
            "b_wcu_tk": 999_000,
            "b_wcu_cp": 1_000_000,
            "b_wcu_ra": 1_000_000,
            "b_wcu_rp": 1000,
            "b_wcu_tc": 1000,
            f"b_{LIMIT}_tk": whole - consumed * 1000,
            f"b_{LIMIT}_cp": whole,
            f"b_{LIMIT}_ra": whole,
            f"b_{LIMIT}_rp": self.period_ms,
            f"b_{LIMIT}_tc": consumed * 1000,
        }
        item = self.key() | {"cascade": {"BOOL": False}}
        item |= {name: {"S": text} for name, text in texts.items()}
        item |= {name: {"N": str(number)} for name, number in numbers.items()}
        self.dynamodb.put_item(TableName=self.table, Item=item, ConditionExpression="attribute_not_exists(PK)")

    def acquire(self, tokens: int, shard: int = 0) -> None:
        """A speculative acquire, which must succeed."""
        self.dynamodb.update_item(
            TableName=self.table,
            Key=self.key(shard),
            UpdateExpression=f"ADD b_{LIMIT}_tk :less, b_{LIMIT}_tc :more, b_wcu_tk :unit, b_wcu_tc :units",
            ConditionExpression=f"attribute_exists(PK) AND b_{LIMIT}_tk >= :more AND b_wcu_tk >= :units",
            ExpressionAttributeValues={
                ":less": {"N": str(-tokens * 1000)},
                ":more": {"N": str(tokens * 1000)},
                ":unit": {"N": "-1000"},
                ":units": {"N": "1000"},
            },
        )

    def read(self, shard: int = 0) -> dict[str, int] | None:
        """The numbers of one of its shards; None if it is not there."""
        answer = self.dynamodb.get_item(TableName=self.table, Key=self.key(shard), ConsistentRead=True)
        item = answer.get("Item")
        return item and {name: int(value["N"]) for name, value in item.items() if "N" in value}

    def snapshots(self) -> dict[str, tuple[int, int]]:
        """Tokens and events of each of its usage snapshots, by sort key."""
        answer = self.dynamodb.query(
            TableName=self.table,
            KeyConditionExpression="PK = :entity AND begins_with(SK, :usage)",
            ExpressionAttributeValues={
                ":entity": {"S": f"{NAMESPACE}/ENTITY#{self.entity}"},
                ":usage": {"S": "#USAGE#"},
            },
            ConsistentRead=True,
        )
        count = lambda item, name: int(item[name]["N"])  # noqa: E731
        return {item["SK"]["S"]: (count(item, LIMIT), count(item, "total_events")) for item in answer["Items"]}
