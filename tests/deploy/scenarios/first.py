"""A first deployment to production: refused without a topic, repeatable after a failure, protected in the end."""

from .stack import Failed, Stack

TABLES = ("BucketTable", "NonFungibleTable", "FungibleTable", "LimitTable")


def refuse_without_topic(stack: Stack, parameters: dict[str, str]) -> None:
    """A rule of the template refuses a production stack whose alarms notify no one."""
    message = _fail(stack, parameters)
    assert "needs AlarmTopicArn" in message, message


def fail_and_repeat(stack: Stack, parameters: dict[str, str]) -> None:
    """The quota of a new account refuses to reserve concurrency. Once it is raised, the same command succeeds."""
    account = stack.account
    account.set_small_quota(True)
    _fail(stack, parameters)
    assert any("ReservedConcurrentExecutions" in reason for reason in _reasons(stack)), _reasons(stack)
    assert account.client("dynamodb").list_tables()["TableNames"] == []
    left = [bucket["Name"] for bucket in account.client("s3").list_buckets()["Buckets"]]
    assert not [name for name in left if name.startswith(stack.name)], left
    account.set_small_quota(False)
    stack.deploy("prod-first", **parameters)


def protect(stack: Stack, parameters: dict[str, str]) -> None:
    """The next deployment protects the tables from deletion."""
    stack.deploy("prod", **parameters)
    dynamodb, outputs = stack.account.client("dynamodb"), stack.outputs()
    for output in TABLES:
        table = dynamodb.describe_table(TableName=outputs[output])["Table"]
        assert table["DeletionProtectionEnabled"] is True, table


def _reasons(stack: Stack) -> list[str]:
    """Why resources of a stack that is gone could not be created."""
    cloudformation = stack.account.client("cloudformation")
    stacks = cloudformation.list_stacks()["StackSummaries"]
    gone = next(summary["StackId"] for summary in stacks if summary["StackName"] == stack.name)
    events = cloudformation.describe_stack_events(StackName=gone)["StackEvents"]
    return [event.get("ResourceStatusReason", "") for event in events if event["ResourceStatus"] == "CREATE_FAILED"]


def _fail(stack: Stack, parameters: dict[str, str]) -> str:
    """What a first deployment says that fails and leaves no stack."""
    try:
        stack.deploy("prod-first", **parameters)
    except Failed as failed:
        stacks = stack.account.client("cloudformation").list_stacks()["StackSummaries"]
        states = {summary["StackName"]: summary["StackStatus"] for summary in stacks}
        assert states.get(stack.name) in (None, "DELETE_COMPLETE", "REVIEW_IN_PROGRESS"), states
        return str(failed)
    raise AssertionError("the deployment did not fail")
