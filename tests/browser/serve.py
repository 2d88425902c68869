#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/browser/serve.py IMAS [FOLDER]: tests `imas serve` in headless Chromium, on a store that real starts filled.

Every page at 1300 and 500 pixels, light and dark; every link; a live update; hostile names; axe-core, where npm can get
it (or IMAS_AXE names axe.min.js). Photographs go into FOLDER (default build/screenshots).
"""

import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import urllib.request

from chromium import NARROW, WIDE, browser, narrow, until, words
from imas_testing import check, finish, run, skipped
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "/opt/</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PAGES = {"overview": "/", "program": "/program?id=1", "machine": "/machine", "suite": "/suite", "suite-program": None, "what-if": "/what-if?objective=memory"}


def axe(work):
    """The text of axe-core; None where it cannot be had."""
    named = os.environ.get("IMAS_AXE")
    if named:
        return pathlib.Path(named).read_text()
    if not shutil.which("npm"):
        skipped("axe-core", "npm is not installed")
        return None
    run("npm", "pack", "axe-core@4", "--silent", cwd=work, timeout=120, may_hang=True)
    files = list(work.glob("axe-core-*.tgz"))
    if not files:
        skipped("axe-core", "npm cannot get it")
        return None
    with tarfile.open(files[0]) as tar:
        return tar.extractfile("package/axe.min.js").read().decode()


AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ["violations"] }).then((result) => done(result.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | "))));
"""

def start(command, store, *words):
    serve = pathlib.Path(command).with_name("imas-serve")
    environment = {**os.environ, "IMAS_STORE": str(store)}
    child = subprocess.Popen([serve, "--listen", "127.0.0.1:0", *words], env=environment, stderr=subprocess.PIPE, text=True)
    line = child.stderr.readline()
    return child, line.split()[-1].rstrip("/")


def stored(command, environment):
    """Stores what has ended: `imas forget` does so before it looks for the program, here one that nobody knows."""
    run(command, "forget", "/no/such/program", env=environment)


def learned(command, work):
    store = work / "imas.db"
    environment = {**os.environ, "IMAS_STORE": str(store), "IMAS_RETEST": "0"}
    script = "my %h; $h{$_ % 5000} .= 'x' x ($_ % 90) for 1..200000; print scalar(keys %h), \"\\n\""
    for _ in range(16):
        run(command, "run", "--", "perl", "-e", script, env=environment)
    stored(command, environment)
    connection = sqlite3.connect(store)
    for name in [HOSTILE, "/opt/" + "long/" * 300, *(f"/opt/program-{number}" for number in range(70))]:
        connection.execute("INSERT INTO program (domain, path, detail) VALUES (-1, ?, '')", (name,))
    connection.commit()
    connection.close()
    return store


def opened(driver, url, name, checker):
    driver.get(url)
    driver.implicitly_wait(0)
    painted(driver, name)  # before axe-core keeps the page busy
    complaints = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    check(f"{name}: no errors in the browser", not complaints, complaints)
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    origin = "/".join(url.split("/")[:3])
    check(f"{name}: nothing comes from elsewhere", all(one.startswith(origin) for one in loaded), loaded)
    check(f"{name}: nothing of a hostile name ran", driver.title != "owned" and not driver.find_elements(By.TAG_NAME, "img"))
    if checker:
        driver.execute_script(checker)
        found = driver.execute_async_script(AXE)
        check(f"{name}: axe-core finds nothing serious", not found, found)


# How long Chromium waited until it could ask for the page. It has six connections to a server; when earlier pages hold
# them all, it waits until it forgets one of these pages.
WAITED = "const [page] = performance.getEntriesByType('navigation'); return page.requestStart - page.fetchStart"
WAIT_FOR_A_CONNECTION_S = 48
PAINT = "return performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"


def painted(driver, name):
    """Prints when the page first showed something, counted from the request."""
    if until(lambda: driver.execute_script(PAINT), 10):
        print(f"{name}: first contentful paint after {driver.execute_script(PAINT)[0]:.0f} ms")
    waited_s = driver.execute_script(WAITED) / 1000
    check(f"{name}: pages that were left hold no connection", waited_s < WAIT_FOR_A_CONNECTION_S / 2, waited_s)


def photo(driver, folder, name):
    for width in (WIDE, NARROW):
        driver.set_window_size(width, 1000)
        narrow(driver, f"{name} at {width} pixels", "tbody tr > th")
        if name == "overview":
            hidden = driver.execute_script(
                "return [...document.querySelectorAll('.wide')].filter(box => box.scrollWidth > box.clientWidth + 1).length")
            check(f"{name} at {width} pixels: every column is seen", hidden == 0, hidden)
        size = driver.execute_script("return document.documentElement.scrollHeight")
        driver.set_window_size(width, min(size + 20, 5000))
        driver.save_screenshot(str(folder / f"serve-{name}-{width}.png"))
    driver.set_window_size(WIDE, 1000)


def live(driver, base, command, store):
    """A trial that is stored appears without loading the page again; what was unfolded stays so."""
    driver.get(base + "/?q=perl")
    driver.execute_script("window.stays = true")

    rows = lambda: driver.execute_script("return document.querySelectorAll('#table-programs tbody tr').length")
    before = rows()
    check("live: connected", until(lambda: driver.find_element(By.CSS_SELECTOR, ".updates").text != ""))
    environment = {**os.environ, "IMAS_STORE": str(store), "IMAS_RETEST": "0"}
    other = "my @l = map { [$_] } 1..100000; print scalar(@l)"
    run(command, "run", "--", "perl", "-e", other, env=environment)
    stored(command, environment)
    check("live: the new program appears", until(lambda: rows() == 2), (before, rows()))
    check("live: the page was not loaded again", driver.execute_script("return window.stays === true"))


def keyboard(driver, base):
    """The first stop leads to the contents, and every link and field can be reached."""
    driver.get(base + "/")
    ActionChains(driver).send_keys(Keys.TAB).perform()
    focused = lambda: driver.execute_script("return document.activeElement.className")
    check("keyboard: first the way to the contents", until(lambda: focused() == "skip"), focused())


def main():
    command, folder = words(__doc__)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        checker = axe(work)
        store = learned(command, work)
        runs = work / "runs.jsonl"
        runs.write_bytes((ROOT / "lab/data/first.jsonl").read_bytes())
        child, base = start(command, store, "--results", str(runs))
        try:
            suite = json.load(urllib.request.urlopen(base + "/api/suite", timeout=300))
            pages = {**PAGES, "suite-program": "/suite?program=" + suite["programs"][0]["program"], "hostile": "/program?id=2"}
            pages["filtered"] = "/?q=script&sort=name"
            for dark in (False, True):
                driver = browser(dark)
                try:
                    for name, path in pages.items():
                        shown = name + ("-dark" if dark else "")
                        opened(driver, base + path, shown, checker)
                        photo(driver, folder, shown)
                    if not dark:
                        keyboard(driver, base)
                        live(driver, base, command, store)
                finally:
                    driver.quit()
        finally:
            child.terminate()
            child.wait(300)
    finish("browser-serve")


main()
