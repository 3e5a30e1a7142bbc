"""Models of other programs, in and out.

families/       FAMILIES, the names that `transformers` gives to fields, classes and tensors: add a file and its row
tensors.py      our parameters as named tensors, and back
huggingface/    model directories of `transformers`
google_tf.py    TensorFlow checkpoints of Google's BERT, in
stablehlo.py    a program for any JAX, out
onnx_file.py    a program for other runtimes, out
onnx_programs.py    PROGRAMS, of families whose own torch cannot export: add a function and its row
sentence_modules.py  pooling, length and prompt of a directory of sentence-transformers, in and out
directory.py    files of a model directory, and a new directory at an --output

Formats that `export` writes are rows of runs/export.py.
"""
