"""What kinds share.

records.py  checks of the values of a record
texts.py    texts and pairs of texts as features; class predictions
"""
