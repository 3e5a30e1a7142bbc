"""Families whose attention knows the distances between tokens.

modernbert.py   ModernBERT: rotary positions
nomic_bert.py   NomicBERT: rotary positions in BERT's block
mpnet.py        MPNet: a bias by distance, beside embeddings of positions
deberta.py      DeBERTa, version 3: embeddings of distances
"""
