"""Fused attention on GPUs.

cudnn.py    cuDNN's kernel: without dropout
triton.py   the kernel in Pallas for Triton: with dropout, segments and windows
"""
