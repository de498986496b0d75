"""The description of the API, and whether the API is as described: schemathesis tries what it allows, and what not."""

import re
from html.parser import HTMLParser

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from streamclust_connectors.http.app import create_app
from streamclust_connectors.http.backend import Backend
from streamclust_connectors.settings import load
from tests.http.conftest import made, starting, taught

DOCUMENT = create_app(Backend(made()), load()).openapi()
BEYOND_SCHEMA = re.compile(
    'must have the same length|but "features" has|must be a number|must be finite|must be complete'
)
"""Reasons that JSON Schema cannot express: rows against each other or the known features, values of packed rows."""
api = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def fuzzed():
    with starting() as begin:
        yield taught(begin, http={"max_features": 6})


@pytest.fixture(scope="module")
def empty():
    with starting() as begin:
        yield begin(http={"max_features": 6})


def valid_data_are_accepted(ctx, response, case):
    if response.status_code == 422 and BEYOND_SCHEMA.search(response.json()["detail"]):
        return None
    return positive_data_acceptance(ctx, response, case)


def conforms(case, service):
    case.call_and_validate(
        base_url=service.url,
        excluded_checks=[positive_data_acceptance],
        additional_checks=[valid_data_are_accepted],
    )


ALWAYS_ALIKE = settings(
    max_examples=15, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@api.parametrize()
@ALWAYS_ALIKE
def test_the_api_is_as_described(case, fuzzed):
    conforms(case, fuzzed)


@api.parametrize()
@ALWAYS_ALIKE
def test_a_service_that_has_learnt_nothing_is_as_described(case, empty):
    conforms(case, empty)


def test_every_route_is_described_with_its_problems():
    described = {
        (path, method): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert {path for path, _ in described} == {
        "/livez", "/readyz", "/metrics", "/v1/status", "/v1/clusters", "/v1/clusters/{id}", "/v1/events", "/v1/levels",
        "/v1/clusters/{id}/name", "/v1/history", "/v1/view", "/v1/predict", "/v1/learn", "/v1/snapshots",
        "/v1/snapshots/{version}", "/v1/snapshots/{version}/changes",
    }  # fmt: skip
    for operation in described.values():
        assert operation["summary"]
        assert operation["description"]
        for status, answer in operation["responses"].items():
            kinds = set(answer["content"])
            assert (
                kinds == {"application/problem+json"}
                if status >= "400"
                else "application/problem+json" not in kinds
            )


class Page(HTMLParser):
    """What a page asks for, and whether its elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.links, self.open, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "td", "th"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_for_people_says_the_same_and_loads_nothing(shared):
    answer = shared.client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = Page(answer.text)
    assert page.open == []
    assert all(path in page.text for path in DOCUMENT["paths"])
    assert not re.search(r"(https?:)?//", answer.text)
    for link in page.links:
        assert shared.client.get(f"/{link.removeprefix('./')}").status_code == 200
    assert shared.client.get("/openapi.json").json() == DOCUMENT
