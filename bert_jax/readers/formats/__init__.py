"""A reader for each format of files: to add a format, add a file with its reader and a row of FORMATS (table.py).

arrow.py              Arrow files, as Hugging Face `datasets` keeps data sets on disk
arrow_columns.py      columns of text in batches of Arrow -> documents, for arrow.py and parquet.py
delimited.py          CSV and TSV
epub.py               EPUB -> a document per book
fields.py             the text of a record: a field, fields in lists, or a template
html.py               HTML -> its text
json_records.py       JSON lines, and files that are a JSON list or objects
markdown.py           Markdown -> its text
parquet.py            Parquet, whose pages are measured before they are read
pdf.py                PDF -> the text of its pages
restructured_text.py  reStructuredText, also of Sphinx -> its text
table.py              FORMATS: file names, reader and extraction of text of each format
tfrecord.py           TFRecord files of examples, as TFDS writes them
wiki_dump.py          MediaWiki XML dumps (pages-articles) -> the wiki markup of each page, as a stream
wiki_extractor.py     the output of WikiExtractor
wiki_markup.py        wiki markup -> its prose
"""
