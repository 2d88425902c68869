# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, for the tests of pages."""

import os
import pathlib
import sys

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from urllib3.exceptions import HTTPError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))

import imas_testing  # noqa: E402

WIDE, NARROW = 1300, 500  # pixels across
STARTS = 5  # a driver that a busy machine did not start in its own time is started again


def until(holds, limit=90):
    """Polls until it holds; a part that the page replaces meanwhile is looked up again."""
    return imas_testing.until(holds, limit, ignoring=(StaleElementReferenceException,))


def browser(dark):
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDE},1000"):
        options.add_argument(word)
    if dark:
        options.add_argument("--force-dark-mode")
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for attempt in range(1, STARTS + 1):
        service = Service("/usr/bin/chromedriver")
        try:
            driver = webdriver.Chrome(service=service, options=options)
            driver.set_page_load_timeout(180)
            driver.set_script_timeout(180)
            return driver
        except (WebDriverException, HTTPError, OSError) as error:
            if getattr(service, "process", None):
                service.stop()
            print(f"the driver did not start ({attempt} of {STARTS}): {str(error).splitlines()[0]}", flush=True)
            if attempt == STARTS:
                raise


# Tables whose first column leaves the screen when they are scrolled to the right, of those that have the part.
LEAVING = """
const leaves = [];
for (const wide of document.querySelectorAll(".wide")) {
  if (wide.scrollWidth <= wide.clientWidth + 1 || !wide.querySelector(arguments[0])) continue;
  wide.scrollLeft = wide.scrollWidth;
  const cell = wide.querySelector("tbody tr > :first-child").getBoundingClientRect();
  const frame = wide.getBoundingClientRect();
  if (Math.abs(cell.left - frame.left) > 1 || cell.width > frame.width * 0.6)
    leaves.push([wide.getAttribute("aria-label"), cell.left, cell.width, frame.left, frame.width]);
  wide.scrollLeft = 0;
}
return leaves;
"""


# Verdicts that begin or end beside the screen.
UNSEEN = """
const box = (cell) => cell.getBoundingClientRect();
const verdicts = [...document.querySelectorAll('td[data-head="verdict"]')].filter((cell) => box(cell).width > 0);
return verdicts.filter((cell) => box(cell).left < 0 || box(cell).right > innerWidth + 1).map((cell) => cell.textContent);
"""


def narrow(driver, name, part="tbody tr"):
    """The page itself does not scroll sideways, the first column of a table with the part stays visible, and verdicts are on
    the screen."""
    across = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    imas_testing.check(f"{name}: fits the screen", across[0] <= across[1], across)
    # On a busy machine the new width, or the contents of a page that renews itself, come in steps.
    until(lambda: not driver.execute_script(LEAVING, part), 10)
    leaving = driver.execute_script(LEAVING, part)
    imas_testing.check(f"{name}: first columns stay", not leaving, leaving)
    unseen = driver.execute_script(UNSEEN)
    imas_testing.check(f"{name}: verdicts are seen", not unseen, unseen)


def words(description):
    """The words of a test of pages: the command, and the folder for photographs."""
    arguments = imas_testing.Arguments(description)
    arguments.add_argument("imas", type=os.path.abspath)
    arguments.add_argument("folder", type=pathlib.Path, nargs="?", default=pathlib.Path(__file__).resolve().parents[2] / "build/screenshots")
    given = arguments.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    return given.imas, given.folder
