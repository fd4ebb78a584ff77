"""The account's server: ministack, and the parts of AWS that it does not implement.

Each change below makes the local account behave as AWS does, or accept what it does not know. The template is deployed
unchanged.
"""

import os
from functools import partial
from pathlib import Path

from ministack.app import main
from ministack.services import eventbridge, lambda_svc
from ministack.services.cloudformation import provisioners

from .scaling import Scaling

HANDLERS = provisioners._RESOURCE_HANDLERS
# While this file exists, the account has the quota of a new account.
SMALL_QUOTA = Path(os.environ["SMALL_QUOTA"])


def accept_events_of_aws() -> None:
    """PutEvents refuses sources that begin with `aws.`, here as on AWS, because only AWS's services emit such events. Here
    they emit none of those that the rules match, so the scenarios put them."""
    eventbridge._put_events = partial(eventbridge._put_events, allow_aws_source=True)


def label_streams() -> None:
    """The label of a stream is a time without a zone. CloudFormation gives it a `Z` here, and the API does not."""
    create, now = HANDLERS["AWS::DynamoDB::Table"]["create"], provisioners.now_iso

    def create_table(logical_id: str, properties: dict, stack_name: str) -> tuple[str, dict]:
        provisioners.now_iso = lambda: now().removesuffix("Z")
        try:
            return create(logical_id, properties, stack_name)
        finally:
            provisioners.now_iso = now

    HANDLERS["AWS::DynamoDB::Table"]["create"] = create_table


def accept_unknown_resources() -> None:
    """Saved queries and alarms on calculations are accepted and ignored."""
    ignored = {
        "create": lambda logical_id, properties, stack_name: (f"{stack_name}-{logical_id}", {}),
        "update": lambda physical_id, old, new, stack_name: (physical_id, {}),
        "delete": lambda physical_id, properties: None,
    }
    HANDLERS["AWS::Logs::QueryDefinition"] = ignored
    put = provisioners._cw_metric_alarm_put

    def put_alarm(name: str, properties: dict) -> tuple[str, dict]:
        if "Metrics" not in properties:
            return put(name, properties)
        return name, {"Arn": f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{name}"}

    provisioners._cw_metric_alarm_put = put_alarm


def refuse_second_mapping() -> None:
    """Lambda allows one event source mapping per function and event source, so CloudFormation cannot replace one: it
    creates the new one first."""
    create = provisioners._lambda_esm_create

    def create_mapping(logical_id: str, properties: dict, stack_name: str) -> tuple[str, dict]:
        _, function, _, _ = provisioners._lambda_function_for_cfn_ref(properties["FunctionName"])
        for uuid, other in lambda_svc._esms.items():
            if (other["EventSourceArn"], other["FunctionName"]) == (properties["EventSourceArn"], function):
                raise ValueError(f"The event source mapping already exists, with the UUID {uuid}")
        return create(logical_id, properties, stack_name)

    provisioners._lambda_esm_create = HANDLERS["AWS::Lambda::EventSourceMapping"]["create"] = create_mapping


def refuse_reservations() -> None:
    """With the quota of a new account, Lambda refuses to reserve concurrency."""
    create = HANDLERS["AWS::Lambda::Function"]["create"]

    def create_function(logical_id: str, properties: dict, stack_name: str) -> tuple[str, dict]:
        if "ReservedConcurrentExecutions" in properties and SMALL_QUOTA.exists():
            raise ValueError(
                "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution "
                "below its minimum value of [10]."
            )
        return create(logical_id, properties, stack_name)

    HANDLERS["AWS::Lambda::Function"]["create"] = create_function


if __name__ == "__main__":
    accept_events_of_aws()
    label_streams()
    accept_unknown_resources()
    refuse_second_mapping()
    refuse_reservations()
    Scaling().serve()
    main()
