"""Application Auto Scaling, which ministack does not implement: scalable targets of tables, and their policies."""

import json
from dataclasses import dataclass, field

from ministack import app
from ministack.core.responses import error_response_json, get_account_id, get_region, json_response
from ministack.core.router import SERVICE_PATTERNS
from ministack.services import dynamodb

SERVICE = "application-autoscaling"
Key = tuple[str, str]


@dataclass
class Scaling:
    """The scalable targets and policies of the account, by resource and dimension."""

    targets: dict[Key, dict] = field(default_factory=dict)
    policies: dict[Key, dict] = field(default_factory=dict)

    def serve(self) -> None:
        """Lets the account answer the requests of this service."""
        SERVICE_PATTERNS[SERVICE] = {"target_prefixes": ["AnyScaleFrontendService"]}
        app.SERVICE_HANDLERS[SERVICE] = self.handle

    async def handle(self, _method: str, _path: str, headers: dict, body: bytes, query: dict) -> tuple:
        action, request = headers["x-amz-target"].split(".")[-1], json.loads(body)
        denied = _denied(action, request, headers, query)
        if denied:
            return denied
        answer = {
            "RegisterScalableTarget": self._register,
            "DescribeScalableTargets": self._describe_targets,
            "PutScalingPolicy": self._put_policy,
            "DescribeScalingPolicies": self._describe_policies,
        }.get(action)
        return answer(request) if answer else error_response_json("UnknownOperationException", action)

    def _register(self, request: dict) -> tuple:
        """What is left out stays as it was. The capacity moves into the new range at once."""
        known = self.targets.get(_key(request), {})
        target = known | request
        if "MinCapacity" not in target or "MaxCapacity" not in target:
            return error_response_json("ValidationException", "a new target needs MinCapacity and MaxCapacity")
        if target["MinCapacity"] > target["MaxCapacity"]:
            return error_response_json("ValidationException", "MinCapacity is above MaxCapacity")
        arn = f"arn:aws:{SERVICE}:{get_region()}:{get_account_id()}:scalable-target/{len(self.targets)}"
        target = {"CreationTime": 1767225600, "RoleARN": "arn:aws:iam::role", "ScalableTargetARN": arn} | target
        self.targets[_key(request)] = target
        _move(target)
        return json_response({"ScalableTargetARN": target["ScalableTargetARN"]})

    def _describe_targets(self, request: dict) -> tuple:
        resources, dimension = request.get("ResourceIds"), request.get("ScalableDimension")
        found = [
            target
            for (resource, of), target in self.targets.items()
            if (not resources or resource in resources) and dimension in (None, of)
        ]
        return json_response({"ScalableTargets": found})

    def _put_policy(self, request: dict) -> tuple:
        self.policies[_key(request)] = {"CreationTime": 1767225600, "PolicyARN": "arn:aws:policy"} | request
        return json_response({"PolicyARN": "arn:aws:policy", "Alarms": []})

    def _describe_policies(self, request: dict) -> tuple:
        resource, dimension = request.get("ResourceId"), request.get("ScalableDimension")
        found = [
            policy
            for (of, of_dimension), policy in self.policies.items()
            if resource in (None, of) and dimension in (None, of_dimension)
        ]
        return json_response({"ScalingPolicies": found})


def _key(request: dict) -> Key:
    return request["ResourceId"], request["ScalableDimension"]


def _denied(action: str, request: dict, headers: dict, query: dict) -> tuple | None:
    """The refusal, if there is one. Whoever changes a target must be allowed to update its table."""

    def enforce(service: str, action: str, resource: str, context: dict) -> tuple | None:
        return app._enforce_data_plane(service, f"{service}:{action}", headers, query, "", resource, context)

    if action.startswith("Describe"):
        return enforce(SERVICE, action, "*", {})
    account = f"{get_region()}:{get_account_id()}"
    table = request["ResourceId"].split("/")[1]
    context = {
        f"{SERVICE}:service-namespace": request["ServiceNamespace"],
        f"{SERVICE}:scalable-dimension": request["ScalableDimension"],
    }
    return (
        enforce(SERVICE, action, f"arn:aws:{SERVICE}:{account}:scalable-target/1", context)
        or enforce("dynamodb", "DescribeTable", f"arn:aws:dynamodb:{account}:table/{table}", {})
        or enforce("dynamodb", "UpdateTable", f"arn:aws:dynamodb:{account}:table/{table}", {})
    )


def _move(target: dict) -> None:
    """Provisions a table with the nearest capacity of the range."""
    table, dimension = target["ResourceId"].split("/")[1], target["ScalableDimension"].rsplit(":", 1)[-1]
    described = dynamodb._tables[table]["ProvisionedThroughput"]
    capacity = {name: described[name] for name in ("ReadCapacityUnits", "WriteCapacityUnits")}
    moved = capacity | {dimension: min(max(capacity[dimension], target["MinCapacity"]), target["MaxCapacity"])}
    if moved != capacity:
        dynamodb._update_table({"TableName": table, "ProvisionedThroughput": moved})
