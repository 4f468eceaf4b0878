"""What all tests share: hypothesis draws the same cases every time; settings of one test reach no other."""

import pytest
from hypothesis import settings

from headwise import planning

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
