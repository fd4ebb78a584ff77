"""The schedules invoke the repair and the reconcile."""

from .bucket import Bucket
from .log import counted
from .stack import Stack
from .tokens import Tokens
from .wait import until


class Repair:
    """A bucket of which a shard is lost, in a way that no stream record of interest tells of."""

    def __init__(self, stack: Stack) -> None:
        outputs = stack.outputs()
        dynamodb, table = stack.account.client("dynamodb"), outputs["BucketTable"]
        self._bucket = Bucket(dynamodb, table, "sharded", capacity=6000, shards=2)
        self._bucket.create(10)
        until("the shard that a client counted up, by the stream", lambda: self._bucket.read(1))
        dynamodb.delete_item(TableName=table, Key=self._bucket.key(1))

    def wait(self) -> None:
        """Until the shard is there again."""
        until("the lost shard, by the schedule", lambda: self._bucket.read(1), seconds=150)
        assert self._bucket.read(1)["shard_count"] == 2


class Reconcile:
    """A token that has expired, and one that has not."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._tokens = stack, Tokens(stack)
        self._tokens.create("j-expired", expires_in=-3600)
        self._tokens.create("j-runs")

    def wait(self) -> None:
        """Until the reconcile says that it has deleted the one."""
        deleted = lambda: counted(self._stack, "token-reconciler", "Deleted") > 0  # noqa: E731
        until("the reconcile, by the schedule", deleted, seconds=150)
        assert (self._tokens.count("j-expired"), self._tokens.count("j-runs")) == (0, 1)
