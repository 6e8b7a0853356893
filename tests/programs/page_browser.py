"""The page of a run in a real browser: what it shows, and that nothing on it is an error.

`python tests/programs/page_browser.py` (make test-page) runs each plan for a while with --page, and
looks at it in headless Chromium: on a desk and on a phone, light and dark. The text has to name
every process and show rates; the console has to be empty. Pictures of each go to the folder --out,
for a person to look at.
"""

from __future__ import annotations

import argparse
import html
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy.plan import load, shipped
from deploy.processes import Process

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
CHROMIUM += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
CHROMIUM += ["--disable-sync", "--hide-scrollbars", "--enable-logging=stderr"]
CHROMIUM += ["--virtual-time-budget=5000"]
LOOKS = {
    "desk-light": ["--window-size=1200,1300"],
    "desk-dark": ["--window-size=1200,1300", "--blink-settings=preferredColorScheme=0"],
    "phone-light": ["--window-size=500,2000"],
    "phone-dark": ["--window-size=500,2000", "--blink-settings=preferredColorScheme=0"],
}
BOUND_S, PLAYED_S = 60.0, 15.0


def chromium(folder: Path, words: list[str], url: str) -> tuple[str, list[str]]:
    """(what it printed, errors on the page's console)."""
    command = [*CHROMIUM, f"--user-data-dir={folder}", *words, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def wrong_with(text: str, plan: str) -> list[str]:
    """What a person would miss in the page's text."""
    missing = [p.name for p in load(plan).processes if f"× {p.name}" not in text]
    wrong = [f"no box of {name}" for name in missing]
    if "running for" not in text:
        wrong.append("no state")
    if load(plan).policy != "gpu-only" and not re.search(r"rows [1-9][\d.]* ?k? steps/s", text):
        wrong.append("no rate of rows")
    if not re.search(r"(actor-0|in-turn): ", text):
        wrong.append("no curve of returns")
    return wrong


def look_at(plan: str, out: Path, folder: Path) -> list[str]:
    """Runs the plan, and what is wrong with its page."""
    command = [sys.executable, "-u", "-m", "replay_server", "run", "--plan", plan]
    command += ["--page", "127.0.0.1:0", "--run", str(folder / "run"), "--solve-at", "1e9"]
    run = Process("run", command, folder / "run.log")
    try:
        until = time.monotonic() + BOUND_S
        while not (urls := [line for line in run.lines() if line.startswith("page: ")]):
            if time.monotonic() > until or run.ended() is not None:
                return [f"no page:\n{run.last_lines()}"]
            time.sleep(0.1)
        url = urls[0].split()[1]
        time.sleep(PLAYED_S)  # so that there is something to look at
        text, errors = chromium(folder / "browser", ["--dump-dom", *LOOKS["desk-light"]], url)
        wrong = wrong_with(
            html.unescape(re.sub(r"<(style|script).*?</\1>", "", text, flags=re.S)), plan
        )
        for name, words in LOOKS.items():
            picture = out / f"{plan}-{name}.png"
            _, more = chromium(folder / "browser", [f"--screenshot={picture}", *words], url)
            errors += more
        return wrong + errors
    finally:
        run.end(20.0)


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/page"), help="Folder of pictures.")
    parser.add_argument("--plans", nargs="+", choices=shipped(), default=shipped())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for plan in args.plans:
        with tempfile.TemporaryDirectory() as folder:
            wrong = look_at(plan, args.out.resolve(), Path(folder))
        failed += bool(wrong)
        print(f"{plan}: " + ("; ".join(wrong) if wrong else "as it should be"), flush=True)
    print(f"pictures: {args.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
