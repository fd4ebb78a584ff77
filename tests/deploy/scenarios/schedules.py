"""The schedules invoke the repair and the reconcile."""

from .bucket import Bucket
from .metrics import counted
from .stack import Stack
from .tokens import Tokens
from .wait import until


class Repair:
    """A bucket that has lost a shard, which no stream record shows."""

    def __init__(self, stack: Stack) -> None:
        outputs = stack.outputs()
        self._dynamodb, self._table = stack.account.client("dynamodb"), outputs["BucketTable"]
        self._bucket = Bucket(self._dynamodb, self._table, "sharded", capacity=6000, shards=2)
        self._bucket.create(10)
        until("the shard that a client counted up, by the stream", lambda: self._bucket.read(1))
        self._dynamodb.delete_item(TableName=self._table, Key=self._bucket.key(1))

    def wait(self) -> None:
        """Until the shard is there again."""
        until("the lost shard, by the schedule", lambda: self._bucket.read(1), seconds=150)
        assert self._bucket.read(1)["shard_count"] == 2
        # Without a version of the functions in it, clients of every version open the table.
        key = {"PK": {"S": "_/SYSTEM#"}, "SK": {"S": "#VERSION"}}
        version = self._dynamodb.get_item(TableName=self._table, Key=key)["Item"]
        assert version["lambda_version"] == {"NULL": True}, version


class Reconcile:
    """A token that has expired, and one that has not."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._tokens = stack, Tokens(stack)
        self._hurry()
        self._tokens.create("j-expired", expires_in=-3600)
        self._tokens.create("j-runs")

    def _hurry(self) -> None:
        """Lets the schedule run every minute instead of every 15. Its target stays."""
        scheduler, name = self._stack.account.client("scheduler"), self._stack.name
        schedule = scheduler.get_schedule(GroupName=f"{name}-schedules", Name=f"{name}-token-reconciler")
        kept = {key: schedule[key] for key in ("FlexibleTimeWindow", "GroupName", "Name", "State", "Target")}
        assert (schedule["ScheduleExpression"], kept["State"]) == ("rate(15 minutes)", "ENABLED"), schedule
        scheduler.update_schedule(**kept, ScheduleExpression="rate(1 minute)")

    def wait(self) -> None:
        """Until the reconcile says that it has deleted the one."""
        deleted = lambda: counted(self._stack, "token-reconciler", "Deleted") > 0  # noqa: E731
        until("the reconcile, by the schedule", deleted, seconds=150)
        assert (self._tokens.count("j-expired"), self._tokens.count("j-runs")) == (0, 1)
