"""Forty plausible secrets, in the environment and in the home: none is found where flyball puts anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.factory.kit import Project
from tests.redis_server import RedisServer
from tests.service.kit import Process

MARK = "C4NARY"
"""Every secret here begins with this."""
VARIABLES = [
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET"),
    *("GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "NPM_TOKEN"),
    *("FLYBALL_BATCH_API_KEY", "FLYBALL_SECRET", "FLYBALL_TOKEN", "XDG_SESSION_TOKEN", "LC_API_KEY"),
    *("DATABASE_PASSWORD", "PGPASSWORD", "STRIPE_SECRET_KEY", "SLACK_BOT_TOKEN", "SENTRY_AUTH_TOKEN"),
    *("DOCKER_AUTH_CONFIG", "SSH_AUTH_SOCK", "VAULT_TOKEN", "TWINE_PASSWORD", "CODECOV_TOKEN", "HF_TOKEN"),
]
LOGINS = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"]
"""Where no profile says whose account to use, an agent has these. Nothing else has."""
ADDRESSES = {
    "DATABASE_URL": f"postgresql://me:{MARK}-31@h/db",
    "HTTPS_PROXY": f"http://me:{MARK}-32@127.0.0.1:9",
    "http_proxy": f"me:{MARK}-33@127.0.0.1:9",
    "XDG_STATE": f"postgresql://h/db?user=u&password={MARK}-34",
}
FILES = [
    *(".netrc", ".git-credentials", ".npmrc", ".pypirc", ".aws/credentials", ".ssh/id_ed25519"),
    *(".config/gh/hosts.yml", ".docker/config.json", ".kube/config", ".claude/.credentials.json"),
    *(".codex/auth.json", ".gemini/oauth_creds.json"),
]
LOOKING = [
    *(["status"], ["board"], ["metrics"], ["audit"], ["account", "list"], ["quota", "show"], ["doctor"]),
    *(["task", "list"], ["task", "why", "t-1"], ["why", "t-1"], ["project", "list"], ["lease", "list"]),
    *(["validate"], ["pool", "show"], ["gc", "--dry-run"], ["token", "list"], ["hooks", "show"]),
]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer("--requirepass", f"{MARK}-server", tcp=True)
    yield server
    server.close()


@pytest.fixture
def seen(project: Project, server: RedisServer) -> dict[str, str]:
    """Everything that an agent, a gate and a person saw of a run among secrets, by where."""
    project.env |= {name: f"{MARK}-{number}" for number, name in enumerate(VARIABLES)}
    project.env |= dict.fromkeys(LOGINS, f"{MARK}-login") | ADDRESSES
    project.env["FLYBALL_URL"] = server.url.replace("redis://", f"redis://:{MARK}-server@")
    project.env["FLYBALL_HOST_AGENT"] = "off"
    for number, name in enumerate(FILES):
        path = Path(project.env["HOME"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{MARK}-file-{number}")
    dump = "(folder / ('env-' + task)).write_text(repr((dict(os.environ), sys.argv, os.getcwd())))"
    project.task("t-1", act=f"import sys\n{dump}\nwrite('pages/t-1.txt', 'x')")
    project.task("t-2", act=f"import sys\n{dump}\nwrite('pages/t-2.txt', 'bad')")
    dumps = f"env > {project.folder}/env-gate"
    project.configure(
        gate={"commands": [dumps, *project.sections["gate"]["commands"]]},
        guard={"env": ["FLYBALL_BATCH_API_KEY"]},
    )
    project.configure(run={"attempts": 1})
    project.commit("gate")
    ran = project.run("--json")
    assert "t-1" in ran.json["merged"], ran.said
    found = {"run": ran.said}
    for verb in LOOKING:
        for form in ([], ["--json"]):
            found[" ".join([*verb, *form])] = project.flyball(*verb, *form).said
    return found


def test_none_of_forty_secrets_is_found_where_flyball_puts_anything(
    project: Project, seen: dict[str, str], server: RedisServer
) -> None:
    assert len(VARIABLES) + len(ADDRESSES) + len(FILES) >= 40
    assert {"env-t-1", "env-t-2", "env-gate"} <= {path.name for path in project.folder.iterdir()}
    places = [project.folder, project.home, project.root / ".flyball"]
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        seen[path.name if path.parent == project.folder else str(path)] = path.read_bytes().decode("latin-1")
    served = {"FLYBALL_URL": project.env["FLYBALL_URL"], **dict.fromkeys(VARIABLES, f"{MARK}-served")}
    with Process(project.home, "--access-log", environment={**project.env, **served}) as process:
        for page in (
            "/",
            "/v1/status",
            "/v1/pools",
            "/v1/facts",
            "/v1/whoami",
            "/metrics",
            "/v1/openapi.json",
            "/no",
        ):
            answer = httpx.get(f"{process.url}{page}", timeout=60)
            seen[page] = f"{answer.headers} {answer.text}"
        process.signal()
        process.wait()
        seen["serve"] = process.said + process.log.read_text()
    for agent in ("env-t-1", "env-t-2"):
        seen[agent] = seen[agent].replace(f"{MARK}-login", "")
    leaked = {place for place, text in seen.items() if MARK in text}
    assert leaked == set()


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{MARK}@127.0.0.1:1",
        f"redis://:{MARK}/x@127.0.0.1:1",
        f"postgresql://u:{MARK}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=u&password={MARK}",
        f"nonsense://u:{MARK}@h",
        f"redis:u:{MARK}@h",
    ],
)
@pytest.mark.parametrize(
    "verb", [["status"], ["exec", "--no-wait", "--", "true"], ["doctor"], ["serve", "--port", "0"]]
)
def test_no_error_repeats_the_password_of_an_address(tmp_path: Path, url: str, verb: list[str]) -> None:
    env = {**os.environ, "FLYBALL_HOME": str(tmp_path), "FLYBALL_URL": url, "FLYBALL_HOST_AGENT": "off"}
    done = subprocess.run(
        [sys.executable, "-m", "flyball", *verb], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode not in (0, -signal.SIGKILL)
    assert MARK not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
