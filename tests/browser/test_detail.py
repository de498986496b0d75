"""A cluster in detail: opened from the table, from an ellipse, from a band, by a link; by mouse and by keyboard."""

import re

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.checks import UNNAMED
from tests.browser.test_dashboard import drawn, figure, page, visit, visiting  # noqa: F401

pytestmark = pytest.mark.compiled

ELLIPSE = """([id, part]) => {
  // Where on the page a place of an ellipse is, from its middle (0) to its rim (1).
  const chart = document.getElementById("view"), { xaxis, yaxis } = chart.layout;
  const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
  const line = chart.data.find((t) => t.name === `cluster ${id}`);
  const middle = (v) => v.slice(1).reduce((a, b) => a + b) / (v.length - 1);
  const at = (v) => middle(v) + part * (v[8] - middle(v));
  const [x, y] = [at(line.x), at(line.y)];
  const across = (x - xaxis.range[0]) / (xaxis.range[1] - xaxis.range[0]);
  const up = (y - yaxis.range[0]) / (yaxis.range[1] - yaxis.range[0]);
  return [area.left + across * area.width, area.bottom - up * area.height];
}"""

BAND = """(id) => {
  // The middle of the end of a cluster's band, and a little to the left.
  const chart = document.getElementById("lifecycle");
  const area = chart.querySelector(".nsewdrag").getBoundingClientRect();
  let below = 0;
  for (const band of chart.data.filter((t) => t.stackgroup)) {
    const share = band.y.at(-1);
    if (band.name === `cluster ${id}`) return [area.right - 3, area.bottom - (below + share / 2) * area.height];
    below += share;
  }
}"""


@pytest.fixture
def closed(page):  # noqa: F811
    """The shared page with nothing open."""
    page.evaluate("history.replaceState(null, '', location.pathname); dispatchEvent(new Event('hashchange'))")
    expect(page.locator("#detail")).to_be_hidden()
    return page


def ids(page):  # noqa: F811
    return [int(text) for text in page.locator("#clusters tbody td:first-child").all_inner_texts()]


def opened(page, cluster):  # noqa: F811
    expect(page.locator("#detail-title")).to_have_text(f"Cluster {cluster}")
    expect(page.locator("#detail-body")).to_be_visible()
    assert page.evaluate("location.hash") == f"#cluster={cluster}"


def test_a_row_opens_it_and_escape_closes_it(closed):
    cluster = ids(closed)[1]
    closed.locator(f"tr[data-cluster='{cluster}'] td").nth(2).click()
    opened(closed, cluster)
    expect(closed.locator(f"tr[data-cluster='{cluster}'] a")).to_have_attribute("aria-current", "true")
    assert closed.evaluate("document.activeElement.id") == "detail-title"
    closed.keyboard.press("Escape")
    expect(closed.locator("#detail")).to_be_hidden()
    assert closed.evaluate("location.hash") == ""
    closed.go_back()  # as in any page
    opened(closed, cluster)
    closed.get_by_role("button", name="Close").click()
    expect(closed.locator("#detail")).to_be_hidden()


def test_a_name_is_written_there_and_stands_everywhere(closed):
    cluster = ids(closed)[0]
    closed.locator(f"tr[data-cluster='{cluster}'] td").nth(2).click()
    opened(closed, cluster)
    closed.get_by_label("Name", exact=True).fill("night <shift>")
    closed.keyboard.press("Enter")
    expect(closed.locator("#detail-named")).to_have_text("Saved.")
    expect(closed.locator("#detail-title")).to_have_text(f"Cluster {cluster} night <shift>")
    expect(closed.locator(f"tr[data-cluster='{cluster}'] a")).to_have_text(f"{cluster} night <shift>")
    expect(closed.locator("#view")).to_contain_text(f"{cluster} night <shift>")
    closed.get_by_label("Name", exact=True).fill("x" * 80)  # half typed, it is not taken back
    closed.wait_for_timeout(2500)
    expect(closed.get_by_label("Name", exact=True)).to_have_value("x" * 80)
    closed.get_by_label("Name", exact=True).fill("a long name " * 6)
    closed.get_by_role("button", name="Save").click()
    expect(closed.locator("#detail-named")).to_have_text("Saved.")
    before = closed.viewport_size
    for width in (400, 800, 1300):
        closed.set_viewport_size({"width": width, "height": 900})
        closed.wait_for_timeout(1500)
        assert closed.evaluate("document.documentElement.scrollWidth") <= width
    closed.set_viewport_size(before)
    closed.get_by_label("Name", exact=True).fill("")
    closed.get_by_role("button", name="Save").click()
    expect(closed.locator(f"tr[data-cluster='{cluster}'] a")).to_have_text(str(cluster))


def test_the_keyboard_opens_it_and_comes_back(closed):
    cluster = ids(closed)[0]
    link = closed.get_by_role("link", name=f"Cluster {cluster} in detail")
    link.focus()
    closed.wait_for_timeout(2500)  # the table is written anew every second
    assert closed.evaluate("document.activeElement.getAttribute('href')") == f"#cluster={cluster}"
    closed.keyboard.press("Enter")
    opened(closed, cluster)
    closed.keyboard.press("Tab")
    assert closed.evaluate("document.activeElement.id") == "detail-before"
    closed.keyboard.press("Escape")
    assert closed.evaluate("document.activeElement.getAttribute('href')") == f"#cluster={cluster}"


@pytest.mark.parametrize("part", [0.0, 0.9])
def test_an_ellipse_opens_it(closed, part):
    for cluster in ids(closed)[-2:]:
        closed.locator("#view").scroll_into_view_if_needed()
        x, y = closed.evaluate(ELLIPSE, [cluster, part])
        closed.mouse.move(x, y)
        closed.mouse.click(x, y)
        opened(closed, cluster)
        closed.keyboard.press("Escape")


def test_a_drag_zooms_and_opens_nothing(visit, live):  # noqa: F811
    page = visit(live)  # noqa: F811
    drawn(page)
    page.locator("#view").scroll_into_view_if_needed()
    x, y = page.evaluate(ELLIPSE, [ids(page)[0], 0.0])
    before = page.evaluate("document.getElementById('view').layout.xaxis.range.join()")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y + 80, steps=5)
    page.mouse.up()
    page.wait_for_function(
        "(b) => document.getElementById('view').layout.xaxis.range.join() !== b", arg=before
    )
    assert page.evaluate("location.hash") == ""


def test_a_band_opens_it(closed):
    for cluster in ids(closed)[:2]:
        closed.locator("#lifecycle").scroll_into_view_if_needed()
        x, y = closed.evaluate(BAND, cluster)
        closed.mouse.click(x, y)
        opened(closed, cluster)
        closed.keyboard.press("Escape")


def test_it_is_live_and_leads_on_to_the_others(closed):
    first, *_ = ids(closed)
    closed.evaluate(f"location.hash = '#cluster={first}'")
    opened(closed, first)
    told = closed.locator("#detail-told").inner_text()
    expect(closed.locator("#detail-told")).not_to_have_text(told)
    closed.get_by_role("link", name="The next cluster").click()
    expect(closed.locator("#detail-title")).not_to_have_text(f"Cluster {first}")


def test_it_tells_what_the_api_tells(visit, told):  # noqa: F811
    url, _ = told
    cluster = httpx.get(f"{url}/v1/clusters").json()["clusters"][0]["id"]
    detail = httpx.get(f"{url}/v1/clusters/{cluster}").json()
    assert re.match(r"feature [01] (high|low) \(\d+\w\w percentile\)", detail["words"])
    page = visit(f"{url}/#cluster={cluster}")  # noqa: F811
    opened(page, cluster)
    expect(page.locator("#detail-told")).to_contain_text(f"{detail['words'].capitalize()}. ")
    names = page.locator("#detail-features .name")
    expect(names).to_have_count(8)
    page.get_by_label("all 10 features").check()
    expect(names).to_have_count(10)
    assert names.all_inner_texts() == [feature["name"] for feature in detail["features"]]
    assert set(names.all_inner_texts()[:2]) == {"feature 0", "feature 1"}  # where the clusters differ
    words = page.locator("#detail-features th .muted").all_inner_texts()
    assert re.fullmatch(r"(higher|lower), \d\.\d sd|narrower", words[0])
    assert "like all" in words[2:]
    data = page.evaluate("document.getElementById('detail-share').data[0]")
    assert np.allclose(data["y"], detail["history"]["share"])
    kinds = [change["kind"] for change in detail["lifecycle"]]
    lines = page.locator("#detail-changes li").all_inner_texts()
    assert [re.search("born|died|returned|split|merged", line)[0] for line in lines] == kinds[::-1]
    expect(page.locator("#detail-recent tbody tr")).to_have_count(5)
    expect(page.locator("#detail-examples tbody tr")).to_have_count(len(detail["examples"]))
    first = page.locator("#detail-examples tbody tr").first.get_attribute("title")
    assert all(name in first for name in detail["examples"][0]["values"])
    neighbour = page.locator("#detail-border-title a")
    expect(neighbour).to_have_text(f"cluster {detail['border']['cluster']}")
    expect(page.locator("#detail-between tbody tr")).to_have_count(len(detail["border"]["events"]))
    assert page.evaluate(UNNAMED) == []


def test_one_that_died_has_a_past(visit, told):  # noqa: F811
    url, past = told
    page = visit(f"{url}/#cluster={past}")  # noqa: F811
    opened(page, past)
    expect(page.locator("#detail-told")).to_have_text(f"No longer there: died {past} at event 700.")
    expect(page.locator("#detail-now")).to_be_hidden()
    expect(page.locator("#detail-changes li")).to_have_count(2)


def test_one_that_never_was_is_asked_for_once(visit, told):  # noqa: F811
    url, _ = told
    page = visit(f"{url}/#cluster=4711", expected=["404"])  # noqa: F811
    expect(page.locator("#detail-told")).to_contain_text("There is no cluster 4711")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_request("**/v1/clusters"), page.expect_request("**/v1/status"):
        page.wait_for_timeout(1500)
    assert not [url for url in asked if url.endswith("4711")]
    assert page.locator("#banner").is_hidden()


def test_names_are_text_here_too(visit, hostile):  # noqa: F811
    url, names = hostile
    page = visit(f"{url}/#cluster=0")  # noqa: F811
    opened(page, 0)
    assert sorted(page.locator("#detail-features .name").all_inner_texts()) == sorted(names)
    assert page.title() == "streamclust"
    assert page.locator("#detail img").count() == 0


def test_a_source_without_a_lag_shows_none_and_silence_is_no_novelty(visit, told):  # noqa: F811
    url, _ = told
    page = visit(url)  # noqa: F811
    drawn(page)
    expect(figure(page, "Refused")).to_have_text("0")
    expect(page.locator("#figures div", has_text="Lag")).to_be_hidden()
    expect(page.locator("#novelty-none")).to_contain_text("No events for")
    page.wait_for_function("() => document.getElementById('novelty').data[1].y.at(-1) === null")
    known = page.evaluate("document.getElementById('novelty').data[1].y.filter((v) => v !== null).length")
    assert known >= 1
    row = httpx.get(f"{url}/v1/clusters/0").json()["recent"][0]["values"]
    httpx.post(f"{url}/v1/learn", json=row).raise_for_status()
    page.wait_for_function(
        "(n) => document.getElementById('novelty').data[1].y.filter((v) => v !== null).length > n", arg=known
    )


def test_no_panel_of_the_first_row_is_half_empty(visit, told):  # noqa: F811
    page = visit(told[0])  # noqa: F811
    drawn(page)
    blank = """() => [...document.querySelectorAll("#where, #where ~ .panel:not(.full, #detail)")].map((panel) => {
      const ends = [...panel.children].filter((e) => e.checkVisibility()).map((e) => e.getBoundingClientRect().bottom);
      const { bottom, height } = panel.getBoundingClientRect();
      return (bottom - Math.max(...ends)) / height;
    })"""
    found = page.evaluate(blank)
    assert len(found) == 3
    assert max(found) < 0.15


@pytest.mark.parametrize("width", [1300, 400])
def test_embeddings_are_shown_by_principal_axes_and_a_few_features(visit, embedded, width):  # noqa: F811
    page = visit(embedded, width=width)  # noqa: F811
    drawn(page)
    expect(page.locator("#clusters tbody tr")).to_have_count(6)
    assert "384 features" in page.locator("header").inner_text()
    assert page.locator("#view-x option").count() == 385  # principal axes, and each feature
    assert page.evaluate("document.getElementById('view').layout.xaxis.title.text") == "principal axis 1"
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.locator("#hierarchy .main-svg").first).to_be_visible()
    page.locator("#clusters tbody tr").first.click()
    expect(page.locator("#detail-body")).to_be_visible()
    rows = page.locator("#detail-features tr")
    expect(rows).to_have_count(8)
    page.get_by_label("all 384 features").check()
    expect(rows).to_have_count(384)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """() => [...document.querySelectorAll("main *, #detail *")]
      .filter((e) => e.checkVisibility() && !e.closest(".quiet") && e.getBoundingClientRect().right > innerWidth + 1)
      .map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(beyond) == []
