"""The stack: the unchanged template, deployed and deleted by sam."""

import subprocess
from pathlib import Path

from .account import Account

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "target" / "deploy" / "build"
NAME = "tidegate"


class Stack:
    """A deployed stack."""

    def __init__(self, account: Account, name: str = NAME) -> None:
        self.account = account
        self.name = name

    def deploy(self, **parameters: str) -> None:
        """Creates or updates the stack with these parameters."""
        # In quotes, since a value may have spaces.
        overrides = [f'{key}="{value}"' for key, value in parameters.items()]
        options = ["--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar"]
        template = ["--template-file", str(BUILD / "template.yaml")]
        self._sam("deploy", *template, *options, "--parameter-overrides", *overrides)

    def delete(self) -> None:
        """Deletes the stack."""
        self._sam("delete", "--no-prompts", "--region", self.account.environment["AWS_DEFAULT_REGION"])

    def outputs(self) -> dict[str, str]:
        """The stack's outputs by their names."""
        described = self.account.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}

    def physical(self, logical: str) -> str:
        """What a resource of the template is called in the account."""
        cloudformation = self.account.client("cloudformation")
        described = cloudformation.describe_stack_resource(StackName=self.name, LogicalResourceId=logical)
        return described["StackResourceDetail"]["PhysicalResourceId"]

    def log(self, function: str) -> list[str]:
        """All lines that a function has logged."""
        pages = self.account.client("logs").get_paginator("filter_log_events")
        group = f"/aws/lambda/{self.name}-{function}"
        return [event["message"] for page in pages.paginate(logGroupName=group) for event in page["events"]]

    def _sam(self, command: str, *arguments: str) -> None:
        print(f"   sam {command} --stack-name {self.name} {' '.join(arguments)}", flush=True)
        # Away from samconfig.toml: what is different here is said here.
        done = subprocess.run(
            ["sam", command, "--stack-name", self.name, *arguments], cwd=BUILD, capture_output=True, text=True
        )
        if done.returncode != 0:
            print(done.stdout[-6000:], done.stderr[-3000:], sep="\n")
            raise RuntimeError(f"sam {command} failed")
