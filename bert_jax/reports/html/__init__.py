"""Parts of a page.

chart.py   curves over steps as SVG
markup.py  elements whose text is escaped, and the page around them
png.py     a gray picture inside of a page
style.py   the style sheet
"""
