"""Models of other libraries, in and out.

families/            Families
huggingface/         Hugging Face model directories
directory.py         files of a model directory, and a new directory at an --output
google_tf.py         TensorFlow checkpoints of Google's BERT, in
onnx_file.py         a program for other runtimes, out
onnx_programs.py     PROGRAMS, of families whose own torch cannot export: add a function and its row
sentence_modules.py  pooling, length and prompt of a directory of sentence-transformers, in and out
stablehlo.py         a program for any JAX, out
tensors.py           our parameters as named tensors, and back
"""
