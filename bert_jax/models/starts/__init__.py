"""What heads of the first block read from the start, in place of what random parameters make them read.

neighbors.py   the tokens beside their own
matches.py     their own token in the other text of a pair
"""
