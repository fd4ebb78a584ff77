"""A stack of the previous version becomes one of this version. Its tables, names and counts stay."""

import gzip
import re

from .bucket import Bucket
from .stack import BUILD, ROOT, Failed, Stack
from .wait import until

# The template of the previous version. A release replaces it: gzip -9n < template.yaml > tests/deploy/previous.yaml.gz
PREVIOUS = ROOT / "tests" / "deploy" / "previous.yaml.gz"


def run(stack: Stack, parameters: dict[str, str]) -> None:
    # Only the template is the previous one: the functions are those that were built.
    template = gzip.decompress(PREVIOUS.read_bytes()).decode()
    template = re.sub(r"functions/(\S+)", lambda code: code[1].title().replace("-", ""), template)
    previous = BUILD.with_name("previous.yaml")
    previous.write_text(template)
    stack.deploy(template=previous, **parameters)
    before = stack.outputs()
    bucket = Bucket(stack.account.client("dynamodb"), before["BucketTable"], "upgraded")
    bucket.create(2)
    until("the snapshots before the upgrade", lambda: sorted(bucket.snapshots().values()) == [(2, 1), (2, 1)])
    # As the changelog says: the mapping of bucket-keeper starts elsewhere now, so it must be replaced.
    try:
        stack.deploy(**parameters)
        raise AssertionError("the mapping was replaced in one step")
    except Failed as failed:
        assert "already exists" in str(failed), failed
    stack.deploy(**parameters, ReadStream="false")
    bucket.acquire(3)
    stack.deploy(**parameters, ReadStream="true")
    after = stack.outputs()
    kept = before.keys() & after.keys()
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    assert {"BucketTable", "BucketTableStreamArn", "NonFungibleTable", "RatesBucket"} <= kept, kept
    until("the snapshots after the upgrade", lambda: sorted(bucket.snapshots().values()) == [(5, 2), (5, 2)])
