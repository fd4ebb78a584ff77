"""A record that cannot be decoded goes to the dead-letter queue whole, and sets off an alarm."""

import json

from .bucket import LIMIT, Bucket
from .stack import Stack
from .wait import until

ENTITY = "poisoned"


class Alarms:
    """A topic for the stack's alarms, and a queue that subscribes to it."""

    def __init__(self, account) -> None:
        sns, self._sqs = account.client("sns"), account.client("sqs")
        self.topic = sns.create_topic(Name="alarms")["TopicArn"]
        self._queue = self._sqs.create_queue(QueueName="alarms-heard")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        allowed = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
        policy = {"Version": "2012-10-17", "Statement": [allowed | {"Resource": arn}]}
        self._sqs.set_queue_attributes(QueueUrl=self._queue, Attributes={"Policy": json.dumps(policy)})
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def heard(self, alarm: str) -> bool:
        """Whether the topic was notified that the alarm went off."""
        messages = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages", [])
        told = [json.loads(json.loads(message["Body"])["Message"]) for message in messages]
        return any(state["AlarmName"] == alarm and state["NewStateValue"] == "ALARM" for state in told)


def run(stack: Stack, alarms: Alarms) -> None:
    account, outputs = stack.account, stack.outputs()
    dynamodb, table = account.client("dynamodb"), outputs["BucketTable"]
    bucket = Bucket(dynamodb, table, ENTITY)
    bucket.create(1)
    # Millitokens are whole: half of one cannot be read as a number of them.
    dynamodb.update_item(
        TableName=table,
        Key=bucket.key(),
        UpdateExpression=f"ADD b_{LIMIT}_tc :half",
        ExpressionAttributeValues={":half": {"N": "0.5"}},
    )
    for function in ("UsageRollup", "BucketKeeper"):
        _dead_letter(account.client("sqs"), outputs[f"{function}DeadLettersUrl"], function)
    _alarm(stack, alarms)


def _dead_letter(sqs, url: str, function: str) -> None:
    def received() -> dict | None:
        answer = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], VisibilityTimeout=0)
        return next(iter(answer.get("Messages", [])), None)

    dead_letter = until(f"the dead letter of {function}", received)
    record = json.loads(dead_letter["Body"])
    assert record["dynamodb"]["Keys"]["PK"]["S"].endswith(f"BUCKET#{ENTITY}#api#0"), record
    assert record["dynamodb"]["NewImage"][f"b_{LIMIT}_tc"]["N"] == "1000.5", record
    reason = dead_letter["MessageAttributes"]["reason"]["StringValue"]
    assert f"b_{LIMIT}_tc" in reason and "1000.5" in reason, reason


def _alarm(stack: Stack, alarms: Alarms) -> None:
    """The local account measures no queues, so the depth that the queue reports is put in where AWS would put it."""
    url = stack.outputs()["UsageRollupDeadLettersUrl"]
    alarm, queue = f"{stack.name}-usage-rollup-dead-letters", url.rsplit("/", 1)[-1]
    cloudwatch, sqs = stack.account.client("cloudwatch"), stack.account.client("sqs")
    watched = cloudwatch.describe_alarms(AlarmNames=[alarm])["MetricAlarms"][0]
    assert watched["Dimensions"] == [{"Name": "QueueName", "Value": queue}], watched["Dimensions"]
    attribute = watched["MetricName"].removesuffix("Visible")
    depth = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[attribute])["Attributes"][attribute]
    measured = {key: watched[key] for key in ("MetricName", "Dimensions")} | {"Value": float(depth)}
    cloudwatch.put_metric_data(Namespace=watched["Namespace"], MetricData=[measured])

    def is_off() -> bool:
        return cloudwatch.describe_alarms(AlarmNames=[alarm])["MetricAlarms"][0]["StateValue"] == "ALARM"

    until("the alarm to go off", is_off)
    until("the topic to be told", lambda: alarms.heard(alarm))
