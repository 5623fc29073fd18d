# Two commands do all the set-up: `make compare` and `make test`. They need Python >= 3.11 only.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRA ?= dev

.PHONY: compare test test-slow test-all lint docs tutorial picture clean

compare: $(VENV)/.installed
	$(BIN)/dgp-ppl compare robot_arm --methods sgpr,dsvi,dspp --steps 1000 --batch 500 --splits 2 \
		--out results/robot_arm --overwrite

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# The default and the slow suite in one run.
test-all: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'slow or not slow'

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The site: open docs/_build/index.html.
docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

tutorial: $(VENV)/.installed
	$(BIN)/python docs/scripts/render_tutorial.py

picture: $(VENV)/.installed
	$(BIN)/python docs/scripts/step_picture.py
	$(BIN)/python docs/scripts/flow_picture.py
	$(BIN)/python docs/scripts/gallery_pictures.py

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRA)]'
	touch $@

clean:
	rm -rf $(VENV) results docs/_build docs/api docs/gallery
