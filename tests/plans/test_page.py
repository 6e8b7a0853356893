"""The page of a run: what it answers, to whom, and how much. A browser looks at it in
tests/programs/page_browser.py (make test-page)."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request

import pytest

from deploy import demo
from deploy.page import FILE, NEWS_MAX, Page, check_address, is_here, new_lines
from deploy.plan import load
from replay_server import ConfigError
from replay_server.training.presets import CARTPOLE
from replay_server.training.runs import METRICS

RUNNING = [{"name": "actor-0", "kind": "actor", "alive": True}]


@pytest.fixture
def page(tmp_path):
    plan = load("single-learner-coarse")
    options = {"seed": 7, "minutes": 6.0, "processes": lambda: RUNNING}
    made = Page("127.0.0.1:0", tmp_path, plan, CARTPOLE, **options)
    yield made
    made.close()


def got(page, path):
    """(headers, body) of a page of it."""
    with urllib.request.urlopen(page.url + path, timeout=20) as answer:
        return answer.headers, answer.read()


def asked(page, method, path, host):
    """The status of a request under another Host, or of another kind."""
    line = http.client.HTTPConnection("127.0.0.1", page.http.server_port, timeout=20)
    line.request(method, path, headers={"Host": host})
    return line.getresponse().status


def test_the_page_is_one_file_that_fetches_nothing_from_elsewhere(page):
    """Given the page as it is served. Expect the file, under a policy that lets it talk to its own
    run alone; and no address of elsewhere in it."""
    headers, body = got(page, "")
    assert body == FILE.read_bytes()
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    addresses = set(re.findall(rb"https?://[^\"' )]+|src=|@import|href=", body))
    assert addresses == {b"http://www.w3.org/2000/svg"}  # a name, which nobody fetches


def test_what_the_plan_is_and_what_goes_where(page):
    """Given a plan. Expect its processes with their fragments, and every edge of the loop."""
    run = json.loads(got(page, "run")[1])
    assert [process["name"] for process in run["processes"]] == ["actor", "server", "learner"]
    assert {"source": "replay", "target": "learner", "name": "batch"}.items() <= next(
        edge for edge in run["edges"] if edge["name"] == "batch"
    ).items()
    assert (run["seed"], run["capacity"], run["policy"]) == (7, 100_000, "single-learner-coarse")


def test_news_are_whole_lines_once_each(page, tmp_path):
    """Given metrics that grow, a line cut short at their end, and one that a kill cut. Expect each
    whole line once, in order; what is said once; and from the beginning again behind an offset that
    no file has."""
    assert json.loads(got(page, "news?from=0")[1])["lines"] == []
    file = tmp_path / METRICS
    file.write_text('{"program": "a", "step": 1}\n{"program": "b"\n{"program": "c", "st')
    page.say("the server is back")
    first = json.loads(got(page, "news?from=0&said=0")[1])
    assert first["lines"] == [{"program": "a", "step": 1}] and not first["more"]
    assert [line["said"] for line in first["said"]] == ["the server is back"]
    assert first["processes"] == RUNNING
    with open(file, "a") as more:
        more.write('ep": 2}\n')
    again = json.loads(got(page, f"news?from={first['next']}&said={first['said_next']}")[1])
    assert again["lines"] == [{"program": "c", "step": 2}] and again["said"] == []
    for begin in (again["next"] + 1, "-5", "x", "9" * 40):
        whole = json.loads(got(page, f"news?from={begin}")[1])["lines"]
        assert [line["program"] for line in whole] == ["a", "c"]


def test_an_answer_is_bounded(tmp_path):
    """Given metrics far larger than an answer. Expect parts of at most that size, that follow each
    other to the end."""
    path = tmp_path / METRICS
    path.write_text("".join(f'{{"step": {i}, "fill": "{"x" * 90}"}}\n' for i in range(8000)))
    steps, begin, more, parts = [], 0, True, 0
    while more:
        lines, end, more = new_lines(path, begin)
        assert end - begin <= NEWS_MAX
        steps += [line["step"] for line in lines]
        begin, parts = end, parts + 1
    assert steps == list(range(8000)) and parts > 3


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/", "127.0.0.1", 200),
        ("GET", "/", "localhost:8080", 200),
        ("GET", "/", "[::1]:8080", 200),
        ("HEAD", "/", "127.0.0.1", 200),
        ("GET", "/", "replay.example.com", 403),
        ("GET", "/news", "192.0.2.1:80", 403),
        ("GET", "/", "", 403),
        ("POST", "/", "127.0.0.1", 405),
        ("GET", "/../../etc/passwd", "127.0.0.1", 404),
    ],
)
def test_who_is_answered(page, method, path, host, status):
    """Given requests by other names, of other kinds, for other files. Expect them refused: a page
    elsewhere that had its name point here would read the run through the browser."""
    assert asked(page, method, path, host) == status
    assert is_here(host) == (status != 403)


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "192.0.2.1:8080", "127.0.0.1", "127.0.0.1:x"])
def test_an_address_of_other_machines_is_refused_before_anything_starts(address, capsys):
    """Given an address that others reach, or none. Expect ConfigError, and the command to end with
    one sentence."""
    with pytest.raises(ConfigError, match=f"--page.*{address}"):
        check_address(address)
    with pytest.raises(SystemExit) as ended:
        demo.main(["--page", address, "--explain"], command="run")
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "--page" in told and address in told and told.count("\n") == 1


def test_a_port_that_is_taken_is_said(page, tmp_path, capsys):
    """Given the port of another page. Expect ConfigError with the address, and of the command a
    sentence before there is a folder."""
    address = f"127.0.0.1:{page.http.server_port}"
    plan = load("single-learner-coarse")
    with pytest.raises(ConfigError, match=f"--page {address}: Address already in use"):
        Page(address, tmp_path, plan, CARTPOLE, seed=1, minutes=1.0, processes=list)
    folder = tmp_path / "run"
    with pytest.raises(SystemExit):
        demo.main(["--page", address, "--run", str(folder)], command="run")
    told = capsys.readouterr().err
    assert f"--page {address}: Address already in use; say another port" in told
    assert not folder.exists()


def test_a_page_ends_with_its_run(page):
    """Given a page that was closed. Expect nobody to answer, and a second close to be fine."""
    page.close()
    with pytest.raises(urllib.error.URLError):
        got(page, "run")
