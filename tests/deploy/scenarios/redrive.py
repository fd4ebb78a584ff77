"""Batches that an event source mapping discarded are counted by the operator's command, once."""

import json
import subprocess
from datetime import datetime

from .bucket import Bucket
from .stack import ROOT, Stack

COMMAND = ROOT / "target" / "debug" / "tidegate"


def discard(stack: Stack, like: Bucket, entity: str) -> str:
    """Stores records of another bucket in the failures bucket, as Lambda does after a day with a batch that it discards. The
    local account does not. They are copies of the records of a bucket. Returns where they are."""
    place = f"{stack.outputs()['UsageRollupFailures']}2026/01/01/"
    function = stack.account.client("lambda").get_function(FunctionName=f"{stack.name}-usage-rollup")
    records = json.dumps({"Records": _records(stack, like)}).replace(like.entity, entity)
    stored = {"requestContext": {"functionArn": function["Configuration"]["FunctionArn"]}, "payload": records}
    name, _, prefix = place.removeprefix("s3://").partition("/")
    stack.account.client("s3").put_object(Bucket=name, Key=f"{prefix}batch", Body=json.dumps(stored).encode())
    return place


def redrive(stack: Stack, place: str) -> dict[str, int]:
    """Runs the operator's command, as the runbook says, and returns what it counted."""
    line = [str(COMMAND), "redrive", "--json", "--failures", place, "--table", stack.outputs()["BucketTable"]]
    line += ["--windows", "hourly,daily", "--snapshot-ttl-days", "90"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def _records(stack: Stack, bucket: Bucket) -> list[dict]:
    """The records of a bucket, as the stream gives them to functions."""
    streams, arn = stack.account.client("dynamodbstreams"), stack.outputs()["BucketTableStreamArn"]
    records = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        start = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = streams.get_shard_iterator(StreamArn=arn, **start)["ShardIterator"]
        while iterator:
            page = streams.get_records(ShardIterator=iterator)
            records += page["Records"]
            iterator = page.get("NextShardIterator") if page["Records"] else None
    ours = [record for record in records if record["dynamodb"]["Keys"] == bucket.key()]
    return [json.loads(json.dumps(record | {"eventSourceARN": arn}, default=_two_days_before)) for record in ours]


def _two_days_before(created: datetime) -> float:
    return created.timestamp() - 2 * 24 * 60 * 60
