"""Families whose attention knows the distances between tokens.

modernbert.py   ModernBERT: rotary positions
mpnet.py        MPNet: a bias by distance, beside embeddings of positions
deberta.py      DeBERTa, version 3: embeddings of distances
"""
