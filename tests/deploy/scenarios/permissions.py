"""Each role allows the calls of its function and denies others."""

import json

from botocore.exceptions import ClientError

from .account import ACCOUNT
from .capacity import DIMENSION, ORDERS
from .stack import Stack


def run(stack: Stack) -> None:
    outputs = stack.outputs()
    buckets, tokens = outputs["BucketTable"], outputs["NonFungibleTable"]
    rates, prefix, letters = outputs["RatesBucket"], outputs["RatesPrefix"], outputs["UsageRollupDeadLettersUrl"]
    bucket_key = {"PK": {"S": "permissions"}, "SK": {"S": "#NONE"}}
    token_key = {"resourceCoordinate": {"S": "none:0"}, "reservationId": {"S": "none"}}
    write = {"TableName": buckets, "Key": bucket_key}
    snapshot = {"TableName": buckets, "Key": {"PK": {"S": "ns/ENTITY#permissions"}, "SK": {"S": "#NONE"}}}
    failures = outputs["UsageRollupFailures"].removeprefix("s3://").split("/", 1)
    failure = {"Bucket": failures[0], "Key": f"{failures[1]}permissions", "Body": b"{}"}
    take = {"TableName": tokens, "Key": token_key}
    state = {"TableName": stack.physical("CapacityStateTable")}
    state_key = {"kind": {"S": "announcement"}, "id": {"S": "permissions"}}
    of_dynamodb = {"ServiceNamespace": "dynamodb"}
    orders = of_dynamodb | {"ResourceId": f"table/{ORDERS}", "ScalableDimension": DIMENSION}
    others = [
        orders | {"ResourceId": f"table/{buckets}", "MinCapacity": 20},
        orders | {"ServiceNamespace": "ecs", "ScalableDimension": "ecs:service:DesiredCount", "MinCapacity": 20},
    ]
    allowed = [
        ("UsageRollup", "dynamodb", "update_item", snapshot),
        ("UsageRollup", "s3", "put_object", failure),
        ("BucketKeeper", "s3", "put_object", failure),
        ("BucketKeeper", "dynamodb", "get_item", write),
        ("BucketRepair", "dynamodb", "delete_item", write),
        ("TokenSweeper", "dynamodb", "delete_item", take),
        ("TokenReconciler", "dynamodb", "scan", {"TableName": tokens}),
        ("RateAggregator", "s3", "list_objects_v2", {"Bucket": rates, "Prefix": prefix}),
        ("RateAggregator", "s3", "put_object", {"Bucket": rates, "Key": f"{prefix}summary.json", "Body": b"{}"}),
        ("UsageRollup", "sqs", "send_message", {"QueueUrl": letters, "MessageBody": "{}"}),
        ("CapacityCoordinator", "dynamodb", "get_item", state | {"Key": state_key}),
        ("CapacityCoordinator", "dynamodb", "describe_table", {"TableName": ORDERS}),
        ("CapacityCoordinator", "application-autoscaling", "register_scalable_target", orders | {"MinCapacity": 20}),
        ("CapacityCoordinator", "application-autoscaling", "describe_scaling_policies", of_dynamodb),
    ]
    denied = [
        ("UsageRollup", "dynamodb", "delete_table", {"TableName": buckets}),
        ("UsageRollup", "dynamodb", "delete_item", snapshot),
        ("UsageRollup", "s3", "get_object", {name: failure[name] for name in ("Bucket", "Key")}),
        ("UsageRollup", "s3", "put_object", failure | {"Key": "elsewhere"}),
        ("UsageRollup", "dynamodb", "delete_item", take),
        ("UsageRollup", "sqs", "receive_message", {"QueueUrl": letters}),
        ("BucketKeeper", "dynamodb", "scan", {"TableName": buckets}),
        ("BucketKeeper", "dynamodb", "delete_item", write),
        ("BucketKeeper", "sqs", "send_message", {"QueueUrl": letters, "MessageBody": "{}"}),
        ("BucketRepair", "dynamodb", "delete_item", take),
        ("TokenSweeper", "dynamodb", "scan", {"TableName": tokens}),
        ("TokenSweeper", "dynamodb", "update_item", write),
        ("TokenReconciler", "dynamodb", "put_item", {"TableName": tokens, "Item": token_key}),
        ("TokenReconciler", "emr", "describe_cluster", {"ClusterId": "j-1"}),
        ("RateAggregator", "s3", "put_object", {"Bucket": rates, "Key": f"{prefix}worker-1.json", "Body": b"{}"}),
        ("RateAggregator", "s3", "get_object", {"Bucket": rates, "Key": "elsewhere.json"}),
        ("RateAggregator", "s3", "list_objects_v2", {"Bucket": rates}),
        ("RateAggregator", "s3", "list_objects_v2", {"Bucket": rates, "Prefix": "elsewhere/"}),
        ("RateAggregator", "s3", "delete_object", {"Bucket": rates, "Key": f"{prefix}summary.json"}),
        ("RateAggregator", "dynamodb", "get_item", write),
        ("CapacityCoordinator", "dynamodb", "scan", state),
        ("CapacityCoordinator", "dynamodb", "get_item", {"TableName": ORDERS, "Key": {"id": {"S": "1"}}}),
        ("CapacityCoordinator", "dynamodb", "delete_table", {"TableName": ORDERS}),
        ("CapacityCoordinator", "dynamodb", "update_table", {"TableName": buckets, "DeletionProtectionEnabled": False}),
        *(("CapacityCoordinator", "application-autoscaling", "register_scalable_target", other) for other in others),
        ("CapacityCoordinator", "application-autoscaling", "put_scaling_policy", orders | {"PolicyName": "writes"}),
        ("BucketRepair", "application-autoscaling", "describe_scaling_policies", of_dynamodb),
    ]
    for function, service, action, arguments in allowed:
        error = _try(stack, function, service, action, arguments)
        assert error is None, f"{function} may not {action}: {error}"
    for function, service, action, arguments in denied:
        error = _try(stack, function, service, action, arguments)
        assert error in ("AccessDenied", "AccessDeniedException"), f"{function} may {action}: {error}"
    print(f"   {len(allowed)} calls allowed, {len(denied)} denied")


def _try(stack: Stack, function: str, service: str, action: str, arguments: dict) -> str | None:
    """The code of the error, if there is one, of a call with the rights of a function's role."""
    client = stack.account.client(service, **_credentials(stack, f"{function}Role"))
    try:
        getattr(client, action)(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def _credentials(stack: Stack, role: str) -> dict[str, str]:
    """Those of a session of a role, to which the account's root is let in for the moment."""
    iam, sts, name = stack.account.client("iam"), stack.account.client("sts"), stack.physical(role)
    described = iam.get_role(RoleName=name)["Role"]
    trust = described["AssumeRolePolicyDocument"]
    assert [entry["Principal"] for entry in trust["Statement"]] == [{"Service": "lambda.amazonaws.com"}], trust
    entry = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    widened = trust | {"Statement": [*trust["Statement"], entry]}
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(widened))
    session = sts.assume_role(RoleArn=described["Arn"], RoleSessionName="permissions")["Credentials"]
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))
    return {
        "aws_access_key_id": session["AccessKeyId"],
        "aws_secret_access_key": session["SecretAccessKey"],
        "aws_session_token": session["SessionToken"],
    }
