#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/browser/report.py IMAS [FOLDER]: tests the HTML pages in headless Chromium.

Pages are made from the committed runs, from a real store and from hostile names. They are opened from the file without a
network, clicked, and photographed into FOLDER (default build/screenshots): wide and narrow, light and dark.
"""

import gzip
import json
import os
import pathlib
import re
import tempfile

from selenium.webdriver.common.action_chains import ActionChains
from chromium import NARROW, WIDE, browser, narrow, until, words
from imas_testing import check, finish, run, wanted
from selenium.webdriver.common.by import By

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def imas(command, *given, **extra):
    done = run(command, *given, env={**os.environ, **extra})
    check("imas " + " ".join(map(str, given[:3])), done.returncode == 0, done.stderr)
    return done


def offline(dark):
    """A browser that may load nothing but files."""
    driver = browser(dark)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*"]})
    return driver


def opened(driver, page):
    driver.get(page.as_uri())
    ready = until(lambda: driver.execute_script("return document.readyState") == "complete")
    check(f"{page.name}: it is loaded", ready)
    complaints = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    check(f"{page.name}: no errors in the browser", not complaints, complaints)
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    check(f"{page.name}: nothing is loaded", not loaded, loaded)
    order = driver.execute_script(ORDER)
    check(f"{page.name}: result, contents, sections, method last", order == sorted(order) and len(order) >= 3, order)
    plural = re.findall(r"(?<![\d.,])1 (?:programs|services|runs|rounds|trials)\b", driver.execute_script("return document.body.textContent"))
    check(f"{page.name}: one is no plural", not plural, plural)
    crowded = driver.execute_script(CROWDED_AXES)
    check(f"{page.name}: labels of axes do not touch", not crowded, crowded)


# Pairs of labels of one axis that touch, in charts that are shown.
CROWDED_AXES = """
return [...document.querySelectorAll("svg.chart")].filter((svg) => svg.getClientRects().length).flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text.axis")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => Math.abs(a.top - b.top) < 2 && a.left < b.right + 2 && b.left < a.right + 2)
    .map(([other]) => svg.getAttribute("aria-label") + ": " + name + " and " + other));
});
"""

# Where the parts of the page begin, in the order they should have; -1 for one that is missing.
ORDER = """
const top = (one) => one ? one.getBoundingClientRect().top + scrollY : -1;
const sections = [...document.querySelectorAll("main > section[id]")];
const method = sections.findIndex((section) => section.id === "method");
const parts = [document.querySelector("h1"), document.querySelector(".result p"), document.querySelector("nav"), ...sections];
return [...parts.map(top), method === sections.length - 1 ? 1e9 : -1];
"""


def photo(driver, folder, name):
    """The page as it is, wide and narrow."""
    for width in (WIDE, NARROW):
        driver.set_window_size(width, 1000)
        narrow(driver, f"{name} at {width} pixels")
        size = driver.execute_script("return document.documentElement.scrollHeight")
        driver.set_window_size(width, min(size + 20, 6000))
        driver.save_screenshot(str(folder / f"{name}-{width}.png"))
    driver.set_window_size(WIDE, 1000)


# The colours that each candidate has on the page, wherever it is drawn.
COLOURS = """
const colours = {};
for (const part of document.querySelectorAll("svg.chart [data-candidate]")) {
  const colour = getComputedStyle(part).getPropertyValue("--c");
  (colours[part.dataset.candidate] ??= new Set()).add(colour);
}
for (const key of document.querySelectorAll("tr[data-candidate] .key")) {
  const name = key.closest("tr").dataset.candidate;
  (colours[name] ??= new Set()).add(getComputedStyle(key).getPropertyValue("--c"));
}
return Object.fromEntries(Object.entries(colours).map(([name, all]) => [name, [...all]]));
"""
seen = {}


def colours(driver, name, dark):
    """A candidate has one colour on every chart and table of every page."""
    for candidate, all_of_it in driver.execute_script(COLOURS).items():
        check(f"{name}: {candidate} has one colour", len(all_of_it) == 1, all_of_it)
        before = seen.setdefault((candidate, dark), all_of_it[0])
        check(f"{name}: {candidate} has the colour it has elsewhere", before == all_of_it[0], (before, all_of_it))


def column(table, number):
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows]


def sorting(driver):
    """A click sorts, a second one turns the order."""
    table = driver.find_element(By.ID, "table-overview")
    before = column(table, 0)
    head = table.find_element(By.CSS_SELECTOR, "thead th button")
    driver.execute_script("arguments[0].scrollIntoView()", head)
    head.click()
    head.click()
    check("sorted, falling", column(table, 0) == sorted(before, reverse=True), column(table, 0))
    head.click()
    check("sorted, rising", column(table, 0) == sorted(before), column(table, 0))


def numbers(driver, section):
    """Columns of figures sort by value, not as text."""
    table = section.find_element(By.CSS_SELECTOR, "table.sortable")
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    at = next(i for i, head in enumerate(heads) if head.text.startswith("CPU change"))
    heads[at].find_element(By.TAG_NAME, "button").click()
    cells = table.find_elements(By.CSS_SELECTOR, f"tbody tr td:nth-child({at + 1})")
    values = [float(cell.get_attribute("data-sort")) for cell in cells if cell.get_attribute("data-sort")]
    check("figures sort by value", len(values) > 1 and values == sorted(values), values)


def choosing(driver, section):
    """Hovering over a dot shows its name and marks its row; a click keeps that; the row does the same."""
    dots = section.find_elements(By.CSS_SELECTOR, ".dot")
    check("dots", len(dots) > 1, len(dots))
    dot = dots[-1]
    name = dot.get_attribute("data-candidate")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    reading = section.find_element(By.CSS_SELECTOR, ".reading")
    shape = dot.find_element(By.TAG_NAME, "path")
    ActionChains(driver).move_to_element(shape).perform()
    check("hovering shows the name", until(lambda: reading.text.startswith(name)), reading.text)

    def chosen():
        return {row.get_attribute("data-candidate") for row in section.find_elements(By.CSS_SELECTOR, "tr.chosen")}

    check("its rows are marked", until(lambda: chosen() == {name}), chosen())
    ActionChains(driver).click(shape).move_to_element(reading).perform()
    check("a click holds it", until(lambda: chosen() == {name}), chosen())
    other = dots[0].get_attribute("data-candidate")
    rows = section.find_elements(By.CSS_SELECTOR, "tr[data-candidate]")
    next(row for row in rows if row.get_attribute("data-candidate") == other).click()
    marked = lambda: [dot.get_attribute("data-candidate") for dot in section.find_elements(By.CSS_SELECTOR, ".dot.chosen")]
    check("a row chooses its dot", until(lambda: marked() == [other]), marked())


# Pairs of labels in a chart that overlap, and labels outside of it.
CROWDED = """
const boxes = [...arguments[0].querySelectorAll("svg[aria-label^='Candidates'] .dot text")].map((t) => [t.textContent, t.getBBox()]);
const on = (a, b) => a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1 && a.y < b.y + b.height - 4 && b.y < a.y + a.height - 4;
return boxes.flatMap(([name, a], i) => [
  ...(a.x < 0 || a.x + a.width > 562 ? [name] : []),
  ...boxes.slice(i + 1).filter(([, b]) => on(a, b)).map(([other]) => name + " on " + other),
]);
"""


# Of each drawing of lines: lines without a name beside them, and names that stand on each other.
UNNAMED = """
return [...arguments[0].querySelectorAll("svg.chart")].flatMap((svg) => {
  const of = (part) => [...svg.querySelectorAll(part)].map((one) => one.dataset.candidate);
  const names = of(".name[data-candidate]");
  const tops = [...svg.querySelectorAll(".name text")].map((text) => text.getBoundingClientRect().top).sort((a, b) => a - b);
  return [
    ...of("polyline.curve[data-candidate]").filter((name) => !names.includes(name)),
    ...tops.slice(1).filter((top, i) => top - tops[i] < 9).map((top) => svg.getAttribute("aria-label") + " at " + top),
  ];
});
"""


def legible(driver, section):
    """No label overlaps another, and every line has its label."""
    crowded = driver.execute_script(CROWDED, section)
    check("labels do not overlap", not crowded, crowded)
    unnamed = driver.execute_script(UNNAMED, section)
    check("every line has its name", not unnamed, unnamed)


def latencies(section):
    """Percentiles rise from left to right, and sort by value; one chart shows them."""
    place = "div[aria-label='Latency of calls, percentiles']"
    rows = section.find_elements(By.CSS_SELECTOR, f"{place} tbody tr")
    check("percentiles", len(rows) >= 4, len(rows))
    for row in rows:
        values = [float(cell.get_attribute("data-sort")) for cell in row.find_elements(By.CSS_SELECTOR, "td.n")]
        check("percentiles rise", len(values) == 4 and values == sorted(values) and values[0] >= 0, values)
    section.find_elements(By.CSS_SELECTOR, f"{place} thead th button")[-1].click()
    last = section.find_elements(By.CSS_SELECTOR, f"{place} tbody td:last-child")
    values = [float(cell.get_attribute("data-sort")) for cell in last]
    check("percentiles sort by value", values == sorted(values), values)
    charts = section.find_elements(By.CSS_SELECTOR, "svg[aria-label^='Latency of calls']")
    marks = charts[0].find_elements(By.CSS_SELECTOR, ".median") if charts else []
    check("one chart with a mark for each row", len(charts) == 1 and len(marks) == len(rows), (len(charts), len(marks)))


def learned(command, folder):
    """A store with a real program: at least one trial of every candidate."""
    store = {"IMAS_STORE": str(folder / "imas.db"), "IMAS_RETEST": "0"}
    script = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..200000; print scalar(keys %h), \"\\n\""
    for _ in range(20):
        imas(command, "run", "--", "perl", "-e", script, **store)
    return store


def from_runs(command, work, folder):
    page = work / "runs.html"
    imas(command, "report", "--html", page, "--data", ROOT / "lab/data/first.jsonl")
    for dark in (False, True):
        driver = offline(dark)
        try:
            opened(driver, page)
            photo(driver, folder, "report-all" + ("-dark" if dark else ""))
            background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            check("dark follows the system" if dark else "light", ("255" in background) != dark, background)
            check("one picture", len(driver.find_elements(By.CSS_SELECTOR, ".result svg.chart")) == 1)
            colours(driver, "report", dark)
            sorting(driver)
            link = driver.find_element(By.CSS_SELECTOR, "#table-overview a")
            target = link.get_attribute("href").split("#")[1]
            link.click()
            section = driver.find_element(By.ID, target)
            check("a link opens its program", until(lambda: section.get_attribute("open") is not None))
            numbers(driver, section)
            legible(driver, section)
            choosing(driver, section)
            driver.execute_script("arguments[0].scrollIntoView()", section)
            driver.save_screenshot(str(folder / ("report-chosen" + ("-dark" if dark else "") + ".png")))
        finally:
            driver.quit()


def from_counted(command, work, folder):
    """Counted raw runs, packed like those in results/: memory through a run, latencies, percentiles."""
    runs, packed, page = work / "counted.jsonl", work / "counted.jsonl.gz", work / "counted.html"
    script = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..400000; print scalar(keys %h), \"\\n\""
    for name, code in (("hashes", script), ("lists", "my @l = map { [$_] } 1..200000; print scalar(@l)")):
        bench = ("bench", "-n", "2", "--trials", "2", "--with", "jemalloc,mimalloc", "--name", name, "--export-runs", runs)
        imas(command, *bench, "--", "perl", "-e", code, IMAS_STORE=str(work / "counted.db"))
    packed.write_bytes(gzip.compress(runs.read_bytes()))
    imas(command, "report", "hashes", "--html", page, "--data", packed)
    for dark in (False, True):
        driver = offline(dark)
        try:
            opened(driver, page)
            check("the program that was named alone", driver.title == "hashes", driver.title)
            colours(driver, "counted", dark)
            section = driver.find_element(By.TAG_NAME, "main")
            everybody = {"system", "jemalloc", "mimalloc"}
            for drawing in ("Resident memory through", "Heap in address space", "Latency of calls"):
                svg = section.find_elements(By.CSS_SELECTOR, f"svg[aria-label^='{drawing}']")
                check(drawing, len(svg) == 1, len(svg))
                drawn = svg[0].find_elements(By.CSS_SELECTOR, "[data-candidate]")
                named = {part.get_attribute("data-candidate") for part in drawn}
                # A drawing that leaves nothing out may have no caption.
                captions = svg[0].find_elements(By.XPATH, "ancestor::figure/figcaption")
                caption = "".join(one.get_attribute("textContent") for one in captions).partition("Not drawn")[2]
                named |= {candidate for candidate in everybody if f"{candidate} (" in caption}
                check(f"{drawing}: every candidate is drawn or named", named == everybody, named)
            check("live blocks", len(section.find_elements(By.CSS_SELECTOR, "polyline.live")) == 2)
            latencies(section)
            legible(driver, section)
            row = section.find_element(By.CSS_SELECTOR, "div[aria-label^='Latency'] tr[data-candidate='mimalloc']")
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
            row.click()
            place = "svg[aria-label^='Resident'] polyline.curve.chosen"
            curves = lambda: [c.get_attribute("data-candidate") for c in section.find_elements(By.CSS_SELECTOR, place)]
            check("a row chooses its curve", until(lambda: curves() == ["mimalloc"]), curves())
            photo(driver, folder, "report-counted" + ("-dark" if dark else ""))
        finally:
            driver.quit()


def from_server(command, work, folder):
    """A server under load: its memory is the picture of the result, latency is a table and one chart."""
    page = work / "server.html"
    load = "curl -s http://127.0.0.1:$PORT/ >/dev/null && printf 'p50 0.4 ms lower\\np90 2 ms lower\\np99 31 ms lower\\n' >>$IMAS_METRICS"
    bench = ("bench", "--ready", "tcp:$PORT", "--load", load, "--cycles", "1", "--idle", "1", "-n", "2", "--with", "jemalloc,mimalloc")
    server = ("/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", "$PORT")
    imas(command, *bench, "--html", page, "--", *server, IMAS_STORE=str(work / "server.db"))
    for dark in (False, True):
        driver = offline(dark)
        try:
            opened(driver, page)
            check("server: one picture", len(driver.find_elements(By.CSS_SELECTOR, ".result svg.chart")) == 1)
            charts = driver.find_elements(By.CSS_SELECTOR, "#latency svg.chart")
            rows = driver.find_elements(By.CSS_SELECTOR, "#latency tbody tr")
            check("server: latency is one chart and a table", (len(charts), len(rows)) == (1, 3), (len(charts), len(rows)))
            figures = [cell.text for cell in rows[0].find_elements(By.CSS_SELECTOR, "td.n")] if rows else []
            check("server: percentiles", figures[:2] == ["400 us", "2.0 ms"], figures)
            colours(driver, "server", dark)
            legible(driver, driver.find_element(By.TAG_NAME, "main"))
            photo(driver, folder, "server" + ("-dark" if dark else ""))
        finally:
            driver.quit()


def from_store(command, work, folder):
    store = learned(command, work)
    page = work / "store.html"
    imas(command, "report", "--html", page, "perl", **store)
    driver = offline(False)
    try:
        opened(driver, page)
        section = driver.find_element(By.TAG_NAME, "main")
        check("decisions through time", len(section.find_elements(By.CSS_SELECTOR, "circle.trial")) >= 6)
        latencies(section)
        numbers(driver, section)
        choosing(driver, section)
        photo(driver, folder, "report-store")
    finally:
        driver.quit()


def hostile_runs(work):
    """A file of raw runs with hostile names."""
    lines = [{"imas": "runs", "schema": 1, "host": {"cpu": HOSTILE}}]
    for turn in range(6):
        for candidate, user_s in (("system", 1.0), (HOSTILE, 0.8)):
            lines.append({"program": HOSTILE, "candidate": candidate, "round": turn, "ok": True, "user_s": user_s, "mean_bytes": 1 << 20})
    lines.append({"program": HOSTILE, "candidate": "x", "round": 0, "ok": False, "why": HOSTILE})
    data = work / "hostile.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return data


def shown_as_text(driver, page):
    """The page shows the hostile name and does not obey it."""
    opened(driver, page)
    check(f"{page.name}: nothing of it ran", driver.title != "owned" and not driver.find_elements(By.TAG_NAME, "img"))
    check(f"{page.name}: it is shown", "<img src=x" in driver.find_element(By.TAG_NAME, "body").text)


def hostile(command, work, _folder):
    """Names are shown as text, from every source."""
    data, page = hostile_runs(work), work / "hostile.html"
    imas(command, "report", "--html", page, "--data", data)
    driver = offline(False)
    try:
        shown_as_text(driver, page)
    finally:
        driver.quit()


def tested(name, description, *parts):
    """Runs the parts of a test of pages, each with the command, a folder for its work and one for photographs; ends the script."""
    command, folder = words(description)
    with tempfile.TemporaryDirectory() as work:
        for part in filter(lambda part: wanted(part.__name__), parts):
            part(command, pathlib.Path(work), folder)
    finish(name)


if __name__ == "__main__":
    tested("browser", __doc__, from_runs, from_counted, from_server, from_store, hostile)
