"""Search in collections of texts, for the scores of retrieval and for the mining of negatives.

bm25.py             scores of documents by the words that they share with a query
mteb_encoder.py     a model as an encoder of the package mteb
smaller_vectors.py  search in vectors with fewer numbers or bits; add a row to STORED_FORMS for a form
text_vectors.py     vectors of queries and documents, with prompts; add a row to SIMILARITIES for a similarity
top_documents.py    the best documents of each query, by an exact search in blocks
"""
