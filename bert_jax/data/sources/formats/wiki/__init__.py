"""Wikipedia as text.

dump.py      MediaWiki XML dumps (pages-articles) -> the markup of each page
markup.py    wiki markup -> its prose
extractor.py the output of WikiExtractor -> the text of each article
"""
