"""One reader for each format of text files: add a file with the reader and its row in FORMATS (table.py).

arrow.py              Arrow files, as Hugging Face `datasets` keeps data sets on disk -> documents, one per row;
delimited_records.py  CSV and TSV
epub.py               EPUB -> a document per book
fields.py             the text of a record: a field, fields in lists, or a template
html.py               HTML -> its text
json_records.py       JSON lines, and files that are one JSON list or object
markdown.py           markdown -> its text
parquet.py            The pages of a Parquet column
pdf.py                PDF -> the text of its pages
restructured_text.py  reStructuredText, also of Sphinx -> its text
streams.py             byte streams -> UTF-8 and lines
table.py              FORMATS, a row for each format: to add a format, add a file here and its row there
tfrecord.py           TFRecord files of examples, as TFDS writes them
wiki_dump.py          MediaWiki XML dumps (pages-articles) -> the wiki markup of each page, as a stream
wiki_extractor.py     The output of WikiExtractor -> documents
wiki_markup.py        Wiki markup -> its prose
"""
