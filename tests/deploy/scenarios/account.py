"""An AWS account on this machine: one process on a free loopback port, by TLS, with IAM enforced."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import boto3

from .wait import until

ACCOUNT = "000000000000"
REGION = "us-east-1"


class Account:
    """The account's server, which ends with the block, and with it the functions that it runs."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-account-"))
        self._certificate = self._folder / "server.crt"
        self._log = self._folder / "server.log"
        self._small_quota = self._folder / "small-quota"
        self.environment: dict[str, str] = {}

    def __enter__(self) -> "Account":
        try:
            self._start()
        except BaseException:
            self._stop(failed=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(failed=kind is not None)

    def set_small_quota(self, is_small: bool) -> None:
        """Gives the account the quota of concurrent executions of a new account, or a larger one."""
        if is_small:
            self._small_quota.touch()
        else:
            self._small_quota.unlink(missing_ok=True)

    def client(self, service: str, **credentials: str):
        """A client of a service, by default with the rights of the account's root."""
        return boto3.client(service, **credentials)

    def _start(self) -> None:
        key = self._folder / "server.key"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
            + ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
            + ["-keyout", str(key), "-out", str(self._certificate)],
            check=True,
            capture_output=True,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Whatever the machine trusts besides, the functions are to trust this server.
        trust = {name: str(self._certificate) for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")}
        self.environment = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": f"https://127.0.0.1:{port}",
            **trust,
        }
        os.environ.update(self.environment)
        os.environ.pop("SSL_CERT_DIR", None)
        server = {
            "AUTH": "true",
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(port),
            "SMALL_QUOTA": str(self._small_quota),
            "TMPDIR": str(self._folder),
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(self._certificate),
            "MINISTACK_SSL_KEY": str(key),
        }
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "scenarios.server"],
                cwd=Path(__file__).parents[1],
                env=os.environ | server,
                stdout=log,
                stderr=log,
                # A group of its own: the functions that it starts end with it.
                start_new_session=True,
            )
        until(f"the account on port {port}", lambda: self._answers(port))

    def _answers(self, port: int) -> bool:
        if self._server.poll() is not None:
            raise RuntimeError("the account's server has ended")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def _stop(self, failed: bool) -> None:
        server = getattr(self, "_server", None)
        if server is not None:
            if failed:
                lines = self._log.read_text(errors="replace").splitlines()[-60:]
                print("the end of the account's log:", *(line[:300] for line in lines), sep="\n   ")
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
