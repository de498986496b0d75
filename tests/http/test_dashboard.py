"""The files of the page, as they are served."""

import gzip
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from streamclust.plots import PALETTE
from streamclust_connectors.http import dashboard


@pytest.fixture(scope="module")
def client(shared):
    return shared.client


class Links(HTMLParser):
    """What a page refers to."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href")]


def own_files():
    return {path.name: path.read_text() for path in dashboard.HERE.iterdir()}


def test_the_page_and_all_it_refers_to_is_there(client):
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = [link for link in Links(page.text).found if link.startswith("static/")]
    assert len(links) >= 4
    modules = {name: re.findall(r'from "\./([^"]+)"', text) for name, text in own_files().items()}
    imported = [f"static/{name}" for names in modules.values() for name in names]
    for link in {*links, *imported}:
        assert client.get(f"/{link}").status_code == 200, link


def test_every_file_is_used():
    text = "".join(own_files().values())
    assert [name for name in own_files() if name != "index.html" and name not in text] == []


def test_nothing_names_another_host():
    for name, text in own_files().items():
        assert set(re.findall(r"(?:https?:)?//[\w.]+\.\w+", text)) <= {"http://www.w3.org"}, name


def test_the_policy_allows_this_host_alone(client):
    for path in ("/", "/static/main.js"):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe-eval" not in policy
        assert "script-src" not in policy
        assert "http" not in policy


def test_plotly_comes_from_its_package_packed(client):
    expected = Path(dashboard.plotly_script()).read_bytes()
    packed = client.get("/static/plotly.min.js", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == expected
    assert int(packed.headers["content-length"]) < len(expected) / 2
    plain = client.get("/static/plotly.min.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == expected


def test_what_a_browser_has_is_not_sent_again(client):
    first = client.get("/static/style.css")
    again = client.get("/static/style.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/style.css", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2fdashboard.py", "%2e%2e/dashboard.py", "view.py", ""])
def test_no_other_file_can_be_had(client, name):
    assert client.get(f"/static/{name}").status_code == 404


def test_the_page_has_the_colours_of_the_library(client):
    told = client.get("/static/palette.js").text
    assert re.findall(r'"(#\w{6})"', told) == list(PALETTE)


def test_packing_loses_nothing():
    for name, asset in dashboard.assets().items():
        assert gzip.decompress(asset.packed) == asset.content, name


def test_without_plotly_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'streamclust\[http\]'"):
        dashboard.router()
