"""The dashboard with thirty clusters: rows are counted, colours differ, labels do not hide each other."""

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from streamclust import StreamClusterer
from streamclust.plots import hex_colour
from streamclust_connectors.sources import HttpSource
from tests.browser.conftest import started
from tests.browser.test_dashboard import drawn, visit, visiting  # noqa: F401

pytestmark = pytest.mark.compiled
K = 30

BOXES = """(chart) => [...document.querySelectorAll(`#${chart} .textpoint text`)].map((e) => {
  const { left, right, top, bottom } = e.getBoundingClientRect();
  return [left, right, top, bottom, e.textContent];
})"""

OVERLAPS = """() => {
  // Pairs of visible texts and controls of the page that lie upon each other.
  const shown = [...document.querySelectorAll("header *, main *")].filter((e) => e.checkVisibility()
    && !e.closest("svg, .quiet, .chart, .bands")
    && ([...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
    || /^(SELECT|INPUT|BUTTON)$/.test(e.tagName)));
  const boxes = shown.map((e) => {
    const range = document.createRange();
    range.selectNodeContents(e);
    const r = /^(SELECT|INPUT|BUTTON)$/.test(e.tagName) ? e.getBoundingClientRect() : range.getBoundingClientRect();
    const clip = e.closest(".scroll")?.getBoundingClientRect();
    return { e, left: r.left, right: r.right, top: Math.max(r.top, clip?.top ?? r.top),
      bottom: Math.min(r.bottom, clip?.bottom ?? r.bottom), pinned: Boolean(e.closest("thead")) };
  }).filter((b) => b.bottom - b.top > 2);
  const found = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (a.pinned || b.pinned || a.e.contains(b.e) || b.e.contains(a.e)) return;
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 2 && h > 2) found.push([a.e.textContent.slice(0, 30), b.e.textContent.slice(0, 30)]);
  }));
  return found;
}"""


@pytest.fixture(scope="module")
def many():
    """A service with thirty clusters on a grid, to which nothing more is sent; how to send more."""
    rng = np.random.default_rng(1)
    centres = 12.0 * np.array([(i % 6, i // 6) for i in range(K)])

    def send(n, kinds=K):
        rows = centres[rng.integers(kinds, size=n)] + rng.normal(size=(n, 2))
        body = {"features": ["temperature (°C)", "pressure (bar)"], "vectors": rows.tolist()}
        httpx.post(f"{url}/v1/learn", json=body, timeout=300).raise_for_status()

    with started(HttpSource(), StreamClusterer(), kind="http") as (url, service):
        send(6000)
        assert service.clusterer.n_clusters == K
        yield url, send


def test_a_table_says_which_of_its_rows_are_seen_and_shows_all(visit, many):  # noqa: F811
    page = visit(many[0])
    drawn(page)
    seen = page.locator("#clusters-seen")
    expect(seen).to_contain_text(f"of {K} clusters")
    first = seen.locator("span").inner_text()
    assert first.startswith("1 to ")
    page.locator("#clusters").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    expect(seen).to_contain_text(f"to {K} of {K} clusters")
    seen.get_by_role("button", name=f"Show all {K}").click()
    box = page.locator("#clusters")
    assert box.evaluate("(box) => box.scrollHeight <= box.clientHeight + 1")
    expect(seen).to_have_text(f"1 to {K} of {K} clusters Show fewer")
    seen.get_by_role("button", name="Show fewer").click()
    assert box.evaluate("(box) => box.scrollHeight > box.clientHeight + 1")


def test_colours_are_those_of_the_library_and_differ(visit, many):  # noqa: F811
    page = visit(many[0])
    drawn(page)
    clusters = httpx.get(f"{many[0]}/v1/clusters").json()["clusters"]
    expected = {f"cluster {c['id']}": hex_colour(c["id"]) for c in clusters}
    assert len(set(expected.values())) == K
    ellipses = (
        "document.getElementById('view').data.filter((t) => t.mode === 'lines')"
        ".map((t) => [t.name, t.line.color])"
    )
    bands = "document.getElementById('lifecycle').data.filter((t) => t.stackgroup).map((t) => [t.name, t.fillcolor])"
    page.wait_for_function(f"() => {bands}.length === {K}")
    assert dict(page.evaluate(ellipses)) == dict(page.evaluate(bands)) == expected


@pytest.mark.parametrize("width", [1300, 800, 400])
def test_no_label_hides_another_and_nothing_collides(visit, many, width):  # noqa: F811
    page = visit(many[0], width=width)
    drawn(page)
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.locator("#hierarchy .main-svg").first).to_be_visible()
    page.wait_for_timeout(2500)  # labels are placed by the drawn size of the chart
    for chart in ("view", "lifecycle", "hierarchy"):
        boxes = page.evaluate(BOXES, chart)
        assert len(boxes) > 6
        for i, (left, right, top, bottom, _) in enumerate(boxes):
            for other in boxes[i + 1 :]:
                across = min(right, other[1]) - max(left, other[0])
                down = min(bottom, other[3]) - max(top, other[2])
                assert across < 1 or down < 3, (chart, boxes[i], other)  # a line of text has some air
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1300, 800, 400])
def test_the_choice_shows_in_every_picture_and_covers_no_table(visit, many, width):  # noqa: F811
    page = visit(many[0], width=width)
    drawn(page)
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.locator("#hierarchy .main-svg").first).to_be_visible()
    chosen = httpx.get(f"{many[0]}/v1/clusters").json()["clusters"][3]["id"]
    page.evaluate(f"location.hash = '#cluster={chosen}'")
    expect(page.locator("#detail-body")).to_be_visible()
    solid = hex_colour(chosen)
    strong = {
        "view": "document.getElementById('view').data.filter((t) => t.mode === 'lines')"
        ".filter((t) => t.line.color.length === 7).map((t) => t.line.color)",
        "lifecycle": "document.getElementById('lifecycle').data.filter((t) => t.stackgroup)"
        ".filter((t) => t.fillcolor.length === 7).map((t) => t.fillcolor)",
        "hierarchy": "document.getElementById('hierarchy').data.filter((t) => t.name.startsWith('group'))"
        ".filter((t) => t.line.color.length === 7).map((t) => t.line.color)",
    }
    for chart, colours in strong.items():
        assert page.evaluate(colours) == [solid], chart
    expect(page.locator(f"tr[data-cluster='{chosen}'] a")).to_have_attribute("aria-current", "true")
    apart = """() => {
      const [a, b] = ["clusters", "detail"].map((id) => document.getElementById(id).getBoundingClientRect());
      return a.right <= b.left || a.bottom <= b.top || b.bottom <= a.top;
    }"""
    assert page.evaluate(apart)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_river_ends_where_events_end(visit, many):  # noqa: F811
    url, send = many
    page = visit(url)
    drawn(page)
    expect(page.locator("#lifecycle-note")).to_contain_text("No events for")
    total = """() => {
      const bands = document.getElementById("lifecycle").data.filter((t) => t.stackgroup);
      return bands[0].x.map((_, i) => bands.reduce((sum, band) => sum + band.y[i], 0));
    }"""
    assert page.evaluate(total)[-1] == 0
    send(300)
    expect(page.locator("#lifecycle-note")).to_have_text("")
    shares = page.evaluate(total)
    assert shares[-1] == pytest.approx(1.0)
    assert 0 in shares  # the pause before


def test_a_time_range_can_be_looked_back_at(visit, many):  # noqa: F811
    url, send = many
    send(300)
    page = visit(url)
    drawn(page)
    clock = "document.getElementById('novelty').data[1].x.length"
    everything = page.evaluate(clock)
    # The select has no span short enough for a test: this one is added.
    page.evaluate("document.getElementById('span').add(new Option('last 2 seconds', '2'))")
    page.get_by_label("Time shown", exact=True).select_option("2")
    assert page.evaluate(clock) <= min(4, everything)
    assert page.get_by_role("button", name="Later").is_disabled()
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator("#time-told")).to_contain_text(" to ")
    kept = page.evaluate("document.getElementById('novelty').data[1].x.join()")
    page.wait_for_timeout(2500)
    assert page.evaluate("document.getElementById('novelty').data[1].x.join()") == kept  # it stays there
    page.get_by_role("button", name="Now").click()
    expect(page.locator("#time-told")).to_have_text("")


def test_an_empty_service_shows_a_line_that_works(visit):  # noqa: F811
    with started(HttpSource(), StreamClusterer(), kind="http") as (url, _):
        page = visit(url)
        line = page.locator("#curl")
        expect(line).to_contain_text("curl http://127.0.0.1")
        text = line.inner_text()
        address = text.split()[1]
        body = text.partition("-d '")[2].rstrip("'")
        answer = httpx.post(address, content=body, headers={"Content-Type": "application/json"})
        assert answer.json()["learnt"] == 1
        expect(page.locator("#start")).to_be_hidden()


def test_the_page_reads_aloud(visit, many):  # noqa: F811
    """Headings, regions and controls have names for a screen reader, and the choice is told."""
    page = visit(many[0])
    drawn(page)
    told = page.locator("body").aria_snapshot()
    for name in ("Where the clusters are", "Clusters now", "Novelty of events", "Which clusters are alike"):
        assert f'heading "{name}"' in told
    assert 'combobox "Time shown"' in told
    assert 'img "30 clusters over pressure (bar) and temperature (°C)"' in told
    link = page.get_by_role("link", name="in detail").first
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "detail-title"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith("#cluster=")
