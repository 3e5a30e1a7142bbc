"""Search in collections of texts, for the scores of retrieval and for the mining of negatives.

bm25.py             scores of documents by shared words
mteb_encoder.py     a model as an encoder of the package mteb
smaller_vectors.py  vectors with fewer numbers or fewer bits, and the search in them; add a row to STORED_FORMS
text_vectors.py     vectors of queries and documents, with their prompts; add a row to SIMILARITIES for a score
top_documents.py    the best documents of each query, by an exact search in blocks
"""
