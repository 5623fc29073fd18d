"""What a comparison writes: results.json, the ArviZ trees, the figures and the HTML page."""

from __future__ import annotations

from dgp_ppl.comparison.report._figures import draw_figures, draw_held_out
from dgp_ppl.comparison.report._folder import (
    clear_folder,
    describe,
    finished_rows,
    prepare_folder,
    write_json,
    write_record,
    write_tree,
)
from dgp_ppl.comparison.report._page import write_report

__all__ = [
    "clear_folder",
    "describe",
    "draw_figures",
    "draw_held_out",
    "finished_rows",
    "prepare_folder",
    "write_json",
    "write_record",
    "write_report",
    "write_tree",
]
