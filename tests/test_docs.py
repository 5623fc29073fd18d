"""The code blocks of README and documentation run, and so do the examples in docstrings."""

import doctest
import importlib
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import blocks, smaller

import dgp_ppl

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
ARVIZ = str(ROOT / "tests" / "support" / "python311")  # a module `arviz` of its parts
# tests/test_tutorial.py tests the tutorial. The build writes docs/api and docs/gallery.
BUILT = {"_build", "api", "gallery"}
PAGES = sorted(p for p in DOCS.rglob("*.md") if not BUILT & {*p.parts} and p.stem != "tutorial")
WITH_CODE = [p for p in (README, *PAGES) if blocks(p.read_text(), "python")]

# Short fits and chains warn, as they should.
of_short_runs = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


def short(path):
    return str(path.relative_to(ROOT))


def program(path, most=None):
    """Return a page's Python blocks as one program with the line numbers of the page.

    `most` is the number of blocks to include; None includes all.
    """
    lines, kind, found = [], None, 0
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            kind = None if kind is not None else line.removeprefix("```") or "text"
            found += kind == "python"
            lines.append("")
        else:
            wanted = kind == "python" and (most is None or found <= most)
            lines.append(line if wanted else "")
    return smaller("\n".join(lines))


def run_page(path, most=None):
    """Run a page's Python blocks, or the first `most`, and return the names that they define."""
    names = {"__name__": "page"}
    if sys.version_info < (3, 12) and ARVIZ not in sys.path:
        sys.path.append(ARVIZ)  # pages say `import arviz`
    exec(compile(program(path, most), str(path), "exec"), names)
    return names


def test_blocks_of_pages_compile():
    for path in WITH_CODE:
        compile(program(path), str(path), "exec")


def test_the_readmes_first_program_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(README, most=1)


@pytest.mark.slow
@of_short_runs
@pytest.mark.parametrize("path", WITH_CODE, ids=short)
def test_blocks_of_a_page_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(path)


@pytest.mark.slow
def test_the_program_of_two_processes_runs(tmp_path):
    """Both print the same bound."""
    (code,) = blocks((DOCS / "scale.md").read_text(), "py")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        code = code.replace("29400", str(server.getsockname()[1]))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", smaller(code), number], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in ("0", "1")
    ]  # fmt: skip
    found = [p.communicate() for p in processes]
    assert [p.returncode for p in processes] == [0, 0], found
    assert len({out.splitlines()[-1] for out, _ in found}) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::RuntimeWarning")
def test_the_program_of_botorch_finds_the_optimum():
    pytest.importorskip("botorch", reason="needs the extra `botorch`")
    pytest.importorskip("torch").manual_seed(0)
    (code,), names = blocks((DOCS / "sequential_design.md").read_text(), "py"), {}
    exec(code, names)
    assert abs(names["candidates"] - 0.3).amax(dim=1).min() < 0.01


@pytest.mark.slow
@of_short_runs
def test_the_program_of_skpro_keeps_the_index():
    pytest.importorskip("skpro", reason="needs the extra `skpro`")
    (code,), names = blocks((DOCS / "scikit_learn.md").read_text(), "py"), {}
    exec(smaller(code), names)
    assert names["found"].mean().index.equals(names["X"].index[300:])


@pytest.mark.slow
@of_short_runs
def test_every_line_of_the_readmes_table_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(README)
    lines = re.findall(r"\| `((?:guide|kernel) = .*)` \|$", README.read_text(), re.MULTILINE)
    assert len(lines) == 10
    for line in lines:
        exec(line, names)
        if line.startswith("guide"):
            code = "dgp.fit(key, model, guide, x, y, z=z, batch_size=100, steps=2, progress=False)"
        else:
            names |= {"x": names["x"][:20], "y": names["y"][:20]}
            code = "dgp.run_mcmc(key, kernel, x, y, z=z, num_warmup=20, num_samples=2)"
        exec(code, names)


def test_the_readme_is_short():
    assert len(README.read_text().split()) <= 900


def test_blocks_are_fenced_and_links_lead_somewhere():
    wrong = []
    for path in (README, *PAGES, ROOT / "CONTRIBUTING.md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        if re.search(r"\n\n(?!\s*[-*\d])    \S", text):
            wrong.append(f"{path.name} has a block without a fence")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            found = (path.parent / target).resolve()
            if "://" not in target and not (found.exists() or BUILT & {*found.parts}):
                wrong.append(f"{path.name} links to {target}")
    assert not wrong


def commands():
    for path in (README, *PAGES, ROOT / "CONTRIBUTING.md"):
        for block in blocks(path.read_text(), "sh"):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                while words and "=" in words[0]:
                    words.pop(0)
                if words:
                    yield f"{path.name}: {' '.join(words)}", words


def test_commands_exist():
    """Check targets of make, options of dgp-ppl, and paths of programs."""
    from typer.main import get_command

    from dgp_ppl.cli.__main__ import load

    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for where, words in commands():
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), where
        elif words[0] == "dgp-ppl":
            command = get_command(load()).commands[words[1]]
            try:
                command.make_context(words[1], words[2:], resilient_parsing=False)
            except Exception as error:
                pytest.fail(f"{where}: {error}")
        elif words[0].startswith("python"):
            assert words[1] == "-m" or (ROOT / words[1]).exists(), where
        else:
            assert words[0] in {"git", "pip", "curl", "pre-commit"}, where


def parts_with_examples():
    """Yield the modules whose docstrings have examples; those that fit something are slow."""
    for path in sorted(Path(dgp_ppl.__file__).parent.rglob("*.py")):
        if ">>>" in (text := path.read_text()):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            fits = re.search(r">>> .*\b(fit|fit_many|fit_mcem|compare|run_mcmc)\(", text)
            yield pytest.param(name, marks=[pytest.mark.slow] if fits else [], id=name)


@pytest.mark.parametrize("name", list(parts_with_examples()))
def test_docstrings_examples(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert not found.failed


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx", reason="needs the extra `docs`")
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", DOCS, tmp_path]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for page in ("index", "getting_started", "choose_a_posterior", "api/guides", "gallery/index"):
        assert (tmp_path / f"{page}.html").stat().st_size > 5000


def test_the_tables_agree_with_the_records():
    """docs/tables.md, the notebook and its appendix are what `render.py` makes of the records."""
    code = (
        "import render; print([str(p) for p, t in render.rendered().items() if p.read_text() != t])"
    )
    tables = ROOT / "benchmarks" / "tables"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tables, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]", "run python benchmarks/tables/render.py"
    assert len((DOCS / "tables.md").read_text().split()) <= 800


def test_a_cell_that_no_paper_has_is_told_what_there_is():
    words = [sys.executable, "benchmarks/tables/run.py", "--paper", "ddvi", "--data", "iris"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert line.startswith("run.py: there is no data 'iris', wanted one of mnist, fashion_mnist")
