# Two commands do all the set-up: `make compare` and `make test`. They need Python >= 3.11 only.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRA ?= dev

SHARD ?=
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: compare test test-slow test-ecosystem test-all coverage lint lock docs tutorial picture clean

compare: $(VENV)/.installed
	$(BIN)/dgp-ppl compare robot_arm --methods sgpr,dsvi,dspp --steps 1000 --batch 500 --splits 2 \
		--out results/robot_arm --overwrite

test: $(VENV)/.installed
	$(PYTEST)

# The tests that train or sample for long: all of them, or with SHARD=1 to 4 a quarter.
test-slow: $(VENV)/.installed
	$(PYTEST) -m slow $(if $(SHARD),--splits 4 --splitting-algorithm least_duration --group $(SHARD))

# What other projects check, for releases: scikit-learn's estimator checks, zarr, Dask, polars.
test-ecosystem: $(VENV)/.installed
	$(PYTEST) -m ecosystem

test-all: $(VENV)/.installed
	$(PYTEST) -m ''

coverage: $(VENV)/.installed
	$(PYTEST) -m 'not ecosystem' --cov=dgp_ppl --cov-report=term:skip-covered --cov-fail-under=95

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The versions of the development environment; `pip install -r requirements-dev.txt` installs them.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-emit-index-url \
		--no-header --no-annotate pyproject.toml --output-file requirements-dev.txt

# The site: open docs/_build/index.html.
docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going docs docs/_build

tutorial: $(VENV)/.installed
	$(BIN)/python docs/scripts/render_tutorial.py

picture: $(VENV)/.installed
	$(BIN)/python docs/scripts/concepts_picture.py
	$(BIN)/python docs/scripts/step_picture.py
	$(BIN)/python docs/scripts/flow_picture.py
	$(BIN)/python docs/scripts/gallery_pictures.py

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRA)]'
	touch $@

clean:
	rm -rf $(VENV) results docs/_build docs/api docs/gallery
