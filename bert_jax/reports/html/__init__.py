"""One run or several as one HTML file: reports/report.py puts the parts together.

markup.py    elements whose text is always escaped, and the page around them
style.py     the style sheet, light and dark
chart.py     one chart as SVG: axes, ticks, lines, legend
curves.py    the charts of one training, or of several on top of each other
record.py    what a work directory holds, read without trusting it
summary.py   the run in three sentences, and what looks wrong: add a row to SIGNS
sections.py  corpus, settings, cost, how to train it again, as tables
guesses.py   held-out sequences as the model reads them, with its guesses

The page has no script and asks for nothing outside of itself; its content security policy forbids both. Every text
that comes from a corpus, a config or a metrics file passes through `markup.element`, which escapes it.
"""
