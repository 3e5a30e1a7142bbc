"""Families whose tokens have embeddings of their positions.

bert.py         BERT
roberta.py      RoBERTa, XLM-RoBERTa, CamemBERT
longformer.py   Longformer
big_bird.py     BigBird
albert.py       ALBERT
distilbert.py   DistilBERT
electra.py      ELECTRA
mobilebert.py   MobileBERT
"""
