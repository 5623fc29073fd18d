"""The smallest settings of a comparison."""

TINY = {"steps": 4, "inducing": 4, "samples": 4, "progress": False}
