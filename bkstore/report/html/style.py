"""The page's style: light and dark by what the reader's system prefers, narrow screens, print."""

from __future__ import annotations

__all__ = ["STYLE"]

_DARK = """
  --page: #0e1217; --panel: #171d25; --line: #2b343f; --ink: #e7ebf0; --dim: #a3afbd;
  --link: #84b8ff; --track: #232c37; --grid: #33404d;
  --bad: #ff8078; --ack: #ff9f52; --write: #e8bd4a; --part: #8aa8e0; --unknown: #8793a1;
  --good: #4fc78a; --live: #5aa3f0; --garbage: #cf9440; --other: #6f7c8a; --on-chip: #10151b;
"""

STYLE = (
    """
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --panel: #ffffff; --line: #d5dbe2; --ink: #1a2129; --dim: #56616d;
  --link: #0b57b0; --track: #e6eaee; --grid: #d9dfe5;
  --bad: #b3201b; --ack: #b4500a; --write: #8a6100; --part: #41619b; --unknown: #66717d;
  --good: #17764a; --live: #2a6cb8; --garbage: #c48324; --other: #97a2ae; --on-chip: #ffffff;
}
@media (prefers-color-scheme: dark) { :root {"""
    + _DARK
    + """} }
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
header, main, footer { max-width: 1240px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 16px; }
h1 { font-size: 17px; margin: 0; }
h2 { font-size: 15px; margin: 0; }
h3 { font-size: 13px; margin: 0; color: var(--dim); font-weight: 600; }
p { margin: 0; }
a { color: var(--link); }
code { font: 13px/1.4 ui-monospace, "Liberation Mono", "DejaVu Sans Mono", monospace; }
.dim, .note, .source { color: var(--dim); font-size: 13px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 20px; top: 8px; background: var(--panel); padding: 6px 10px; }

.verdict {
  display: flex; gap: 14px; align-items: baseline; margin: 10px 0 14px; padding: 11px 16px;
  background: var(--panel); border: 1px solid var(--line); border-left: 6px solid var(--tone);
  border-radius: 6px;
}
.verdict strong { color: var(--tone); font-size: 19px; white-space: nowrap; }
.verdict p { font-size: 17px; line-height: 1.35; }
.verdict p + p { font-size: 14px; color: var(--dim); margin-top: 2px; }
.bad { --tone: var(--bad); } .warn { --tone: var(--ack); }
.unknown { --tone: var(--part); } .good { --tone: var(--good); }

.tiles { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; }
.tile {
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 12px 16px; min-width: 0; display: flex; flex-direction: column; gap: 8px;
}
.figures { display: grid; grid-template-columns: repeat(4, auto); gap: 4px 16px; margin: 0; }
.figures div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.figures dt { color: var(--dim); font-size: 13px; }
.figures dd { margin: 0; font-size: 23px; font-weight: 600; line-height: 1.25; }
.bar { display: block; width: 100%; height: 12px; border-radius: 3px; }
.track { fill: var(--track); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; margin: 0; padding: 0; }
.legend li { font-size: 13px; }
.key {
  display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px;
}
figcaption span { white-space: nowrap; margin-left: 14px; }
.lead { font-size: 15px; }
.alarm b { color: var(--bad); }

.risks {
  list-style: none; margin: 0; padding: 0; font-size: 13px;
  display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 10px;
}
.risks li {
  display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; row-gap: 0;
  align-items: baseline;
}
.risks .on {
  grid-column: 2; line-height: 1.35; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; min-width: 0;
}
.counts { list-style: none; margin: 0; padding: 0; color: var(--dim); font-size: 13px; }
.counts b { color: var(--ink); display: inline-block; min-width: 1.6em; }
.chip {
  display: inline-block; border-radius: 3px; padding: 0 6px; font-size: 12px; line-height: 18px;
  background: var(--fill, var(--unknown)); color: var(--on-chip); white-space: nowrap;
  justify-self: start;
}
.c-no_replica { --fill: var(--bad); } .c-below_ack_quorum { --fill: var(--ack); }
.c-below_write_quorum, .c-placement, .c-overdue { --fill: var(--write); }
.c-in_part, .c-holes { --fill: var(--part); } .c-sound { --fill: var(--good); }
.c-not_judged, .c-placement_soft, .c-bookie_unavailable { --fill: var(--unknown); }
.c-live { --fill: var(--live); } .c-garbage { --fill: var(--garbage); }
.c-other { --fill: var(--other); }
rect[class^="c-"] { fill: var(--fill); }
.key { background: var(--fill); }

.halves { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 24px; }
.halves > div { min-width: 0; }
.lines { list-style: none; margin: 2px 0 6px; padding: 0; display: grid; gap: 4px; }
.lines li { display: grid; grid-template-columns: 1fr auto; gap: 0 10px; font-size: 13px; }
.lines .name { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.lines .bar { grid-column: 1 / -1; height: 6px; }
.lines .rest { display: block; }

nav { margin: 16px 0 0; font-size: 13px; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 16px; list-style: none; margin: 0; padding: 0; }
main > h2 { font-size: 20px; margin: 34px 0 0; }
.part {
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 14px 16px; margin-top: 14px;
}
.part > h3 { font-size: 16px; color: var(--ink); margin-bottom: 4px; }
.part > p { max-width: 60em; font-size: 14px; }
.part > p.none { margin-top: 8px; font-weight: 600; }
figure { margin: 14px 0 4px; max-width: 640px; }
figcaption { font-size: 13px; color: var(--dim); margin-bottom: 4px; }
.chart { display: block; width: 100%; height: auto; font-family: inherit; }
.filter { display: block; margin: 12px 0 0; font-size: 13px; color: var(--dim); }
.filter input {
  font: inherit; color: var(--ink); background: var(--page); border: 1px solid var(--unknown);
  border-radius: 4px; padding: 3px 8px; width: 16em; max-width: 60%;
}
.scroll { overflow: auto; max-height: 34rem; margin-top: 10px; overflow-wrap: normal; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
caption { text-align: left; color: var(--dim); padding-bottom: 6px; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 58px); }
th, td {
  text-align: left; padding: 4px 10px; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap;
}
td.long { white-space: normal; min-width: 40em; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; }
thead th { position: sticky; top: 0; background: var(--panel); color: var(--dim); }
th button {
  all: unset; cursor: pointer; font-weight: 600; display: inline-block; white-space: nowrap;
}
th button::after { content: " \\2195"; opacity: .45; }
th[aria-sort] button { color: var(--ink); }
th[aria-sort="ascending"] button::after { content: " \\2191"; opacity: 1; }
th[aria-sort="descending"] button::after { content: " \\2193"; opacity: 1; }
th button:hover { color: var(--link); }
:focus-visible, th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
footer { padding-top: 24px; padding-bottom: 32px; color: var(--dim); font-size: 13px; }

@media (max-width: 860px) {
  .tiles, .halves { grid-template-columns: minmax(0, 1fr); }
  .verdict { flex-direction: column; gap: 2px; }
}
@media (max-width: 520px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  .figures { grid-template-columns: 1fr 1fr; }
  .risks { grid-template-columns: minmax(0, 1fr); }
  .risks .on { grid-column: 1; white-space: normal; }
  .chart { overflow: visible; }
  .chart text { font-size: 12.5px !important; }
}
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
@media print {
  :root { --page: #ffffff; }
  body { font-size: 11px; }
  nav, .filter, .skip, th button::after { display: none; }
  .scroll { max-height: none; overflow: visible; }
  .tile, .part, tr, figure { break-inside: avoid; }
  .bar, .chip, .key { print-color-adjust: exact; }
  td, th { white-space: normal; overflow-wrap: anywhere; }
}
"""
)
"""All of it; colours are variables, so charts and bars follow."""
