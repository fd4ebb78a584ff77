"""Workers' files in S3 become a summary, each minute's run by the schedule."""

import json
import time

from .stack import Stack
from .wait import until

RATES = {"w-1": (120.5, 30.25), "w-2": (79.5, 9.75)}
DEAD = ("w-dead", (5000.0, 5000.0))


def run(stack: Stack) -> None:
    outputs, s3 = stack.outputs(), stack.account.client("s3")
    bucket, prefix = outputs["RatesBucket"], outputs["RatesPrefix"]

    def write(worker: str, rates: tuple[float, float], age: float = 0) -> None:
        report = {"worker_id": worker, "timestamp": time.time() - age, "read_rate": rates[0], "write_rate": rates[1]}
        s3.put_object(Bucket=bucket, Key=f"{prefix}worker-{worker}.json", Body=json.dumps(report))

    def summary() -> dict | None:
        for worker, rates in RATES.items():
            write(worker, rates)
        try:
            body = s3.get_object(Bucket=bucket, Key=f"{prefix}summary.json")["Body"].read()
        except s3.exceptions.NoSuchKey:
            return None
        told = json.loads(body)
        return told if told["active_workers"] == len(RATES) else None

    write(*DEAD, age=3600)
    told = until("the summary of two workers that live", summary, seconds=150)
    assert (told["aggregated_read_rate"], told["aggregated_write_rate"]) == (200.0, 40.0), told
