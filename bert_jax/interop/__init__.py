"""Models of other libraries, in and out.

families/            the names that Hugging Face gives to our fields and tensors: add a family as a row of FAMILIES
huggingface/         Hugging Face model directories, in and out
tensors.py           our parameters as named tensors, and back
sentence_modules.py  pooling, length and prompt of sentence-transformers, in and out
google_tf.py         TensorFlow checkpoints of Google's BERT, in
stablehlo.py         a program for any JAX, out
onnx_file.py         a program for other runtimes, out
onnx_programs.py     PROGRAMS that replace encoders which torch cannot export: add a function and its row
"""
