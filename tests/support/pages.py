"""Code blocks of Markdown pages, and what makes them quick to run."""

import re

# Long runs on a page are short ones in a test: name=number, and SVI's positional number of steps.
_SMALL = {
    "steps": 3,
    "num_steps": 3,
    "num_warmup": 10,
    "num_samples": 10,
    "num_prior_samples": 4,
    "num_simulations": 4,
    "temperatures": 4,
    "num_chains": 2,
    "thinning": 2,
    "window": 2,
}
_NUMBER = re.compile(rf"\b({'|'.join(_SMALL)})=([\d_]+)")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """The fenced blocks of a language, in order."""
    return [text for kind, text in _FENCE.findall(page) if kind == language]


def smaller(code):
    """The same program with the fewest steps and draws that it can run with."""
    code = re.sub(r"(svi\.run\(\w+, )[\d_]+", r"\g<1>3", code)
    return _NUMBER.sub(lambda m: f"{m[1]}={min(_SMALL[m[1]], int(m[2]))}", code)
