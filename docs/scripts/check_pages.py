"""Look at a comparison's report in a real browser, at the widths of a desktop and of a phone.

    python docs/scripts/check_pages.py results/diabetes/report.html [--shots FOLDER]

Needs Chromium, its driver and the package selenium. Fails if the page is wider than the window, an
image did not load, the console has an error, or text is smaller than a person can read.
"""

import argparse
import base64
import shutil
import sys
from pathlib import Path
from typing import Any

WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}

# What does not fit the window, unless its parent scrolls; and what did not load.
LOOK = """
const wide = [...document.querySelectorAll('main *, header *')].filter(e =>
  e.getBoundingClientRect().right > arguments[0] + 1 && !e.closest('.wide'));
const images = [...document.images];
return {
  scroll: document.documentElement.scrollWidth,
  wide: wide.map(e => e.tagName + ' ' + e.textContent.slice(0, 40)),
  images: images.length,
  broken: images.filter(i => !i.complete || !i.naturalWidth).length,
  small: [...document.querySelectorAll('p, td, th, dd, figcaption')].filter(e =>
    parseFloat(getComputedStyle(e).fontSize) < 12).length,
  requests: performance.getEntriesByType('resource').filter(r =>
    !r.name.startsWith('data:')).length,
};
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--shots", type=Path, help="folder for screenshots")
    args = parser.parse_args()
    failures: list[str] = []
    for name, size in WIDTHS.items():
        failures += _look(args.page, name, size, args.shots)
    print("\n".join(failures) or "fits, loads, and asks for nothing at both widths")
    sys.exit(bool(failures))


def _look(page: Path, name: str, size: tuple[int, int], shots: Path | None) -> list[str]:
    from selenium import webdriver

    options: Any = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    width, height = size
    options.add_argument(f"--window-size={width},{height}")
    if name == "phone":  # a window has a least width that a phone's does not have
        metrics = {"width": width, "height": height, "pixelRatio": 2.0}
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # By its path: else selenium looks for one to download.
    found_driver = shutil.which("chromedriver")
    if found_driver is None:
        sys.exit("check_pages: no chromedriver on the PATH, wanted Chromium's; install it")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found_driver))
    try:
        driver.get(page.resolve().as_uri())
        found = driver.execute_script(LOOK, width)
        told = [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]
        if shots is not None:
            shots.mkdir(parents=True, exist_ok=True)
            (shots / f"{name}.png").write_bytes(_whole_page(driver))
    finally:
        driver.quit()
    problems = {
        f"is {found['scroll']} px wide in a window of {width}": found["scroll"] > width,
        f"has elements beyond the edge: {found['wide']}": found["wide"],
        f"has {found['broken']} of {found['images']} images that did not load": found["broken"],
        "has no images": not found["images"],
        f"has {found['small']} texts below 12 px": found["small"],
        f"asks for {found['requests']} other files": found["requests"],
        f"has errors: {told}": told,
    }
    return [f"{name}: the page {words}" for words, wrong in problems.items() if wrong]


def _whole_page(driver: Any) -> bytes:
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    return base64.b64decode(shot["data"])


if __name__ == "__main__":
    main()
