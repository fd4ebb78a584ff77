"""The stack: the unchanged template, deployed and deleted by sam with the environments of samconfig.toml."""

import subprocess
import tomllib
from pathlib import Path

from .account import Account

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "samconfig.toml"
BUILD = ROOT / "target" / "deploy" / "build" / "template.yaml"


class Failed(RuntimeError):
    """A command of sam that failed; the text is its output."""


class Stack:
    """A stack of one environment of samconfig.toml."""

    def __init__(self, account: Account, environment: str, name: str | None = None) -> None:
        self.account = account
        self.name = name or _configured(environment, "global")["stack_name"]
        self._environment = environment

    def deploy(self, environment: str | None = None, template: Path = BUILD, **parameters: str) -> None:
        """Creates or updates the stack with the parameters of the environment and these. The others keep their values."""
        environment = environment or self._environment
        configured = _configured(environment, "deploy")["parameter_overrides"]
        # The option replaces the list of the environment, so it repeats it. In quotes, since a value may have spaces.
        overrides = [*configured, *(f'{key}="{value}"' for key, value in parameters.items())]
        arguments = ["--template-file", str(template), "--no-progressbar", "--parameter-overrides", *overrides]
        self._sam("deploy", environment, "--stack-name", self.name, *arguments)

    def package(self, output: Path) -> None:
        """Uploads the build, and writes the template that deploys it."""
        self._sam("package", self._environment, "--template-file", str(BUILD), "--output-template-file", str(output))

    def delete(self) -> None:
        """Deletes the stack."""
        region = self.account.environment["AWS_DEFAULT_REGION"]
        self._sam("delete", self._environment, "--stack-name", self.name, "--no-prompts", "--region", region)

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

    def _sam(self, command: str, environment: str, *arguments: str) -> None:
        line = ["sam", command, "--config-env", environment, *arguments]
        print("  ", *line, flush=True)
        done = subprocess.run([*line, "--config-file", str(CONFIG)], cwd=BUILD.parent, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed("\n".join([*done.stdout.splitlines()[-60:], done.stderr[-3000:]]))


def _configured(environment: str, command: str) -> dict:
    return tomllib.loads(CONFIG.read_text())[environment][command]["parameters"]
