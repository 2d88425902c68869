# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, for the tests of pages."""

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

WIDE, NARROW = 1300, 500  # pixels across


def browser(dark):
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDE},1000"):
        options.add_argument(word)
    if dark:
        options.add_argument("--force-dark-mode")
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
