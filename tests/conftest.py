"""What all tests share: hypothesis draws the same cases every time; settings of one test reach no other."""

import pytest
from hypothesis import settings
from typer.testing import CliRunner

from headwise.cli.main import app
from headwise.compute import planning

settings.register_profile("headwise", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("headwise")


@pytest.fixture
def environment(monkeypatch):
    """Sets an environment variable that headwise reads once, as if the process had started with it."""

    def set_variable(name, value):
        monkeypatch.setenv(name, value)
        planning._settings.cache_clear()

    planning._settings.cache_clear()
    yield set_variable
    monkeypatch.undo()
    planning._settings.cache_clear()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call the command line in an empty folder: arguments in, result out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("TOKENIZERS_PARALLELISM", "TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "x")  # so that what a run sets is undone afterwards
        monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))
