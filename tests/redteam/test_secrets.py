"""What an agent finds in its environment."""

from __future__ import annotations

import pytest

from tests.factory.kit import Project


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLYBALL_BATCH_API_KEY", "s3cret"),
        ("FLYBALL_ANYTHING", "s3cret"),
        ("HTTPS_PROXY", "http://me:s3cret@proxy:3128"),
        ("XDG_SERVER", "postgresql://h/db?user=u&password=s3cret"),
        ("GH_TOKEN", "s3cret"),
    ],
)
def test_no_secret_of_the_user_reaches_an_agent(project: Project, name: str, value: str) -> None:
    project.env[name] = value
    project.task("t-1", act="(folder / 'env').write_text(repr(dict(os.environ)))\nwrite('pages/t-1.txt', '')")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "s3cret" not in (project.folder / "env").read_text()
