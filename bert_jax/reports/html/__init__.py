"""The parts of an HTML page: elements, charts, pictures and styles.

chart.py         curves over steps, tokens or time as SVG
markup.py        HTML elements whose text is escaped, and the page around the elements
png.py           a gray picture inside of a page
point_values.py  the values of a chart that appear under the mouse pointer
style.py         the style sheet of the page
"""
