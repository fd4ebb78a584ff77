"""The runbook's two steps that replace the event source mappings, and why one step is not enough. Between them, an
operator redrives what the mapping discarded."""

from . import redrive
from .bucket import Bucket
from .stack import Failed, Stack
from .wait import until


def run(stack: Stack, parameters: dict[str, str]) -> None:
    functions, outputs = stack.account.client("lambda"), stack.outputs()
    bucket = Bucket(stack.account.client("dynamodb"), outputs["BucketTable"], "recovered")
    bucket.create(3)
    until("the snapshots before the recovery", lambda: _counted(bucket, 3, 1))
    try:
        stack.deploy(**parameters, StreamStartingPosition="LATEST")
        raise AssertionError("the mapping was replaced in one step")
    except Failed as failed:
        assert "already exists" in str(failed), failed

    def streams() -> list[dict]:
        mappings = functions.list_event_source_mappings()["EventSourceMappings"]
        return [mapping for mapping in mappings if ":dynamodb:" in mapping["EventSourceArn"]]

    before = {mapping["UUID"] for mapping in streams()}
    stack.deploy(**parameters, ReadStream="false")
    assert streams() == []
    # Written while no function reads the stream.
    bucket.acquire(5)
    # What the function has counted of one bucket, it has not counted of the other.
    discarded = Bucket(bucket.dynamodb, bucket.table, "discarded")
    place = redrive.discard(stack, bucket, discarded.entity)
    for _ in range(2):
        print(f"   redrive: {redrive.redrive(stack, place)}")
        assert _counted(discarded, 8, 2)
    # The change that failed in one step, and back again.
    stack.deploy(**parameters, ReadStream="true", StreamStartingPosition="LATEST")
    assert {mapping["StartingPosition"] for mapping in streams()} == {"LATEST"}, streams()
    stack.deploy(**parameters, ReadStream="false")
    # Without a value, sam would keep the previous one.
    stack.deploy(**parameters, ReadStream="true", StreamStartingPosition="TRIM_HORIZON")
    after = {mapping["UUID"] for mapping in streams()}
    assert len(after) == 2 and not before & after, (before, after)
    # The new mapping starts at TRIM_HORIZON, so it delivers again what was counted before. It is not counted again.
    until("the snapshots after the recovery", lambda: _counted(bucket, 8, 2))


def _counted(bucket: Bucket, tokens: int, events: int) -> bool:
    """Whether the bucket's hourly snapshots have this sum. They must never have more."""
    hourly = [counts for key, counts in bucket.snapshots().items() if not key.endswith("#daily")]
    total = (sum(counts[0] for counts in hourly), sum(counts[1] for counts in hourly))
    assert total <= (tokens, events), total
    return total == (tokens, events)
