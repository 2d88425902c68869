#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""lab/tests/pages.py IMAS-LAB [FOLDER]: tests the laboratory's HTML pages as tests/browser/report.py tests those of imas."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests/browser"))

from report import By, check, colours, hostile_runs, imas, legible, offline, opened, photo, shown_as_text, tested  # noqa: E402


def study(command, work, folder):
    """The pages of results: the selector on the runs of `lab/data`, and the mobile study."""
    out = work / "studies"
    imas(command, "study", "selector", "--data", ROOT / "lab/data/first.jsonl", "--out", out)
    imas(command, "study", "mobile", "--data", ROOT / "lab/data/mobile.jsonl", "--out", out)
    for dark in (False, True):
        driver = offline(dark)
        try:
            for name, charts in (("selector", 6), ("mobile", 6)):
                opened(driver, out / f"{name}.html")
                found = driver.find_elements(By.CSS_SELECTOR, "figure svg.chart")
                check(f"{name}: all charts", len(found) == charts, len(found))
                legible(driver, driver.find_element(By.TAG_NAME, "main"))
                colours(driver, name, dark)
                photo(driver, folder, name + ("-dark" if dark else ""))
        finally:
            driver.quit()


def hostile(command, work, _folder):
    """Names of programs are shown as text."""
    imas(command, "study", "selector", "--data", hostile_runs(work), "--out", work / "hostile")
    driver = offline(False)
    try:
        shown_as_text(driver, work / "hostile/selector.html")
    finally:
        driver.quit()


if __name__ == "__main__":
    tested("pages", __doc__, study, hostile)
