"""Parts of a page: style, markup, charts, images.

chart.py   one chart as SVG: axes, ticks, lines, legend
markup.py  elements whose text is always escaped, and the page around them
png.py     a gray picture as a data URI
style.py   the style sheet, light and dark
"""
