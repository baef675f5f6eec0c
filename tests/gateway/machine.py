"""A user with a home, a key, and programs that call a provider through the gateway. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flyball.gateway.lifetime import Gateway, ask_gateway, find_gateway
from flyball.sim.provider.server import Provider

FLYBALL = [sys.executable, "-m", "flyball"]
CALL = """
import http.client, json, os, socket, sys, time, urllib.error, urllib.parse, urllib.request
body = json.dumps({"max_tokens": int(sys.argv[1]), "model": "m", "messages": [], "stream": True}).encode()
address = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
for go in range(int(sys.argv[2])):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as answer:
            answer.read()
            print(answer.status, flush=True)
    except (OSError, http.client.HTTPException) as error:
        print("broken" if not isinstance(error, urllib.error.HTTPError) else error.code, flush=True)
        place = urllib.parse.urlsplit(address)
        while True:  # until the next gateway listens
            try:
                socket.create_connection((place.hostname, place.port), timeout=60).close()
                break
            except OSError:
                time.sleep(0.05)
"""


class Machine:
    """A user with a home, a key and a provider."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.folder = folder
        self.env = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.endswith(("_API_KEY", "_BASE_URL"))
            },
            "FLYBALL_HOME": str(folder / "flyball"),
            "ANTHROPIC_API_KEY": "sk-ant-secret-1",
            "ANTHROPIC_BASE_URL": provider.url,
        }
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FLYBALL, *words],
            env={**self.env, **more},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        self.started.append(
            subprocess.Popen(
                [*FLYBALL, *words], env=self.env, cwd=self.folder, stdout=pipe, stderr=pipe, text=True
            )
        )
        return self.started[-1]

    @property
    def gateway(self) -> Gateway:
        found = find_gateway(self.folder / "flyball")
        assert found is not None
        return found

    def gateway_pid(self) -> int | None:
        said = ask_gateway(self.gateway, "status")
        return None if said is None else int(said["pid"])

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        self.run("gateway", "stop")
