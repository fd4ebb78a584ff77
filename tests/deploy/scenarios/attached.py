"""A stack that makes no tables attaches to those that another stack has left."""

from .bucket import Bucket
from .stack import Stack
from .wait import until


def run(stack: Stack, left: dict[str, str], parameters: dict[str, str]) -> None:
    stack.deploy(
        **parameters,
        BucketTableName=left["BucketTable"],
        BucketTableStreamArn=left["BucketTableStreamArn"],
        NonFungibleTableName=left["NonFungibleTable"],
        NonFungibleResourceIndex=left["NonFungibleResourceIndex"],
        RatesBucketName=left["RatesBucket"],
        # As when it takes over from another consumer.
        StreamStartingPosition="LATEST",
    )
    outputs = stack.outputs()
    assert {name: left[name] for name in outputs if name in left and "Table" in name} == {
        name: value for name, value in outputs.items() if "Table" in name
    }
    bucket = Bucket(stack.account.client("dynamodb"), outputs["BucketTable"], "attached")
    bucket.create(7)
    until("the snapshots of a bucket", lambda: sorted(bucket.snapshots().values()) == [(7, 1), (7, 1)])
