"""HTML that we write ourselves: no script, nothing loaded, every text escaped.

markup.py  elements whose text is always escaped, and the page around them
style.py   the style sheet, light and dark
chart.py   one chart as SVG: axes, ticks, lines, legend
png.py     a gray picture as a data URI

A page asks for nothing outside of itself; its content security policy forbids that and scripts. Every text that comes
from a corpus, a config or a metrics file passes through `markup.element`, which escapes it.
"""
