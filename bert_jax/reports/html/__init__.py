"""Parts of a page.

chart.py         curves over steps, tokens or time as SVG
markup.py        elements whose text is escaped, and the page around them
png.py           a gray picture inside of a page
point_values.py  the values of a chart under the pointer
style.py         the style sheet
"""
