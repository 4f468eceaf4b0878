"""Fixtures over the small random models of ``zoo``."""

import pytest

from tests.inspect.zoo import build, random_ids


@pytest.fixture
def ids():
    return random_ids()


@pytest.fixture(params=["bert", "llama", "gpt2"])
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return build(kind)


@pytest.fixture
def bert():
    return build("bert")
