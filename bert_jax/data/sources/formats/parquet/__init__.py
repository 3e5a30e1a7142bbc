"""Parquet files.

records.py   rows -> documents
pages.py     what the pages of a file unpack to, read before they are
"""
