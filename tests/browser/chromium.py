# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, for the tests of pages."""

import time

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from urllib3.exceptions import HTTPError

WIDE, NARROW = 1300, 500  # pixels across
STARTS = 5  # a driver that a busy machine did not start in its own time is started again


def until(holds, limit=90):
    """Whether it holds before the time is up. A part that the page replaces meanwhile is looked up again."""
    end = time.monotonic() + limit
    while True:
        try:
            if holds():
                return True
        except StaleElementReferenceException:
            pass
        if time.monotonic() > end:
            return False
        time.sleep(0.2)


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
