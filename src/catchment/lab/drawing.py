"""Pictures and pages of reports: vector graphics in the page's own colours and font, readable by day and by night."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

from catchment.pipeline.folders import writable_folder

__all__ = ["COLOURS", "FAINT", "INK", "PAPER", "STYLE", "figure_axes", "new_figure", "page_folder", "svg_of"]

COLOURS = {
    "#101010": "ink", "#707070": "faint", "#fefefe": "paper", "#c05010": "late", "#107080": "early",
    "#806010": "adaptive", "#703090": "selective", "#108040": "cover", "#a0a0a1": "bound",
}  # fmt: skip
"""What pictures are drawn in, which become variables of the page: so one picture fits both themes."""
INK, FAINT, PAPER = "#101010", "#707070", "#fefefe"


def page_folder(folder: Path) -> Path:
    """Made if need be, and found writable, before the work that a page will tell of begins."""
    return writable_folder(folder, "the page")


def new_figure(width: float, height: float) -> Any:
    """A transparent figure, in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    return figure


def figure_axes(figure: Any, *, title: str, across: str, up: str) -> Any:
    """The axes of a figure, with as little ink as possible."""
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=10)
    axes.set_xlabel(across, color=FAINT)
    axes.set_ylabel(up, color=FAINT)
    axes.tick_params(colors=FAINT, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)
    return axes


def svg_of(figure: Any, label: str) -> str:
    """A figure as SVG for a page that has STYLE; the same figure is always the same text."""
    import matplotlib as mpl

    text = io.StringIO()
    # Text stays text, in the page's own font; ids and dates would make every page differ.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    for colour, name in COLOURS.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    drawn = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1var(--font)", drawn)
    drawn = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", drawn, count=1)
    drawn = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", drawn, count=1)
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)


STYLE = """
:root { color-scheme: light dark; --font: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2326; --faint: #6b7478; --line: #e4e2dc; --late: #c9581c;
  --early: #12788a; --adaptive: #8a6a10; --selective: #7a3aa0; --cover: #1a8a4a; --bound: #9aa0a2; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181a; --card: #1c2225; --ink: #e8ebe9; --faint: #98a3a6;
  --line: #2d3639; --late: #f0935c; --early: #4fc0d0; --adaptive: #d8b45a; --selective: #c08ae0; --cover: #5fd08f;
  --bound: #7c8688; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 var(--font); }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 56px; }
h1 { font-size: 34px; line-height: 1.15; margin: 0 0 8px; letter-spacing: -.02em; }
h2 { font-size: 20px; margin: 40px 0 4px; }
p { margin: 0 0 14px; max-width: 72ch; } .faint, figcaption { color: var(--faint); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 26px 0 8px; }
.tile, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 14px 16px; } .tile b { display: block; font-size: 26px; letter-spacing: -.01em; }
.tile span { color: var(--faint); font-size: 13.5px; line-height: 1.35; display: block; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 14px; }
@media (max-width: 520px) { .pair { grid-template-columns: 1fr; } }
figure { margin: 12px 0 0; padding: 12px 14px; --paper: var(--card); }
figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: 14px; margin-top: 6px; } figcaption b { color: var(--ink); }
.late { color: var(--late); } .early { color: var(--early); }
table { border-collapse: collapse; font-size: 15px; margin-top: 10px; }
th { text-align: left; color: var(--faint); font-weight: 500; }
th, td { padding: 5px 28px 5px 0; border-bottom: 1px solid var(--line); }
td:nth-child(n+3), th:nth-child(n+3) { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 14px ui-monospace, "DejaVu Sans Mono", monospace; background: var(--card); border: 1px solid var(--line);
  border-radius: 5px; padding: 1px 6px; }
"""
