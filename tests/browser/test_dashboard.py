"""The dashboard in a real browser, before a service that learns."""

import re
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from streamclust.hierarchy import Dendrogram
from tests.browser.checks import CONTRAST, FOCUSED, GROUPS, TOPS, UNNAMED

pytestmark = pytest.mark.compiled
CHARTS = "view", "lifecycle", "novelty"
expect.set_options(timeout=90_000)  # machines that test are busy


@contextmanager
def visiting(browser):
    """A function that opens pages; at the end, none may have asked another host, nor complained of anything."""
    contexts, strangers, complaints = [], [], []

    def visit(url, width=1300, height=900, expected=()):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
        contexts.append(context)
        page = context.new_page()

        def gate(route):
            if urlsplit(route.request.url).netloc == urlsplit(url).netloc:
                route.continue_()
            else:
                strangers.append(route.request.url)
                route.abort()

        def heard(message):
            if message.type in ("error", "warning") and not any(word in message.text for word in expected):
                complaints.append(message.text)

        page.route("**/*", gate)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", heard)
        page.goto(url)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert strangers == []
    assert complaints == []


@pytest.fixture
def visit(browser):
    with visiting(browser) as visit:
        yield visit


@pytest.fixture(scope="module")
def page(browser, live):
    """A page for those who leave it as it was: to load one takes a while."""
    with visiting(browser) as visit:
        page = visit(live, expected=["ERR_FAILED"])  # while the connection is lost
        drawn(page)
        yield page


def drawn(page):
    """Wait until the charts are there."""
    for name in CHARTS:
        expect(page.locator(f"#{name} .main-svg").first).to_be_visible()


def figure(page, name):
    return page.locator("#figures div", has_text=name).locator("dd").first


def test_the_page_loads_and_its_figures_move(page):
    learnt = page.locator("#figures .more").last
    before, leaves = (
        learnt.inner_text(),
        page.evaluate("document.getElementById('view').data[0].weight ?? []"),
    )
    assert leaves is not None
    expect(learnt).not_to_have_text(before)
    expect(figure(page, "Clusters")).not_to_have_text("0")
    rows = page.locator("#clusters tbody tr")
    assert rows.count() == int(figure(page, "Clusters").inner_text())
    assert all(
        word in ("steady", "growing", "shrinking") for word in rows.locator(".quiet").all_inner_texts()
    )
    expect(page.locator("#changes li").last).to_contain_text("born 0")
    assert "clusters" in page.locator("#spoken").inner_text()
    dots = "document.getElementById('view').data[0].x.join()"
    now = page.evaluate(dots)
    page.wait_for_function(f"(now) => {dots} !== now", arg=now)  # and so does the picture


def test_axes_can_be_chosen(page):
    axes = (
        "[0, 1].map((i) => document.getElementById('view').layout[['xaxis', 'yaxis'][i]].title.text).join()"
    )
    assert page.evaluate(axes) == "x,y"
    page.get_by_label("Horizontal").select_option("y")
    page.wait_for_function(f"() => {axes} === 'y,x'")
    page.get_by_label("Vertical").select_option("")
    page.wait_for_function(f"() => {axes} === 'principal axis 1,principal axis 2'")
    expect(page.locator("#view-note")).to_contain_text("100.0% of the variance")


def test_a_snapshot_is_taken_and_cut(page, live):
    taken = len(httpx.get(f"{live}/v1/snapshots").json())
    page.get_by_role("button", name="Take a snapshot").click()
    slider = page.get_by_role("slider", name="Show as")
    expect(slider).to_be_visible()
    (*_, summary) = found = httpx.get(f"{live}/v1/snapshots").json()
    assert len(found) == taken + 1
    told = page.locator("#cut-told")
    expect(told).to_have_text(f"{summary['n_clusters']} clusters")
    assert page.evaluate(GROUPS) == summary["n_clusters"]
    slider.press("Home")
    expect(told).to_have_text("1 cluster")
    assert page.evaluate(GROUPS) == 1
    for k in (2, 3):
        slider.press("ArrowRight")
        expect(told).to_have_text(f"{k} clusters")
        assert page.evaluate(GROUPS) == k
    snapshot = httpx.get(f"{live}/v1/snapshots/{summary['version']}").json()
    tree = Dendrogram.from_dict(snapshot["dendrogram"])
    cuts = [tree.cut_nodes(k).tolist() for k in (1, 2, 3, 7, 20, tree.n_leaves)]
    assert [sorted(tops) for tops in page.evaluate(TOPS, snapshot)] == [sorted(nodes) for nodes in cuts]


def test_both_themes_can_be_read(visit, live):
    page = visit(live)
    drawn(page)
    button = page.get_by_role("button", name="Dark")
    grounds = []

    page.locator("#clusters tbody tr").first.click()
    expect(page.locator("#detail-body")).to_be_visible()

    def readable(dark):
        expect(button).to_have_attribute("aria-pressed", str(dark).lower())
        found = page.evaluate(CONTRAST)
        assert found["seen"] > 50
        assert found["poor"] == []
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    readable(dark=False)
    for scheme in (
        "dark",
        "light",
        "dark",
    ):  # as the system wants it; said again, since a busy browser may miss it
        page.emulate_media(color_scheme=scheme)
    readable(dark=True)
    page.keyboard.press("Escape")
    button.click()  # or else as the reader does
    page.go_back()
    readable(dark=False)
    assert grounds[0] == grounds[2] != grounds[1]
    page.reload()
    expect(button).to_have_attribute("aria-pressed", "false")  # it is remembered


def test_a_phone_need_not_scroll_sideways(visit, live):
    page = visit(live, width=400, height=800)
    drawn(page)
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.locator("#hierarchy .main-svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.evaluate("location.hash = '#cluster=0'")
    expect(page.locator("#detail-body")).to_be_visible()
    wide = """() => [...document.querySelectorAll("main *, #detail *")]
      .filter((e) => e.checkVisibility() && !e.closest(".quiet") && e.getBoundingClientRect().right > innerWidth + 1)
      .map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(wide) == []


def test_everything_is_reached_by_keyboard_and_has_a_name(visit, live):
    page = visit(live)
    drawn(page)
    assert page.evaluate(UNNAMED) == []
    met = []
    while "take" not in [each["name"] for each in met] and len(met) < 100:
        page.keyboard.press("Tab")
        met.append(page.evaluate(FOCUSED))
    names = [each["name"] for each in met]
    assert names[0] == "Skip to the figures"
    order = [names.index(name) for name in ("theme", "view-x", "view-y", "clusters", "take")]
    assert order == sorted(order)
    assert all(each["ring"] for each in met[1 : order[-1]])


def test_a_lost_connection_is_told_and_mended(page):
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_contain_text("Connection lost")
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_nobody_asks_while_nobody_looks(page):
    asked = []
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    hide += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    page.wait_for_timeout(500)  # what was asked already may be answered
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert asked == []
    with page.expect_request("**/v1/status"):
        page.evaluate(hide, False)


def test_the_slider_redraws_the_clusters_of_another_level(visit, told):
    """Of three clusters two: in the table, the picture and the shares over time; and back."""
    page = visit(told[0])
    drawn(page)
    rows, slider = page.locator("#clusters tbody tr"), page.get_by_label("Clusters", exact=True)
    expect(rows).to_have_count(3)
    expect(page.locator("#levels .bars span")).to_have_count(3)
    expect(page.locator("#levels .shown")).to_have_attribute(
        "title", re.compile("^3: holds over a factor of")
    )
    slider.focus()
    slider.press("ArrowLeft")
    expect(rows).to_have_count(2)
    expect(page.locator("#levels output")).to_have_text("2 clusters, instead of the 3 on show")
    expect(page.locator("#view")).to_have_attribute("aria-label", re.compile("^2 clusters"))
    page.wait_for_function(
        "() => document.getElementById('lifecycle').data.filter((t) => t.stackgroup).length === 2"
    )
    rows.first.click()
    expect(page.locator("#detail")).to_be_hidden()
    page.get_by_role("button", name="As on show").click()
    expect(rows).to_have_count(3)
    page.wait_for_function(
        "() => document.getElementById('lifecycle').data.filter((t) => t.stackgroup).length >= 3"
    )
    rows.first.click()
    expect(page.locator("#detail")).to_be_visible()


def test_a_token_is_asked_for(visit, guarded):
    page = visit(guarded, expected=["401"])
    token = page.get_by_role("dialog").get_by_label("Token")
    expect(token).to_be_visible()
    token.fill("wrong")
    token.press("Enter")
    expect(page.get_by_text("not accepted")).to_be_visible()
    token.fill("open-sesame")
    token.press("Enter")
    drawn(page)
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_before_the_first_event_it_says_so(visit, idle):
    page = visit(idle, expected=["409"])
    expect(page.get_by_text("No events yet.")).to_have_count(4)
    expect(page.locator("#start-note")).to_have_text(
        "Waiting for the first events of the source (synthetic)."
    )
    expect(page.locator("#curl")).to_be_hidden()
    for name in CHARTS:
        expect(page.locator(f"#{name}")).to_be_hidden()
    page.evaluate("location.hash = '#cluster=0'")
    expect(page.locator("#detail-told")).to_have_text("No events yet.")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Take a snapshot").click()
    expect(page.get_by_text("No snapshot: no event has been learnt yet")).to_be_visible()


def test_names_are_text_and_nothing_else(visit, hostile):
    url, names = hostile
    page = visit(url)
    drawn(page)
    assert page.locator("#view-x option").all_inner_texts() == ["principal axis 1", *sorted(names)]
    titles = [page.locator(f"#view .{axis}title").text_content() for axis in "xy"]
    assert titles == sorted(names)
    assert page.title() == "streamclust"
    assert page.locator("main img").count() == 0


def test_the_changes_between_two_snapshots_are_told(visit, told):
    url, _ = told
    rng = np.random.default_rng(3)

    def shot(n, kinds, shift=0.0):
        rows = rng.normal(size=(n, 10)) + 9.0 * (kinds + shift) * (np.arange(10) < 2)
        names = [f"feature {i}" for i in range(10)]
        httpx.post(f"{url}/v1/learn", json={"features": names, "vectors": rows.tolist()}).raise_for_status()
        return httpx.post(f"{url}/v1/snapshots").raise_for_status().json()["version"]

    first, second = shot(500, rng.integers(3, size=(500, 1))), shot(3000, np.full((3000, 1), 7))
    page = visit(url)
    box = page.locator("#compared")
    expect(page.locator("#chooser")).to_be_visible()
    expect(box).to_be_hidden()
    page.select_option("#against", str(first))
    expect(box.locator("p")).to_contain_text(f"From snapshot {first} to {second}, 3,000 events later")
    found = httpx.get(f"{url}/v1/snapshots/{second}/changes", params={"since": first}).json()["clusters"]
    changed = [line for line in found if line["kinds"] != ["same"]]
    assert {kind for line in changed for kind in line["kinds"]} >= {"new", "shrunk"}
    assert box.locator("tbody tr td:last-child").all_inner_texts() == [line["words"] for line in changed]
    page.select_option("#snapshots", str(first))  # whichever is chosen, the earlier one is the earlier one
    page.select_option("#against", str(second))
    expect(box.locator("p")).to_contain_text(f"From snapshot {first} to {second}")
    page.select_option("#against", "")
    expect(box).to_be_hidden()
