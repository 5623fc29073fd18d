"""Code blocks of Markdown pages, and shorter runs of them."""

import re

# The largest value of each argument in a test. SVI's number of steps is positional.
_MOST = {
    "steps": 3,
    "num_steps": 3,
    "num_warmup": 10,
    "num_samples": 13,  # of two chains: LOO needs 25
    "num_prior_samples": 4,
    "num_simulations": 4,
    "temperatures": 4,
    "num_chains": 2,
    "thinning": 2,
    "window": 2,
}
_NUMBER = re.compile(rf"\b({'|'.join(_MOST)})(=|\": )([\d_]+)")  # arguments, and keys of dicts
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """Return the text of all fenced blocks in a language, in order."""
    return [text for kind, text in _FENCE.findall(page) if kind == language]


def smaller(code):
    """Return the program with few steps and draws."""
    code = re.sub(r"(svi\.run\(\w+, )[\d_]+", r"\g<1>3", code)
    code = _NUMBER.sub(lambda m: f"{m[1]}{m[2]}{min(_MOST[m[1]], int(m[3]))}", code)
    # LOO needs more draws than that, and few of the default: short fits need many passes for each.
    few = "__import__('functools').partial(dgp.to_inferencedata, num_samples=50)("
    return code.replace("dgp.to_inferencedata(", few)
