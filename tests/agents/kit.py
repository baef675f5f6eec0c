"""The four real command lines, each pointed at the bundled provider with a home of its own.

Nothing leaves this machine: the environment is made from scratch, keys are fake, and every other address goes
through a proxy that is not there.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

REPOSITORY = Path(__file__).parents[2]
BIN = REPOSITORY / ".agents" / "node_modules" / ".bin"
PROMPT = "Say that you are done."
KEY = "sk-test-000"
_NOWHERE = "http://127.0.0.1:9"


class Agent(ABC):
    """One command line. ``retries`` is how often it may try a refused request again by itself."""

    name: ClassVar[str]
    pool: ClassVar[str]
    model: ClassVar[str]
    args: ClassVar[tuple[str, ...]] = ()
    """What it needs here when it is launched as the factory does it."""
    may_commit: ClassVar[tuple[str, ...]]
    """What lets it run any git command."""
    gives_up_after: ClassVar[int] = 1
    """How many refusals end it where it may not try again."""

    @abstractmethod
    def argv(self) -> list[str]:
        """As a person would type it."""

    @abstractmethod
    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        """Write its settings into a home; the environment that it needs besides."""

    @abstractmethod
    def answer(self, stdout: str) -> str:
        """What the model said, out of everything that was printed."""


class Claude(Agent):
    name, pool, model = "claude", "anthropic", "sonnet"
    may_commit = ("--allowedTools=Bash(git *)",)

    def argv(self) -> list[str]:
        return ["claude", "-p", PROMPT, "--output-format", "stream-json", "--verbose", "--model", self.model]

    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(retries),
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def answer(self, stdout: str) -> str:
        return next((str(each["result"]) for each in events(stdout) if each.get("type") == "result"), "")


class ClaudeOnSubscription(Claude):
    """With an account's token in place of a key, as those have whose windows run out."""

    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        env = dict(super().settle_in(home, url, retries=retries))
        del env["ANTHROPIC_API_KEY"]
        return {**env, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test-000"}


class Codex(Agent):
    """Its sandbox leaves /tmp open, where our tests live."""

    name, pool, model = "codex", "openai", "gpt-5.5"
    args = ("-c", "sandbox_workspace_write.exclude_slash_tmp=true")
    may_commit = ("--sandbox", "danger-full-access")

    def argv(self) -> list[str]:
        safety = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["codex", "exec", "--json", *safety, PROMPT]

    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        folder = home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            f"""\
model = "{self.model}"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = {retries}
"""
        )
        return {"OPENAI_API_KEY": KEY, "CODEX_HOME": str(folder)}

    def answer(self, stdout: str) -> str:
        items = [each["item"] for each in events(stdout) if each.get("type") == "item.completed"]
        return "".join(item["text"] for item in items if item["type"] == "agent_message")


class Gemini(Agent):
    name, pool, model = "gemini", "google", "gemini-2.5-flash"
    may_commit = ("--approval-mode=yolo",)

    def argv(self) -> list[str]:
        asking = ["-p", PROMPT, "--output-format", "stream-json"]
        return ["gemini", *asking, "--skip-trust", "-m", self.model]

    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {
                "maxAttempts": retries + 1,
                "enableAutoUpdate": False,
                "enableAutoUpdateNotification": False,
            },
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        folder = home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(settings))
        return {
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_HOME": str(home),
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }

    def answer(self, stdout: str) -> str:
        said = [each for each in events(stdout) if each.get("role") == "assistant"]
        return "".join(each["content"] for each in said)


class GeminiChoosing(Gemini):
    """Without a model of ours it asks a small one first which to take."""

    def argv(self) -> list[str]:
        return [word for word in super().argv() if word not in ("-m", self.model)]


class Opencode(Agent):
    """Its own retries, five, cannot be changed. With a title of ours it asks the model for none."""

    name, pool, model = "opencode", "anthropic", "anthropic/claude-sonnet-4-5"
    args = ("--title=a test",)
    may_commit = ("--auto",)
    gives_up_after = 6

    def argv(self) -> list[str]:
        options = ["--format", "json", "--model", self.model, "--title", "a test"]
        return ["opencode", "run", *options, PROMPT]

    def settle_in(self, home: Path, url: str, *, retries: int) -> Mapping[str, str]:
        vendor, _, model = self.model.partition("/")
        known = {"name": "Claude", "tool_call": True, "limit": {"context": 200_000, "output": 8192}}
        provider = {"options": {"baseURL": f"{url}/v1", "apiKey": KEY}, "models": {model: known}}
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "small_model": self.model,
            "provider": {vendor: provider},
        }
        folder = home / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(json.dumps(settings))
        names = ("AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}

    def answer(self, stdout: str) -> str:
        return "".join(each["part"]["text"] for each in events(stdout) if each.get("type") == "text")


class OpencodeNaming(Opencode):
    """Without a title of ours it asks the model for one."""

    def argv(self) -> list[str]:
        return [word for word in super().argv() if word not in ("--title", "a test")]


def events(stdout: str) -> Iterator[dict[str, Any]]:
    """What was printed; every line is a JSON object, or something came between."""
    return (json.loads(line) for line in stdout.splitlines())


def environment(agent: Agent, folder: Path, url: str, *, retries: int) -> dict[str, str]:
    """Everything an agent's process is given; ``folder`` becomes its home."""
    home, scratch = folder / "home", folder / "tmp"
    for each in (home, scratch, folder / "work"):
        each.mkdir(parents=True)
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), _NOWHERE),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        **agent.settle_in(home, url, retries=retries),
    }
