"""Readers of file formats. To add a format, add a file with a reader and a row of FORMATS (table.py).

arrow.py              Arrow files, as Hugging Face `datasets` keeps data sets on disk
arrow_columns.py      documents from columns of text in batches of Arrow, for arrow.py and parquet.py
delimited.py          CSV and TSV
epub.py               EPUB, one document per book
fields.py             the text of a record: a field, fields in lists, or a template
html.py               the text of HTML
json_records.py       JSON lines, JSON lists, and JSON objects over several lines
markdown.py           the text of Markdown
parquet.py            Parquet; the reader checks the sizes of pages first
pdf.py                the text of the pages of a PDF
restructured_text.py  the text of reStructuredText, also of Sphinx
table.py              FORMATS: file names, reader and extraction of text for each format
tfrecord.py           TFRecord files of examples, as TFDS writes them
wiki_dump.py          the wiki markup of each page of a MediaWiki XML dump (pages-articles), as a stream
wiki_extractor.py     the output of WikiExtractor
wiki_markup.py        the prose of wiki markup
"""
