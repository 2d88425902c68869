#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/browser/report.py IMAS [FOLDER]: the pages of imas in headless Chromium.

Pages are made from the committed runs, from a real store and from hostile names, opened from the file without a network, clicked,
and photographed into FOLDER (default build/screenshots), light and dark.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
passed = failed = 0


def check(name, holds, said=""):
    global passed, failed
    if holds:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {name} {said}")


def imas(command, *words, **extra):
    environment = {**os.environ, **extra}
    done = subprocess.run([command, *words], capture_output=True, text=True, timeout=300, env=environment)
    check("imas " + " ".join(map(str, words[:3])), done.returncode == 0, done.stderr)
    return done


def laboratory(command):
    """imas-lab, which is built beside imas."""
    return pathlib.Path(command).with_name("imas-lab")


def browser(dark):
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1000"):
        options.add_argument(word)
    if dark:
        options.add_argument("--force-dark-mode")
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    # Nothing may come from anywhere but the file.
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*"]})
    return driver


def opened(driver, page):
    driver.get(page.as_uri())
    complaints = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    check(f"{page.name}: no errors in the browser", not complaints, complaints)


def photo(driver, folder, name):
    size = driver.execute_script("return [document.body.scrollWidth, document.documentElement.scrollHeight]")
    driver.set_window_size(1200, min(size[1] + 20, 4000))
    driver.save_screenshot(str(folder / f"{name}.png"))
    driver.set_window_size(1200, 1000)


def column(table, number):
    return [row.find_elements(By.TAG_NAME, "td")[number].text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]


def sorting(driver):
    """A click sorts, a second one turns the order."""
    table = driver.find_element(By.ID, "overview")
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
    """A dot under the pointer says what it is and marks its row; a click holds it; the row does the same."""
    dots = section.find_elements(By.CSS_SELECTOR, ".dot")
    check("dots", len(dots) > 1, len(dots))
    dot = dots[-1]
    name = dot.get_attribute("data-candidate")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    says = section.find_element(By.CSS_SELECTOR, ".says")
    circle = dot.find_element(By.TAG_NAME, "circle")
    ActionChains(driver).move_to_element(circle).perform()
    check("hovering says what it is", says.text.startswith(name), says.text)

    def chosen():
        return {row.get_attribute("data-candidate") for row in section.find_elements(By.CSS_SELECTOR, "tr.chosen")}

    check("its rows are marked", chosen() == {name}, chosen())
    ActionChains(driver).click(circle).move_to_element(says).perform()
    check("a click holds it", chosen() == {name}, chosen())
    other = dots[0].get_attribute("data-candidate")
    rows = section.find_elements(By.CSS_SELECTOR, "tr[data-candidate]")
    next(row for row in rows if row.get_attribute("data-candidate") == other).click()
    dots = [dot.get_attribute("data-candidate") for dot in section.find_elements(By.CSS_SELECTOR, ".dot.chosen")]
    check("a row chooses its dot", dots == [other], dots)


# Pairs of words in a drawing that stand on each other, and words that leave it.
CROWDED = """
const boxes = [...arguments[0].querySelectorAll("svg[aria-label^='Candidates'] .dot text")].map((t) => [t.textContent, t.getBBox()]);
const on = (a, b) => a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1 && a.y < b.y + b.height - 4 && b.y < a.y + a.height - 4;
return boxes.flatMap(([name, a], i) => [
  ...(a.x < 0 || a.x + a.width > 560 ? [name] : []),
  ...boxes.slice(i + 1).filter(([, b]) => on(a, b)).map(([other]) => name + " on " + other),
]);
"""


def legible(driver, section):
    """No name of a candidate stands on another's, and every drawing of lines has its key."""
    crowded = driver.execute_script(CROWDED, section)
    check("names stand beside each other", not crowded, crowded)
    rows = len(section.find_elements(By.CSS_SELECTOR, "table.sortable")[0].find_elements(By.CSS_SELECTOR, "tbody tr"))
    keys = section.find_elements(By.CSS_SELECTOR, ".keys")
    counts = [len(key.find_elements(By.CSS_SELECTOR, ":scope > span")) for key in keys]
    check("keys name every candidate", counts and all(count == rows for count in counts), counts)


def latencies(section):
    """Percentiles rise from left to right, and sort by value."""
    rows = section.find_elements(By.CSS_SELECTOR, "table.percentiles tbody tr")
    check("percentiles", len(rows) >= 4, len(rows))
    for row in rows:
        values = [float(cell.get_attribute("data-sort")) for cell in row.find_elements(By.CSS_SELECTOR, "td.n")]
        check("percentiles rise", len(values) == 4 and values == sorted(values) and values[0] >= 0, values)
    section.find_elements(By.CSS_SELECTOR, "table.percentiles thead th button")[-1].click()
    last = section.find_elements(By.CSS_SELECTOR, "table.percentiles tbody td:last-child")
    values = [float(cell.get_attribute("data-sort")) for cell in last]
    check("percentiles sort by value", values == sorted(values), values)


def learned(command, folder):
    """A store that has learned a real program, a trial of every candidate and more."""
    store = {"IMAS_STORE": str(folder / "imas.db"), "IMAS_RETEST": "0"}
    script = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..200000; print scalar(keys %h), \"\\n\""
    for _ in range(20):
        imas(command, "run", "--", "perl", "-e", script, **store)
    return store


def from_runs(command, work, folder):
    page = work / "runs.html"
    imas(command, "report", "--html", page, "--data", ROOT / "data/first.jsonl")
    for dark in (False, True):
        driver = browser(dark)
        try:
            opened(driver, page)
            photo(driver, folder, "report-all" + ("-dark" if dark else ""))
            background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            check("dark follows the system" if dark else "light", ("255" in background) != dark, background)
            sorting(driver)
            link = driver.find_element(By.CSS_SELECTOR, "#overview a")
            target = link.get_attribute("href").split("#")[1]
            link.click()
            section = driver.find_element(By.ID, target)
            check("a link opens its program", section.get_attribute("open") is not None)
            numbers(driver, section)
            legible(driver, section)
            choosing(driver, section)
            driver.execute_script("arguments[0].scrollIntoView()", section)
            driver.save_screenshot(str(folder / ("report-chosen" + ("-dark" if dark else "") + ".png")))
        finally:
            driver.quit()


def from_counted(command, work, folder):
    """Raw runs that were counted, packed as those in results/ are: memory through a run, latencies, percentiles."""
    runs, packed, page = work / "counted.jsonl", work / "counted.jsonl.gz", work / "counted.html"
    script = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..400000; print scalar(keys %h), \"\\n\""
    for name, code in (("hashes", script), ("lists", "my @l = map { [$_] } 1..200000; print scalar(@l)")):
        bench = ("bench", "-n", "2", "--trials", "2", "--with", "jemalloc,mimalloc", "--name", name, "--export-runs", runs)
        imas(command, *bench, "--", "perl", "-e", code, IMAS_STORE=str(work / "counted.db"))
    imas(laboratory(command), "suite", "pack", runs, "--to", packed)
    imas(command, "report", "hashes", "--html", page, "--data", packed)
    for dark in (False, True):
        driver = browser(dark)
        try:
            opened(driver, page)
            check("the program that was named alone", driver.title == "hashes", driver.title)
            section = driver.find_element(By.CSS_SELECTOR, ".program")
            everybody = {"system", "jemalloc", "mimalloc"}
            for drawing in ("Resident memory through", "Heap in address space", "Latency of malloc", "Latency of free"):
                svg = section.find_elements(By.CSS_SELECTOR, f"svg[aria-label^='{drawing}']")
                check(drawing, len(svg) == 1, len(svg))
                named = {line.get_attribute("data-candidate") for line in svg[0].find_elements(By.CSS_SELECTOR, ".curve")}
                told = svg[0].find_element(By.XPATH, "../figcaption").text.partition("Not drawn")[2]
                named |= {candidate for candidate in everybody if f"{candidate} (" in told}
                check(f"{drawing}: every candidate is drawn or told", named == everybody, named)
            check("live blocks", len(section.find_elements(By.CSS_SELECTOR, "polyline.live")) == 2)
            latencies(section)
            legible(driver, section)
            row = section.find_element(By.CSS_SELECTOR, "table.percentiles tr[data-candidate='mimalloc']")
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", row)
            row.click()
            curves = section.find_elements(By.CSS_SELECTOR, "svg[aria-label^='Resident'] .curve.chosen")
            check("a row chooses its curve", [c.get_attribute("data-candidate") for c in curves] == ["mimalloc"])
            photo(driver, folder, "report-counted" + ("-dark" if dark else ""))
        finally:
            driver.quit()


def from_store(command, work, folder):
    store = learned(command, work)
    page = work / "store.html"
    imas(command, "report", "--html", page, "perl", **store)
    driver = browser(False)
    try:
        opened(driver, page)
        section = driver.find_element(By.CSS_SELECTOR, ".program")
        check("decisions through time", len(section.find_elements(By.CSS_SELECTOR, "circle.trial")) >= 6)
        check("latencies", len(section.find_elements(By.CSS_SELECTOR, "svg[aria-label^='Latency of']")) >= 2)
        latencies(section)
        numbers(driver, section)
        choosing(driver, section)
        photo(driver, folder, "report-store")
    finally:
        driver.quit()


def hostile(command, work):
    """Names are text, wherever they come from."""
    lines = [{"imas": "runs", "schema": 1, "host": {"cpu": HOSTILE}}]
    for turn in range(6):
        for candidate, user_s in (("system", 1.0), (HOSTILE, 0.8)):
            lines.append({"program": HOSTILE, "candidate": candidate, "round": turn, "ok": True, "user_s": user_s, "mean_bytes": 1 << 20})
    lines.append({"program": HOSTILE, "candidate": "x", "round": 0, "ok": False, "why": HOSTILE})
    data = work / "hostile.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = work / "hostile.html"
    imas(command, "report", "--html", page, "--data", data)
    imas(laboratory(command), "study", "selector", "--data", data, "--out", work / "study")
    driver = browser(False)
    try:
        for each in (page, work / "study/selector.html"):
            opened(driver, each)
            check(f"{each.name}: nothing of it ran", driver.title != "owned" and not driver.find_elements(By.TAG_NAME, "img"))
            check(f"{each.name}: it is shown", "<img src=x" in driver.find_element(By.TAG_NAME, "body").text)
    finally:
        driver.quit()


def study(command, work, folder):
    out = work / "selector"
    imas(laboratory(command), "study", "selector", "--data", ROOT / "data/first.jsonl", "--out", out)
    for dark in (False, True):
        driver = browser(dark)
        try:
            opened(driver, out / "selector.html")
            wide = "return [...document.querySelectorAll('.wide')].filter((w) => w.scrollWidth > w.clientWidth + 1).map((w) => w.innerText.slice(0, 60))"
            check("tables fit the page", not driver.execute_script(wide), driver.execute_script(wide))
            check("figures 7 to 11", len(driver.find_elements(By.CSS_SELECTOR, "figure svg")) == 5)
            photo(driver, folder, "selector" + ("-dark" if dark else ""))
        finally:
            driver.quit()


def main():
    command = os.path.abspath(sys.argv[1])
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        from_runs(command, work, folder)
        from_counted(command, work, folder)
        from_store(command, work, folder)
        hostile(command, work)
        study(command, work, folder)
    print(f"browser: {passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
